//! Random strings of clause 4.3.2. Must not: be drawn from anything but the generator that is
//! passed.

use fastrand::Rng;

/// The syllables of clause 4.3.2.3.
const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// A last name from a number of 0 to 999 (4.3.2.3).
pub(super) fn last(number: u32) -> String {
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    let syllable = |digit: u32| {
        let at = usize::try_from(digit).unwrap_or_default();
        SYLLABLES.get(at).copied().unwrap_or_default()
    };
    digits.into_iter().map(syllable).collect()
}

/// Letters and digits (4.3.2.2).
pub(super) fn letters(random: &mut Rng, low: usize, high: usize) -> String {
    let length = random.usize(low..=high);
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// Digits (4.3.2.2).
pub(super) fn digits(random: &mut Rng, length: usize) -> String {
    (0..length).map(|_| random.digit(10)).collect()
}

/// A postal code (4.3.2.7).
pub(super) fn zip(random: &mut Rng) -> String {
    digits(random, 4) + "11111"
}

/// Data of an item or a stock row: one in ten has ORIGINAL in it (4.3.3.1).
pub(super) fn data(random: &mut Rng) -> String {
    let mut data = letters(random, 26, 50);
    if random.u32(0..10) == 0 {
        let at = random.usize(0..=data.len() - 8);
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::{data, last};

    #[test]
    fn names_of_the_specification() {
        assert_eq!(last(371), "PRICALLYOUGHT");
        assert_eq!(last(40), "BARPRESBAR");
        let mut random = fastrand::Rng::with_seed(2);
        let drawn: Vec<String> = (0..200).map(|_| data(&mut random)).collect();
        assert!(drawn.iter().all(|data| (26..=50).contains(&data.len())));
        assert!(drawn.iter().any(|data| data.contains("ORIGINAL")));
    }
}
