//! The status: what the zone holds and for which sessions, and the counts of its answers. No
//! values.
//!
//! Must not: contain a value, an identifier of one, or a key; outgrow the data area.

use strongroom_columns_ring::{Area, Descriptor, Fault};
use strongroom_format::hex::hex;

use super::Zone;
use super::session::reply;
use crate::store::Census;

/// The most partitions and sessions that are listed one by one. The others are in the sums only.
const LISTED_MAX: usize = 1000;

impl Zone {
    /// [`strongroom_columns_ring::Op::Status`]: writes the zone's status as JSON to the data area,
    /// and returns its length. Counts and sizes only, no values. Any ring may ask.
    /// `Fault::StringTooLong` if it does not fit.
    pub(super) fn status(&self, descriptor: &Descriptor, area: &Area) -> Result<u64, Fault> {
        reply(descriptor, area, self.status_text().as_bytes())
    }

    /// The status in JSON. No member depends on a value: neither on its length nor on whether a
    /// computation has failed. A host that computes or stores a value very often, or beside values
    /// whose lengths it knows, would tell one bit of it by any sum of lengths, however rounded. So
    /// no member is a size of memory or of a file.
    fn status_text(&self) -> String {
        let store = self.sources.store.status();
        let (mut rings, mut values, mut literals) = (0_u64, 0_u64, 0_u64);
        for ring in self.sources.rings.all() {
            let (more_values, more_literals) = ring.arena.size();
            rings += 1;
            values += more_values;
            literals += more_literals;
        }
        let keys = self.keys.ids().count();
        let census: Vec<Census> = self.sources.store.census().collect();
        let stored: u64 = census.iter().map(|one| one.values).sum();
        let unread: u64 = census.iter().map(|one| one.unread).sum();
        format!(
            "{{\"rings\":{rings},\"sessions\":{},\"keys\":{keys},\
             \"ephemerals\":{{\"values\":{values},\"literals\":{literals}}},\
             \"store\":{{\"partitions\":{},\"values\":{stored},\"unread\":{unread},\"limit\":{},\
             \"quarantine\":{},\"position\":{},\"counter\":{},\"locked\":{},\"recovering\":{}}},\
             \"partitions\":[{}],\"ledgers\":[{}],\"ended\":{}}}",
            self.channel.sessions().count(),
            store.partitions,
            store.limit,
            store.quarantine,
            store.position,
            store.counter,
            store.locked,
            store.recovering,
            partitions(&census),
            self.ledgers(),
            self.channel.ended().to_json(),
        )
    }

    /// The id, rights and counts of each ticket as a list of JSON objects without brackets, at most
    /// [`LISTED_MAX`] of them.
    fn ledgers(&self) -> String {
        let mut out = String::new();
        for (ticket, rights, ledger) in self.channel.ledgers().take(LISTED_MAX) {
            let comma = if out.is_empty() { "" } else { "," };
            out.push_str(comma);
            out.push_str("{\"ticket\":\"");
            out.push_str(&hex(&ticket));
            let counts = ledger.to_json();
            out.push_str(&format!("\",\"rights\":{rights},\"counts\":{counts}}}"));
        }
        out
    }
}

/// The partitions as a list of JSON objects without brackets, at most [`LISTED_MAX`] of them.
fn partitions(census: &[Census]) -> String {
    let mut out = String::new();
    for one in census.iter().take(LISTED_MAX) {
        let comma = if out.is_empty() { "" } else { "," };
        out.push_str(&format!(
            "{comma}{{\"number\":{},\"tablespace\":{},\"database\":{},\"filenode\":{},\"columns\":{},\"values\":{},\"unread\":{}}}",
            one.number,
            one.relation.tablespace,
            one.relation.database,
            one.relation.filenode,
            one.columns,
            one.values,
            one.unread,
        ));
    }
    out
}
