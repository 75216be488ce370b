//! The mapping store alone: one operation, batches, in order and at random, in memory and paged.
//!
//! Run with `cargo bench -p strongroom-columns-zone`. The disk is a directory below the system's
//! temporary one.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot set itself up has failed"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{
    ANCHOR_NAME, FileAnchor, Options, Promotion, Source, Store, create, open,
};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Fid, Kind};
use strongroom_keyring::Opener;

const VALUES: u64 = 1 << 20;
const BATCH: usize = 4096;

struct Bench {
    directory: PathBuf,
    store: Store,
    partition: u16,
    /// In the order in which they were given out.
    fids: Vec<Fid>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What remains is litter in a temporary directory.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn filled(name: &str, memory_limit: u64) -> Bench {
    let directory = std::env::temp_dir().join(format!("zone-bench-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let opener = Opener::raw(SecretKey::take(&mut [7; 32]).unwrap());
    create(&directory, &opener.recipient().unwrap()).unwrap();
    let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
    let options = Options {
        memory_limit,
        insist_on_locks: false,
        accept_restored: false,
    };
    let mut store = open(&directory, &opener, anchor, options).unwrap();
    store.finish_recovery(0).unwrap();
    let relation = Relation {
        tablespace: 1663,
        database: 5,
        filenode: 1,
    };
    let partition = store.open_partition(None, relation).unwrap();
    let put = |n| store.put(None, partition, 1, Kind::Int8, Value::Word(n));
    let fids = (0..VALUES).map(put).collect::<Result<_, _>>().unwrap();
    store.checkpoint(0).unwrap();
    Bench {
        directory,
        store,
        partition,
        fids,
    }
}

/// The same FIDs in an order without order.
fn mixed(fids: &[Fid]) -> Vec<Fid> {
    let mut at = 0;
    let len = fids.len();
    // An odd step below a power of two visits all.
    let step = 7_919 * 65_537;
    let next = |_| {
        at = (at + step) % len;
        fids.get(at).copied()
    };
    (0..len).filter_map(next).collect()
}

fn sum(store: &mut Store, fids: &[Fid]) -> u64 {
    let mut sum = 0_u64;
    for fid in fids {
        if let Value::Word(word) = store.get(*fid).unwrap().value {
            sum = sum.wrapping_add(word);
        }
    }
    sum
}

fn in_memory(c: &mut Criterion) {
    let mut bench = filled("memory", 1 << 30);
    let mixed = mixed(&bench.fids);
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, fids) in [("sequential", bench.fids.clone()), ("random", mixed)] {
        let mut batches = fids.chunks_exact(BATCH).cycle();
        group.bench_function(format!("get/{name}"), |b| {
            b.iter(|| black_box(sum(&mut bench.store, batches.next().unwrap())));
        });
    }
    let (partition, store) = (bench.partition, &mut bench.store);
    let ring = store.attach();
    let long = vec![5; 100];
    for (name, column, kind, value) in [
        ("word", 1, Kind::Int8, Value::Word(7)),
        ("short", 2, Kind::Text, Value::Bytes(b"short")),
        ("long", 3, Kind::Text, Value::Bytes(&long)),
    ] {
        group.bench_function(format!("put+delete/{name}"), |b| {
            b.iter(|| {
                let mut fids = Vec::with_capacity(BATCH);
                for _ in 0..BATCH {
                    fids.push(
                        store
                            .put(Some(ring), partition, column, kind, value)
                            .unwrap(),
                    );
                }
                for fid in fids {
                    store.delete(Some(ring), fid).unwrap();
                }
                let record = store.flush_log(ring).unwrap().unwrap();
                store.confirm_inserted(ring, record.number);
            });
        });
    }
    group.finish();
    promotion(c, store, partition);
}

fn promotion(c: &mut Criterion, store: &mut Store, partition: u16) {
    let ring = store.attach();
    let mut group = c.benchmark_group("promote");
    for count in [1, 16, 1000] {
        let item = Promotion {
            source: Source::Value(Value::Word(7)),
            column: 4,
            kind: Kind::Int8,
        };
        let items = vec![item; count];
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(count.to_string(), |b| {
            let mut fids = Vec::new();
            b.iter(|| {
                let record = store.promote(ring, partition, &items, &mut fids);
                let record = record.unwrap().unwrap();
                store.confirm_inserted(ring, record.number);
                // Keeps the store from growing for as long as the benchmark lasts.
                for fid in &fids {
                    store.delete(Some(ring), *fid).unwrap();
                }
                let freed = store.flush_log(ring).unwrap().unwrap();
                store.confirm_inserted(ring, freed.number);
            });
        });
    }
    group.finish();
}

fn paged(c: &mut Criterion) {
    // An eighth of what there is.
    let mut bench = filled("paged", 1_310_720);
    let mixed = mixed(&bench.fids);
    let mut group = c.benchmark_group("paged");
    group.sample_size(20);
    for (name, fids, len) in [
        ("sequential", bench.fids.clone(), BATCH),
        ("random", mixed, 64),
    ] {
        let mut batches = fids.chunks_exact(len).cycle();
        group.throughput(Throughput::Elements(len as u64));
        group.bench_function(format!("get/{name}"), |b| {
            b.iter_batched(
                || batches.next().unwrap(),
                |batch| black_box(sum(&mut bench.store, batch)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// For how long the engine does nothing else because of a checkpoint of 200 000 new texts of 100
/// bytes: the whole of one that is waited for, and the longest step of one that is made meanwhile.
fn checkpoints(c: &mut Criterion) {
    let mut bench = filled("checkpoint", 1 << 30);
    let (partition, store) = (bench.partition, &mut bench.store);
    let change = |store: &mut Store| {
        for n in 0..200_000_u64 {
            let mut text = [b'x'; 100];
            text[..8].copy_from_slice(&n.to_le_bytes());
            let put = store.put(None, partition, 2, Kind::Text, Value::Bytes(&text));
            black_box(put.unwrap());
        }
    };
    let mut group = c.benchmark_group("checkpoint");
    group.sample_size(10);
    group.bench_function("waited for", |b| {
        b.iter_custom(|rounds| {
            let timed = (0..rounds).map(|_| {
                change(store);
                let begin = Instant::now();
                black_box(store.checkpoint(0).unwrap());
                begin.elapsed()
            });
            timed.sum()
        });
    });
    group.bench_function("longest step", |b| {
        b.iter_custom(|rounds| {
            let timed = (0..rounds).map(|_| {
                change(store);
                let mut longest = Duration::ZERO;
                loop {
                    let begin = Instant::now();
                    let ended = store.request_checkpoint(0).unwrap().is_some();
                    longest = longest.max(begin.elapsed());
                    if ended {
                        return longest;
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            timed.sum()
        });
    });
    group.finish();
}

criterion_group!(benches, in_memory, paged, checkpoints);
criterion_main!(benches);
