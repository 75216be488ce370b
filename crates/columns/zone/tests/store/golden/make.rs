//! Makes the golden store of the versions that this build writes. Run once for each new version:
//!
//!     cargo test -p strongroom-columns-zone --test store -- --ignored golden::make::
//!
//! What is drawn at random differs from run to run (keys of blocks, nonces, places of values); the
//! values do not. A golden store that is there is not made again.

use std::path::Path;
use std::sync::Arc;

use strongroom_columns_envelope::{ColumnKey, Label, SealedBy, id_of, lineage_by_name};
use strongroom_columns_values::{Out, Settings, parse};
use strongroom_columns_zone::key_ledger::{LedgerBook as _, To, Told};
use strongroom_columns_zone::store::{
    Binding, HEADER_NAME, LOG_NAME, LogFile, MANIFEST_NAME, Promotion, Source, Store, create,
};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::channel::{LIMITLESS, Limit};
use strongroom_format::columns::manifest::ManifestHead;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Class, Fid, Kind, Lineage};

use super::contents::{Contents, Envelope, Shown, Stored};
use super::{CONTENTS, open_store, opener, present};

/// The column keys: two of bound columns, one of a table that is dropped.
const KEYS: [[u8; 32]; 3] = [[0xa1; 32], [0xb2; 32], [0xc3; 32]];

/// Values of a kind, as PostgreSQL prints them. The last ones of text and bytea are out of line.
fn texts(kind: Kind) -> Vec<String> {
    let texts: &[&str] = match kind {
        Kind::Bool => &["t", "f"],
        Kind::Int4 => &["0", "-1", "2147483647", "-2147483648"],
        Kind::Int8 => &["42", "9223372036854775807", "-9223372036854775808"],
        Kind::Float8 => &["0", "-1.5", "1e+300", "NaN", "-Infinity"],
        Kind::Numeric => &[
            "0",
            "-12.50",
            "0.000",
            "3.14159265358979323846264338327950288",
            "-123456789012345678901234567890",
            "NaN",
            "Infinity",
        ],
        Kind::Text => &["", "7 bytes", "8 bytes.", "Zürich, 北京"],
        Kind::Bytea => &["\\x", "\\x00ff80", "\\x0001020304050607"],
        Kind::Date => &[
            "1970-01-01",
            "2000-02-29",
            "4713-01-01 BC",
            "infinity",
            "-infinity",
        ],
        Kind::Timestamp => &[
            "1999-12-31 23:59:59.999999",
            "2026-11-28 12:00:00",
            "infinity",
        ],
        Kind::Timestamptz => &[
            "2026-11-28 12:00:00.5+00",
            "0044-03-15 11:00:00+00 BC",
            "-infinity",
        ],
        Kind::Interval => &[
            "1 year 2 mons -3 days +04:05:06.789",
            "00:00:00",
            "-178000000 years",
        ],
        Kind::Uuid => &[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ],
        Kind::Time => &["00:00:00", "23:59:59.999999", "24:00:00"],
        Kind::Jsonb => &[
            "1",
            "null",
            "[]",
            r#"{"a": [1.50, "é"], "bb": {"c": null}}"#,
        ],
    };
    let mut texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
    match kind {
        Kind::Text => texts.push("a longer one ".repeat(20)),
        Kind::Bytea => texts.push(format!("\\x{}", "5a00".repeat(60))),
        _ => {}
    }
    texts
}

/// The value that a text of its kind means.
fn parsed(kind: Kind, text: &str) -> Out {
    let mut out = Out::new();
    parse(kind, text, &Settings::utc(), &mut out).unwrap();
    out
}

/// The files of the relation of this number, in an invented database.
fn relation(filenode: u32) -> Relation {
    Relation {
        tablespace: 1663,
        database: 16_384,
        filenode,
    }
}

fn secret(key: [u8; 32]) -> SecretKey {
    SecretKey::take(&mut { key }).unwrap()
}

/// The binding of a column to a key of [`KEYS`]. Columns of even number are ordered, but for that
/// of documents.
fn binding(key: usize, table: &str, column: u16) -> Binding {
    let lineage = if column.is_multiple_of(2) && column != u16::from(Kind::Jsonb.number()) {
        let name = column.to_string();
        lineage_by_name(Class::Ordered, ["golden", "public", table, &name])
    } else {
        Lineage::of_column(0x676f_6c64_0000 + u64::from(column) * 16, Class::Opaque)
    };
    Binding {
        key: id_of(&secret(KEYS[key])).unwrap(),
        lineage,
    }
}

