//! Goal: of a column of class equality, whoever has no session learns which stored values are
//! equal, and nothing else.
//! Method: an operator's requests on stored values whose order the test knows.

use strongroom_columns_envelope::lineage_by_name;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::channel::right;
use strongroom_format::columns::{Class, Kind, Lineage};

use super::lineages::{lineage, ordered_partition, partition, partition_of, path};
use super::{
    A, B, ORDINARY, Scene, fault, go_on, int8, intake, of_kind, output, promote, with_zone,
};

fn equality_lineage(filenode: u32) -> Lineage {
    lineage_by_name(Class::Equality, path(filenode))
}

fn keyed(host: &mut Host, a: u64, b: u64) -> Result<i64, Broken> {
    of_kind(host, Op::CompareKeyed, Kind::Int8, a, b).map(u64::cast_signed)
}

/// 0 if the values are equal, otherwise 1.
fn equal(host: &mut Host, a: u64, b: u64) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        flags: u16::from(Kind::Int8.number()) | flag::EQUALITY,
        a,
        b,
        ..Descriptor::of(Op::Compare)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

/// Stores values in column 1 of the partition, which is of class equality.
fn store(scene: &Scene, filenode: u32, values: &[i64]) -> Vec<u64> {
    let mut owner = scene.client(ORDINARY, &[A]);
    let table = partition_of(Class::Equality, &mut owner, filenode);
    let of = equality_lineage(filenode);
    let constants: Vec<u64> = values
        .iter()
        .map(|value| scene.int8_for(of, &mut owner, A, *value))
        .collect();
    let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &constants).unwrap();
    stored
}

/// Stores 3 and 5 in an opaque column, and in an ordered one.
fn store_in_others(scene: &Scene, owner: &mut Host) -> (Vec<u64>, Vec<u64>) {
    let opaque = partition(owner, 16_390);
    let constants = [3, 5].map(|value| scene.int8(owner, A, value));
    let (opaque, _) = promote(owner, opaque, 1, Kind::Int8, &constants).unwrap();
    let ordered = ordered_partition(owner, 16_385);
    let constants = [3, 5].map(|value| scene.int8_for(lineage(16_385), owner, A, value));
    let (ordered, _) = promote(owner, ordered, 1, Kind::Int8, &constants).unwrap();
    (opaque, ordered)
}

/// A number for each value, the same for equal ones.
fn numbers(host: &mut Host, stored: &[u64]) -> Result<Vec<u64>, Broken> {
    host.area(go_on)?.write_words(0, stored).unwrap();
    let descriptor = Descriptor {
        flags: u16::from(Kind::Int8.number()) | flag::EQUALITY,
        n: u32::try_from(stored.len()).unwrap(),
        ..Descriptor::of(Op::RankMany)
    };
    host.call(descriptor, go_on)?;
    let mut numbers = vec![0; stored.len()];
    host.area(go_on)?.read_words(0, &mut numbers).unwrap();
    Ok(numbers)
}

/// The places of the values in the keyed order, found without a session.
fn places(host: &mut Host, stored: &[u64]) -> Vec<usize> {
    let mut places = Vec::new();
    for one in stored {
        let mut before = 0;
        for other in stored {
            before += usize::from(keyed(host, *other, *one).unwrap() < 0);
        }
        places.push(before);
    }
    places
}

