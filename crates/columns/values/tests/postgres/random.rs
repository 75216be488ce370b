//! Random arguments as text, with the edges of each type over-represented; repeatable from a seed.
//!
//! Must not: leave out what PostgreSQL accepts because it is hard.

use strongroom_columns_ring::function::{Arg, Field, Function, Gives};
use strongroom_columns_values::{Buf, Settings, Value, print};
use strongroom_format::columns::Kind;

pub(crate) mod documents;
mod moments;

/// A generator: the mixing of `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    /// For the tests of `what`, from the seed of this run, which is printed.
    pub(crate) fn for_test(what: &str) -> Self {
        let seed = seed();
        println!("STRONGROOM_SEED={seed} ({what})");
        let salt = what.bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(131).wrapping_add(u64::from(byte))
        });
        Self(seed ^ salt)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn within(&mut self, least: i64, greatest: i64) -> i64 {
        let span = greatest.abs_diff(least);
        let offset = if span == u64::MAX {
            self.next()
        } else {
            self.next() % (span + 1)
        };
        least.wrapping_add_unsigned(offset)
    }

    /// A number of any magnitude that fits `bits` with its sign.
    fn integer(&mut self, bits: u32) -> i64 {
        let width = u32::try_from(self.below(usize::try_from(bits).unwrap())).unwrap();
        let magnitude = self.next() >> (63 - width);
        let number = i64::try_from(magnitude >> 1).unwrap();
        if self.one_in(2) { -number } else { number }
    }
}

/// The seed of this run: of the environment, otherwise the same each time.
fn seed() -> u64 {
    match std::env::var("STRONGROOM_SEED") {
        Ok(seed) => seed.parse().expect("STRONGROOM_SEED is a number"),
        Err(_) => 20_151_122,
    }
}

/// How many cases a function gets.
pub(crate) fn cases() -> usize {
    match std::env::var("STRONGROOM_CASES") {
        Ok(cases) => cases.parse().expect("STRONGROOM_CASES is a number"),
        Err(_) => 2000,
    }
}

fn printed(kind: Kind, value: Value<'_>) -> String {
    let mut buf = Buf::new();
    print(kind, value, &Settings::utc(), &mut buf).unwrap();
    String::from_utf8(buf.as_slice().to_vec()).unwrap()
}

/// A value of the kind, as text.
pub(crate) fn value(random: &mut Random, kind: Kind) -> String {
    match kind {
        Kind::Bool => random.pick(&["true", "false"]).to_owned(),
        Kind::Int4 => int4(random).to_string(),
        Kind::Int8 => int8(random).to_string(),
        Kind::Float8 => float8(random),
        Kind::Numeric => numeric(random),
        Kind::Text => text(random),
        Kind::Bytea => printed(kind, Value::Bytes(text(random).as_bytes())),
        Kind::Date => moments::date(random),
        Kind::Timestamp => moments::timestamp(random),
        Kind::Timestamptz => moments::zoned(&moments::timestamp(random)),
        Kind::Interval => moments::interval(random),
        Kind::Uuid => uuid(random),
        Kind::Time => moments::time(random),
        Kind::Jsonb => documents::document(random),
    }
}

fn int4(random: &mut Random) -> i32 {
    match random.below(4) {
        0 => random.pick(&[
            0,
            1,
            -1,
            i32::MAX,
            i32::MIN,
            i32::MAX - 1,
            i32::MIN + 1,
            46_340,
            46_341,
            65_536,
        ]),
        1 => i32::try_from(random.within(-20, 20)).unwrap(),
        _ => i32::try_from(random.integer(31)).unwrap(),
    }
}

fn int8(random: &mut Random) -> i64 {
    match random.below(4) {
        0 => random.pick(&[
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            1 << 53,
            (1 << 53) + 1,
            (1 << 55) - 1,
            -(1 << 55) - 1,
            3_037_000_500,
            i64::from(i32::MAX) + 1,
            i64::from(i32::MIN),
        ]),
        1 => random.within(-20, 20),
        _ => random.integer(63),
    }
}

fn float8(random: &mut Random) -> String {
    const EDGES: [&str; 30] = [
        "0",
        "-0",
        "1",
        "-1",
        "NaN",
        "Infinity",
        "-Infinity",
        "1.7976931348623157e308",
        "-1.7976931348623157e308",
        "2.2250738585072014e-308",
        "5e-324",
        "-5e-324",
        "0.5",
        "1.5",
        "2.5",
        "-0.5",
        "-1.5",
        "2147483647.5",
        "-2147483648.5",
        "2147483647.4999",
        "9223372036854775807",
        "-9223372036854775808",
        "9007199254740993",
        "1e15",
        "1e16",
        "123456789012345",
        "0.0001",
        "0.00001",
        "1152921504606846976",
        "1e-300",
    ];
    match random.below(5) {
        0 => random.pick(&EDGES).to_owned(),
        1 => format!("{:e}", f64::from_bits(random.next())).replace("inf", "Infinity"),
        2 => format!("{}e{}", random.within(-999, 999), random.within(-30, 30)),
        // Powers of two, where the neighbours are not equally far.
        3 => format!(
            "{:e}",
            (random.within(-4, 4) as f64)
                * 2.0_f64.powi(i32::try_from(random.within(-80, 80)).unwrap())
        ),
        _ => format!("{}.{}", random.within(-5000, 5000), random.below(1000)),
    }
}

