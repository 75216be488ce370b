//! How a byte layout is stated: a table of named spans, checked at compile time to leave no gap and
//! no overlap.
//!
//! Must not: know any particular layout.

/// One field of a layout: `len` bytes at `offset`. Units: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The constant's name in the code; the spec tables use the same word.
    pub name: &'static str,
    /// First byte, counted from the start of the record.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Whether `fields` cover `0..size` in order, without gap or overlap. The macro of this file calls
/// it when the program is compiled.
#[must_use]
pub const fn covers(fields: &[Field], size: usize) -> bool {
    let mut at = 0;
    let mut rest = fields;
    while let [field, tail @ ..] = rest {
        if field.offset != at {
            return false;
        }
        at = match at.checked_add(field.len) {
            Some(next) => next,
            None => return false,
        };
        rest = tail;
    }
    at == size
}

/// Declares a module with one [`Field`] constant per field, `SIZE`, and the table `FIELDS`.
macro_rules! layout {
    ($(#[$meta:meta])* $module:ident, $size:literal, { $($name:ident @ $offset:literal, $len:literal;)* }) => {
        $(#[$meta])*
        pub mod $module {
            use $crate::layout::Field;
            /// Length of the record, in bytes.
            pub const SIZE: usize = $size;
            $(
                #[expect(missing_docs, reason = "described in the record's table in docs/spec")]
                pub const $name: Field = Field { name: stringify!($name), offset: $offset, len: $len };
            )*
            /// Every field, in order.
            pub const FIELDS: &[Field] = &[$($name),*];
            const _: () = assert!($crate::layout::covers(FIELDS, SIZE), "gap or overlap in layout");
        }
    };
}
pub(crate) use layout;

/// The bytes of `field` in `record`, or `None` when the record is too short.
#[must_use]
pub fn bytes(record: &[u8], field: Field) -> Option<&[u8]> {
    record.get(field.offset..field.offset.checked_add(field.len)?)
}

/// The bytes of `field` as an array. `None` when the record is too short, or `N` is not the field's
/// length.
#[must_use]
pub fn array<const N: usize>(record: &[u8], field: Field) -> Option<[u8; N]> {
    bytes(record, field)?.try_into().ok()
}

/// Reads a little-endian `u16`. `None` when the record is too short, or the field is not 2 bytes
/// long.
#[must_use]
pub fn u16_at(record: &[u8], field: Field) -> Option<u16> {
    array(record, field).map(u16::from_le_bytes)
}

/// Reads a little-endian `u32`. `None` when the record is too short, or the field is not 4 bytes
/// long.
#[must_use]
pub fn u32_at(record: &[u8], field: Field) -> Option<u32> {
    array(record, field).map(u32::from_le_bytes)
}

/// Reads a little-endian `u64`. `None` when the record is too short, or the field is not 8 bytes
/// long.
#[must_use]
pub fn u64_at(record: &[u8], field: Field) -> Option<u64> {
    array(record, field).map(u64::from_le_bytes)
}

/// Copies `value` into `field` of `record`, and returns `Some(())`. Returns `None`, and writes
/// nothing, when `value` is not as long as the field, or the record is too short.
#[must_use]
pub fn put(record: &mut [u8], field: Field, value: &[u8]) -> Option<()> {
    let span = record.get_mut(field.offset..field.offset.checked_add(field.len)?)?;
    if span.len() != value.len() {
        return None;
    }
    span.copy_from_slice(value);
    Some(())
}

/// Whether every byte is zero. True when there are none.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Whether `field` of `record` is present and all zero.
#[must_use]
pub fn zero_at(record: &[u8], field: Field) -> bool {
    bytes(record, field).is_some_and(is_zero)
}
