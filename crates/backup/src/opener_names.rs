//! Names of the keys, certificates and passphrases that open a set.
//!
//! Must not: claim that one of them was tried.

use strongroom_format::header::Header;
use strongroom_format::hex;
use strongroom_format::slot::SlotKind;

/// The names of what can open a set: keys of a keyring with their versions, certificates by id, and
/// other kinds of key slot by their kind; one for each slot, in order.
#[must_use]
pub fn opener_names(header: &Header) -> Vec<String> {
    let name = |kind: &SlotKind| match kind {
        SlotKind::Keyring { id, version } => format!("keyring key {id} version {version}"),
        SlotKind::Certificate { id, .. } => format!("certificate {}", hex::hex(id)),
        other => other.name().to_owned(),
    };
    header.slots.iter().map(|slot| name(&slot.kind)).collect()
}
