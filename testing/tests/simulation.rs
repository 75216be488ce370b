//! Goal: whatever call of the disk fails, and wherever the power is cut, a sealed database then
//! opens by itself and holds every transaction that SQLite promises to keep, and no other, whole.
//!
//! Method: docs/internals/testing.md, "Simulated disks". The VFS stands on simulated disks that
//! fail, or forget what was not synced. The same is done to SQLite without the VFS, which has to
//! pass: else the simulation is not to be believed. And the disk lies, which must be found out:
//! else the comparison sees nothing.
//!
//! The usual run tries the same cases each time, so that it fails only where something was changed.
//! `STRONGROOM_SIMULATION` multiplies the cases and takes new ones, `STRONGROOM_SEED` takes those
//! of a seed, `STRONGROOM_CASE` repeats a case.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    clippy::use_debug,
    reason = "seeds and counts are for whoever runs it"
)]

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use strongroom_keyring::durable;
use strongroom_testing::random::{self, Random, times};
use strongroom_testing::sim::config::{Config, Stack};
use strongroom_testing::sim::disk::{Disk, Survival};
use strongroom_testing::sim::machine::{Class, Fault, Kind, Lie, Machine, Plan};
use strongroom_testing::sim::model::Step;
use strongroom_testing::sim::run::Scene;
use strongroom_testing::sim::session::{Session, UNKNOWN};
use strongroom_testing::sim::sweep::{self, Effort, Tally};

/// The cases of the usual run are those of this seed.
const USUAL: u64 = 2;

