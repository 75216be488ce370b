//! The list of what a golden store holds: one fact a line, its fields apart by one blank. Values
//! are in PostgreSQL's binary form, with their text form at the end of the line.

use std::fmt::Write as _;
use std::path::Path;

use strongroom_columns_envelope::{Label, SealedBy};
use strongroom_columns_values::{Buf, Settings, Value, print, send};
use strongroom_columns_zone::store::Binding;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Fid, Kind, Lineage};
use strongroom_format::hex::{from_hex, hex};

use super::CONTENTS;

/// A value in the forms that PostgreSQL gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) binary: Vec<u8>,
    pub(crate) text: String,
}

impl Shown {
    /// The forms of a value of the zone.
    pub(crate) fn of(kind: Kind, value: Value<'_>) -> Self {
        let (mut binary, mut text) = (Buf::new(), Buf::new());
        send(kind, value, &mut binary).unwrap();
        print(kind, value, &Settings::utc(), &mut text).unwrap();
        Self {
            binary: binary.as_slice().to_vec(),
            text: String::from_utf8(text.as_slice().to_vec()).unwrap(),
        }
    }

    /// The two last fields of a line.
    fn to_text(&self) -> String {
        let binary = if self.binary.is_empty() {
            "-".to_owned()
        } else {
            hex(&self.binary)
        };
        format!("{binary} \"{}\"", self.text)
    }

    /// Reads the two last fields of a line. `None` if they are not of that form.
    fn parse(binary: &str, text: &str) -> Option<Self> {
        let digits = if binary == "-" { "" } else { binary };
        Some(Self {
            binary: from_hex(digits)?,
            text: text.strip_prefix('"')?.strip_suffix('"')?.to_owned(),
        })
    }
}

/// A value of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) fid: Fid,
    pub(crate) column: u16,
    pub(crate) kind: Kind,
    pub(crate) shown: Shown,
}

/// A sealed value.
pub(crate) struct Envelope {
    pub(crate) label: Label,
    pub(crate) bytes: Vec<u8>,
    pub(crate) shown: Shown,
}

/// What a golden store holds.
#[derive(Default)]
pub(crate) struct Contents {
    /// Counter of the last manifest and of the anchor.
    pub(crate) counter: u64,
    /// Position of the last checkpoint.
    pub(crate) position: u64,
    /// How far the log had reached, and its timeline; zeros in a store of a version without them.
    pub(crate) reached: (u64, u32),
    /// Column keys of bound columns.
    pub(crate) kept: Vec<([u8; 16], [u8; 32])>,
    /// Column keys that were kept before.
    pub(crate) former: Vec<([u8; 16], [u8; 32])>,
    pub(crate) partitions: Vec<(u16, Relation)>,
    /// Partitions, and relations that had them before and may get them back.
    pub(crate) moved: Vec<(u16, Relation)>,
    /// Partition, column, binding.
    pub(crate) columns: Vec<(u16, u16, Binding)>,
    pub(crate) values: Vec<Stored>,
    /// Identifiers of values that were freed.
    pub(crate) stale: Vec<Fid>,
    /// Values that the last checkpoint has in quarantine.
    pub(crate) quarantined: Vec<Fid>,
    pub(crate) envelopes: Vec<Envelope>,
    /// The ledgers of the kept keys as JSON. `None` in a store of a version without them.
    pub(crate) ledgers: Option<String>,
}

/// What the list begins with.
const HEADING: &str = "\
# What the golden store beside this file holds: docs/internals/columns-versions.md.
# Values are in PostgreSQL's binary form in hexadecimal digits (- for none), then in its text form.
# The keys are public.
#
# counter COUNTER | position POSITION | reached POSITION TIMELINE
# kept ID KEY | former ID KEY
# partition NUMBER TABLESPACE DATABASE FILENODE | moved, the same
# column PARTITION COLUMN KEY-ID LINEAGE
# value FID COLUMN KIND BINARY TEXT
# stale FID | quarantined FID
# envelope KIND SEALER LINEAGE ENVELOPE BINARY TEXT
# ledgers JSON
";