fn digits(random: &mut Random, count: usize) -> String {
    let fill = random.below(6);
    let digit = |random: &mut Random| match fill {
        0 => 0,
        1 => 9,
        _ => u8::try_from(random.below(10)).unwrap(),
    };
    (0..count)
        .map(|_| char::from(b'0' + digit(random)))
        .collect()
}

fn numeric(random: &mut Random) -> String {
    const EDGES: [&str; 26] = [
        "0",
        "0.00",
        "1",
        "-1",
        "1.0",
        "NaN",
        "Infinity",
        "-Infinity",
        "9999",
        "10000",
        "0.0001",
        "0.00001",
        "9999.9999",
        "-0.5",
        "0.5",
        "1.5",
        "2147483647.5",
        "-2147483648.5",
        "9223372036854775807.4",
        "9223372036854775807.5",
        "36028797018963967",
        "36028797018963968",
        "-36028797018963968",
        "-36028797018963969",
        "1e130",
        "1e-130",
    ];
    let sign = random.pick(&["", "", "-"]);
    match random.below(40) {
        0..8 => random.pick(&EDGES).to_owned(),
        8..28 => {
            let (whole, fraction) = (1 + random.below(9), random.below(7));
            format!(
                "{sign}{}.{}",
                digits(random, whole),
                digits(random, fraction)
            )
        }
        28..38 => {
            let (whole, fraction) = (1 + random.below(40), random.below(40));
            format!(
                "{sign}{}.{}",
                digits(random, whole),
                digits(random, fraction)
            )
        }
        38 => format!("{sign}{}e{}", digits(random, 5), random.within(-200, 400)),
        _ => {
            let (whole, fraction) = (1 + random.below(300), random.below(300));
            format!(
                "{sign}{}.{}",
                digits(random, whole),
                digits(random, fraction)
            )
        }
    }
}

/// Short texts of few letters, so that parts are found in one another.
pub(crate) fn text(random: &mut Random) -> String {
    const LETTERS: [char; 14] = [
        'a',
        'b',
        'c',
        'A',
        'B',
        '%',
        '_',
        '\\',
        ' ',
        '\u{e9}',
        '\u{c9}',
        '\u{65e5}',
        '\u{1f600}',
        'x',
    ];
    let (count, letters) = (random.below(13), 1 + random.below(LETTERS.len()));
    (0..count).map(|_| LETTERS[random.below(letters)]).collect()
}

/// A uuid as the server prints it; some are the same in most of their digits.
fn uuid(random: &mut Random) -> String {
    let mut bytes = [random.pick(&[0, 0xff, 0x7f, 0x80]); 16];
    match random.below(3) {
        0 => bytes[random.below(16)] = random.next().to_le_bytes()[0],
        1 => {}
        _ => bytes = (u128::from(random.next()) << 64 | u128::from(random.next())).to_be_bytes(),
    }
    printed(Kind::Uuid, Value::Bytes(&bytes))
}

/// A uuid in a form that the server accepts, or nearly one.
pub(crate) fn uuid_like(random: &mut Random) -> String {
    let mut digits = uuid(random).replace('-', "");
    if random.one_in(4) {
        digits = digits.to_ascii_uppercase();
    }
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 4 == 0 && random.one_in(2) {
            text.push('-');
        }
        text.push(digit);
    }
    match random.below(12) {
        0 => format!("{{{text}}}"),
        1 => format!("{{{text}"),
        2 => text + "}",
        3 => text + "-",
        4 => {
            let at = random.below(text.len());
            text.remove(at);
            text
        }
        5 => {
            let at = random.below(text.len());
            text.insert(at, random.pick(&['-', 'g', 'A', ' ']));
            text
        }
        _ => text,
    }
}

/// The arguments of one call, each as text.
pub(crate) fn arguments(random: &mut Random, function: &Function) -> Vec<String> {
    let mut args: Vec<String> = function
        .args
        .iter()
        .map(|arg| argument(random, function, *arg))
        .collect();
    // Patterns and parts that come from the text itself, so that something matches.
    let is_search = matches!(function.code, 171 | 172 | 174..=177 | 179..=182 | 185);
    if is_search && random.one_in(2) {
        args[1] = pattern_of(random, &args[0]);
    }
    if matches!(function.code, 194..=197) {
        args[1] = regular_expression(random, &args[0]);
    }
    if matches!(function.code, 280..=286) && random.one_in(2) {
        args = documents::arguments(random, function.code);
    }
    if function.code == 178 && !random.one_in(4) {
        args[1] = random
            .pick(&["", "\\", "x", "%", "\u{e9}", "a", "xy"])
            .to_owned();
    }
    args
}

