//! The functions that the zone computes, each with PostgreSQL's name for it (`pg_proc.proname`) and
//! its types: the one list that the zone's operators, the extension's SQL and the tests are made
//! from.
//!
//! Comparison, equality tokens and aggregates are operations of their own (`op.rs`). Must not:
//! compute anything.

use strongroom_format::columns::Kind;

/// Type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A confidential value.
    Of(Kind),
    /// An `integer` in clear: a position, a length, a number of digits.
    Plain,
    /// A field of a date or time in clear, as a [`Field`] number; `text` in SQL.
    Name,
}

/// The kind of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A confidential value: the operation can be posted.
    Value(Kind),
    /// A `boolean` in clear: the operation is called.
    Truth,
}

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Number in descriptors; never reused.
    pub code: u16,
    /// PostgreSQL's name: with the arguments' kinds it is unique.
    pub name: &'static str,
    /// Arguments, one to three.
    pub args: &'static [Arg],
    /// The result.
    pub gives: Gives,
}

impl Function {
    /// Whether it is a cast that gives the same number or date in another type, or fails. Fitting a
    /// numeric to a precision and scale is one for the numbers that it does not change.
    #[must_use]
    pub const fn keeps_value(&self) -> bool {
        matches!(self.code, 300..=303 | 305 | 312 | 316)
    }
}

/// The fields of `date_part`, `extract` and `date_trunc`, with PostgreSQL's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "PostgreSQL's names")]
pub enum Field {
    Microseconds = 1,
    Milliseconds = 2,
    Second = 3,
    Minute = 4,
    Hour = 5,
    Day = 6,
    Week = 7,
    Month = 8,
    Quarter = 9,
    Year = 10,
    Decade = 11,
    Century = 12,
    Millennium = 13,
    Dow = 14,
    Isodow = 15,
    Doy = 16,
    Isoyear = 17,
    Julian = 18,
    Epoch = 19,
}

impl Field {
    /// Every field with its name.
    pub const ALL: &[(&str, Self)] = &[
        ("microseconds", Self::Microseconds),
        ("milliseconds", Self::Milliseconds),
        ("second", Self::Second),
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("quarter", Self::Quarter),
        ("year", Self::Year),
        ("decade", Self::Decade),
        ("century", Self::Century),
        ("millennium", Self::Millennium),
        ("dow", Self::Dow),
        ("isodow", Self::Isodow),
        ("doy", Self::Doy),
        ("isoyear", Self::Isoyear),
        ("julian", Self::Julian),
        ("epoch", Self::Epoch),
    ];

    /// Other names of fields, plurals and abbreviations, as PostgreSQL knows them (`deltatktbl` of
    /// src/backend/utils/adt/datetime.c).
    pub const ALIASES: &[(&str, Self)] = &[
        ("us", Self::Microseconds),
        ("usec", Self::Microseconds),
        ("usecs", Self::Microseconds),
        ("usecond", Self::Microseconds),
        ("useconds", Self::Microseconds),
        ("ms", Self::Milliseconds),
        ("msec", Self::Milliseconds),
        ("msecs", Self::Milliseconds),
        ("msecond", Self::Milliseconds),
        ("mseconds", Self::Milliseconds),
        ("s", Self::Second),
        ("sec", Self::Second),
        ("secs", Self::Second),
        ("seconds", Self::Second),
        ("m", Self::Minute),
        ("min", Self::Minute),
        ("mins", Self::Minute),
        ("minutes", Self::Minute),
        ("h", Self::Hour),
        ("hr", Self::Hour),
        ("hrs", Self::Hour),
        ("hours", Self::Hour),
        ("d", Self::Day),
        ("days", Self::Day),
        ("w", Self::Week),
        ("weeks", Self::Week),
        ("mon", Self::Month),
        ("mons", Self::Month),
        ("months", Self::Month),
        ("qtr", Self::Quarter),
        ("y", Self::Year),
        ("yr", Self::Year),
        ("yrs", Self::Year),
        ("years", Self::Year),
        ("dec", Self::Decade),
        ("decs", Self::Decade),
        ("decades", Self::Decade),
        ("c", Self::Century),
        ("cent", Self::Century),
        ("centuries", Self::Century),
        ("mil", Self::Millennium),
        ("mils", Self::Millennium),
        ("millennia", Self::Millennium),
    ];