impl Contents {
    /// Reads the list of the golden store in a directory.
    pub(crate) fn read(directory: &Path) -> Self {
        let text = std::fs::read_to_string(directory.join(CONTENTS)).unwrap();
        let mut contents = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            contents.add(line).unwrap_or_else(|| panic!("{line}"));
        }
        contents
    }

    /// Adds what a line says. `None` for a line that is not of the list's form.
    fn add(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        if what == "ledgers" {
            self.ledgers = Some(rest.to_owned());
            return Some(());
        }
        // The text of a value is the last field, and may have blanks.
        let count = if what == "envelope" { 6 } else { 5 };
        let mut fields = rest.splitn(count, ' ');
        let mut field = || fields.next();
        match what {
            "counter" => self.counter = field()?.parse().ok()?,
            "position" => self.position = field()?.parse().ok()?,
            "reached" => self.reached = (field()?.parse().ok()?, field()?.parse().ok()?),
            "kept" => self.kept.push((id(field()?)?, key(field()?)?)),
            "former" => self.former.push((id(field()?)?, key(field()?)?)),
            "partition" | "moved" => {
                let number = field()?.parse().ok()?;
                let relation = Relation {
                    tablespace: field()?.parse().ok()?,
                    database: field()?.parse().ok()?,
                    filenode: field()?.parse().ok()?,
                };
                let list = match what {
                    "moved" => &mut self.moved,
                    _ => &mut self.partitions,
                };
                list.push((number, relation));
            }
            "column" => {
                let (partition, column) = (field()?.parse().ok()?, field()?.parse().ok()?);
                let binding = Binding {
                    key: id(field()?)?,
                    lineage: lineage(field()?)?,
                };
                self.columns.push((partition, column, binding));
            }
            "value" => self.values.push(Stored {
                fid: fid(field()?)?,
                column: field()?.parse().ok()?,
                kind: kind(field()?)?,
                shown: Shown::parse(field()?, field()?)?,
            }),
            "stale" => self.stale.push(fid(field()?)?),
            "quarantined" => self.quarantined.push(fid(field()?)?),
            "envelope" => {
                let label = Label {
                    kind: kind(field()?)?,
                    by: sealed_by(field()?)?,
                    lineage: lineage(field()?)?,
                };
                let bytes = from_hex(field()?)?;
                let shown = Shown::parse(field()?, field()?)?;
                self.envelopes.push(Envelope {
                    label,
                    bytes,
                    shown,
                });
            }
            _ => return None,
        }
        Some(())
    }

    /// The list as text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::from(HEADING);
        let mut line = |text: String| writeln!(out, "{text}").unwrap();
        line(format!("counter {}", self.counter));
        line(format!("position {}", self.position));
        line(format!("reached {} {}", self.reached.0, self.reached.1));
        for (id, key) in &self.kept {
            line(format!("kept {} {}", hex(id), hex(key)));
        }
        for (id, key) in &self.former {
            line(format!("former {} {}", hex(id), hex(key)));
        }
        for (what, list) in [("partition", &self.partitions), ("moved", &self.moved)] {
            for (number, of) in list {
                line(format!(
                    "{what} {number} {} {} {}",
                    of.tablespace, of.database, of.filenode
                ));
            }
        }
        for (partition, column, of) in &self.columns {
            line(format!(
                "column {partition} {column} {} {:016x}",
                hex(&of.key),
                of.lineage.number()
            ));
        }
        for Stored {
            fid,
            column,
            kind,
            shown,
        } in &self.values
        {
            line(format!(
                "value {:016x} {column} {} {}",
                fid.bits(),
                kind.base(),
                shown.to_text()
            ));
        }
        for fid in &self.stale {
            line(format!("stale {:016x}", fid.bits()));
        }
        for fid in &self.quarantined {
            line(format!("quarantined {:016x}", fid.bits()));
        }
        for Envelope {
            label,
            bytes,
            shown,
        } in &self.envelopes
        {
            line(format!(
                "envelope {} {} {:016x} {} {}",
                label.kind.base(),
                if label.by == SealedBy::Client {
                    "client"
                } else {
                    "zone"
                },
                label.lineage.number(),
                hex(bytes),
                shown.to_text()
            ));
        }
        if let Some(ledgers) = &self.ledgers {
            line(format!("ledgers {ledgers}"));
        }
        out
    }
}

fn id(text: &str) -> Option<[u8; 16]> {
    from_hex(text)?.try_into().ok()
}

fn key(text: &str) -> Option<[u8; 32]> {
    from_hex(text)?.try_into().ok()
}

fn lineage(text: &str) -> Option<Lineage> {
    Some(Lineage::of(u64::from_str_radix(text, 16).ok()?))
}

fn fid(text: &str) -> Option<Fid> {
    Fid::from_bits(u64::from_str_radix(text, 16).ok()?)
}

fn kind(text: &str) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|kind| kind.base() == text)
}

fn sealed_by(text: &str) -> Option<SealedBy> {
    match text {
        "client" => Some(SealedBy::Client),
        "zone" => Some(SealedBy::Zone),
        _ => None,
    }
}
