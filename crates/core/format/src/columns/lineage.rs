//! Lineages: which column a value belongs to, and with what it may be compared.
//!
//! The two low bits of a column's lineage are its class. Specified in docs/spec/columns.md,
//! "Lineages". Must not: know which relation a column is of.

use super::Kind;

/// Place of the class in a type's modifier.
const MODIFIER_SHIFT: u32 = 28;

/// What may be learned of a column's stored values without a session of their owner's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nothing: they are stored, and given back sealed.
    #[default]
    Opaque,
    /// Which of them are equal, as a unique index needs it.
    Equality,
    /// Their order, as an index needs it.
    Ordered,
}

impl Class {
    /// Every class.
    pub const ALL: &[Self] = &[Self::Opaque, Self::Equality, Self::Ordered];

    /// Its number: the two low bits of a lineage.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Opaque => 0,
            Self::Equality => 1,
            Self::Ordered => 2,
        }
    }

    /// The class of this number. `None` for every other number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Opaque),
            1 => Some(Self::Equality),
            2 => Some(Self::Ordered),
            _ => None,
        }
    }

    /// Whether something may be learned of the values without a session: they can be compared.
    #[must_use]
    pub const fn is_comparable(self) -> bool {
        !matches!(self, Self::Opaque)
    }

    /// Whether a column of this kind can have the class. That of a boolean is opaque: which of its
    /// values are equal would tell them as its order does. So is that of a document: the order of
    /// documents tells how many members they have, and which of them are equal is seldom a key. So
    /// is that of an interval: people use few of them, and equal ones have different forms.
    #[must_use]
    pub const fn is_possible_for(self, kind: Kind) -> bool {
        !self.is_comparable() || !matches!(kind, Kind::Bool | Kind::Interval | Kind::Jsonb)
    }

    /// What it adds to a type's modifier in PostgreSQL: its number in bits 28 and 29. The bits
    /// below are precision and scale of a numeric.
    #[must_use]
    pub const fn modifier(self) -> i32 {
        (self.number() as i32) << MODIFIER_SHIFT
    }

    /// The class that a type's modifier says: opaque for -1, which is no modifier, and for bits
    /// that name no class.
    #[must_use]
    pub fn of_modifier(modifier: i32) -> Self {
        let number = u8::try_from(modifier >> MODIFIER_SHIFT).ok();
        number.and_then(Self::from_number).unwrap_or_default()
    }

    /// Its name in SQL, as a modifier of a type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::Equality => "equality",
            Self::Ordered => "ordered",
        }
    }

    /// The class of this name in SQL. `None` for every other name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.name() == name)
    }
}

/// The column that a value belongs to. A column keeps its lineage, and its values do when they are
/// copied or dumped. What was computed, and a constant that is to be stored nowhere, belong to
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lineage(u64);

impl Lineage {
    /// The lineage of a constant or parameter that its sealer has named no column for.
    pub const CLIENT: Self = Self(0);
    /// The lineage of what the zone computed.
    pub const RESULT: Self = Self(1);
    /// Mask of the bits that name the class.
    const CLASS: u64 = 3;

    /// The lineage with this number.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self(number)
    }

    /// The lineage of a column of this class: the high 62 bits are those of `bits`, which are drawn
    /// at random or made from the column's name; all zeros become 1.
    #[must_use]
    pub const fn of_column(bits: u64, class: Class) -> Self {
        let bits = match bits & !Self::CLASS {
            0 => Self::CLASS + 1,
            bits => bits,
        };
        Self(bits | class.number() as u64)
    }

    /// Whether both are of one name, whatever the class.
    #[must_use]
    pub const fn has_name_of(self, other: Self) -> bool {
        self.0 | Self::CLASS == other.0 | Self::CLASS
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Its class. `None` if it is no column's.
    #[must_use]
    pub const fn class(self) -> Option<Class> {
        if self.0 <= Self::CLASS {
            return None;
        }
        Class::from_number((self.0 & Self::CLASS) as u8)
    }

    /// Whether it is a column's, not a client's or a result's.
    #[must_use]
    pub const fn is_column(self) -> bool {
        self.class().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_s_lineage_has_its_class_and_is_none_of_the_others() {
        for bits in [0, 1, 3, 4, 0x1122_3344_5566_7788, u64::MAX] {
            for class in Class::ALL {
                let lineage = Lineage::of_column(bits, *class);
                assert_eq!(lineage.class(), Some(*class), "{bits:x}");
                assert!(lineage.is_column());
                assert_eq!(Class::from_number(class.number()), Some(*class));
                assert_eq!(Class::from_name(class.name()), Some(*class));
            }
        }
        for number in [0, 1, 2, 3, 7, u64::MAX] {
            assert!(!Lineage::of(number).is_column(), "{number}");
        }
        assert_eq!(Class::from_name("Ordered"), None);
        for class in Class::ALL {
            for packed in [0, 4, (1000 << 16 | 0x7ff) + 4] {
                assert_eq!(Class::of_modifier(class.modifier() | packed), *class);
            }
        }
        for modifier in [-1, 3 << 28, 1 << 30, i32::MAX, i32::MIN] {
            assert_eq!(Class::of_modifier(modifier), Class::Opaque, "{modifier}");
        }
    }
}