    /// The field of this PostgreSQL name or alias, in upper or lower case. `None` for an unknown
    /// one. As in PostgreSQL the first ten characters tell one name from another.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let cut = |name: &str| name.chars().take(10).collect::<String>();
        let wanted = cut(name);
        let mut known = Self::ALL.iter().chain(Self::ALIASES);
        let found = known.find(|(known, _)| cut(known).eq_ignore_ascii_case(&wanted));
        found.map(|(_, field)| *field)
    }

    /// The field of this number. `None` for an unknown one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .map(|(_, field)| *field)
            .find(|field| *field as u8 == number)
    }
}

macro_rules! arg {
    (Plain) => {
        Arg::Plain
    };
    (Name) => {
        Arg::Name
    };
    ($kind:ident) => {
        Arg::Of(Kind::$kind)
    };
}
macro_rules! gives {
    (Truth) => {
        Gives::Truth
    };
    ($kind:ident) => {
        Gives::Value(Kind::$kind)
    };
}
macro_rules! functions {
    ($($code:literal $name:literal ($($arg:ident),+) -> $gives:ident;)*) => {
        /// Every function, in order of code.
        pub const FUNCTIONS: &[Function] = &[$(Function {
            code: $code,
            name: $name,
            args: &[$(arg!($arg)),+],
            gives: gives!($gives),
        }),*];
    };
}