/// A store with its log, and what it holds.
struct Writer {
    store: Store,
    log: LogFile,
    ring: u32,
    contents: Contents,
}

impl Writer {
    /// A new store in a directory that is there.
    fn new(directory: &Path) -> Self {
        create(directory, &opener().recipient().unwrap()).unwrap();
        let mut store = open_store(directory).unwrap();
        let log = LogFile::open(&directory.join(LOG_NAME), &mut store).unwrap();
        let ring = store.attach();
        Self {
            store,
            log,
            ring,
            contents: Contents::default(),
        }
    }

    /// Puts what the ring has done into the log.
    fn log(&mut self) {
        if let Some(record) = self.store.flush_log(self.ring).unwrap() {
            self.insert(record.number, &record.bytes);
        }
    }

    fn insert(&mut self, number: u64, record: &[u8]) {
        self.log.append(record).unwrap();
        self.log.sync().unwrap();
        self.store.confirm_inserted(self.ring, number);
    }

    /// A partition with these columns, bound to a key; in the log, unless it is unlogged.
    fn table(&mut self, filenode: u32, (name, key): (&str, usize), columns: &[u16]) -> u16 {
        let ring = (name != "unlogged").then_some(self.ring);
        let of = relation(filenode);
        let number = self.store.open_partition(ring, of).unwrap();
        self.contents.partitions.push((number, of));
        for column in columns {
            let to = binding(key, name, *column);
            self.store
                .bind(number, *column, to, &secret(KEYS[key]))
                .unwrap();
            self.contents.columns.push((number, *column, to));
        }
        number
    }

    /// Promotes these values into a column, and logs them.
    fn promote(&mut self, table: u16, column: u16, kind: Kind, texts: &[String]) -> Vec<Fid> {
        let values: Vec<Out> = texts.iter().map(|text| parsed(kind, text)).collect();
        let items: Vec<Promotion<'_>> = values
            .iter()
            .map(|value| Promotion {
                source: Source::Value(value.value()),
                column,
                kind,
            })
            .collect();
        let mut fids = Vec::new();
        let record = self.store.promote(self.ring, table, &items, &mut fids);
        let record = record.unwrap().unwrap();
        self.insert(record.number, &record.bytes);
        for fid in &fids {
            self.note(*fid);
        }
        fids
    }

    /// Copies a value into a column of another partition, and logs it.
    fn copy(&mut self, fid: Fid, table: u16, column: u16, kind: Kind) {
        let item = Promotion {
            source: Source::Stored(fid),
            column,
            kind,
        };
        let mut fids = Vec::new();
        let record = self.store.promote(self.ring, table, &[item], &mut fids);
        let record = record.unwrap().unwrap();
        self.insert(record.number, &record.bytes);
        self.note(fids[0]);
    }

    /// Puts values into a column of an unlogged table.
    fn put(&mut self, table: u16, column: u16, kind: Kind, text: &str) -> Fid {
        let value = parsed(kind, text);
        self.store
            .put(None, table, column, kind, value.value())
            .unwrap()
    }

    /// Writes into the list what the store has under an identifier.
    fn note(&mut self, fid: Fid) {
        let held = self.store.get(fid).unwrap();
        let (column, kind) = (held.column, held.kind);
        let shown = Shown::of(kind, held.value);
        self.contents.values.push(Stored {
            fid,
            column,
            kind,
            shown,
        });
    }

    /// Frees a value, and logs that.
    fn delete(&mut self, fid: Fid) {
        self.store.delete(Some(self.ring), fid).unwrap();
        self.log();
        self.freed(fid);
    }

    /// Writes into the list that an identifier is stale.
    fn freed(&mut self, fid: Fid) {
        self.contents.values.retain(|value| value.fid != fid);
        self.contents.stale.push(fid);
    }

    /// Drops a partition, and logs that.
    /// Gives a partition to the files of this number.
    fn give(&mut self, partition: u16, filenode: u32) {
        let to = relation(filenode);
        self.store
            .reassign_partition(Some(self.ring), partition, to)
            .unwrap();
        self.log();
        for (number, relation) in &mut self.contents.partitions {
            if *number == partition {
                *relation = to;
            }
        }
    }

