//! The identifier of a confidential value (FID): eight bytes that PostgreSQL stores in the value's
//! place.
//!
//! It says where the value is in the mapping store and is assigned without looking at the value.
//! Bits, from the top: ephemeral 1, partition 15, generation 8, extent 24, index 16. Zero is no
//! FID. Specified in docs/spec/columns.md.

/// Slots of an extent.
pub const EXTENT_SLOTS: u32 = 65536;
/// Partitions, the number 0 included, which none has.
pub const PARTITIONS: u32 = 32768;
/// Extents of a partition.
pub const EXTENTS: u32 = 16_777_216;

const EPHEMERAL: u64 = 1 << 63;
const LITERAL: u64 = 1 << 39;
const SLOT: u64 = (1 << 40) - 1;

/// An identifier. Any eight bytes but zero can be parsed as one; a forged one is found when it is
/// resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid(u64);

impl Fid {
    /// The identifier of a permanent value: of partition, generation, extent and index. `None` when
    /// the partition is 0 or not below 2^15, or the extent is not below 2^24.
    #[must_use]
    pub fn permanent(partition: u16, generation: u8, extent: u32, index: u16) -> Option<Self> {
        let sound = partition != 0 && u32::from(partition) < PARTITIONS && extent < EXTENTS;
        let slot = (u64::from(extent) << 16) | u64::from(index);
        sound.then(|| Self(u64::from(partition) << 48 | u64::from(generation) << 40 | slot))
    }

    /// The identifier of an ephemeral value: slot `slot`, below 2^39, of a connection's arena (the
    /// zone's memory for its values), for the statement of that number. `None` when `arena` is 0 or
    /// not below 2^15, or the slot is out of range.
    #[must_use]
    pub fn ephemeral(arena: u16, statement: u8, slot: u64) -> Option<Self> {
        let sound = arena != 0 && u32::from(arena) < PARTITIONS && slot < LITERAL;
        let place = u64::from(arena) << 48 | u64::from(statement) << 40;
        sound.then_some(Self(EPHEMERAL | place | slot))
    }

    /// The identifier of a literal: slot `slot`, below 2^39, of the connection's arena, which holds
    /// it until the connection ends. `None` when `arena` is 0 or not below 2^15, or the slot is out
    /// of range.
    #[must_use]
    pub fn literal(arena: u16, slot: u64) -> Option<Self> {
        let fid = Self::ephemeral(arena, 0, slot)?;
        Some(Self(fid.0 | LITERAL))
    }

    /// The identifier in the eight bytes that PostgreSQL keeps. `None` for zero, which is none.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// The eight bytes as PostgreSQL keeps them.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether its value is in an arena, for one statement or connection, and not in a partition.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        self.0 & EPHEMERAL != 0
    }

    /// Whether it is a literal in an arena, which is valid as long as the connection.
    #[must_use]
    pub const fn is_literal(self) -> bool {
        self.is_ephemeral() && self.0 & LITERAL != 0
    }

    /// The number of the partition; for an ephemeral value that of the arena.
    #[must_use]
    pub const fn partition(self) -> u16 {
        ((self.0 >> 48) & 0x7fff) as u16
    }

    /// The generation of the slot; for an ephemeral value the number of the statement.
    #[must_use]
    pub const fn generation(self) -> u8 {
        ((self.0 >> 40) & 0xff) as u8
    }

    /// The slot in the partition; for an ephemeral value the slot in the arena, without the bit
    /// that marks literals.
    #[must_use]
    pub const fn slot(self) -> u64 {
        if self.is_ephemeral() {
            self.0 & (LITERAL - 1)
        } else {
            self.0 & SLOT
        }
    }

    /// The extent of a permanent value. Without meaning for an ephemeral one.
    #[must_use]
    pub const fn extent(self) -> u32 {
        ((self.0 & SLOT) >> 16) as u32
    }

    /// The slot in the extent of a permanent value.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits")]
    pub const fn index(self) -> u16 {
        self.0 as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let fid = Fid::permanent(0x7fff, 0xab, 0xff_fffe, 0x1234).unwrap();
        assert_eq!(fid.bits(), 0x7fff_abff_fffe_1234);
        assert!(!fid.is_ephemeral() && !fid.is_literal());
        assert_eq!((fid.partition(), fid.generation()), (0x7fff, 0xab));
        assert_eq!((fid.extent(), fid.index()), (0xff_fffe, 0x1234));
        assert_eq!(Fid::from_bits(fid.bits()), Some(fid));

        let fid = Fid::ephemeral(3, 255, (1 << 39) - 1).unwrap();
        assert_eq!(fid.bits(), 0x8003_ff7f_ffff_ffff);
        assert!(fid.is_ephemeral() && !fid.is_literal());
        let fid = Fid::literal(3, 7).unwrap();
        assert_eq!(fid.bits(), 0x8003_0080_0000_0007);
        assert!(fid.is_literal());
        assert_eq!((fid.partition(), fid.slot()), (3, 7));
    }

    #[test]
    fn what_is_out_of_range_is_none() {
        assert_eq!(Fid::permanent(0, 0, 0, 0), None);
        assert_eq!(Fid::permanent(0x8000, 0, 0, 0), None);
        assert_eq!(Fid::permanent(1, 0, EXTENTS, 0), None);
        assert_eq!(Fid::ephemeral(0, 0, 0), None);
        assert_eq!(Fid::ephemeral(1, 0, 1 << 39), None);
        assert_eq!(Fid::from_bits(0), None);
    }
}
