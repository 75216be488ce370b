//! Rekeys on a simulated disk that loses power at each write, sync and change of a name, with any
//! part of what was not synced; and that fails. After each, the rekey is run again, or undone, and
//! every unit must be whole, with what was in it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_crypto::SecretBytes;
use strongroom_format::duckdb::{
    Cipher, DUCKDB_BLOCKS_AT, DUCKDB_HEADER_LEN, DUCKDB_UNIT_CLEAR, EncryptionVersion, HeaderState,
    MainHeader, duckdb_checksum, duckdb_database_layout, duckdb_main_layout,
};
use strongroom_format::layout::{Field, put};

use super::*;

const BLOCK: usize = 16_384;
const BLOCKS: usize = 5;
const SECTOR: usize = 512;

/// A file: what is durable, and what was written since.
#[derive(Default)]
struct Platter {
    durable: Vec<u8>,
    written: Vec<(usize, Vec<u8>)>,
}

impl Platter {
    fn seen(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (at, piece) in &self.written {
            over(&mut bytes, *at, piece);
        }
        bytes
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn over(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.resize(bytes.len().max(at + piece.len()), 0);
    bytes[at..at + piece.len()].copy_from_slice(piece);
}

/// The machine: a database, the rekey's file, and how many more changes until the power is gone.
struct Machine {
    files: BTreeMap<&'static str, Platter>,
    left: Option<usize>,
    random: u64,
}

impl Machine {
    fn random(&mut self) -> u64 {
        // xorshift64: which sectors survive.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Counts a change; false when the power is gone.
    fn on(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(io::Error::other("no power")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What a disk holds after the power came back: any sectors of what was not synced, in any
    /// state.
    fn restart(&mut self) {
        for name in ["database", "undo"] {
            let Some(mut platter) = self.files.remove(name) else {
                continue;
            };
            for (at, piece) in std::mem::take(&mut platter.written) {
                for (number, sector) in piece.chunks(SECTOR).enumerate() {
                    if self.random() & 1 == 0 {
                        over(&mut platter.durable, at + number * SECTOR, sector);
                    }
                }
            }
            self.files.insert(name, platter);
        }
        self.left = None;
    }
}

#[derive(Clone)]
struct Simulated(Arc<Mutex<Machine>>, &'static str);

impl Simulated {
    fn machine(&self) -> std::sync::MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(bytes: Vec<u8>, random: u64) -> Self {
        let platter = Platter {
            durable: bytes,
            written: Vec::new(),
        };
        let machine = Machine {
            files: BTreeMap::from([("database", platter)]),
            left: None,
            random,
        };
        Self(Arc::new(Mutex::new(machine)), "database")
    }

    fn bytes(&self) -> Vec<u8> {
        self.machine().files["database"].seen()
    }
}

impl Disk for Simulated {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let at = place(offset);
        let seen = self.machine().files[self.1].seen();
        let found = seen.get(at..at + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut machine = self.machine();
        let gone = machine.on();
        // The write during which the power goes may be half done.
        if gone.is_ok() || machine.left.is_some() {
            let at = place(offset);
            let name = self.1;
            let platter = machine.files.entry(name).or_default();
            platter.written.push((at, bytes.to_vec()));
        }
        gone
    }

    fn sync(&self) -> io::Result<()> {
        let mut machine = self.machine();
        machine.on()?;
        let platter = machine.files.entry(self.1).or_default();
        platter.durable = platter.seen();
        platter.written.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.machine().files[self.1].seen().len() as u64)
    }
}

impl RekeyStorage for Simulated {
    fn database(&self) -> &dyn Disk {
        self
    }

    fn create_undo(&self) -> io::Result<Box<dyn Disk>> {
        let mut machine = self.machine();
        machine.on()?;
        machine.files.insert("undo", Platter::default());
        drop(machine);
        Ok(Box::new(Self(Arc::clone(&self.0), "undo")))
    }

    fn open_undo(&self) -> io::Result<Option<Box<dyn Disk>>> {
        let there = self.machine().files.contains_key("undo");
        Ok(there.then(|| -> Box<dyn Disk> { Box::new(Self(Arc::clone(&self.0), "undo")) }))
    }

    fn remove_undo(&self) -> io::Result<()> {
        let mut machine = self.machine();
        machine.on()?;
        machine.files.remove("undo");
        Ok(())
    }
}

fn text(text: &str) -> KeyText {
    KeyText::new(&SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap()).unwrap()
}

fn sealers(header: &MainHeader) -> (Sealer, Sealer) {
    let format = header.supported_format().unwrap();
    let of = |key| Sealer::new(&text(key), format).unwrap();
    (of("old key"), of("new key"))
}

/// What block `number` holds in clear, its inner checksum left out. Block 3 is one of zeros on the
/// disk.
fn contents(number: usize, len: usize) -> Vec<u8> {
    let bytes = (0..=u8::MAX).cycle().skip(number * 7);
    bytes.take(len - 40).collect()
}

fn unit(key: &Sealer, data: &[u8]) -> Vec<u8> {
    let mut unit = vec![0xaa; DUCKDB_UNIT_CLEAR];
    unit.extend_from_slice(&duckdb_checksum(data).to_le_bytes());
    unit.extend_from_slice(data);
    key.seal(&mut unit).unwrap();
    unit
}

fn field(bytes: &mut [u8], field: Field, value: &[u8]) {
    put(bytes, field, value).unwrap();
}

/// A database as DuckDB lays it out, made here: the command's tests use DuckDB's own.
fn database(cipher: Cipher, version: EncryptionVersion) -> Vec<u8> {
    use duckdb_main_layout as at;
    let mut head = vec![0; DUCKDB_HEADER_LEN];
    field(&mut head, at::MAGIC, b"DUCK");
    field(&mut head, at::STORAGE_VERSION, &68_u64.to_le_bytes());
    head[at::FLAGS.offset] = 1;
    field(&mut head, at::KDF, &[1]);
    let cipher = match cipher {
        Cipher::Gcm => 1,
        Cipher::Ctr => 2,
    };
    field(&mut head, at::CIPHER, &[cipher]);
    field(&mut head, at::ENCRYPTION_VERSION, &[version.number()]);
    field(&mut head, at::KEY_LENGTH, &32_u32.to_le_bytes());
    field(&mut head, at::IDENTIFIER, b"an identifier...");
    let header = MainHeader::parse(&head).unwrap();
    let (old, _) = sealers(&header);
    let mut bytes = old.with_canary(&header).unwrap().to_bytes();
    for iteration in [4_u64, 5] {
        let mut data = vec![0; DUCKDB_HEADER_LEN - 32];
        use duckdb_database_layout as at;
        field(&mut data, at::ITERATION, &iteration.to_le_bytes());
        field(&mut data, at::BLOCK_COUNT, &(BLOCKS as u64).to_le_bytes());
        field(&mut data, at::BLOCK_SIZE, &(BLOCK as u64).to_le_bytes());
        bytes.extend(unit(&old, &data[8..]));
    }
    for number in 0..BLOCKS {
        if number == 3 {
            bytes.extend([0; BLOCK]);
        } else {
            bytes.extend(unit(&old, &contents(number, BLOCK)));
        }
    }
    assert_eq!(
        bytes.len() as u64,
        DUCKDB_BLOCKS_AT + (BLOCKS * BLOCK) as u64
    );
    bytes
}

fn run(site: &Simulated, from: &str, to: &str, threads: usize) -> Result<RekeyReport, Error> {
    let work = Work {
        site,
        shown: "simulated",
        options: RekeyOptions::default(),
        threads,
        batch: 2 * BLOCK,
    };
    work.run(&[text(from)], &[text(to)], &mut |_, _| {})
}

/// Every unit opens under the one key and not under the other, and holds what it held; nothing is
/// left beside it.
#[track_caller]
fn whole(site: &Simulated, is_new: bool) {
    let bytes = site.bytes();
    let header = MainHeader::parse(&bytes).unwrap();
    assert_eq!(header.state(), HeaderState::Whole);
    let (old, new) = sealers(&header);
    let (key, other) = if is_new { (&new, &old) } else { (&old, &new) };
    assert!(key.opens_canary(&header).unwrap());
    assert!(!other.opens_canary(&header).unwrap());
    for units in [Units::headers(), Units::blocks(16_384, BLOCKS as u64)] {
        for number in 0..units.count {
            let at = usize::try_from(units.offset(number)).unwrap();
            let mut unit = bytes[at..at + units.len].to_vec();
            if units.len == BLOCK && number == 3 {
                assert!(is_zero(&unit));
                continue;
            }
            assert!(other.open(&mut unit.clone()).is_err());
            key.open(&mut unit).unwrap();
            if units.len == BLOCK {
                let number = usize::try_from(number).unwrap();
                assert!(unit[40..] == contents(number, BLOCK));
            }
        }
    }
    assert!(!site.machine().files.contains_key("undo"));
}

fn every_format() -> Vec<Vec<u8>> {
    let ciphers = [Cipher::Gcm, Cipher::Ctr];
    let versions = [EncryptionVersion::V0, EncryptionVersion::V1];
    let pairs = ciphers.iter().flat_map(|&c| versions.map(|v| (c, v)));
    pairs.map(|(c, v)| database(c, v)).collect()
}

#[test]
fn a_rekey_seals_every_unit_anew() {
    for bytes in every_format() {
        for threads in [1, 3] {
            let site = Simulated::new(bytes.clone(), 1);
            let report = run(&site, "old key", "new key", threads).unwrap();
            assert_eq!((report.blocks, report.sealed, report.zero), (5, 6, 1));
            assert!(!report.resumed);
            whole(&site, true);
            // All nonces are new: no 12 bytes stand where they stood.
            let (before, after) = (&bytes, site.bytes());
            for at in [4096, 8192, 12_288, 12_288 + BLOCK] {
                assert_ne!(before[at..at + 12], after[at..at + 12]);
            }
        }
    }
}

/// Power is lost at each change in turn, several times with other sectors surviving; then the rekey
/// is run again, or back.
#[test]
fn a_rekey_goes_on_after_the_power_was_lost_anywhere() {
    let rounds = if cfg!(debug_assertions) { 6 } else { 24 };
    for bytes in every_format() {
        let mut points = 0;
        for at in 0.. {
            let mut finished = false;
            for seed in 1..=rounds {
                let site = Simulated::new(bytes.clone(), seed * 0x9e37_79b9 + at as u64);
                site.machine().left = Some(at);
                finished = run(&site, "old key", "new key", 1).is_ok();
                site.machine().restart();
                let done = MainHeader::parse(&site.bytes())
                    .filter(|header| header.state() == HeaderState::Whole)
                    .is_some_and(|header| sealers(&header).1.opens_canary(&header).unwrap());
                if done {
                    // What lies beside it does not count any more.
                    site.machine().files.remove("undo");
                    whole(&site, true);
                } else if seed % 2 == 0 {
                    run(&site, "old key", "new key", 1).unwrap();
                    whole(&site, true);
                } else {
                    back(&site);
                }
            }
            if finished {
                break;
            }
            points += 1;
        }
        assert!(points > 20, "{points} points");
    }
}

/// Undoes an unfinished rekey; one that never began needs nothing.
fn back(site: &Simulated) {
    let header = MainHeader::parse(&site.bytes()).unwrap();
    if header.state() == HeaderState::Whole {
        site.machine().files.remove("undo");
    } else {
        run(site, "new key", "old key", 1).unwrap();
    }
    whole(site, false);
}

/// Power is lost again while the rekey is being finished.
#[test]
fn a_rekey_goes_on_after_two_losses_of_power() {
    let bytes = database(Cipher::Gcm, EncryptionVersion::V1);
    for first in [6, 9, 12, 15, 19] {
        for second in 0..30 {
            let site = Simulated::new(bytes.clone(), first * 31 + second + 1);
            site.machine().left = Some(usize::try_from(first).unwrap());
            assert!(run(&site, "old key", "new key", 1).is_err());
            site.machine().restart();
            site.machine().left = Some(usize::try_from(second).unwrap());
            drop(run(&site, "old key", "new key", 1));
            site.machine().restart();
            let header = MainHeader::parse(&site.bytes()).unwrap();
            let is_whole = header.state() == HeaderState::Whole;
            if is_whole && sealers(&header).1.opens_canary(&header).unwrap() {
                site.machine().files.remove("undo");
            } else {
                run(&site, "old key", "new key", 1).unwrap();
            }
            whole(&site, true);
        }
    }
}

fn interrupted() -> Simulated {
    let site = Simulated::new(database(Cipher::Gcm, EncryptionVersion::V1), 5);
    // After a batch of blocks: plan, its sync, mark, sync, two units and the head kept, sync, two
    // sealed, sync.
    site.machine().left = Some(14);
    assert!(run(&site, "old key", "new key", 1).is_err());
    site.machine().restart();
    site
}

#[track_caller]
fn refused(result: Result<RekeyReport, Error>, code: &code::Code) {
    let error = result.expect_err("refused");
    assert_eq!(error.code(), code, "{error}");
}

#[test]
fn other_keys_do_not_finish_a_rekey() {
    let site = interrupted();
    let before = site.bytes();
    assert_eq!(
        MainHeader::parse(&before).unwrap().state(),
        HeaderState::Rekeying
    );
    for (from, to) in [
        ("old key", "other"),
        ("other", "new key"),
        ("old key", "old key"),
    ] {
        refused(run(&site, from, to, 1), &code::DUCKDB_KEY);
    }
    assert!(site.bytes() == before);
    assert!(run(&site, "old key", "new key", 1).unwrap().resumed);
    whole(&site, true);
}

#[test]
fn a_rekey_goes_on_without_its_file_when_every_unit_is_whole() {
    for (from, to, is_new) in [("old key", "new key", true), ("new key", "old key", false)] {
        let site = Simulated::new(database(Cipher::Gcm, EncryptionVersion::V1), 5);
        // Before the first unit of the second batch is overwritten.
        site.machine().left = Some(15);
        assert!(run(&site, "old key", "new key", 1).is_err());
        let mut machine = site.machine();
        machine.files.remove("undo");
        machine.left = None;
        drop(machine);
        run(&site, from, to, 1).unwrap();
        whole(&site, is_new);
    }
}

#[test]
fn the_file_of_another_rekey_is_refused() {
    let site = interrupted();
    let mut machine = site.machine();
    let undo = machine.files.get_mut("undo").unwrap();
    undo.durable[100] ^= 1;
    drop(machine);
    refused(
        run(&site, "old key", "new key", 1),
        &code::DUCKDB_REKEY_FILE,
    );
}

#[test]
fn damage_is_found_before_anything_is_written() {
    let bytes = database(Cipher::Ctr, EncryptionVersion::V0);
    let places = [
        4096 + 40,
        8192 + 3000,
        12_288 + 100,
        12_288 + 4 * BLOCK + 35,
    ];
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let site = Simulated::new(damaged.clone(), 3);
        refused(run(&site, "old key", "new key", 1), &code::DUCKDB_CHECKSUM);
        assert!(site.bytes() == damaged, "byte {at}");
        assert!(!site.machine().files.contains_key("undo"));
    }
    let site = Simulated::new(bytes[..bytes.len() - 1].to_vec(), 3);
    refused(run(&site, "old key", "new key", 1), &code::DUCKDB_TRUNCATED);
}

#[test]
fn damage_is_left_alone_where_that_is_allowed() {
    let mut bytes = database(Cipher::Gcm, EncryptionVersion::V1);
    let place = 12_288 + BLOCK..12_288 + 2 * BLOCK;
    bytes[place.start + 1000] ^= 1;
    let site = Simulated::new(bytes.clone(), 3);
    let work = Work {
        site: &site,
        shown: "simulated",
        options: RekeyOptions {
            allow_damaged: true,
        },
        threads: 2,
        batch: 2 * BLOCK,
    };
    let report = work
        .run(&[text("old key")], &[text("new key")], &mut |_, _| {})
        .unwrap();
    assert_eq!((report.left, report.sealed), (1, 5));
    assert!(site.bytes()[place.clone()] == bytes[place]);
}

#[test]
fn the_same_key_and_wrong_ones_are_refused() {
    let site = Simulated::new(database(Cipher::Gcm, EncryptionVersion::V0), 3);
    refused(run(&site, "old key", "old key", 1), &code::DUCKDB_SAME_KEY);
    refused(run(&site, "new key", "old key", 1), &code::DUCKDB_KEY);
    whole(&site, false);
}
