//! What the transport costs: a call, a posted operation, a batch of a thousand, between two
//! processes.
//!
//! The zone is this program in another process; it does next to nothing per operation.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

#[path = "../tests/common/mod.rs"]
mod common;

use criterion::{Criterion, Throughput};
use strongroom_columns_ring::{Descriptor, Op};

use common::{Place, Role, connect, go_on, zone};

fn main() {
    if common::took_role(&[("zone", zone)]) {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    ring(&mut criterion);
    criterion.final_summary();
}

fn ring(criterion: &mut Criterion) {
    let place = Place::new("bench");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    let mut group = criterion.benchmark_group("ring");

    group.bench_function("call", |bencher| {
        let call = Descriptor {
            a: 1,
            ..Descriptor::of(Op::Test)
        };
        bencher.iter(|| host.call(call, go_on).unwrap().value);
    });

    group.throughput(Throughput::Elements(1000));
    group.bench_function("post 1000, then call", |bencher| {
        let post = Descriptor {
            a: 1,
            ..Descriptor::of(Op::Compute)
        };
        bencher.iter(|| {
            for _ in 0..1000 {
                host.post(post, go_on).unwrap();
            }
            host.call(Descriptor::of(Op::Sync), go_on).unwrap().value
        });
    });

    let words: Vec<u64> = (0..1000).collect();
    let mut back = vec![0; 1000];
    group.bench_function("batch of 1000", |bencher| {
        let batch = Descriptor {
            n: 1000,
            ..Descriptor::of(Op::TokenMany)
        };
        bencher.iter(|| {
            host.area(go_on).unwrap().write_words(0, &words).unwrap();
            host.call(batch, go_on).unwrap();
            host.area(go_on).unwrap().read_words(0, &mut back).unwrap();
        });
    });
    group.finish();
}
