//! Commands with a single result: `IDENTIFY_SYSTEM`, `SHOW`, slots, history files.
//!
//! Invariant Q12: a caller's text becomes part of a command only quoted, or after every character
//! was checked.

use strongroom_postgres_wire::client::{Error, Result, Row};

use crate::connection::Connection;
use crate::lsn::Lsn;

/// The longest name that PostgreSQL keeps, in bytes.
const NAME_MAX: usize = 63;

/// The result of `IDENTIFY_SYSTEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The number of the cluster, which all its standbys share.
    pub system: u64,
    /// The timeline that it writes or follows.
    pub timeline: u32,
    /// The position up to which its log is flushed; on a standby, received.
    pub position: Lsn,
}

/// A replication slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// `physical` or `logical`.
    pub kind: String,
    /// The position from which on the server keeps the log. `None`: it keeps nothing yet.
    pub restart: Option<Lsn>,
    /// The timeline of that position.
    pub timeline: Option<u32>,
}

/// A slot that was just created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSlot {
    /// Its name.
    pub name: String,
    /// The position from which on the log is kept; `0/0` unless it was reserved at once.
    pub consistent_point: Lsn,
}

/// A timeline's history file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineHistory {
    /// `00000002.history`.
    pub file: String,
    /// Its bytes.
    pub content: Vec<u8>,
}

impl Connection {
    /// Asks the server which cluster it is, and how far its log reaches (`IDENTIFY_SYSTEM`).
    ///
    /// # Errors
    /// [`Error::Server`] when the server refuses, after which the connection can be used again;
    /// [`Error::Protocol`] for an answer of another form; [`Error::EndedEarly`],
    /// [`Error::TimedOut`] and [`Error::Io`] of the connection; [`Error::GivenUp`] after an earlier
    /// failure.
    pub fn identify_system(&mut self) -> Result<Identity> {
        let during = "the server was being identified";
        let row = self.single("IDENTIFY_SYSTEM", during)?;
        Ok(Identity {
            system: parse_column(&row, 0)?,
            timeline: parse_column(&row, 1)?,
            position: parse_column(&row, 2)?,
        })
    }

