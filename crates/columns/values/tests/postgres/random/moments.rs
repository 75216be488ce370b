//! Random dates, timestamps, times of day and intervals.

use strongroom_columns_values::Value;
use strongroom_format::columns::Kind;

use super::{Random, printed};

pub(super) fn date(random: &mut Random) -> String {
    const EDGES: [&str; 18] = [
        "infinity",
        "-infinity",
        "4714-11-24 BC",
        "5874897-12-31",
        "0001-01-01",
        "0001-12-31 BC",
        "2000-02-29",
        "1900-02-28",
        "294276-12-31",
        "294277-01-01",
        "1999-12-31",
        "2000-01-01",
        "1970-01-01",
        "2021-01-03",
        "2020-12-31",
        "0101-01-01 BC",
        "0100-12-31 BC",
        "1000-12-31",
    ];
    match random.below(4) {
        0 => random.pick(&EDGES).to_owned(),
        1 => printed(
            Kind::Date,
            Value::of_int8(random.within(-2_451_545, 2_145_031_948)),
        ),
        2 => printed(Kind::Date, Value::of_int8(random.within(-800_000, 800_000))),
        _ => printed(Kind::Date, Value::of_int8(random.within(-4000, 11_000))),
    }
}

pub(super) fn timestamp(random: &mut Random) -> String {
    const EDGES: [&str; 12] = [
        "infinity",
        "-infinity",
        "4714-11-24 00:00:00 BC",
        "294276-12-31 23:59:59.999999",
        "2000-01-01 00:00:00",
        "1999-12-31 23:59:59.999999",
        "2021-03-14 02:30:00",
        "2021-11-07 01:30:00",
        "2024-02-29 12:00:00",
        "0001-01-01 00:00:00",
        "0001-12-31 23:59:59 BC",
        "294247-06-01 00:00:00",
    ];
    let micros = match random.below(5) {
        0 => return random.pick(&EDGES).to_owned(),
        1 => random.within(-211_813_488_000_000_000, 9_223_371_331_199_999_999),
        2 => random.within(-2_000_000, 2_000_000) * 3_600_000_000,
        // Around changes of the clocks in some spring or autumn.
        3 => random.within(-120, 400) * 7 * 86_400_000_000 + random.within(-24, 24) * 1_800_000_000,
        _ => random.within(-946_684_800_000_000, 1_500_000_000_000_000),
    };
    printed(Kind::Timestamp, Value::of_int8(micros))
}

pub(super) fn zoned(timestamp: &str) -> String {
    match timestamp.strip_suffix(" BC") {
        Some(before) => format!("{before}+00 BC"),
        None if timestamp.ends_with('y') => timestamp.to_owned(),
        None => format!("{timestamp}+00"),
    }
}

pub(super) fn interval(random: &mut Random) -> String {
    let (months, days, micros) = match random.below(4) {
        0 => (
            i64::from(random.pick(&[0, 1, -1, 12, i32::MAX, i32::MIN, 1200])),
            i64::from(random.pick(&[0, 1, -1, 30, 7, i32::MAX, i32::MIN])),
            random.pick(&[
                0,
                1,
                -1,
                i64::MAX,
                i64::MIN + 1,
                86_400_000_000,
                -86_399_999_999,
            ]),
        ),
        1 => (0, random.within(-400, 400), 0),
        2 => (random.within(-40, 40), 0, 0),
        _ => (
            random.within(-400, 400),
            random.within(-4000, 4000),
            random.integer(50),
        ),
    };
    let mut bytes = micros.to_le_bytes().to_vec();
    bytes.extend(i32::try_from(days).unwrap().to_le_bytes());
    bytes.extend(i32::try_from(months).unwrap().to_le_bytes());
    printed(Kind::Interval, Value::Bytes(&bytes))
}

pub(super) fn time(random: &mut Random) -> String {
    const DAY: i64 = 86_400_000_000;
    let micros = match random.below(4) {
        0 => random.pick(&[0, 1, DAY, DAY - 1, DAY / 2, 3_600_000_000]),
        1 => random.within(0, 24) * 3_600_000_000,
        _ => random.within(0, DAY),
    };
    printed(Kind::Time, Value::of_int8(micros))
}