functions! {
    // integer
    100 "int4pl" (Int4, Int4) -> Int4;
    101 "int4mi" (Int4, Int4) -> Int4;
    102 "int4mul" (Int4, Int4) -> Int4;
    103 "int4div" (Int4, Int4) -> Int4;
    104 "int4mod" (Int4, Int4) -> Int4;
    105 "int4um" (Int4) -> Int4;
    106 "abs" (Int4) -> Int4;
    // bigint
    110 "int8pl" (Int8, Int8) -> Int8;
    111 "int8mi" (Int8, Int8) -> Int8;
    112 "int8mul" (Int8, Int8) -> Int8;
    113 "int8div" (Int8, Int8) -> Int8;
    114 "int8mod" (Int8, Int8) -> Int8;
    115 "int8um" (Int8) -> Int8;
    116 "abs" (Int8) -> Int8;
    // double precision
    120 "float8pl" (Float8, Float8) -> Float8;
    121 "float8mi" (Float8, Float8) -> Float8;
    122 "float8mul" (Float8, Float8) -> Float8;
    123 "float8div" (Float8, Float8) -> Float8;
    124 "float8um" (Float8) -> Float8;
    125 "abs" (Float8) -> Float8;
    126 "sqrt" (Float8) -> Float8;
    127 "round" (Float8) -> Float8;
    128 "trunc" (Float8) -> Float8;
    129 "ceil" (Float8) -> Float8;
    130 "floor" (Float8) -> Float8;
    131 "sign" (Float8) -> Float8;
    // numeric
    140 "numeric_add" (Numeric, Numeric) -> Numeric;
    141 "numeric_sub" (Numeric, Numeric) -> Numeric;
    142 "numeric_mul" (Numeric, Numeric) -> Numeric;
    143 "numeric_div" (Numeric, Numeric) -> Numeric;
    144 "numeric_mod" (Numeric, Numeric) -> Numeric;
    145 "numeric_uminus" (Numeric) -> Numeric;
    146 "abs" (Numeric) -> Numeric;
    147 "round" (Numeric, Plain) -> Numeric;
    148 "round" (Numeric) -> Numeric;
    149 "trunc" (Numeric, Plain) -> Numeric;
    150 "trunc" (Numeric) -> Numeric;
    151 "ceil" (Numeric) -> Numeric;
    152 "floor" (Numeric) -> Numeric;
    153 "sqrt" (Numeric) -> Numeric;
    154 "sign" (Numeric) -> Numeric;
    // text, collation "C"
    160 "textcat" (Text, Text) -> Text;
    161 "upper" (Text) -> Text;
    162 "lower" (Text) -> Text;
    163 "length" (Text) -> Int4;
    164 "substring" (Text, Plain) -> Text;
    165 "substring" (Text, Plain, Plain) -> Text;
    166 "left" (Text, Plain) -> Text;
    167 "right" (Text, Plain) -> Text;
    168 "btrim" (Text) -> Text;
    169 "ltrim" (Text) -> Text;
    170 "rtrim" (Text) -> Text;
    171 "strpos" (Text, Text) -> Int4;
    172 "replace" (Text, Text, Text) -> Text;
    173 "octet_length" (Text) -> Int4;
    174 "textlike" (Text, Text) -> Truth;
    175 "textnlike" (Text, Text) -> Truth;
    176 "texticlike" (Text, Text) -> Truth;
    177 "texticnlike" (Text, Text) -> Truth;
    178 "like_escape" (Text, Text) -> Text;
    179 "starts_with" (Text, Text) -> Truth;
    180 "btrim" (Text, Text) -> Text;
    181 "ltrim" (Text, Text) -> Text;
    182 "rtrim" (Text, Text) -> Text;
    183 "lpad" (Text, Plain, Text) -> Text;
    184 "rpad" (Text, Plain, Text) -> Text;
    185 "split_part" (Text, Text, Plain) -> Text;
    186 "reverse" (Text) -> Text;
    187 "ascii" (Text) -> Int4;
    // bytea
    190 "byteacat" (Bytea, Bytea) -> Bytea;
    191 "length" (Bytea) -> Int4;
    192 "substring" (Bytea, Plain) -> Bytea;
    193 "substring" (Bytea, Plain, Plain) -> Bytea;
    // regular expressions on text, collation "C"
    194 "textregexeq" (Text, Text) -> Truth;
    195 "textregexne" (Text, Text) -> Truth;
    196 "texticregexeq" (Text, Text) -> Truth;
    197 "texticregexne" (Text, Text) -> Truth;
    // date
    200 "date_pli" (Date, Int4) -> Date;
    201 "date_mii" (Date, Int4) -> Date;
    202 "date_mi" (Date, Date) -> Int4;
    203 "date_pl_interval" (Date, Interval) -> Timestamp;
    204 "date_mi_interval" (Date, Interval) -> Timestamp;
    205 "date_part" (Name, Date) -> Float8;
    206 "extract" (Name, Date) -> Numeric;
    // timestamp
    210 "timestamp_pl_interval" (Timestamp, Interval) -> Timestamp;
    211 "timestamp_mi_interval" (Timestamp, Interval) -> Timestamp;
    212 "timestamp_mi" (Timestamp, Timestamp) -> Interval;
    213 "date_part" (Name, Timestamp) -> Float8;
    214 "extract" (Name, Timestamp) -> Numeric;
    215 "date_trunc" (Name, Timestamp) -> Timestamp;
    // timestamp with time zone: in the session's zone
    220 "timestamptz_pl_interval" (Timestamptz, Interval) -> Timestamptz;
    221 "timestamptz_mi_interval" (Timestamptz, Interval) -> Timestamptz;
    222 "timestamptz_mi" (Timestamptz, Timestamptz) -> Interval;
    223 "date_part" (Name, Timestamptz) -> Float8;
    224 "extract" (Name, Timestamptz) -> Numeric;
    225 "date_trunc" (Name, Timestamptz) -> Timestamptz;
    // in the time zone of this name; AT TIME ZONE calls timezone
    226 "date_trunc" (Name, Timestamptz, Text) -> Timestamptz;
    227 "timezone" (Text, Timestamptz) -> Timestamp;
    228 "timezone" (Text, Timestamp) -> Timestamptz;
    // interval
    230 "interval_pl" (Interval, Interval) -> Interval;
    231 "interval_mi" (Interval, Interval) -> Interval;
    232 "interval_um" (Interval) -> Interval;
    233 "interval_mul" (Interval, Float8) -> Interval;
    234 "date_part" (Name, Interval) -> Float8;
    235 "extract" (Name, Interval) -> Numeric;
    236 "interval_div" (Interval, Float8) -> Interval;
    // operands the other way round
    237 "integer_pl_date" (Int4, Date) -> Date;
    238 "interval_pl_date" (Interval, Date) -> Timestamp;
    239 "interval_pl_timestamp" (Interval, Timestamp) -> Timestamp;
    240 "interval_pl_timestamptz" (Interval, Timestamptz) -> Timestamptz;
    241 "mul_d_interval" (Float8, Interval) -> Interval;
    // time of day
    242 "time_pl_interval" (Time, Interval) -> Time;
    243 "time_mi_interval" (Time, Interval) -> Time;
    244 "interval_pl_time" (Interval, Time) -> Time;
    245 "time_mi_time" (Time, Time) -> Interval;
    246 "datetime_pl" (Date, Time) -> Timestamp;
    247 "timedate_pl" (Time, Date) -> Timestamp;
    248 "date_part" (Name, Time) -> Float8;
    249 "extract" (Name, Time) -> Numeric;
    // also of a time, which PostgreSQL makes an interval for it
    250 "date_trunc" (Name, Interval) -> Interval;
    // bits of whole numbers
    260 "int4and" (Int4, Int4) -> Int4;
    261 "int4or" (Int4, Int4) -> Int4;
    262 "int4xor" (Int4, Int4) -> Int4;
    263 "int4not" (Int4) -> Int4;
    264 "int4shl" (Int4, Int4) -> Int4;
    265 "int4shr" (Int4, Int4) -> Int4;
    270 "int8and" (Int8, Int8) -> Int8;
    271 "int8or" (Int8, Int8) -> Int8;
    272 "int8xor" (Int8, Int8) -> Int8;
    273 "int8not" (Int8) -> Int8;
    274 "int8shl" (Int8, Int4) -> Int8;
    275 "int8shr" (Int8, Int4) -> Int8;
    // documents
    280 "jsonb_object_field" (Jsonb, Text) -> Jsonb;
    281 "jsonb_object_field_text" (Jsonb, Text) -> Text;
    282 "jsonb_array_element" (Jsonb, Int4) -> Jsonb;
    283 "jsonb_array_element_text" (Jsonb, Int4) -> Text;
    284 "jsonb_contains" (Jsonb, Jsonb) -> Truth;
    285 "jsonb_contained" (Jsonb, Jsonb) -> Truth;
    286 "jsonb_exists" (Jsonb, Text) -> Truth;
    // casts
    300 "int8" (Int4) -> Int8;
    301 "float8" (Int4) -> Float8;
    302 "numeric" (Int4) -> Numeric;
    303 "int4" (Int8) -> Int4;
    304 "float8" (Int8) -> Float8;
    305 "numeric" (Int8) -> Numeric;
    306 "int4" (Float8) -> Int4;
    307 "int8" (Float8) -> Int8;
    308 "numeric" (Float8) -> Numeric;
    309 "int4" (Numeric) -> Int4;
    310 "int8" (Numeric) -> Int8;
    311 "float8" (Numeric) -> Float8;
    // typmod of numeric(precision, scale), as numerictypmodin packs it
    312 "numeric" (Numeric, Plain) -> Numeric;
    313 "int4" (Bool) -> Int4;
    314 "bool" (Int4) -> Bool;
    315 "date" (Timestamp) -> Date;
    316 "timestamp" (Date) -> Timestamp;
    317 "timestamptz" (Date) -> Timestamptz;
    318 "timestamptz" (Timestamp) -> Timestamptz;
    319 "timestamp" (Timestamptz) -> Timestamp;
    320 "date" (Timestamptz) -> Date;
    321 "time" (Timestamp) -> Time;
    322 "time" (Timestamptz) -> Time;
    323 "time" (Interval) -> Time;
    324 "interval" (Time) -> Interval;
    330 "text" (Bool) -> Text;
    331 "text" (Int4) -> Text;
    332 "text" (Int8) -> Text;
    333 "text" (Float8) -> Text;
    334 "text" (Numeric) -> Text;
    335 "text" (Date) -> Text;
    336 "text" (Timestamp) -> Text;
    337 "text" (Timestamptz) -> Text;
    338 "text" (Uuid) -> Text;
    339 "text" (Time) -> Text;
    340 "int4" (Text) -> Int4;
    341 "int8" (Text) -> Int8;
    342 "numeric" (Text) -> Numeric;
    343 "float8" (Text) -> Float8;
    344 "uuid" (Text) -> Uuid;
    345 "text" (Jsonb) -> Text;
    346 "jsonb" (Text) -> Jsonb;
    347 "text" (Interval) -> Text;
}