/// Attack: ranks of values of a column whose owner has granted equality alone.
#[test]
fn equality_is_told_and_no_order() {
    with_zone("equality", |scene| {
        let values: Vec<i64> = (0..24).collect();
        let stored = store(scene, 16_384, &[&values[..], &[7, 7]].concat());
        let (ascending, sevens) = stored.split_at(24);
        let mut host = scene.host();
        assert_eq!(keyed(&mut host, sevens[0], sevens[1]), Ok(0));
        assert_eq!(keyed(&mut host, ascending[7], sevens[1]), Ok(0));
        let there = keyed(&mut host, ascending[3], ascending[4]).unwrap();
        let back = keyed(&mut host, ascending[4], ascending[3]).unwrap();
        assert_eq!(there, -back);
        assert_ne!(there, 0);
        // It is an order, and not that of the values.
        let found = places(&mut host, ascending);
        let mut all = found.clone();
        all.sort_unstable();
        assert_eq!(all, (0..24).collect::<Vec<_>>());
        assert!(!found.is_sorted() && !found.iter().rev().is_sorted());
        for op in [Op::Compare, Op::Token] {
            let refused = of_kind(&mut host, op, Kind::Int8, ascending[0], ascending[1]);
            assert_eq!(refused, fault(Fault::NotAllowed), "{op:?}");
        }
        assert_eq!(equal(&mut host, sevens[0], sevens[1]), Ok(0));
        assert_eq!(equal(&mut host, ascending[3], ascending[4]), Ok(1));
        assert_eq!(equal(&mut host, ascending[4], ascending[3]), Ok(1));
        // Which ones are equal is told of many at once, too, in the order in which they come.
        let mixed = [stored[9], stored[24], stored[3], stored[7], stored[25]];
        assert_eq!(numbers(&mut host, &mixed), Ok(vec![0, 1, 2, 1, 1]));
        host.area(go_on).unwrap().write_words(0, &stored).unwrap();
        for op in [Op::RankMany, Op::CompareMany, Op::TokenMany] {
            let descriptor = Descriptor {
                flags: u16::from(Kind::Int8.number()),
                a: stored[0],
                n: 4,
                ..Descriptor::of(op)
            };
            let refused = host.call(descriptor, go_on).map(drop);
            assert_eq!(refused, fault(Fault::NotAllowed), "{op:?}");
        }
    });
}