    fn drop_table(&mut self, table: u16) {
        self.store.drop_partition(Some(self.ring), table).unwrap();
        self.log();
        self.contents
            .partitions
            .retain(|(number, _)| *number != table);
        self.contents
            .columns
            .retain(|(number, ..)| *number != table);
        let values = self.contents.values.iter().map(|value| value.fid);
        let gone: Vec<Fid> = values.filter(|fid| fid.partition() == table).collect();
        for fid in gone {
            self.freed(fid);
        }
    }

    /// Sweeps a partition in which one value is garbage, and logs that.
    fn sweep(&mut self, table: u16, garbage: Fid) {
        let ring = Some(self.ring);
        self.store.mark_begin(ring, table, 0).unwrap();
        let values = self.contents.values.iter().map(|value| value.fid);
        let kept: Vec<Fid> = values.filter(|fid| *fid != garbage).collect();
        self.store.mark(&kept);
        let mut found = 0;
        loop {
            let swept = self.store.sweep(ring, table, 100).unwrap();
            found += swept.found;
            if swept.done {
                break;
            }
        }
        assert_eq!(found, 1);
        self.log();
    }
}

/// The partitions that what comes behind the checkpoint needs.
struct Tables {
    everything: u16,
    second: u16,
    moved: u16,
    dropped: u16,
}

/// Everything that the last checkpoint has.
fn before_the_checkpoint(of: &mut Writer) -> Tables {
    let columns: Vec<u16> = Kind::ALL
        .iter()
        .map(|kind| u16::from(kind.number()))
        .collect();
    let early = of.table(16_390, ("early", 2), &[6]);
    of.promote(early, 6, Kind::Text, &["gone".to_owned()]);
    of.drop_table(early);
    let everything = of.table(16_391, ("everything", 0), &columns);
    for kind in Kind::ALL {
        let column = u16::from(kind.number());
        let fids = of.promote(everything, column, *kind, &texts(*kind));
        of.promote(everything, column, *kind, &texts(*kind));
        of.delete(fids[1]);
    }
    let second = of.table(16_392, ("second", 1), &[3, 6]);
    of.promote(second, 3, Kind::Int8, &texts(Kind::Int8));
    let fids = of.promote(second, 6, Kind::Text, &texts(Kind::Text));
    of.copy(fids[4], everything, 6, Kind::Text);
    of.promote(second, 6, Kind::Text, &["many bytes ".repeat(500)]);
    of.sweep(second, fids[2]);
    of.contents.quarantined.push(fids[2]);
    let moved = of.table(16_393, ("moved", 1), &[6]);
    of.promote(moved, 6, Kind::Text, &texts(Kind::Text));
    of.give(moved, 16_398);
    of.contents.moved.push((moved, relation(16_393)));
    let dropped = of.table(16_394, ("dropped", 0), &[1]);
    of.promote(dropped, 1, Kind::Bool, &texts(Kind::Bool));

    // A slot whose generations are used up, and a block that is full.
    let unlogged = of.table(16_395, ("unlogged", 1), &[1, 3]);
    let worn = of.put(unlogged, 3, Kind::Int8, "-77");
    let mut last = worn;
    while last.generation() != u8::MAX {
        // Given out again only once the log has that it is free.
        of.store.delete(Some(of.ring), last).unwrap();
        of.log();
        last = of.put(unlogged, 3, Kind::Int8, "-77");
        assert_eq!((last.extent(), last.index()), (worn.extent(), worn.index()));
    }
    of.store.delete(Some(of.ring), last).unwrap();
    of.log();
    of.contents.stale.extend([worn, last]);
    let fid = of.put(unlogged, 3, Kind::Int8, "78");
    of.note(fid);
    for n in 0..1024 {
        let text = if n % 3 == 0 { "t" } else { "f" };
        let fid = of.put(unlogged, 1, Kind::Bool, text);
        of.note(fid);
    }
    Tables {
        everything,
        second,
        moved,
        dropped,
    }
}