/// Further names that PostgreSQL has for functions of the list, each with the list's name. Each is
/// a name of all functions of that name.
pub const ALIASES: &[(&str, &str)] = &[
    ("mod", "int4mod"),
    ("mod", "int8mod"),
    ("mod", "numeric_mod"),
    ("ceiling", "ceil"),
    ("char_length", "length"),
    ("character_length", "length"),
    ("substr", "substring"),
    ("position", "strpos"),
];

/// The function of this code. `None` for an unknown one.
#[must_use]
pub fn by_code(code: u16) -> Option<&'static Function> {
    let at = FUNCTIONS
        .binary_search_by_key(&code, |function| function.code)
        .ok()?;
    FUNCTIONS.get(at)
}

/// The function of this name of the list and exactly these arguments. `None` if there is none; does
/// not look into [`ALIASES`].
#[must_use]
pub fn by_name(name: &str, args: &[Arg]) -> Option<&'static Function> {
    FUNCTIONS
        .iter()
        .find(|function| function.name == name && function.args == args)
}

/// An aggregate; its number is used in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Aggregate {
    /// `sum`: of int4 an int8, of int8 a numeric, otherwise of the values' kind (float8, numeric,
    /// interval).
    Sum = 1,
    /// `avg`: of float8 a float8, of interval an interval, otherwise a numeric.
    Avg = 2,
    /// `min`, by the kind's order.
    Min = 3,
    /// `max`, by the kind's order.
    Max = 4,
    /// `stddev_samp`.
    StddevSamp = 5,
    /// `stddev_pop`.
    StddevPop = 6,
    /// `var_samp`.
    VarSamp = 7,
    /// `var_pop`.
    VarPop = 8,
    /// `string_agg` of text: the second argument is the delimiter.
    StringAgg = 9,
    /// `bool_and`.
    BoolAnd = 10,
    /// `bool_or`.
    BoolOr = 11,
}

