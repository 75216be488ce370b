//! The faults that the zone reports: a fixed list, each with its SQLSTATE and its message.
//!
//! The messages of computing are PostgreSQL's own (errcodes.txt, and the functions under
//! src/backend/utils/adt), so that an application sees what it would see without Strongroom. Must
//! not: carry anything that depends on a value.

macro_rules! faults {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $state:literal, $message:literal;)*) => {
        /// A failure, by its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Fault {
            $(
                #[doc = $message]
                $(#[$meta])*
                $name = $number,
            )*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The SQLSTATE to report the fault with, five characters.
            #[must_use]
            pub const fn sqlstate(self) -> &'static str {
                match self { $(Self::$name => $state),* }
            }

            /// The message to report, in English; it depends on no value.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message),* }
            }
        }
    };
}

faults! {
    // PostgreSQL's own
    DivisionByZero = 1, "22012", "division by zero";
    Int4OutOfRange = 2, "22003", "integer out of range";
    Int8OutOfRange = 3, "22003", "bigint out of range";
    FloatOverflow = 4, "22003", "value out of range: overflow";
    FloatUnderflow = 5, "22003", "value out of range: underflow";
    NumericOverflow = 6, "22003", "value overflows numeric format";
    NumericFieldOverflow = 7, "22003", "numeric field overflow";
    SqrtNegative = 8, "2201F", "cannot take square root of a negative number";
    DateOutOfRange = 9, "22008", "date out of range";
    DateOutOfRangeForTimestamp = 10, "22008", "date out of range for timestamp";
    TimestampOutOfRange = 11, "22008", "timestamp out of range";
    IntervalOutOfRange = 12, "22008", "interval out of range";
    InfiniteDates = 13, "22008", "cannot subtract infinite dates";
    InfiniteTimestamps = 14, "22008", "cannot subtract infinite timestamps";
    NegativeSubstring = 15, "22011", "negative substring length not allowed";
    LikeEscapeAtEnd = 16, "22025", "LIKE pattern must not end with escape character";
    LikeEscapeLength = 17, "22025", "invalid escape string";
    FieldUnsupported = 18, "0A000", "unit not supported for this type";
    FieldUnknown = 19, "22023", "unit not recognized";
    NumericNanToInteger = 20, "0A000", "cannot convert NaN to integer";
    NumericInfinityToInteger = 21, "0A000", "cannot convert infinity to integer";
    NumericNanToBigint = 22, "0A000", "cannot convert NaN to bigint";
    NumericInfinityToBigint = 23, "0A000", "cannot convert infinity to bigint";
    InvalidInteger = 24, "22P02", "invalid input syntax for type integer";
    InvalidBigint = 25, "22P02", "invalid input syntax for type bigint";
    InvalidNumeric = 26, "22P02", "invalid input syntax for type numeric";
    TimeZoneUnknown = 27, "22023", "time zone not recognized";
    StringTooLong = 28, "54000", "requested length too large";
    FloatToNumericInfinite = 29, "0A000", "cannot convert infinity to numeric";
    FieldOfInfinity = 30, "0A000", "the field of an infinite date or time is null, which a confidential value cannot be";
    InvalidFloat8 = 31, "22P02", "invalid input syntax for type double precision";
    FieldPositionZero = 32, "22023", "field position must not be zero";
    RegexInvalid = 33, "2201B", "invalid regular expression";
    RegexNotComputed = 34, "0A000", "the regular expression has back references, look-around or other syntax that is not computed, or is too large";
    InvalidUuid = 35, "22P02", "invalid input syntax for type uuid";
    InvalidJson = 36, "22P02", "invalid input syntax for type json";
    JsonZero = 37, "22P05", "unsupported Unicode escape sequence";
    JsonTooDeep = 38, "54001", "the document is nested too deeply";
    NoSuchPart = 39, "0A000", "the document has no such part, or null there, which is null in SQL, and a confidential value cannot be null";

    // the zone's
    StaleFid = 100, "SR001", "the identifier no longer names a value (SR-8001)";
    ForgedFid = 101, "SR001", "the identifier never named a value of this table or statement (SR-8002)";
    KindMismatch = 102, "42804", "the value has another type than the operation needs (SR-8004)";
    ColumnMismatch = 103, "42804", "the value belongs to another column (SR-8005)";
    NotAllowed = 104, "42501", "the session has no ticket that allows this operation (SR-8006)";
    BudgetSpent = 105, "53400", "the budget of the ticket or of the column key is spent (SR-8007)";
    NoColumnKey = 106, "SR002", "the zone does not hold the key of this column (SR-8008)";
    BadEnvelope = 107, "22P03", "the envelope does not open: it is damaged or forged, or was sealed for another column (SR-8009)";
    Recovering = 108, "57P03", "the zone has not replayed the log to its end yet (SR-8013)";
    OutOfMemory = 109, "53200", "the zone has no memory left (SR-8014)";
    DiskFull = 110, "53100", "the zone's disk is full (SR-8015)";
    StoreDamaged = 111, "XX001", "a block of the zone's store is damaged (SR-8011)";
    LogGap = 112, "XX001", "a redo record is missing from the log (SR-8012)";
    BadRecord = 113, "XX001", "a redo record does not open (SR-8016)";
    PartitionUnknown = 114, "SR003", "the zone does not know the partition (SR-8017)";
    PartitionsExhausted = 115, "54000", "the zone has no partition number left (SR-8018)";
    BadRequest = 116, "08P01", "the zone does not know the request (SR-8019)";
    ArenaFull = 117, "54000", "the statement has made more values than an arena can address (SR-8020)";
    BadMessage = 118, "08P01", "the client's message does not open (SR-8021)";
    NotAnAccumulator = 119, "42804", "the identifier does not name an accumulator (SR-8022)";
    StoreIo = 120, "58030", "the zone's store could not be read or written (SR-8023)";
    NotNamed = 121, "42501", "the value is not one that its owner's client has sealed for this column, whose values the server can compare (SR-8031)";
    OtherHistory = 122, "55000", "the zone's store and the server's log belong to different histories (SR-8030)";
    NewerFormat = 123, "0A000", "the zone was given what a newer version of Strongroom has written: update the zone (SR-3002)";
    NotRecorded = 140, "55000", "the zone does not record this (SR-8124)";
    Departed = 141, "55000", "the statement that is replayed differs from the recorded one, or would store something (SR-8125)";
}

impl Fault {
    /// The fault's number in answers.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The fault of this number. `None` for an unknown one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|fault| fault.number() == number)
    }
}

impl core::fmt::Display for Fault {
    /// Writes the message in English, without any value.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for Fault {}
