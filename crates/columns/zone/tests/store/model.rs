//! Random operations beside a model, with restarts, evictions, checkpoints and replays in between;
//! then a crash after every single disk call of such a run.

use crate::disk::Unsynced;
use crate::host::Host;

/// Some 10 blocks: everything is evicted and read again all the time.
const SMALL: u64 = 100 * 1024;

fn one(
    host: &mut Host,
    mut store: strongroom_columns_zone::store::Store,
) -> strongroom_columns_zone::store::Store {
    match host.dice.roll(100) {
        0..45 => host.promote(&mut store, 30),
        45..55 => host.copy(&mut store),
        55..80 => host.delete(&mut store),
        80..84 => host.drop_or_rehome(&mut store),
        84..88 => host.reclaim(&mut store),
        88..90 => host.checkpoint(&mut store),
        90..95 => host.request_checkpoint(&mut store),
        95..97 => store = host.restart(store),
        _ => host.check(&mut store),
    }
    // As the engine does after each operation.
    if host.dice.roll(3) == 0 {
        store.go_on();
    }
    store
}

fn run(seed: u64, limit: u64, steps: usize) -> Host {
    let (mut host, mut store) = Host::new(seed, limit);
    for _ in 0..steps {
        store = one(&mut host, store);
    }
    host.check(&mut store);
    assert!(store.status().resident <= limit + 2 * 1024 * 1024);
    host
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..6 {
        let host = run(seed, if seed % 2 == 0 { SMALL } else { 1 << 30 }, 600);
        assert!(host.live.len() > 100 && host.dead.len() > 100);
    }
}

#[test]
fn a_crash_after_any_disk_call_loses_nothing_that_the_log_has() {
    for seed in 100..101 {
        let host = run(seed, SMALL, 60);
        let calls = host.disk.calls();
        assert!(calls > 60, "{calls}");
        for after in 0..=calls {
            let expected = host.at_crash(after);
            for unsynced in [Unsynced::All, Unsynced::None, Unsynced::Some(after as u64)] {
                drop(host.recover(host.disk.crashed(after, unsynced), &expected));
            }
        }
    }
}