/// Attack: the same values in two columns, which their orders would tell from others.
#[test]
fn two_columns_have_nothing_in_common() {
    with_zone("equality-columns", |scene| {
        let values: Vec<i64> = (0..24).collect();
        let (one, other) = (store(scene, 16_384, &values), store(scene, 16_385, &values));
        let mut host = scene.host();
        let refused = keyed(&mut host, one[0], other[0]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        assert_ne!(places(&mut host, &one), places(&mut host, &other));
        // A copy of a column, which anybody can make, is of the same column.
        let copies = partition_of(Class::Equality, &mut host, 16_386);
        let (copied, _) = promote(&mut host, copies, 1, Kind::Int8, &one).unwrap();
        assert_eq!(places(&mut host, &one), places(&mut host, &copied));
    });
}

/// Attack: values of opaque columns, and values that were computed or sealed for no column,
/// compared by the keyed order, or put beside those of a column of class equality.
#[test]
fn nothing_else_is_compared_or_stored_beside_the_values() {
    with_zone("equality-others", |scene| {
        let stored = store(scene, 16_384, &[3, 5]);
        let mut owner = scene.client(ORDINARY, &[A]);
        let (opaque, ordered) = store_in_others(scene, &mut owner);

        let mut host = scene.host();
        let refused = keyed(&mut host, opaque[0], opaque[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        let refused = numbers(&mut host, &opaque);
        assert_eq!(refused, fault(Fault::NotAllowed));
        let refused = equal(&mut host, opaque[0], opaque[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        // Who may know the order may know as much.
        assert_ne!(keyed(&mut host, ordered[0], ordered[1]), Ok(0));

        let table = partition_of(Class::Equality, &mut owner, 16_384);
        let sum = int8(&mut owner, "int8pl", stored[0], stored[1]);
        let unnamed = scene.int8(&mut owner, A, 5);
        for value in [sum, unnamed, opaque[0], ordered[0]] {
            let refused = promote(&mut owner, table, 1, Kind::Int8, &[value]);
            assert_eq!(refused, fault(Fault::NotNamed));
        }
        // With the right to derive each costs as many answers as comparing it with the column.
        let mut deriving = scene.client(ORDINARY | right::DERIVE, &[A]);
        let unnamed = scene.int8(&mut deriving, A, 5);
        let (derived, _) = promote(&mut deriving, table, 1, Kind::Int8, &[unnamed]).unwrap();
        assert_eq!(keyed(&mut host, derived[0], stored[1]), Ok(0));

        // A session compares with constants, and is charged; without one nobody does.
        let five = scene.int8(&mut owner, A, 5);
        assert_eq!(keyed(&mut owner, stored[1], five), Ok(0));
        assert_ne!(keyed(&mut owner, stored[0], five), Ok(0));
        let mut weak = scene.client(right::COMPUTE | right::OUTPUT, &[A]);
        let five = scene.int8(&mut weak, A, 5);
        let refused = keyed(&mut weak, stored[1], five);
        assert_eq!(refused, fault(Fault::NotAllowed));
    });
}

/// Attack: a column of the same name under a key of the operator's own, into which its session puts
/// values that are known, to read the owner's column by their places.
#[test]
fn the_order_of_a_column_is_not_that_of_one_of_another_key() {
    with_zone("equality-keys", |scene| {
        let values: Vec<i64> = (0..24).collect();
        let of = equality_lineage(16_391);
        assert_eq!(of, equality_lineage(16_392), "one name");
        let stored = [(A, 16_391), (A, 16_392), (B, 16_393)].map(|(key, filenode)| {
            let mut host = scene.client(ORDINARY, &[key]);
            let table = partition_of(Class::Equality, &mut host, filenode);
            let constants = values
                .iter()
                .map(|value| scene.int8_for(of, &mut host, key, *value));
            let constants: Vec<u64> = constants.collect();
            promote(&mut host, table, 1, Kind::Int8, &constants).unwrap()
        });
        let mut host = scene.host();
        let [owner, again, foreign] = stored.map(|(stored, _)| places(&mut host, &stored));
        assert_eq!(owner, again, "a rewritten table's index has the same order");
        assert_ne!(owner, foreign);
    });
}

/// A subscriber looks for a row by its old values, which have come as a dump's. Attack: values of
/// dumps of other columns, and of opaque ones, are compared with a column's.
#[test]
fn a_dump_of_a_comparable_column_is_compared_with_that_column_only() {
    with_zone("equality-dumps", |scene| {
        let equality = store(scene, 16_384, &[3, 5]);
        let mut owner = scene.client(ORDINARY, &[A]);
        let (opaque, ordered) = store_in_others(scene, &mut owner);

        let mut host = scene.host();
        let dumped = |host: &mut Host, stored: u64| {
            let sealed = output(host, Kind::Int8, &[stored]).unwrap();
            intake(host, Kind::Int8, &sealed[0], 0).unwrap()
        };
        let of_equality = dumped(&mut host, equality[1]);
        let of_ordered = dumped(&mut host, ordered[1]);
        let of_opaque = dumped(&mut host, opaque[1]);
        assert_eq!(keyed(&mut host, equality[1], of_equality), Ok(0));
        assert_ne!(keyed(&mut host, of_equality, equality[0]), Ok(0));
        let compare = |host: &mut Host, a, b| of_kind(host, Op::Compare, Kind::Int8, a, b);
        assert_eq!(compare(&mut host, of_ordered, ordered[1]), Ok(0));
        let less = compare(&mut host, ordered[0], of_ordered);
        assert_eq!(less.map(u64::cast_signed), Ok(-1));
        for (a, b) in [
            (equality[1], of_ordered),
            (equality[1], of_opaque),
            (ordered[1], of_equality),
            (opaque[1], of_opaque),
            (of_opaque, of_opaque),
            (of_equality, of_ordered),
            (of_equality, of_equality),
        ] {
            for op in [Op::Compare, Op::CompareKeyed] {
                let refused = of_kind(&mut host, op, Kind::Int8, a, b);
                assert_eq!(refused, fault(Fault::NotAllowed), "{op:?} {a:x} {b:x}");
            }
        }
        // The order is not told of a column of class equality, whatever it is compared with.
        let refused = compare(&mut host, equality[1], of_equality);
        assert_eq!(refused, fault(Fault::NotAllowed));
        // In a session it is a constant, which takes the right to compare with constants.
        let mut weak = scene.client(right::COMPARE | right::OUTPUT, &[A]);
        let of_opaque = dumped(&mut weak, opaque[1]);
        let refused = compare(&mut weak, opaque[1], of_opaque);
        assert_eq!(refused, fault(Fault::NotAllowed));
        let of_opaque = dumped(&mut owner, opaque[1]);
        assert_eq!(compare(&mut owner, opaque[1], of_opaque), Ok(0));
    });
}
