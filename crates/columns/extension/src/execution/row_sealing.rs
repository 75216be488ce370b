//! Rows on their way to the client: the values of a row are sealed in one call of the zone, before PostgreSQL asks for them one by one.
//!
//! For one run of the executor a receiver of ours stands before the client's and hands every row on as it is. Invariants: what is kept is of the row
//! that is being sent, and is gone behind it; a row that does not fit is left to the output functions. Must not: change a row, keep one back, or
//! stay behind the run, however it ends.

use std::cell::RefCell;
use std::ffi::c_int;

use pg_sys::{CommandDest, DestReceiver, QueryDesc, TupleDesc, TupleTableSlot};
use pgrx::pg_sys;
use strongroom_format::columns::{EnvelopeHeader, Kind};

use crate::call::{guarded, outside};
use crate::catalog::types;
use crate::execution::slot::Row;
use crate::ring::zone;

thread_local! {
    /// Envelopes of the row that is being sent, by identifier.
    static READY: RefCell<Vec<(u64, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
}

/// The receiver that stands before another one.
#[repr(C)]
struct Sender {
    /// First, because PostgreSQL knows no more of it (tcop/dest.h).
    own: DestReceiver,
    client: *mut DestReceiver,
    /// Confidential columns, from 1.
    columns: Vec<i16>,
}

/// Puts the client's receiver back.
pub(crate) struct Sending {
    query: *mut QueryDesc,
    sender: *mut Sender,
}

impl Drop for Sending {
    fn drop(&mut self) {
        // SAFETY: made from a box in `begin`, and here for the last time.
        let sender = unsafe { Box::from_raw(self.sender) };
        // SAFETY: the query outlives the run of it, also one that fails.
        unsafe { (*self.query).dest = sender.client };
        READY.with(|ready| ready.borrow_mut().clear());
    }
}

/// Stands before the receiver of a query that sends several confidential columns to a client.
pub(crate) fn begin(query: *mut QueryDesc) -> Option<Sending> {
    // SAFETY: a query that the executor has started, so it has the type of its rows; it may have no receiver.
    let (client, columns) = unsafe {
        let client = (*query).dest;
        if client.is_null() || !is_client((*client).mydest) {
            return None;
        }
        let columns = types::columns((*query).tupDesc)
            .filter(|(_, type_oid)| types::kind_of(*type_oid).is_some())
            .map(|(number, _)| number);
        (client, columns.collect::<Vec<_>>())
    };
    if columns.len() < 2 {
        return None;
    }
    // SAFETY: the receiver lasts as long as the query.
    let mydest = unsafe { (*client).mydest };
    let own = DestReceiver {
        receiveSlot: Some(receive),
        rStartup: Some(startup),
        rShutdown: Some(shutdown),
        rDestroy: Some(destroy),
        mydest,
    };
    let sender = Box::into_raw(Box::new(Sender {
        own,
        client,
        columns,
    }));
    // SAFETY: the query has its own receiver back before this one is dropped.
    unsafe { (*query).dest = sender.cast() };
    Some(Sending { query, sender })
}

const fn is_client(dest: CommandDest::Type) -> bool {
    matches!(
        dest,
        CommandDest::DestRemote | CommandDest::DestRemoteExecute | CommandDest::DestCopyOut
    )
}

/// The envelope of a value of the row that is being sent. `None` for any other, and when it is of another kind.
pub(crate) fn taken(kind: Kind, fid: u64) -> Option<Vec<u8>> {
    READY.with(|ready| {
        let ready = ready.borrow();
        let (_, envelope) = ready.iter().find(|(known, _)| *known == fid)?;
        let header = EnvelopeHeader::parse(envelope)?;
        (header.kind == kind).then(|| envelope.clone())
    })
}

extern "C-unwind" fn receive(slot: *mut TupleTableSlot, own: *mut DestReceiver) -> bool {
    guarded(|| {
        // SAFETY: PostgreSQL passes the receiver that it was given.
        let sender = unsafe { &*own.cast::<Sender>() };
        // SAFETY: a row of the query.
        let row = unsafe { Row::of(slot) };
        let columns = sender.columns.iter();
        let mut fids: Vec<u64> = columns
            .filter_map(|number| row.identifier(*number))
            .collect();
        fids.sort_unstable();
        fids.dedup();
        if fids.len() > 1 {
            let sealed = zone::with(|link| link.outputs(&fids));
            READY.with(|ready| *ready.borrow_mut() = fids.into_iter().zip(sealed).collect());
        }
        let client = sender.client;
        // SAFETY: the receiver that it stands before.
        let more = unsafe {
            let receive = (*client).receiveSlot;
            outside(|| receive.is_some_and(|receive| receive(slot, client)))
        };
        READY.with(|ready| ready.borrow_mut().clear());
        more
    })
}

extern "C-unwind" fn startup(own: *mut DestReceiver, operation: c_int, columns: TupleDesc) {
    // SAFETY: PostgreSQL passes the receiver that it was given; this one stands before `client`.
    guarded(|| unsafe {
        let client = (*own.cast::<Sender>()).client;
        if let Some(startup) = (*client).rStartup {
            outside(|| startup(client, operation, columns));
        }
    });
}

extern "C-unwind" fn shutdown(own: *mut DestReceiver) {
    // SAFETY: as in `startup`.
    guarded(|| unsafe {
        let client = (*own.cast::<Sender>()).client;
        if let Some(shutdown) = (*client).rShutdown {
            outside(|| shutdown(client));
        }
    });
}

extern "C-unwind" fn destroy(own: *mut DestReceiver) {
    // SAFETY: as in `startup`. Who made the client's receiver destroys it by its own pointer, but a caller may have this one.
    guarded(|| unsafe {
        let client = (*own.cast::<Sender>()).client;
        if let Some(destroy) = (*client).rDestroy {
            outside(|| destroy(client));
        }
    });
}