impl Aggregate {
    /// Every aggregate.
    pub const ALL: &[Self] = &[
        Self::Sum,
        Self::Avg,
        Self::Min,
        Self::Max,
        Self::StddevSamp,
        Self::StddevPop,
        Self::VarSamp,
        Self::VarPop,
        Self::StringAgg,
        Self::BoolAnd,
        Self::BoolOr,
    ];

    /// The aggregate of this number. `None` for an unknown one.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|aggregate| *aggregate as u16 == number)
    }

    /// The kind of this aggregate's result for values of `kind`. `None` if PostgreSQL or this list
    /// has no such aggregate.
    #[must_use]
    pub const fn gives(self, kind: Kind) -> Option<Kind> {
        match (self, kind) {
            (Self::Sum, Kind::Int4) => Some(Kind::Int8),
            (Self::Sum, Kind::Int8 | Kind::Numeric) => Some(Kind::Numeric),
            (Self::Sum | Self::Avg, Kind::Float8) => Some(Kind::Float8),
            (Self::Sum | Self::Avg, Kind::Interval) => Some(Kind::Interval),
            (Self::Avg, Kind::Int4 | Kind::Int8 | Kind::Numeric) => Some(Kind::Numeric),
            (Self::Min | Self::Max, Kind::Bool | Kind::Bytea | Kind::Uuid | Kind::Jsonb) => None,
            (Self::Min | Self::Max, _) => Some(kind),
            (Self::StddevSamp | Self::StddevPop | Self::VarSamp | Self::VarPop, Kind::Float8) => {
                Some(Kind::Float8)
            }
            (
                Self::StddevSamp | Self::StddevPop | Self::VarSamp | Self::VarPop,
                Kind::Int4 | Kind::Int8 | Kind::Numeric,
            ) => Some(Kind::Numeric),
            (Self::StringAgg, Kind::Text) => Some(Kind::Text),
            (Self::BoolAnd | Self::BoolOr, Kind::Bool) => Some(Kind::Bool),
            _ => None,
        }
    }
}

