//! The instances that are open in this process, by number.
//!
//! Invariants: an instance that was added keeps its number and address until the process ends. A
//! lookup takes no lock.
//!
//! Must not: open anything.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::sync::OnceLock;

use crate::instance::Instance;

/// The most instances that one process can have open; `pg_upgrade` and `pg_rewind` have two.
pub const ROOTS_MAX: usize = 8;

static ROOTS: [OnceLock<Instance>; ROOTS_MAX] = [const { OnceLock::new() }; ROOTS_MAX];

/// Adds an instance, which then stays until the process ends, and returns its number.
///
/// # Errors
/// Returns the instance when there are eight already.
pub fn add(instance: Instance) -> Result<u8, Box<Instance>> {
    let mut left = instance;
    for (number, root) in (0_u8..).zip(&ROOTS) {
        match root.set(left) {
            Ok(()) => return Ok(number),
            Err(refused) => left = refused,
        }
    }
    Err(Box::new(left))
}

/// Returns the instance of this number; `None` if there is none.
#[must_use]
#[inline]
pub fn get(number: usize) -> Option<&'static Instance> {
    ROOTS.get(number)?.get()
}

/// Whether no instance is open in this process; every call then goes to the C library.
#[must_use]
#[inline]
pub fn is_empty() -> bool {
    ROOTS.first().is_none_or(|first| first.get().is_none())
}

/// Yields every instance with its number, in ascending order.
pub fn all() -> impl Iterator<Item = (u8, &'static Instance)> {
    (0_u8..)
        .zip(&ROOTS)
        .map_while(|(number, root)| Some((number, root.get()?)))
}

/// Whether containers of the instance of this number are bound to their names. False if there is
/// none.
#[must_use]
pub fn names_are_bound(number: u8) -> bool {
    get(usize::from(number)).is_some_and(|instance| instance.keys.names_are_bound())
}

/// Whether the two instances have the same keys, so that a file can be moved from one to the other
/// unchanged. False if one is not open.
#[must_use]
pub fn share_keys(one: u8, other: u8) -> bool {
    match (get(usize::from(one)), get(usize::from(other))) {
        (Some(one), Some(other)) => one.identity == other.identity,
        _ => false,
    }
}
