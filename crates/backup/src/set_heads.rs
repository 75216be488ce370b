//! Names the heads of sets on a medium, and reads them.
//!
//! Must not: write anything.

use strongroom_format::backup::{DESCRIPTION_MAX, set_layout};
use strongroom_format::code;
use strongroom_format::header::HEADER_LEN;

use crate::head::UnopenedHead;
use crate::store::{Store, is_misfit};
use crate::{Error, Result};

/// Bytes of the longest head of a set.
pub(crate) const SET_HEAD_MAX: u64 =
    HEADER_LEN as u64 + set_layout::SIZE as u64 + DESCRIPTION_MAX as u64;

/// A head that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub(crate) position: u32,
    /// `None` when the head cannot be read.
    pub(crate) set_id: Option<String>,
}

/// Positions of all heads, in rising order. Errors of the store.
pub(crate) fn positions(store: &dyn Store) -> Result<Vec<u32>> {
    let found = store.list("sets");
    let found = found.map_err(|error| Error::io(store.shown(), error))?;
    Ok(found
        .iter()
        .filter_map(|(name, _)| position_of(name))
        .collect())
}

/// The position of a head by its name; `None` for other names.
pub(crate) fn position_of(name: &str) -> Option<u32> {
    let position: u32 = name.parse().ok()?;
    // One spelling of each position.
    (position > 0 && name == format!("{position:08}")).then_some(position)
}

/// The name of the head at this position.
pub(crate) fn head_name(position: u32) -> String {
    format!("sets/{position:08}")
}

/// The name of a family's object.
pub(crate) fn family_name(set_id: &str, family: u16) -> String {
    format!("data/{set_id}.{family}")
}

/// Reads the head of the set at `position`; its seal is not verified. SR-7107 when there is none;
/// SR-7106 when it is damaged, too long, no regular file or has bytes after it; SR-3002 when a
/// newer version wrote it; SR-3003 or SR-3006 when its object header is damaged or cut short;
/// errors of the store.
pub(crate) fn read_head(store: &dyn Store, position: u32) -> Result<UnopenedHead> {
    let name = head_name(position);
    let shown = || format!("{}/{name}", store.shown());
    let bytes = match store.read(&name, SET_HEAD_MAX) {
        Err(error) if is_misfit(&error) => {
            let detail = format!("{}: {error}", shown());
            return Err(Error::new(&code::SET_HEAD, detail));
        }
        Err(error) => return Err(Error::io(shown(), error)),
        Ok(bytes) => bytes.ok_or_else(|| {
            Error::new(
                &code::SET_ABSENT,
                format!("{}: set {position}", store.shown()),
            )
        })?,
    };
    let head = UnopenedHead::parse(bytes)
        .map_err(|error| Error::new(error.code(), format!("{}: {}", shown(), error.detail())))?;
    if head.is_alone() {
        Ok(head)
    } else {
        Err(Error::new(
            &code::SET_HEAD,
            format!("{}: bytes after it", shown()),
        ))
    }
}