/// Names of time zones, some of which there are not.
const ZONE_NAMES: &[&str] = &[
    "UTC",
    "gmt",
    "Zulu",
    "America/New_York",
    "europe/berlin",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "EST5EDT",
    "Japan",
    "+05:30",
    "-11",
    "UTC-3",
    "<+03>-3",
    "",
    "Nowhere/Town",
    "+",
];

/// Parts of regular expressions, some of which are valid nowhere.
const REGULAR_EXPRESSION_PARTS: &[&str] = &[
    "a",
    "B",
    "x",
    " ",
    "\u{e9}",
    ".",
    ".",
    "^",
    "$",
    "(",
    ")",
    "(?:",
    "|",
    "*",
    "+",
    "?",
    "*?",
    "{2}",
    "{0,1}",
    "{1,}",
    "{3,2}",
    "{",
    "}",
    "]",
    "[a-f]",
    "[^a]",
    "[A-Z0-9_]",
    "[]a]",
    "[^]b-]",
    "[a-]",
    "[[:alpha:]]",
    "[[:upper:][:digit:]]",
    "[^[:space:]]",
    "[[:punct:]]",
    "[\\w-]",
    "[\\D]",
    "[b-a]",
    "[",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\m",
    "\\M",
    "\\y",
    "\\A",
    "\\Z",
    "\\.",
    "\\t",
    "\\q",
    "\\",
    "-",
    "%",
    "_",
    "(a|b)",
    "(x*)",
    "***",
    "(?i)",
];

/// Regular expressions, some of which are none, with characters of the text that is searched.
fn regular_expression(random: &mut Random, text: &str) -> String {
    let own: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
    let mut made = String::new();
    for _ in 0..random.within(1, 7) {
        if random.one_in(2) && !own.is_empty() {
            made.push(random.pick(&own));
        } else {
            made.push_str(random.pick(REGULAR_EXPRESSION_PARTS));
        }
    }
    made
}

fn argument(random: &mut Random, function: &Function, arg: Arg) -> String {
    match arg {
        Arg::Of(Kind::Text) if function.gives == Gives::Value(Kind::Uuid) => uuid_like(random),
        Arg::Of(Kind::Text) if function.gives == Gives::Value(Kind::Jsonb) => {
            documents::document_like(random)
        }
        Arg::Of(Kind::Text) if function.code >= 340 => number_like(random),
        Arg::Of(Kind::Int4) if matches!(function.code, 200 | 201 | 237) && random.one_in(2) => {
            random.within(-100_000, 100_000).to_string()
        }
        Arg::Of(Kind::Text) if matches!(function.code, 226..=228) => {
            random.pick(ZONE_NAMES).to_owned()
        }
        Arg::Of(kind) => value(random, kind),
        Arg::Name => {
            let aliased = random.one_in(3);
            let names = if aliased { Field::ALIASES } else { Field::ALL };
            random.pick(names).0.to_owned()
        }
        Arg::Plain => plain(random, function.code).to_string(),
    }
}

fn plain(random: &mut Random, code: u16) -> i64 {
    if code == 312 {
        let (precision, scale) = (random.within(1, 45), random.within(-8, 50));
        return match random.below(20) {
            0 => random.pick(&[-1, 0, 3, 4]),
            1 => (1000 << 16 | random.within(0, 1000)) + 4,
            _ => (precision << 16 | (scale & 0x7ff)) + 4,
        };
    }
    if random.one_in(20) {
        let edges: &[i64] = if code < 160 {
            &[
                -131_074,
                -131_072,
                400,
                16_383,
                2_147_483_647,
                -2_147_483_648,
            ]
        } else {
            &[2_147_483_647, -2_147_483_648]
        };
        return random.pick(edges);
    }
    random.within(-12, 20)
}

/// Texts that are numbers, or nearly.
pub(crate) fn number_like(random: &mut Random) -> String {
    const PARTS: [&str; 29] = [
        "0",
        "1",
        "9",
        "12",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "-",
        "+",
        ".",
        "e",
        "E",
        " ",
        "\t",
        "e5",
        "e-3",
        "e400",
        "NaN",
        "Infinity",
        "inf",
        "-inf",
        "00",
        "x",
        ".5",
        "5.",
        "0x",
        "0xAp3",
        "p-5",
    ];
    match random.below(5) {
        0 => int8(random).to_string(),
        1 => numeric(random),
        2 => float8(random),
        3 => format!("  {} ", int4(random)),
        _ => (0..1 + random.below(4))
            .map(|_| random.pick(&PARTS))
            .collect(),
    }
}

fn pattern_of(random: &mut Random, text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match random.below(9) {
            0 => pattern.push('%'),
            1 => pattern.push('_'),
            2 => {}
            3 => pattern.extend(['\\', c]),
            4 => pattern.extend(['%', c]),
            5 => pattern.extend(c.to_uppercase()),
            _ => pattern.push(c),
        }
    }
    if random.one_in(3) {
        pattern + "%"
    } else {
        pattern
    }
}
