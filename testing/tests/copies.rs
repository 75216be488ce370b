//! Goal: whatever call of the disk fails, and wherever the power is cut, `encrypt` and `decrypt`
//! leave their source as it is, and under the output's name a whole database or nothing. After a
//! failure that was told, nothing of the output is left, or the error says where.
//!
//! Method: simulated disks (docs/internals/testing.md): each call fails in every way that it can,
//! and the power is cut before each call that changes the disk, with any part of what was not
//! synced surviving. Every file that is left is searched for a known text.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    clippy::use_debug,
    reason = "seeds and counts are for whoever runs it"
)]

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use strongroom_crypto::SecretBytes;
use strongroom_sqlite::{Error, KeySource, OpenOptions, ops};
use strongroom_testing::random::{Random, times};
use strongroom_testing::sim::disk::{Disk, Survival};
use strongroom_testing::sim::machine::{Fault, Machine, Plan};
use strongroom_testing::sim::vfs;

const KEY: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Stands in every row.
const NEEDLE: &[u8] = b"CANARY-IN-THE-COPY";
const ROWS: i64 = 60;

fn options() -> OpenOptions {
    OpenOptions {
        key: Some(KeySource::Given(
            SecretBytes::take(&mut KEY.as_bytes().to_vec()).unwrap(),
        )),
        create: true,
        ..OpenOptions::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    Encrypt,
    Decrypt,
}

/// A machine with a source, and what is done to it.
struct Scene {
    which: Which,
    machine: Arc<Machine>,
    before: Disk,
}

impl Scene {
    fn new(which: Which, journal: &str) -> Self {
        vfs::install();
        let machine = Machine::new();
        let scene = Self {
            which,
            before: machine.disk(),
            machine,
        };
        let connection = match which {
            Which::Encrypt => {
                Connection::open(format!("file:{}?vfs=sim", scene.at("source").display())).unwrap()
            }
            Which::Decrypt => strongroom_sqlite::open(&scene.at("source"), &options()).unwrap(),
        };
        let fill = format!(
            "PRAGMA page_size=1024; PRAGMA journal_mode={journal};
             CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<{ROWS})
             INSERT INTO t SELECT x, 'CANARY-IN-THE-COPY '||hex(zeroblob(x)) FROM n"
        );
        connection.execute_batch(&fill).unwrap();
        connection.close().unwrap();
        let mut random = Random::new(1);
        let before = scene.machine.disk().snapshot();
        Self {
            before: before.image(Survival::Everything, &mut random),
            ..scene
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(self.machine.at(name))
    }

    fn run(&self) -> Result<ops::Report, Error> {
        let (source, target) = (self.at("source"), self.at("target"));
        match self.which {
            Which::Encrypt => ops::encrypt(&source, &target, &options(), &mut |_, _| {}),
            Which::Decrypt => ops::decrypt(&source, &target, &options(), &mut |_, _| {}),
        }
    }

    /// Rows of the database, counted, after an integrity check.
    fn rows(&self, name: &str, sealed: bool) -> i64 {
        let connection = if sealed {
            let existing = OpenOptions {
                create: false,
                ..options()
            };
            strongroom_sqlite::open(&self.at(name), &existing).unwrap()
        } else {
            Connection::open(format!("file:{}?vfs=sim", self.at(name).display())).unwrap()
        };
        let check: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
        let sql = "SELECT count(*) FROM t WHERE b LIKE 'CANARY-IN-THE-COPY %'";
        let rows = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        connection.close().unwrap();
        rows
    }

    /// What must hold of whatever is on the disk: a whole source, and a whole output or none. Gives
    /// whether there is one.
    fn look(&self, disk: &Disk, case: &str) -> bool {
        let of = |disk: &Disk| disk.find("source").map(|ino| disk.bytes(ino).to_vec());
        assert_eq!(of(disk), of(&self.before), "{case}: the source was changed");
        self.machine.boot(disk.clone());
        let there = disk.find("target").is_some();
        if there {
            let rows = self.rows("target", self.which == Which::Encrypt);
            assert_eq!(rows, ROWS, "{case}");
        }
        assert_eq!(self.rows("source", self.which == Which::Decrypt), ROWS);
        there
    }

    /// Files in which the text stands, other than those in which it is to stand.
    fn leaks(&self, disk: &Disk) -> Vec<String> {
        let plain = match self.which {
            Which::Encrypt => "source",
            Which::Decrypt => "target",
        };
        let shows = |name: &str| {
            let ino = disk.find(name).unwrap();
            let mut windows = disk.bytes(ino).windows(NEEDLE.len());
            windows.any(|window| window == NEEDLE)
        };
        let others = disk.names().filter(|name| !name.starts_with(plain));
        others
            .filter(|name| shows(name))
            .map(str::to_owned)
            .collect()
    }

    fn cuts(&self, random: &mut Random) -> u64 {
        self.machine.boot(self.before.clone());
        self.machine.keep_moments();
        self.run().unwrap();
        let moments = self.machine.take_moments();
        let last = moments.len() - 1;
        let mut cases = 0;
        for (at, moment) in moments.iter().enumerate() {
            for draw in 0..10 * times("STRONGROOM_SIMULATION", 1) {
                let survival = match draw {
                    0 => Survival::Nothing,
                    1 => Survival::Everything,
                    _ => Survival::Some,
                };
                let disk = moment.snapshot.image(survival, random);
                let case = format!("{:?}, cut {at} {survival:?}", self.which);
                let there = self.look(&disk, &case);
                assert!(there || at < last, "{case}: what was acknowledged is gone");
                if self.which == Which::Encrypt {
                    assert_eq!(self.leaks(&disk), [""; 0], "{case}");
                }
                cases += 1;
            }
        }
        cases
    }

    fn faults(&self, random: &mut Random) -> u64 {
        self.machine.boot(self.before.clone());
        self.machine.plan(None);
        self.machine.trace();
        self.run().unwrap();
        let trace = self.machine.take_trace();
        let mut cases = 0;
        for (at, (class, kind)) in (1..).zip(trace) {
            for fault in class.faults(kind) {
                // SQLite takes a page of a plain database that reads short for one of zeros.
                let is_plain_read = *fault == Fault::Short && !class.changes();
                if is_plain_read && self.which == Which::Encrypt {
                    continue;
                }
                for lasting in [false, true] {
                    self.machine.boot(self.before.clone());
                    self.machine.plan(Some(Plan {
                        at,
                        fault: *fault,
                        lasting,
                        seed: random.next() >> 1,
                    }));
                    let done = self.run();
                    let case = format!(
                        "{:?}, call {at} {class:?} {kind:?} {fault:?} {lasting}",
                        self.which
                    );
                    self.after(done, &case, random);
                    cases += 1;
                }
            }
        }
        cases
    }

    /// What must hold after a run of which a call failed, then and after a power cut.
    fn after(&self, done: Result<ops::Report, Error>, case: &str, random: &mut Random) {
        self.machine.heal();
        let now = self.machine.disk();
        let names: Vec<String> = now.names().map(str::to_owned).collect();
        let told = match &done {
            Ok(_) => false,
            Err(error) => error.detail().contains("what was written is left"),
        };
        // The source may have a log.
        let extra = names
            .iter()
            .any(|name| !name.starts_with("source") && name != "target");
        let stays = names.iter().any(|name| name == "target");
        if done.is_err() && !told {
            assert!(!extra && !stays, "{case}: {names:?}, {done:?}");
        }
        let unsettled = now.snapshot();
        for survival in [
            Survival::Everything,
            Survival::Nothing,
            Survival::Some,
            Survival::Some,
        ] {
            let disk = unsettled.image(survival, random);
            let there = self.look(&disk, case);
            match &done {
                Ok(_) => assert!(there, "{case}: what was acknowledged is gone"),
                Err(error) if !told => {
                    assert!(!there, "{case}: {error}, but it is there");
                    assert_eq!(self.leaks(&disk), [""; 0], "{case}: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

fn all(which: Which) {
    let seed = match std::env::var_os("STRONGROOM_SEED") {
        Some(_) => strongroom_testing::random::seed(),
        None => 2,
    };
    let mut random = Random::new(seed);
    for journal in ["delete", "wal"] {
        let scene = Scene::new(which, journal);
        let (cuts, faults) = (scene.cuts(&mut random), scene.faults(&mut random));
        println!("{which:?} {journal}: {cuts} power cuts, {faults} failing calls, seed {seed}");
        assert!(cuts > 100 && faults > 100);
        scene.machine.scrap();
    }
}

#[test]
fn encrypt_leaves_its_source_and_a_whole_output_or_none() {
    all(Which::Encrypt);
}

#[test]
fn decrypt_leaves_its_source_and_a_whole_output_or_none() {
    all(Which::Decrypt);
}