    /// Returns a setting as the server prints it (`SHOW`).
    ///
    /// # Errors
    /// As [`Self::identify_system`]; [`Error::Misuse`] for a malformed name of a setting.
    pub fn show(&mut self, setting: &str) -> Result<String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        if setting.is_empty() || setting.len() > NAME_MAX || !setting.bytes().all(plain) {
            return Err(Error::Misuse("a name of a setting"));
        }
        let row = self.single(&format!("SHOW {setting}"), "a setting was being read")?;
        Ok(String::from(text(&row, 0)?.unwrap_or_default()))
    }

    /// Asks the server for the size of the log's segments, and returns it in bytes.
    ///
    /// # Errors
    /// As [`Self::show`]; [`Error::Protocol`] for a size that no server has.
    pub fn wal_segment_bytes(&mut self) -> Result<u64> {
        let shown = self.show("wal_segment_size")?;
        let split = shown.find(|character: char| !character.is_ascii_digit());
        let (digits, unit) = shown.split_at(split.unwrap_or(shown.len()));
        let shift = match unit {
            "" | "B" => Some(0),
            "kB" => Some(10),
            "MB" => Some(20),
            "GB" => Some(30),
            _ => None,
        };
        let number: Option<u64> = digits.parse().ok().filter(|number| *number <= 1 << 31);
        let bytes = number.zip(shift).map(|(number, shift)| number << shift);
        bytes
            .filter(|bytes| bytes.is_power_of_two() && (1 << 20..=1 << 30).contains(bytes))
            .ok_or_else(|| Error::protocol("a size of segments that cannot be"))
    }

    /// Returns a replication slot, or `None` if there is none of this name
    /// (`READ_REPLICATION_SLOT`).
    ///
    /// # Errors
    /// As [`Self::identify_system`]; [`Error::Misuse`] for a malformed name of a slot.
    pub fn read_slot(&mut self, name: &str) -> Result<Option<Slot>> {
        check_slot_name(name)?;
        let command = format!("READ_REPLICATION_SLOT \"{name}\"");
        let row = self.single(&command, "a slot was being read")?;
        let Some(kind) = text(&row, 0)? else {
            return Ok(None);
        };
        Ok(Some(Slot {
            kind: String::from(kind),
            restart: optional(&row, 1)?,
            timeline: optional(&row, 2)?,
        }))
    }

    /// Creates a physical slot (`CREATE_REPLICATION_SLOT`). A temporary one is dropped when the
    /// connection ends. With `reserve` the server keeps the log from its last restart point on.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a malformed name of a slot; [`Error::Server`] when the server refuses;
    /// those of the protocol and the connection. A name that exists is SQLSTATE 42710.
    pub fn create_slot(&mut self, name: &str, temporary: bool, reserve: bool) -> Result<NewSlot> {
        check_slot_name(name)?;
        let temporary = if temporary { " TEMPORARY" } else { "" };
        let reserve = if reserve { " (RESERVE_WAL)" } else { "" };
        let command = format!("CREATE_REPLICATION_SLOT \"{name}\"{temporary} PHYSICAL{reserve}");
        let row = self.single(&command, "a slot was being made")?;
        Ok(NewSlot {
            name: String::from(text(&row, 0)?.unwrap_or_default()),
            consistent_point: optional(&row, 1)?.unwrap_or_default(),
        })
    }

    /// Drops a slot (`DROP_REPLICATION_SLOT`); with `wait`, waits until no connection uses it.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a malformed name of a slot; [`Error::Server`] when the server refuses;
    /// those of the protocol and the connection. A slot that does not exist is SQLSTATE 42704, one
    /// in use 55006.
    pub fn drop_slot(&mut self, name: &str, wait: bool) -> Result<()> {
        check_slot_name(name)?;
        let wait = if wait { " WAIT" } else { "" };
        let command = format!("DROP_REPLICATION_SLOT \"{name}\"{wait}");
        self.results(&command, "a slot was being dropped").map(drop)
    }

    /// Returns the history file of a timeline (`TIMELINE_HISTORY`). Timeline 1 has none, which is
    /// SQLSTATE 58P01.
    ///
    /// # Errors
    /// [`Error::Server`] when the server refuses, after which the connection can be used again;
    /// [`Error::Protocol`] for an answer of another form; those of the connection.
    pub fn timeline_history(&mut self, timeline: u32) -> Result<TimelineHistory> {
        let command = format!("TIMELINE_HISTORY {timeline}");
        let row = self.single(&command, "a timeline's history was being read")?;
        let file = String::from(text(&row, 0)?.unwrap_or_default());
        // It becomes the name of a file, so it is the one that it has to be.
        if file != format!("{timeline:08X}.history") {
            return Err(Error::protocol("a history file of another timeline"));
        }
        let content = row.into_iter().nth(1).flatten().unwrap_or_default();
        Ok(TimelineHistory { file, content })
    }

    /// Executes a command whose answer has to be exactly one row, and returns that.
    /// [`Error::Protocol`] for another number of rows; otherwise as [`Self::results`].
    fn single(&mut self, command: &str, during: &'static str) -> Result<Row> {
        let mut sets = self.results(command, during)?;
        let mut rows = sets.pop().unwrap_or_default();
        match (rows.pop(), rows.is_empty(), sets.is_empty()) {
            (Some(row), true, true) => Ok(row),
            _ => Err(Error::protocol("a result that is not one row")),
        }
    }
}

/// Refuses a name that the server does not allow for a slot: [`Error::Misuse`]. An allowed one
/// needs no quotes.
pub(crate) fn check_slot_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(Error::Misuse(
            "a slot's name: lower case letters, digits and underscores, at most 63",
        )),
    }
}

/// Returns a text as a string constant of the replication commands: quotes are doubled, backslashes
/// are ordinary characters. [`Error::Misuse`] for a text with a zero byte.
pub(crate) fn quote(text: &str) -> Result<String> {
    match text.contains('\0') {
        true => Err(Error::Misuse("a text with a zero byte")),
        false => Ok(format!("'{}'", text.replace('\'', "''"))),
    }
}

/// Returns a column as text; `None` is NULL. [`Error::Protocol`] for a column that is missing or
/// not UTF-8.
pub(crate) fn text(row: &Row, column: usize) -> Result<Option<&str>> {
    let value = row
        .get(column)
        .ok_or_else(|| Error::protocol("a row with too few columns"))?;
    let text = value.as_deref().map(str::from_utf8).transpose();
    text.map_err(|_| Error::protocol("a value that is not text"))
}

/// Parses a column; `None` is NULL. [`Error::Protocol`] when it cannot be parsed.
pub(crate) fn optional<T: std::str::FromStr>(row: &Row, column: usize) -> Result<Option<T>> {
    let parsed = text(row, column)?.map(str::parse).transpose();
    parsed.map_err(|_| Error::protocol("a number or position that is none"))
}

/// Parses a column. [`Error::Protocol`] for NULL, and when it cannot be parsed.
pub(crate) fn parse_column<T: std::str::FromStr>(row: &Row, column: usize) -> Result<T> {
    optional(row, column)?.ok_or_else(|| Error::protocol("NULL where it cannot be"))
}
