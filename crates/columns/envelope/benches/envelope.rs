//! What one envelope costs: sealing, opening under a key that is remembered, opening under one that
//! is not.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use strongroom_columns_envelope::{ColumnKey, Label, SealedBy};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::{Kind, Lineage};

/// An `int8`.
const VALUE: [u8; 8] = [7; 8];
/// What its envelope says of it.
const LABEL: Label = Label {
    kind: Kind::Int8,
    by: SealedBy::Client,
    lineage: Lineage::CLIENT,
};

fn column_key(byte: u8) -> Option<ColumnKey> {
    let key = SecretKey::take(&mut [byte; 32]).ok()?;
    Some(ColumnKey::new([byte; 16], key))
}

fn envelopes(criterion: &mut Criterion) {
    let Some(key) = column_key(1) else { return };
    let (mut value, mut envelope) = (Vec::new(), Vec::new());
    criterion.bench_function("seal", |bencher| {
        bencher.iter(|| {
            envelope.clear();
            value.extend_from_slice(&VALUE);
            black_box(key.seal(LABEL, &mut value, &mut envelope).is_ok())
        });
    });
    criterion.bench_function("open", |bencher| {
        bencher.iter(|| black_box(key.open(Kind::Int8, None, &envelope, &mut value).is_ok()));
    });
    criterion.bench_function("open, first of its salt", |bencher| {
        bencher.iter(|| {
            let fresh = column_key(1);
            black_box(fresh.map(|key| key.open(Kind::Int8, None, &envelope, &mut value).is_ok()))
        });
    });
}

criterion_group!(benches, envelopes);
criterion_main!(benches);
