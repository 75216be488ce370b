//! TPC-C, after the TPC's specification, revision 5.11: the tables (clause 1.3), their population
//! (4.3.3), the five transactions (clause 2) in their mix (5.2.3), and the consistency conditions
//! (3.3.2). Clauses are cited where they are carried out.
//!
//! Differences from a TPC-C result: there are no terminals and so no keying and think times
//! (5.2.5), the scale can be a part of a warehouse, and a figure of this driver is not a tpmC.
//! Columns that are no keys are confidential; keys, and `d_next_o_id`, of which keys are made, are
//! plain.

pub mod consistency;
pub mod load;
mod names;
pub mod schema;
pub mod transactions;

/// How many rows. [`Scale::SPECIFIED`] is clause 1.2.1; tests use less.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Districts of a warehouse.
    pub districts: u32,
    /// Customers of a district, and its orders at the beginning.
    pub customers: u32,
    /// Items, and stock rows of a warehouse.
    pub items: u32,
}

impl Scale {
    /// What clause 1.2.1 says, for one warehouse.
    pub const SPECIFIED: Self = Self {
        warehouses: 1,
        districts: 10,
        customers: 3000,
        items: 100_000,
    };

    /// A part of it, for tests: a second or two to load.
    pub const SMALL: Self = Self {
        warehouses: 2,
        districts: 4,
        customers: 30,
        items: 200,
    };

    /// Orders of a district that are delivered at the beginning (4.3.3.1: 2100 of 3000).
    #[must_use]
    pub fn delivered(self) -> u32 {
        self.customers / 10 * 7
    }
}

/// The run constants `C` of clause 2.1.6, which population and run share as 2.1.6.1 permits: their
/// difference is 67, inside the interval that it demands.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    last: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Of the population.
    pub const LOAD: Self = Self {
        last: 100,
        customer: 17,
        item: 5,
    };
    /// Of a run.
    pub const RUN: Self = Self {
        last: 167,
        customer: 259,
        item: 3849,
    };
}

/// Clause 2.1.6: non-uniform random numbers in `low..=high`.
fn nurand(random: &mut fastrand::Rng, a: u32, c: u32, low: u32, high: u32) -> u32 {
    let (one, two) = (random.u32(0..=a), random.u32(low..=high));
    ((one | two) + c) % (high - low + 1) + low
}

/// A customer's number (2.1.6: A is 1023).
fn customer(random: &mut fastrand::Rng, constants: Constants, scale: Scale) -> u32 {
    nurand(random, 1023, constants.customer, 1, scale.customers)
}

/// An item's number (2.1.6: A is 8191).
fn item(random: &mut fastrand::Rng, constants: Constants, scale: Scale) -> u32 {
    nurand(random, 8191, constants.item, 1, scale.items)
}

/// A customer's last name (4.3.2.3; 2.1.6: A is 255). A part of a district has the first names
/// only.
fn last_name(random: &mut fastrand::Rng, constants: Constants, scale: Scale) -> String {
    let names = scale.customers.min(1000);
    names::last(nurand(random, 255, constants.last, 0, names - 1))
}

/// Hundredths as PostgreSQL writes a NUMERIC of scale 2.
pub(crate) fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

/// Hundredths of a NUMERIC's text.
pub(crate) fn cents(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("00".chars()).take(2).collect();
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let whole: i64 = whole.trim_start_matches('-').parse().unwrap_or_default();
    sign * (whole * 100 + digits.parse::<i64>().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{Scale, cents, money, nurand};

    #[test]
    fn money_and_back() {
        for (text, hundredths) in [
            ("0.00", 0),
            ("-10.05", -1005),
            ("-0.07", -7),
            ("300.10", 30_010),
        ] {
            assert_eq!(cents(text), hundredths);
            assert_eq!(money(hundredths), text);
        }
        assert_eq!(cents("5"), 500);
    }

    #[test]
    fn numbers_that_are_not_uniform_stay_in_range() {
        let mut random = fastrand::Rng::with_seed(1);
        let drawn: Vec<u32> = (0..10_000)
            .map(|_| nurand(&mut random, 1023, 259, 1, 3000))
            .collect();
        assert!(drawn.iter().all(|number| (1..=3000).contains(number)));
        assert_eq!(Scale::SPECIFIED.delivered(), 2100);
    }
}