/// PostgreSQL's names of aggregates.
pub const AGGREGATE_NAMES: &[(&str, Aggregate)] = &[
    ("sum", Aggregate::Sum),
    ("avg", Aggregate::Avg),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("stddev", Aggregate::StddevSamp),
    ("stddev_samp", Aggregate::StddevSamp),
    ("stddev_pop", Aggregate::StddevPop),
    ("variance", Aggregate::VarSamp),
    ("var_samp", Aggregate::VarSamp),
    ("var_pop", Aggregate::VarPop),
    ("string_agg", Aggregate::StringAgg),
    ("bool_and", Aggregate::BoolAnd),
    ("every", Aggregate::BoolAnd),
    ("bool_or", Aggregate::BoolOr),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_names_that_postgresql_knows() {
        for (name, field) in Field::ALL.iter().chain(Field::ALIASES) {
            assert_eq!(Field::by_name(name), Some(*field), "{name}");
            assert_eq!(Field::by_name(&name.to_uppercase()), Some(*field), "{name}");
        }
        for (name, field) in [
            ("microsecond", Field::Microseconds),
            ("millisecondx", Field::Milliseconds),
            ("millenniums", Field::Millennium),
        ] {
            assert_eq!(Field::by_name(name), Some(field), "{name}");
        }
        for name in [
            "", "quarters", "mill", "centurys", "weekss", "dows", "timezone",
        ] {
            assert_eq!(Field::by_name(name), None, "{name}");
        }
    }

    #[test]
    fn codes_ascend_and_names_with_arguments_are_unique() {
        for pair in FUNCTIONS.windows(2) {
            assert!(
                pair[0].code < pair[1].code,
                "{} {}",
                pair[0].code,
                pair[1].code
            );
        }
        for function in FUNCTIONS {
            let found = by_name(function.name, function.args).unwrap();
            assert_eq!(found.code, function.code, "{}", function.name);
            assert_eq!(by_code(function.code).unwrap().name, function.name);
            assert!((1..=3).contains(&function.args.len()));
        }
        assert!(by_code(1).is_none());
        for (alias, name) in ALIASES {
            assert!(
                FUNCTIONS.iter().any(|function| function.name == *name),
                "{name}"
            );
            assert!(
                FUNCTIONS.iter().all(|function| function.name != *alias),
                "{alias}"
            );
        }
    }
}
