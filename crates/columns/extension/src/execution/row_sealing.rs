//! Seals the values of a row that goes to the client in one call of the zone, before PostgreSQL
//! calls the output function of each value; and tells which values go to the client at all.
//!
//! For one run of the executor, a receiver of this library replaces the client's and passes every
//! row on unchanged. Invariants: the envelopes that are kept belong to the row that is being sent,
//! and are dropped after it; a row whose envelopes do not fit into one answer is left to the output
//! functions; values are sealed in the order in which they are sent, as the client expects of
//! results (docs/spec/columns.md, "Envelopes"). Must not: change a row, hold one back, or remain
//! installed after the run, however it ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_int;

use pg_sys::{CommandDest, DestReceiver, QueryDesc, TupleDesc, TupleTableSlot};
use pgrx::pg_sys;
use strongroom_format::columns::{EnvelopeHeader, Kind};

use crate::call::{call_postgres, guarded};
use crate::catalog::{tuples, types};
use crate::execution::activity;
use crate::execution::slot::Row;
use crate::ring::zone;

thread_local! {
    /// Envelopes of the row that is being sent, with their identifiers, in the order in which they
    /// are sent.
    static ENVELOPES: RefCell<VecDeque<(u64, Vec<u8>)>> = const { RefCell::new(VecDeque::new()) };
    /// Whether a row is being sent to the client.
    static SENDING: Cell<bool> = const { Cell::new(false) };
    /// Where the COPY that runs sends its rows; `None` without one.
    static COPYING: Cell<Option<CopyTarget>> = const { Cell::new(None) };
}

/// Where a COPY sends its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyTarget {
    Client,
    /// A file or a program of the server.
    Server,
}

/// A COPY to somewhere runs, until this is dropped.
pub(crate) struct Copying {
    before: Option<CopyTarget>,
}

impl Copying {
    /// Notes that a COPY runs that sends its rows to the client, or to a file or a program of the
    /// server, until the result is dropped.
    pub(crate) fn enter(to_client: bool) -> Self {
        let target = if to_client {
            CopyTarget::Client
        } else {
            CopyTarget::Server
        };
        Self {
            before: COPYING.replace(Some(target)),
        }
    }
}

impl Drop for Copying {
    /// Notes that the COPY has ended.
    fn drop(&mut self) {
        COPYING.set(self.before);
    }
}

/// Whether the value that an output function writes now is sent to the client. The output functions
/// ask it: such a value is sealed as a result of the client's session, if there is one. Every other
/// value has to be readable later and elsewhere: a text that a function makes of it while a query
/// runs, or a field of a file that COPY writes on the server.
///
/// A value reaches the client in one of three ways: a run of the executor sends its row; a portal
/// sends rows that it has stored, after the executor has ended; COPY sends the rows of a table,
/// which it reads without the executor.
pub(crate) fn is_for_client() -> bool {
    match COPYING.get() {
        Some(CopyTarget::Server) => false,
        Some(CopyTarget::Client) => SENDING.get() || !activity::is_query_running(),
        None => SENDING.get() || activity::depth() == 0,
    }
}

/// A receiver that seals rows and passes them on to the client's receiver.
#[repr(C)]
struct SealingReceiver {
    /// First, because PostgreSQL knows only this part (tcop/dest.h).
    own: DestReceiver,
    client: *mut DestReceiver,
    /// Confidential columns, from 1, whose values are sealed together.
    columns: Vec<i16>,
}

/// An installed receiver; dropping it restores the client's.
pub(crate) struct InstalledReceiver {
    query: *mut QueryDesc,
    receiver: *mut SealingReceiver,
}

impl Drop for InstalledReceiver {
    /// Puts the client's receiver back, and frees the one that replaced it.
    fn drop(&mut self) {
        // SAFETY: made from a box in `install`, and used here for the last time.
        let receiver = unsafe { Box::from_raw(self.receiver) };
        // SAFETY: the query outlives its run, also one that fails.
        unsafe { (*self.query).dest = receiver.client };
    }
}

/// Replaces the receiver of a query that sends columns of confidential types, or of types that may
/// hold confidential values, to a client, until the result is dropped. The new one seals a row's
/// values in one call of the zone, and passes the row on. `None`, and nothing is replaced, for any
/// other query. `query` must have been started by the executor, and outlive the result.
///
/// Values behind a column of another type, such as an array, are left to the output functions: what
/// is in it is sealed when it is sent.
pub(crate) fn install(query: *mut QueryDesc) -> Option<InstalledReceiver> {
    // SAFETY: a query that the executor has started, so it has the type of its rows; it may have no
    // receiver.
    let (client, columns) = unsafe {
        let client = (*query).dest;
        if client.is_null() || !is_client((*client).mydest) {
            return None;
        }
        let columns = tuples::columns((*query).tupDesc)
            .filter(|(_, type_oid)| types::may_be_confidential(*type_oid))
            .collect::<Vec<_>>();
        (client, columns)
    };
    if columns.is_empty() {
        return None;
    }
    let columns = columns
        .into_iter()
        .take_while(|(_, type_oid)| types::kind_of(*type_oid).is_some())
        .map(|(number, _)| number)
        .collect();
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

/// The envelope of the next value of the row that is being sent. `None` if it was not sealed with
/// the row, or is of another kind.
pub(crate) fn sealed_envelope(kind: Kind, fid: u64) -> Option<Vec<u8>> {
    ENVELOPES.with(|envelopes| {
        let mut envelopes = envelopes.borrow_mut();
        let (known, envelope) = envelopes.front()?;
        let header = EnvelopeHeader::parse(envelope)?;
        let is_it = *known == fid && header.kind == kind;
        envelopes
            .pop_front()
            .filter(|_| is_it)
            .map(|(_, envelope)| envelope)
    })
}

/// A row is being sent to the client, until this is dropped.
struct Sending;

impl Sending {
    /// Notes that a row is being sent, with these envelopes of its values.
    fn enter(envelopes: impl Iterator<Item = (u64, Vec<u8>)>) -> Self {
        ENVELOPES.with(|kept| kept.borrow_mut().extend(envelopes));
        SENDING.set(true);
        Self
    }
}

impl Drop for Sending {
    /// Forgets the envelopes, and notes that the row has been sent.
    fn drop(&mut self) {
        ENVELOPES.with(|envelopes| envelopes.borrow_mut().clear());
        SENDING.set(false);
    }
}

/// Receives a row: has the zone seal its confidential values in one call, if there is more than
/// one, keeps the envelopes, and passes the row on to the client's receiver. Returns what that
/// returns. Raises the zone's faults as an ERROR.
extern "C-unwind" fn receive(slot: *mut TupleTableSlot, own: *mut DestReceiver) -> bool {
    guarded(|| {
        // SAFETY: PostgreSQL passes the receiver that it was given.
        let receiver = unsafe { &*own.cast::<SealingReceiver>() };
        // SAFETY: a row of the query.
        let row = unsafe { Row::of(slot) };
        let columns = receiver.columns.iter();
        let fids: Vec<u64> = columns
            .filter_map(|number| row.identifier(*number))
            .collect();
        let to_client = COPYING.get() != Some(CopyTarget::Server);
        let sealed = if fids.len() > 1 {
            zone::with(|connection| connection.seal_many(&fids, to_client))
        } else {
            Vec::new()
        };
        let sending = Sending::enter(fids.into_iter().zip(sealed));
        let client = receiver.client;
        // SAFETY: the client's receiver.
        let more = unsafe {
            let receive = (*client).receiveSlot;
            call_postgres(|| receive.is_some_and(|receive| receive(slot, client)))
        };
        drop(sending);
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
