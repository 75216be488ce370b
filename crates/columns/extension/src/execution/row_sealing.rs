//! Seals the values of a row that goes to the client in one call of the zone, before PostgreSQL
//! calls the output function of each value.
//!
//! For one run of the executor, a receiver of this library replaces the client's and passes every
//! row on unchanged. Invariants: the envelopes that are kept belong to the row that is being sent,
//! and are dropped after it; a row whose envelopes do not fit into one answer is left to the output
//! functions. Must not: change a row, hold one back, or remain installed after the run, however it
//! ends.

use std::cell::RefCell;
use std::ffi::c_int;

use pg_sys::{CommandDest, DestReceiver, QueryDesc, TupleDesc, TupleTableSlot};
use pgrx::pg_sys;
use strongroom_format::columns::{EnvelopeHeader, Kind};

use crate::call::{call_postgres, guarded};
use crate::catalog::{tuples, types};
use crate::execution::slot::Row;
use crate::ring::zone;

thread_local! {
    /// Envelopes of the row that is being sent, by identifier.
    static ENVELOPES: RefCell<Vec<(u64, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
}

/// A receiver that seals rows and passes them on to the client's receiver.
#[repr(C)]
struct SealingReceiver {
    /// First, because PostgreSQL knows only this part (tcop/dest.h).
    own: DestReceiver,
    client: *mut DestReceiver,
    /// Confidential columns, from 1.
    columns: Vec<i16>,
}

/// An installed receiver; dropping it restores the client's.
pub(crate) struct InstalledReceiver {
    query: *mut QueryDesc,
    receiver: *mut SealingReceiver,
}

impl Drop for InstalledReceiver {
    /// Puts the client's receiver back, frees the one that replaced it, and forgets the envelopes
    /// that are kept of the last row.
    fn drop(&mut self) {
        // SAFETY: made from a box in `install`, and used here for the last time.
        let receiver = unsafe { Box::from_raw(self.receiver) };
        // SAFETY: the query outlives its run, also one that fails.
        unsafe { (*self.query).dest = receiver.client };
        ENVELOPES.with(|envelopes| envelopes.borrow_mut().clear());
    }
}

/// Replaces the receiver of a query that sends at least two confidential columns to a client, until
/// the result is dropped. The new one seals a row's values in one call of the zone, and passes the
/// row on. `None`, and nothing is replaced, for any other query. `query` must have been started by
/// the executor, and outlive the result.
pub(crate) fn install(query: *mut QueryDesc) -> Option<InstalledReceiver> {
    // SAFETY: a query that the executor has started, so it has the type of its rows; it may have no
    // receiver.
    let (client, columns) = unsafe {
        let client = (*query).dest;
        if client.is_null() || !is_client((*client).mydest) {
            return None;
        }
        let columns = tuples::columns((*query).tupDesc)
            .filter(|(_, type_oid)| types::kind_of(*type_oid).is_some())
            .map(|(number, _)| number);
        (client, columns.collect::<Vec<_>>())
    };
    if columns.len() < 2 {
        return None;
    }
    // SAFETY: the receiver lives as long as the query.
    let mydest = unsafe { (*client).mydest };
    let own = DestReceiver {
        receiveSlot: Some(receive),
        rStartup: Some(startup),
        rShutdown: Some(shutdown),
        rDestroy: Some(destroy),
        mydest,
    };
    let receiver = Box::into_raw(Box::new(SealingReceiver {
        own,
        client,
        columns,
    }));
    // SAFETY: `InstalledReceiver` restores the query's own receiver before this one is dropped.
    unsafe { (*query).dest = receiver.cast() };
    Some(InstalledReceiver { query, receiver })
}

/// Whether rows of this destination go to the client, so that their values have to be sealed.
const fn is_client(dest: CommandDest::Type) -> bool {
    matches!(
        dest,
        CommandDest::DestRemote | CommandDest::DestRemoteExecute | CommandDest::DestCopyOut
    )
}

/// The envelope of a value of the row that is being sent. `None` if it was not sealed with the row,
/// or is of another kind.
pub(crate) fn sealed_envelope(kind: Kind, fid: u64) -> Option<Vec<u8>> {
    ENVELOPES.with(|envelopes| {
        let envelopes = envelopes.borrow();
        let (_, envelope) = envelopes.iter().find(|(known, _)| *known == fid)?;
        let header = EnvelopeHeader::parse(envelope)?;
        (header.kind == kind).then(|| envelope.clone())
    })
}

/// Receives a row: has the zone seal its different confidential values in one call, if there is
/// more than one, keeps the envelopes, and passes the row on to the client's receiver. Returns what
/// that returns. Raises the zone's faults as an ERROR.
extern "C-unwind" fn receive(slot: *mut TupleTableSlot, own: *mut DestReceiver) -> bool {
    guarded(|| {
        // SAFETY: PostgreSQL passes the receiver that it was given.
        let receiver = unsafe { &*own.cast::<SealingReceiver>() };
        // SAFETY: a row of the query.
        let row = unsafe { Row::of(slot) };
        let columns = receiver.columns.iter();
        let mut fids: Vec<u64> = columns
            .filter_map(|number| row.identifier(*number))
            .collect();
        fids.sort_unstable();
        fids.dedup();
        if fids.len() > 1 {
            let sealed = zone::with(|connection| connection.seal_many(&fids));
            ENVELOPES
                .with(|envelopes| *envelopes.borrow_mut() = fids.into_iter().zip(sealed).collect());
        }
        let client = receiver.client;
        // SAFETY: the client's receiver.
        let more = unsafe {
            let receive = (*client).receiveSlot;
            call_postgres(|| receive.is_some_and(|receive| receive(slot, client)))
        };
        ENVELOPES.with(|envelopes| envelopes.borrow_mut().clear());
        more
    })
}

/// Passes the call on to the client's receiver.
extern "C-unwind" fn startup(own: *mut DestReceiver, operation: c_int, columns: TupleDesc) {
    // SAFETY: PostgreSQL passes the receiver that it was given; this one passes on to `client`.
    guarded(|| unsafe {
        let client = (*own.cast::<SealingReceiver>()).client;
        if let Some(startup) = (*client).rStartup {
            call_postgres(|| startup(client, operation, columns));
        }
    });
}

/// Passes the call on to the client's receiver.
extern "C-unwind" fn shutdown(own: *mut DestReceiver) {
    // SAFETY: as in `startup`.
    guarded(|| unsafe {
        let client = (*own.cast::<SealingReceiver>()).client;
        if let Some(shutdown) = (*client).rShutdown {
            call_postgres(|| shutdown(client));
        }
    });
}

/// Passes the call on to the client's receiver, which is destroyed; this one is not.
extern "C-unwind" fn destroy(own: *mut DestReceiver) {
    // SAFETY: as in `startup`. The client's receiver is normally destroyed by its own pointer, but
    // a caller may have this one.
    guarded(|| unsafe {
        let client = (*own.cast::<SealingReceiver>()).client;
        if let Some(destroy) = (*client).rDestroy {
            call_postgres(|| destroy(client));
        }
    });
}