/// Everything that only the log has.
fn after_the_checkpoint(of: &mut Writer, tables: &Tables) {
    for kind in Kind::ALL {
        let column = u16::from(kind.number());
        of.promote(tables.everything, column, *kind, &texts(*kind));
    }
    let late = of.table(16_396, ("late", 1), &[5, 6]);
    let fids = of.promote(late, 5, Kind::Numeric, &texts(Kind::Numeric));
    of.delete(fids[0]);
    let fids = of.promote(late, 6, Kind::Text, &texts(Kind::Text));
    of.copy(fids[1], tables.second, 6, Kind::Text);
    // A value that the checkpoint has.
    let values = of.contents.values.iter().map(|value| value.fid);
    let earlier = values.clone().find(|fid| fid.partition() == tables.second);
    of.delete(earlier.unwrap());
    of.sweep(late, fids[2]);
    of.give(tables.moved, 16_397);
    of.drop_table(tables.dropped);
}

/// Ledgers of the first two keys: one with a limit, one of what was told without a session.
fn ledgers(of: &mut Writer) {
    let ids = [0, 1].map(|at| id_of(&secret(KEYS[at])).unwrap());
    let limit = Limit {
        key_id: ids[0],
        period: 0,
        truths: 1000,
        outputs: LIMITLESS,
    };
    of.store.set_limit(&limit).unwrap();
    let name: Arc<str> = Arc::from("payroll@shop (psql)");
    let told = Told {
        truths: 10,
        checks: 1,
        outputs: 3,
        declassified: 2,
    };
    let mut tell = |key, to, told| of.store.charge(&[key], to, told).unwrap();
    tell(ids[0], To::Session(&name), told);
    tell(ids[1], To::NoSession, Told::truths(4));
    of.store.last_checkpoint().unwrap();
    let mut kept = ids;
    kept.sort_unstable();
    of.contents.ledgers = Some(of.store.to_json(&kept));
}

/// An envelope of every kind, of each end, some with a column's lineage.
fn envelopes() -> Vec<Envelope> {
    let key = secret(KEYS[0]);
    let key = ColumnKey::new(id_of(&key).unwrap(), key);
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for (by, none) in [
            (SealedBy::Client, Lineage::CLIENT),
            (SealedBy::Zone, Lineage::RESULT),
        ] {
            let column = binding(0, "everything", u16::from(kind.number())).lineage;
            for (text, lineage) in texts(*kind).iter().zip([none, column]) {
                let label = Label {
                    kind: *kind,
                    by,
                    lineage,
                };
                let shown = Shown::of(*kind, parsed(*kind, text).value());
                let mut bytes = Vec::new();
                key.seal(label, &mut shown.binary.clone(), &mut bytes)
                    .unwrap();
                all.push(Envelope {
                    label,
                    bytes,
                    shown,
                });
            }
        }
    }
    all
}

#[test]
#[ignore = "makes the golden store of the versions that this build writes, once"]
fn the_golden_store_of_this_version() {
    let directory = present();
    // Fails when there is one.
    std::fs::create_dir(&directory).unwrap();
    let mut of = Writer::new(&directory);
    let tables = before_the_checkpoint(&mut of);
    ledgers(&mut of);
    // A record behind the checkpoint's position that the checkpoint has.
    of.contents.reached = (of.log.end() + 1000, 7);
    of.store.set_host_timeline(of.contents.reached.1);
    of.store.note_reached(of.contents.reached.0);
    let position = of.store.checkpoint(of.log.end()).unwrap();
    // The file begins behind the checkpoint, at a position that is not its first one.
    of.log.cut(position).unwrap();
    after_the_checkpoint(&mut of, &tables);
    assert_eq!(
        of.store.position(),
        position,
        "no later checkpoint was made"
    );
    let Writer {
        store,
        log,
        mut contents,
        ..
    } = of;
    drop((store, log));
    contents.position = position;
    let manifest = std::fs::read(directory.join(MANIFEST_NAME)).unwrap();
    contents.counter = ManifestHead::parse(&manifest).unwrap().counter;
    let named = |at: usize| (id_of(&secret(KEYS[at])).unwrap(), KEYS[at]);
    contents.kept = vec![named(0), named(1)];
    contents.kept.sort_unstable();
    contents.former = vec![named(2)];
    contents.envelopes = envelopes();
    let list = directory.join(CONTENTS);
    strongroom_keyring::durable::replace(&list, contents.to_text().as_bytes(), 0o644).unwrap();
    assert!(directory.join(HEADER_NAME).exists());
}