fn seed() -> u64 {
    let is_new = ["STRONGROOM_SEED", "STRONGROOM_SIMULATION"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    if is_new { random::seed() } else { USUAL }
}

/// Settings from `random`, for one journal mode.
fn settings(random: &mut Random, stack: Stack, journal: &str) -> Config {
    let synchronous = match (stack, journal) {
        // Without the VFS, a journal that was synced once has its count before its records: SQLite
        // says that a power cut at the wrong moment may then damage the database.
        (Stack::Control, "delete" | "truncate" | "persist") => {
            random.one_of(&["full", "full", "extra"])
        }
        (_, "wal") => random.one_of(&["full", "normal", "normal", "extra"]),
        _ => random.one_of(&["full", "full", "normal", "extra"]),
    };
    let page_size = random.one_of(&[512, 1024, 1024, 1024, 2048, 4096, 4096, 8192, 65536]);
    // Without a super-journal each database commits by itself. With locking_mode=EXCLUSIVE a case
    // is open: status.md.
    let two = random.once_in(4) && !["wal", "memory"].contains(&journal);
    Config {
        stack,
        journal: journal.to_owned(),
        synchronous: synchronous.to_owned(),
        page_size,
        auto_vacuum: random.one_of(&[0, 0, 1, 2]),
        two,
        exclusive: !two && random.once_in(5),
        cache: random.one_of(&[2, 5, 5, 20, 200]),
        autocheckpoint: random.one_of(&[0, 4, 12, 12, 50]),
        cipher: random
            .one_of(&["aes-256-gcm", "aes-256-gcm", "aes-256-gcm", "aes-256-ctr"])
            .to_owned(),
        freshness: false,
    }
}

#[derive(Clone, Copy)]
enum Trouble {
    Cuts,
    Faults,
}

/// Tries about `cases` cases over scenes of one journal mode.
fn try_all(stack: Stack, journal: &str, trouble: Trouble, cases: u64) {
    try_with(stack, journal, trouble, cases, false);
}

/// As [`try_all`]; `freshness`: the digest over the pages must hold wherever it is looked at.
fn try_with(stack: Stack, journal: &str, trouble: Trouble, cases: u64, freshness: bool) {
    let seed = seed();
    let cases = cases * times("STRONGROOM_SIMULATION", 1);
    let mut random = Random::new(seed ^ journal.len() as u64);
    let mut tally = Tally::default();
    let mut scenes = 0;
    while tally.cases < cases && tally.failures.len() < 20 {
        let mut config = settings(&mut random, stack, journal);
        config.freshness = freshness;
        let effort = Effort {
            transactions: 4 + random.below(5),
            cases: 250,
        };
        let scene = Scene::new(config, random.below(1 << 40), effort.transactions).unwrap();
        let tried = match trouble {
            Trouble::Cuts => sweep::cuts(&scene, effort, &mut random),
            Trouble::Faults => sweep::faults(&scene, effort, &mut random),
        };
        let told = format!("{}/{}", scene.config, scene.seed);
        tally.add(tried.expect(&told));
        scenes += 1;
    }
    println!(
        "{journal}: {} cases of {scenes} scenes, seed {seed}",
        tally.cases
    );
    assert!(tally.failures.is_empty(), "\n{}", tally.told());
}

#[test]
fn control_power_cuts() {
    for journal in ["delete", "truncate", "persist", "wal"] {
        try_all(Stack::Control, journal, Trouble::Cuts, 500);
    }
}

#[test]
fn control_faults() {
    for journal in ["delete", "truncate", "persist", "wal", "memory"] {
        try_all(Stack::Control, journal, Trouble::Faults, 500);
    }
}

#[test]
fn sealed_power_cuts_with_a_journal() {
    for journal in ["delete", "truncate", "persist"] {
        try_all(Stack::Sealed, journal, Trouble::Cuts, 1500);
    }
}

#[test]
fn sealed_power_cuts_with_a_log() {
    try_all(Stack::Sealed, "wal", Trouble::Cuts, 3000);
}

#[test]
fn sealed_faults_with_a_journal() {
    for journal in ["delete", "truncate", "persist", "memory"] {
        try_all(Stack::Sealed, journal, Trouble::Faults, 1500);
    }
}

#[test]
fn sealed_faults_with_a_log() {
    try_all(Stack::Sealed, "wal", Trouble::Faults, 3000);
}

#[test]
fn freshness_after_power_cuts() {
    let before = UNKNOWN.load(Ordering::Relaxed);
    for journal in ["delete", "truncate", "persist", "wal"] {
        try_with(Stack::Sealed, journal, Trouble::Cuts, 750, true);
    }
    let unknown = UNKNOWN.load(Ordering::Relaxed) - before;
    println!("{unknown} times unknown");
}

#[test]
fn freshness_after_faults() {
    for journal in ["delete", "truncate", "persist", "memory", "wal"] {
        try_with(Stack::Sealed, journal, Trouble::Faults, 500, true);
    }
}

/// A disk that lies: how many cases it takes until that is found out.
fn found_out(stack: Stack, journal: &str, lie: Lie) {
    let mut random = Random::new(seed());
    let found = (1..=30).any(|scenes| {
        let config = Config {
            stack,
            journal: journal.to_owned(),
            cache: random.one_of(&[2, 5, 20]),
            autocheckpoint: 12,
            ..Config::default()
        };
        let effort = Effort {
            transactions: 6,
            cases: 120,
        };
        let scene = Scene::new(config, random.below(1 << 40), effort.transactions).unwrap();
        scene.lie(lie);
        let wrong = sweep::cuts(&scene, effort, &mut random)
            .unwrap()
            .failures
            .len();
        if wrong > 0 {
            println!("{stack:?} {journal} {lie:?}: {wrong} of 120 in scene {scenes}");
        }
        wrong > 0
    });
    assert!(found, "{stack:?}, {journal}: nobody saw that {lie:?}");
}

#[test]
fn a_disk_that_lies_is_found_out() {
    for stack in [Stack::Control, Stack::Sealed] {
        found_out(stack, "delete", Lie::Sync(Kind::Journal));
        found_out(stack, "persist", Lie::Sync(Kind::Journal));
        found_out(stack, "delete", Lie::Sync(Kind::Main));
        found_out(stack, "delete", Lie::SyncNames);
        found_out(stack, "wal", Lie::Sync(Kind::Wal));
        found_out(stack, "wal", Lie::Sync(Kind::Main));
    }
    // The VFS's own: of a new database's header, and of the anchor that names a log.
    found_out(Stack::Sealed, "wal", Lie::SyncOfHeader);
}

/// A connection that had written many frames once said that the log was damaged, when the log had
/// been started again by another process and its index had to be made anew: frames that it had
/// written itself lay behind the new log's end.
#[test]
fn a_log_that_somebody_else_started_again_is_no_damage() {
    let config = Config {
        journal: "wal".to_owned(),
        autocheckpoint: 0,
        ..Config::default()
    };
    let scene = Scene::new(config.clone(), 1, 8).unwrap();
    let machine = Machine::new();
    machine.boot(scene.before.clone());
    let mut first = Session::new(machine.clone(), config.clone());
    let mut second = Session::new(machine.clone(), config);
    let mut transactions = scene
        .steps
        .iter()
        .filter(|step| matches!(step, Step::Run(_)));
    let last = transactions.next_back().unwrap();
    for step in transactions {
        first.step(step).unwrap();
    }
    second.step(&Step::Checkpoint("RESTART")).unwrap();
    second.step(last).unwrap();
    machine.forget_indexes();
    assert_eq!(first.applied().unwrap(), second.applied().unwrap());
    first.close().unwrap();
    second.close().unwrap();
    machine.scrap();
}

/// A workload whose log starts again after each transaction.
fn restarting(stack: Stack, synchronous: &str, seed: u64) -> Scene {
    let config = Config {
        stack,
        journal: "wal".to_owned(),
        synchronous: synchronous.to_owned(),
        autocheckpoint: 0,
        ..Config::default()
    };
    let mut scene = Scene::new(config, seed, 8).unwrap();
    scene.steps = std::mem::take(&mut scene.steps)
        .into_iter()
        .filter(|step| matches!(step, Step::Run(_)))
        .flat_map(|step| [step, Step::Checkpoint("RESTART")])
        .collect();
    scene
}

/// W6: a log that starts again costs as many syncs as in SQLite, though the anchor has to be
/// durable before it.
#[cfg(not(feature = "count-often"))]
#[test]
fn a_log_that_starts_again_costs_no_more_syncs_than_without_the_guard() {
    for synchronous in ["normal", "full"] {
        let [control, guard] = [Stack::Control, Stack::Sealed].map(|stack| {
            let scene = restarting(stack, synchronous, 1);
            let is_sync = |(class, kind): &(Class, Kind)| {
                *class == Class::Sync && matches!(kind, Kind::Main | Kind::Wal)
            };
            // One page in 65536 is counted in an anchor, which takes two syncs: hardly in all
            // three.
            let syncs = (0..3).map(|_| {
                scene
                    .trace()
                    .unwrap()
                    .iter()
                    .filter(|call| is_sync(call))
                    .count()
            });
            (syncs.min().unwrap(), scene.steps.len())
        });
        assert!(
            control.1 > 8 && control.0 > control.1,
            "the log starts again"
        );
        assert!(guard <= control, "{synchronous}: {guard:?} {control:?}");
    }
}

/// W6: and nothing is lost by it.
#[test]
fn power_cuts_where_a_log_starts_again() {
    let mut random = Random::new(seed());
    let mut tally = Tally::default();
    for number in 1..=16 {
        let synchronous = random.one_of(&["normal", "full", "extra"]);
        let scene = restarting(Stack::Sealed, synchronous, number);
        let effort = Effort {
            transactions: 8,
            cases: 250,
        };
        tally.add(sweep::cuts(&scene, effort, &mut random).unwrap());
    }
    println!("{} cases", tally.cases);
    assert!(tally.failures.is_empty(), "\n{}", tally.told());
}

/// A journal that was to be played back was once taken for none when its first read came back
/// short, and what it undoes stayed in the database.
#[test]
fn a_journal_that_reads_short_is_not_taken_for_none() {
    let mut random = Random::new(seed());
    let mut tried = 0;
    for journal in ["delete", "truncate", "persist"] {
        let config = Config {
            journal: journal.to_owned(),
            cache: 2,
            ..Config::default()
        };
        let scene = Scene::new(config.clone(), 7, 6).unwrap();
        let machine = Machine::new();
        let moments = scene.moments().unwrap();
        for moment in moments.iter().step_by(40) {
            let left = moment.snapshot.image(Survival::Everything, &mut random);
            let look = |plan: Option<Plan>| {
                machine.boot(left.clone());
                machine.plan(plan);
                machine.trace();
                let mut session = Session::new(machine.clone(), config.clone());
                let found = session.applied();
                drop(session.close());
                (found, machine.take_trace())
            };
            let (right, trace) = look(None);
            let right = right.unwrap();
            for (at, call) in (1..).zip(trace) {
                if call != (Class::Read, Kind::Journal) {
                    continue;
                }
                let (found, _) = look(Some(Plan {
                    at,
                    fault: Fault::Short,
                    lasting: false,
                    seed: random.next(),
                }));
                assert!(
                    found.is_err() || found == Ok(right.clone()),
                    "{journal} {at}"
                );
                machine.heal();
                let mut session = Session::new(machine.clone(), config.clone());
                let found = session.check(&scene.steps).unwrap();
                session.close().unwrap();
                assert_eq!(found, right, "{journal}, call {at}");
                tried += 1;
            }
        }
        machine.scrap();
    }
    println!("{tried} short reads");
    assert!(tried > 50);
}

/// A journal of which the first write stopped within its prologue kept the other database of the
/// transaction from being read: it was taken for a damaged one, which might name the super-journal.
#[test]
fn a_journal_that_was_only_begun_names_nobody() {
    let mut random = Random::new(seed());
    let mut tried = 0;
    for journal in ["delete", "truncate", "persist"] {
        let config = Config {
            journal: journal.to_owned(),
            two: true,
            cache: 20,
            ..Config::default()
        };
        let scene = Scene::new(config, 3, 3).unwrap();
        for (at, call) in (1..).zip(scene.trace().unwrap()) {
            if call != (Class::Write, Kind::Journal) {
                continue;
            }
            for _ in 0..6 {
                let plan = Plan {
                    at,
                    fault: Fault::Short,
                    lasting: true,
                    seed: random.next() >> 1,
                };
                let done = scene.fault(plan);
                assert!(done.is_ok(), "{journal}: {plan:?}: {done:?}");
                tried += 1;
            }
        }
    }
    println!("{tried} short writes");
}

/// Keyrings and redo copies are replaced whole: under the name there is the old file or the new
/// one.
#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    strongroom_testing::sim::vfs::install();
    let mut random = Random::new(seed());
    let machine = Machine::new();
    let path = PathBuf::from(machine.at("keyring"));
    let (old, new) = (vec![1; 3000], vec![2; 5000]);
    durable::create_new(&path, &old, 0o600).unwrap();
    let before = machine.disk();
    let content = |disk: &Disk| disk.find("keyring").map(|ino| disk.bytes(ino).to_vec());

    machine.boot(before.clone());
    machine.keep_moments();
    durable::replace(&path, &new, 0o600).unwrap();
    let moments = machine.take_moments();
    let last = moments.len() - 1;
    let mut cases = 0;
    for (at, moment) in moments.iter().enumerate() {
        for _ in 0..200 {
            let found = content(&moment.snapshot.image(Survival::Some, &mut random));
            let whole = found == Some(new.clone()) || (at < last && found == Some(old.clone()));
            assert!(whole, "moment {at}");
            cases += 1;
        }
    }
    machine.boot(before.clone());
    machine.plan(None);
    machine.trace();
    durable::replace(&path, &new, 0o600).unwrap();
    for (at, (class, kind)) in (1..).zip(machine.take_trace()) {
        for fault in class.faults(kind) {
            machine.boot(before.clone());
            machine.plan(Some(Plan {
                at,
                fault: *fault,
                lasting: false,
                seed: random.next(),
            }));
            durable::replace(&path, &new, 0o600).unwrap_err();
            for _ in 0..50 {
                let left = machine.disk().snapshot();
                let found = content(&left.image(Survival::Some, &mut random));
                assert!(found == Some(old.clone()) || found == Some(new.clone()));
                cases += 1;
            }
            let names: Vec<String> = machine.disk().names().map(str::to_owned).collect();
            assert_eq!(names, ["keyring"], "{class:?} {fault:?} leaves something");
        }
    }
    println!("{cases} cases");
    machine.scrap();
}

#[test]
#[ignore = "by hand: the case of STRONGROOM_CASE"]
fn repeat() {
    let case = std::env::var("STRONGROOM_CASE").unwrap();
    sweep::repeat(&case).unwrap();
}
