//! The keyed order of columns of class equality: the order in which their indexes have the values.
//!
//! Invariants: it is the same as long as the store exists, on replicas too, because indexes are
//! stored in it; it tells which values are equal and nothing else, not even together with the order
//! of another column, or of a column of the same name that is bound to another key: whoever has a
//! key of their own can fill such a column with values that they know. Specified in
//! docs/spec/columns.md, "Keyed order". Must not: decide whether an answer may be given.

use core::cmp::Ordering;
use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::{Buf, Value, token_bytes};
use strongroom_crypto::{CryptoError, MacKey, SecretKey, hkdf};
use strongroom_format::columns::{Kind, Lineage};

use super::{Binding, Store};

/// Most keys of columns that are kept. Then all are forgotten, and derived again when needed.
const KEYS_MAX: usize = 256;
/// The keys of columns that were used last.
#[derive(Default)]
pub(super) struct KeyedOrder(BTreeMap<(Lineage, [u8; 16]), MacKey>);

impl KeyedOrder {
    /// The key of a column with this binding, which is derived from `root` (HKDF-SHA256). Fails
    /// without locked memory for it.
    fn key(&mut self, root: &SecretKey, of: Binding) -> Result<&MacKey, CryptoError> {
        let name = (of.lineage, of.key);
        if !self.0.contains_key(&name) {
            if self.0.len() >= KEYS_MAX {
                self.0.clear();
            }
            let mut salt = of.lineage.number().to_le_bytes().to_vec();
            salt.extend_from_slice(&of.key);
            let key = MacKey::new(&hkdf(root, &salt, b"")?)?;
            self.0.insert(name, key);
        }
        self.0.get(&name).ok_or(CryptoError::OutOfLockedMemory)
    }
}

/// Compares two values of one kind in the order that this key gives: equal for equal values,
/// otherwise an answer that says nothing of them.
///
/// # Errors
/// [`Fault::KindMismatch`] if a value is not of the kind's form.
pub(crate) fn compare_under(
    key: &MacKey,
    kind: Kind,
    values: [Value<'_>; 2],
) -> Result<Ordering, Fault> {
    let mut bytes = [Buf::new(), Buf::new()];
    for (bytes, value) in bytes.iter_mut().zip(values) {
        token_bytes(kind, value, bytes)?;
    }
    let [a, b] = &bytes;
    let places = place(key, kind, a).cmp(&place(key, kind, b));
    // Bytes of different places are not compared: the time would tell how long their common
    // beginning is.
    Ok(places.then_with(|| a.as_slice().cmp(b.as_slice())))
}

/// Where a value stands in the order: the first 16 bytes of the keyed hash of its bytes, as they
/// are compared. If two values have the same place, their own bytes decide.
fn place(key: &MacKey, kind: Kind, bytes: &Buf) -> [u8; 16] {
    let mac = key.mac(&[&[kind.number()], bytes.as_slice()]);
    *mac.first_chunk().unwrap_or(&[0; 16])
}

impl Store {
    /// The key of the keyed order of a column with this binding.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] without locked memory for it.
    pub(crate) fn order_key(&mut self, of: Binding) -> Result<&MacKey, Fault> {
        let key = self.keyed_order.key(self.keys.equality(), of);
        key.map_err(|_| Fault::OutOfMemory)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_format::columns::Class;

    use super::*;

    fn root() -> SecretKey {
        SecretKey::take(&mut [7; 32]).unwrap()
    }

    fn column(number: u64) -> Binding {
        Binding {
            key: [9; 16],
            lineage: Lineage::of_column(number, Class::Equality),
        }
    }

    /// Computed with Python's `hmac` from docs/spec/columns.md alone.
    #[test]
    fn a_place_is_that_of_the_specification() {
        let mut order = KeyedOrder::default();
        let key = order.key(&root(), column(0x1122_3344_5566_7788)).unwrap();
        let mut bytes = Buf::default();
        bytes.extend(b"ada@example.org");
        let expected = [
            0x26, 0x8a, 0xbb, 0xcd, 0xe2, 0xdf, 0x7a, 0x24, 0x30, 0x30, 0x9e, 0xe7, 0x62, 0x96,
            0x38, 0xa0,
        ];
        assert_eq!(place(key, Kind::Text, &bytes), expected);
    }

    #[test]
    fn equal_values_are_equal_and_others_are_in_an_order_of_the_column() {
        let mut order = KeyedOrder::default();
        let names: Vec<String> = (0..64).map(|number| format!("{number:02}")).collect();
        let mut sorted = |of: Binding| {
            let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
            names.sort_by(|a, b| {
                let values = [a, b].map(|name| Value::Bytes(name.as_bytes()));
                compare_under(order.key(&root(), of).unwrap(), Kind::Text, values).unwrap()
            });
            names
        };
        let (one, other) = (sorted(column(1 << 8)), sorted(column(2 << 8)));
        assert_eq!(one, sorted(column(1 << 8)));
        assert_ne!(one, other);
        assert!(one != names && other != names);
        let foreign = Binding {
            key: [8; 16],
            ..column(1 << 8)
        };
        assert_ne!(one, sorted(foreign), "of another key");
        let same = [Value::Bytes(b"05"); 2];
        let key = order.key(&root(), column(1 << 8)).unwrap();
        let equal = compare_under(key, Kind::Text, same);
        assert_eq!(equal, Ok(Ordering::Equal));
        // So are zeros of both signs (`token_bytes`).
        let zeros = [Value::of_float8(0.0), Value::of_float8(-0.0)];
        let equal = compare_under(key, Kind::Float8, zeros);
        assert_eq!(equal, Ok(Ordering::Equal));
    }

    #[test]
    fn keys_are_forgotten_and_derived_again() {
        let mut order = KeyedOrder::default();
        let values = [Value::Bytes(b"a"), Value::Bytes(b"b")];
        let mut compare = |number| {
            let key = order.key(&root(), column(number << 8)).unwrap();
            compare_under(key, Kind::Text, values)
        };
        let before: Vec<_> = (1..=8).map(&mut compare).collect();
        for number in 9..=2 * KEYS_MAX as u64 {
            compare(number).unwrap();
        }
        assert_eq!((1..=8).map(&mut compare).collect::<Vec<_>>(), before);
    }
}
