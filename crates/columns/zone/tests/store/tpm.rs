//! Goal: with a TPM's counter for an anchor, a store that was put back is refused (S4), a crash
//! between manifest and counter is not, and only an index that keeps its counter is taken. Method:
//! a real (simulated) TPM, set up with `tpm2-tools`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_columns_zone::sandbox::{Sandbox, close};
use strongroom_columns_zone::store::{
    Anchor as _, MANIFEST_NAME, Options, Store, TpmAnchor, create, open,
};
use strongroom_format::code;
use strongroom_keyring::durable;
use strongroom_keys_tpm::Tpm;

use crate::host::{opener, options};
use strongroom_testing_support::swtpm::{COUNTER, Swtpm};

const INDEX: u32 = 0x0150_0016;

fn anchor(tpm: &Arc<Tpm>) -> TpmAnchor {
    TpmAnchor::new(tpm.counter(INDEX).unwrap())
}

fn new_store(directory: &Path, tpm: &Arc<Tpm>) -> Store {
    std::fs::create_dir_all(directory).unwrap();
    create(directory, &opener().recipient().unwrap()).unwrap();
    let first = Options {
        accept_restored: true,
        ..options(1 << 20)
    };
    open(directory, &opener(), Box::new(anchor(tpm)), first).unwrap()
}

fn again(directory: &Path, tpm: &Arc<Tpm>) -> Result<Store, u16> {
    let opened = open(
        directory,
        &opener(),
        Box::new(anchor(tpm)),
        options(1 << 20),
    );
    opened.map_err(|error| error.code().number)
}

fn manifest(directory: &Path) -> PathBuf {
    directory.join(MANIFEST_NAME)
}

#[test]
fn a_store_that_was_put_back_is_refused() {
    let simulator = Swtpm::start();
    simulator.counter(INDEX, COUNTER);
    let tpm = Tpm::open(&simulator.place()).unwrap();
    let directory = simulator.directory().join("store");
    let mut store = new_store(&directory, &tpm);
    store.finish_recovery(1).unwrap();
    store.checkpoint(10).unwrap();
    let older = std::fs::read(manifest(&directory)).unwrap();
    store.checkpoint(20).unwrap();
    let stands = anchor(&tpm).read().unwrap();
    let before = std::fs::read(manifest(&directory)).unwrap();
    drop(store);
    // As it is, it opens, as often as one likes.
    for _ in 0..3 {
        let store = again(&directory, &tpm).unwrap();
        assert_eq!(store.position(), 20);
    }
    assert!(anchor(&tpm).read().unwrap() >= stands + 6);
    for put_back in [&older, &before] {
        durable::replace(&manifest(&directory), put_back, 0o600).unwrap();
        assert_eq!(again(&directory, &tpm).err(), Some(code::STORE_OLD.number));
    }
    std::fs::remove_file(manifest(&directory)).unwrap();
    assert_eq!(again(&directory, &tpm).err(), Some(code::STORE_OLD.number));
    // On purpose.
    durable::replace(&manifest(&directory), &older, 0o600).unwrap();
    let accept = Options {
        accept_restored: true,
        ..options(1 << 20)
    };
    let store = open(&directory, &opener(), Box::new(anchor(&tpm)), accept).unwrap();
    assert_eq!(store.position(), 10);
    drop(store);
    assert_eq!(again(&directory, &tpm).unwrap().position(), 10);
}

#[test]
fn a_crash_before_the_counter_rose_leaves_a_store_that_opens() {
    let simulator = Swtpm::start();
    simulator.counter(INDEX, COUNTER);
    let tpm = Tpm::open(&simulator.place()).unwrap();
    let directory = simulator.directory().join("store");
    let mut store = new_store(&directory, &tpm);
    store.finish_recovery(1).unwrap();
    store.checkpoint(10).unwrap();
    // Two counters of a TPM are two: what one store's says, another's does not.
    let stands = anchor(&tpm).read().unwrap();
    let ahead = anchor(&tpm);
    assert!(ahead.advance(stands - 1).is_err(), "it only rises");
    assert!(
        ahead.advance(stands + 1000).is_err(),
        "not by a thousand checkpoints at once"
    );
    assert_eq!(ahead.read().unwrap(), stands, "neither changed it");
    // Somebody raises it: the running store is not the newest any more, and says so instead of
    // going on.
    ahead.advance(stands + 2).unwrap();
    let refused = store.checkpoint(30).unwrap_err();
    assert_eq!(refused.code().number, code::STORE_OLD.number);
}

#[test]
fn only_an_index_that_keeps_its_counter_is_taken() {
    let simulator = Swtpm::start();
    let others = [
        "authread|authwrite|no_da",
        "nt=counter|authread|authwrite|no_da|orderly",
        "nt=counter|ownerread|ownerwrite",
        "nt=bits|authread|authwrite",
    ];
    for (index, attributes) in (INDEX + 1..).zip(others) {
        simulator.counter(index, attributes);
    }
    simulator.counter(INDEX, COUNTER);
    let tpm = Tpm::open(&simulator.place()).unwrap();
    for index in INDEX + 1..=INDEX + 5 {
        assert!(tpm.counter(index).is_err(), "index {index:#x}");
    }
    let first = tpm.counter(INDEX).unwrap().read().unwrap();
    tpm.counter(INDEX).unwrap().increment().unwrap();
    assert_eq!(tpm.counter(INDEX).unwrap().read().unwrap(), first + 1);
}

/// The link to a TPM only polls, reads, writes and sleeps: anything else would end the process.
#[test]
fn a_counter_rises_within_the_closed_sandbox() {
    let simulator = Swtpm::start();
    simulator.counter(INDEX, COUNTER);
    let tpm = Tpm::open(&simulator.place()).unwrap();
    let counter = tpm.counter(INDEX).unwrap();
    let before = counter.read().unwrap();
    let directory = simulator.directory().to_owned();
    let closed = std::thread::spawn(move || {
        let sandbox = Sandbox {
            directories: vec![directory],
            insist_on_locks: false,
            all_threads: false,
        };
        close(&sandbox).unwrap();
        counter.increment().unwrap();
        counter.read().unwrap()
    });
    assert_eq!(closed.join().unwrap(), before + 1);
}
