//! Goal: nothing without a session decides what a column's later values are compared with, and what
//! is stored in a session cannot be compared for nothing afterwards.
//! Method: what an operator can do by a backend's own requests, on opaque and ordered columns.

use strongroom_columns_envelope::lineage_by_name;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::channel::right;
use strongroom_format::columns::{Class, Kind, Lineage};

use super::{A, ORDINARY, fault, go_on, int8, intake, of_kind, output, promote, ticket, with_zone};

/// A partition whose columns are opaque.
pub(super) fn partition(host: &mut Host, filenode: u32) -> u64 {
    partition_with(host, filenode, 0, &[]).unwrap()
}

/// A partition whose column 1 is ordered.
pub(super) fn ordered_partition(host: &mut Host, filenode: u32) -> u64 {
    partition_of(Class::Ordered, host, filenode)
}

/// A partition whose column 1 is of this class.
pub(super) fn partition_of(class: Class, host: &mut Host, filenode: u32) -> u64 {
    let column = column_record(class, &path(filenode).join("\0"));
    partition_with(host, filenode, 1, &column).unwrap()
}

/// The names of database, schema, relation and column 1.
pub(super) fn path(filenode: u32) -> [&'static str; 4] {
    [
        "app",
        "public",
        if filenode == 16_384 { "t" } else { "u" },
        "c",
    ]
}

/// The lineage of a partition's ordered column.
pub(super) fn lineage(filenode: u32) -> Lineage {
    lineage_by_name(Class::Ordered, path(filenode))
}

/// The record of column 1, of kind `int8`.
fn column_record(class: Class, name: &str) -> Vec<u8> {
    let [low, high] = u16::try_from(name.len()).unwrap().to_le_bytes();
    let head = [1, 0, Kind::Int8.number(), class.number(), low, high, 0, 0];
    [&head, name.as_bytes()].concat()
}

/// Finds or makes a partition, with the records of `count` columns.
fn partition_with(
    host: &mut Host,
    filenode: u32,
    count: u32,
    columns: &[u8],
) -> Result<u64, Broken> {
    let mut record = vec![0; 16];
    record[..4].copy_from_slice(&1663_u32.to_le_bytes());
    record[4..8].copy_from_slice(&5_u32.to_le_bytes());
    record[8..12].copy_from_slice(&filenode.to_le_bytes());
    record.extend_from_slice(columns);
    host.area(go_on).unwrap().write(0, &record).unwrap();
    let descriptor = Descriptor {
        flags: flag::NEW,
        n: count,
        a: columns.len() as u64,
        ..Descriptor::of(Op::Partition)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

fn compare(host: &mut Host, a: u64, b: u64) -> Result<u64, Broken> {
    of_kind(host, Op::Compare, Kind::Int8, a, b)
}

/// Attack: ranks, and values of small domains, of a column that no index needs.
#[test]
fn an_opaque_column_is_not_compared_without_a_session() {
    with_zone("opaque", |scene| {
        let mut owner = scene.client(ORDINARY, &[A]);
        let table = partition(&mut owner, 16_384);
        let values = [5, 5, 9].map(|value| scene.int8(&mut owner, A, value));
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &values).unwrap();
        let mut host = scene.host();
        let refused = compare(&mut host, stored[0], stored[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        // Neither are copies of it in a table of the operator's, whatever that says of itself.
        let copies = ordered_partition(&mut host, 16_385);
        let (copied, _) = promote(&mut host, copies, 1, Kind::Int8, &stored).unwrap();
        let refused = compare(&mut host, copied[0], copied[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        let dumped = output(&mut host, Kind::Int8, &stored).unwrap();
        let restored = dumped
            .iter()
            .map(|sealed| intake(&mut host, Kind::Int8, sealed, 0).unwrap());
        let restored: Vec<u64> = restored.collect();
        let (restored, _) = promote(&mut host, copies, 1, Kind::Int8, &restored).unwrap();
        let refused = compare(&mut host, restored[0], copied[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        assert_eq!(compare(&mut owner, stored[0], stored[1]), Ok(0));
    });
}

/// Attack: an empty column gets copies of values that the operator knows, and with them their
/// lineage; the owner's values follow, and are bracketed by the known ones.
#[test]
fn known_values_cannot_be_put_beside_those_that_the_owner_stores_later() {
    with_zone("graft", |scene| {
        let mut owner = scene.client(ORDINARY, &[A]);
        let known = ordered_partition(&mut owner, 16_384);
        let values =
            [10, 20, 30].map(|value| scene.int8_for(lineage(16_384), &mut owner, A, value));
        let (known, _) = promote(&mut owner, known, 1, Kind::Int8, &values).unwrap();
        let mut host = scene.host();
        let table = ordered_partition(&mut host, 16_385);
        promote(&mut host, table, 1, Kind::Int8, &known).unwrap();
        let salary = scene.int8_for(lineage(16_385), &mut owner, A, 17);
        let refused = promote(&mut owner, table, 1, Kind::Int8, &[salary]);
        assert_eq!(refused, fault(Fault::NotNamed));
        // A client that allows the storing of other values does not allow this.
        let mut deriving = scene.client(ORDINARY | right::DERIVE, &[A]);
        let salary = scene.int8_for(lineage(16_385), &mut deriving, A, 17);
        let refused = promote(&mut deriving, table, 1, Kind::Int8, &[salary]);
        assert_eq!(refused, fault(Fault::NotNamed));
        // Where the values are the table's own, from before, they may follow.
        let salary = scene.int8_for(lineage(16_384), &mut owner, A, 17);
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &[salary]).unwrap();
        assert_ne!(stored[0], salary);
    });
}

/// Attack: a trigger of the operator's stores computed values, in the owner's session, and compares
/// them afterwards without one.
#[test]
fn computed_values_are_no_ruler_in_an_ordered_column() {
    with_zone("launder", |scene| {
        let of = lineage(16_384);
        let mut owner = scene.client(ORDINARY, &[A]);
        let table = ordered_partition(&mut owner, 16_384);
        let values = [100, 200].map(|value| scene.int8_for(of, &mut owner, A, value));
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &values).unwrap();
        let sum = int8(&mut owner, "int8pl", stored[0], stored[1]);
        let unnamed = scene.int8(&mut owner, A, 150);
        for value in [sum, unnamed] {
            let refused = promote(&mut owner, table, 1, Kind::Int8, &[value]);
            assert_eq!(refused, fault(Fault::NotNamed));
        }
        // Into an opaque column they go, where nobody compares them without a session.
        let (kept, _) = promote(&mut owner, table, 2, Kind::Int8, &[sum, unnamed]).unwrap();
        let mut host = scene.host();
        let refused = compare(&mut host, kept[0], kept[1]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        owner.end_statement(go_on).unwrap();

        // With the right, each costs as much as comparing it with all of the column would.
        let mut limited = ticket(ORDINARY | right::DERIVE, &[A]);
        limited.ticket_id = [9; 16];
        limited.truths = 7;
        let mut deriving = scene.host();
        scene.owner.open(&mut deriving, &limited).unwrap();
        for answer in [Ok(()), Ok(()), fault(Fault::BudgetSpent)] {
            let constant = scene.int8(&mut deriving, A, 150);
            let done = promote(&mut deriving, table, 1, Kind::Int8, &[constant]);
            assert_eq!(done.map(drop), answer, "3 truths, 4, and 5 are not left");
        }
    });
}

/// Attack: a table of the operator's with the lineage of the owner's column, in which a computed
/// value costs little. From there it is dumped, and compared with all of the owner's column.
#[test]
fn a_computed_value_costs_as_many_truths_as_all_columns_of_its_binding_have_values() {
    with_zone("twin", |scene| {
        let of = lineage(16_384);
        let mut owner = scene.client(ORDINARY, &[A]);
        let table = ordered_partition(&mut owner, 16_384);
        let mut value = |value: i64| scene.int8_for(of, &mut owner, A, value * 10);
        let values: Vec<u64> = (0..50).map(&mut value).collect();
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &values).unwrap();
        // Without a session: one table of the operator's gets a copy of one value, another one is
        // said to have the name of the owner's.
        let mut host = scene.host();
        let copies = ordered_partition(&mut host, 16_385);
        promote(&mut host, copies, 1, Kind::Int8, &stored[..1]).unwrap();
        let named = column_record(Class::Ordered, &path(16_384).join("\0"));
        let empty = partition_with(&mut host, 16_386, 1, &named).unwrap();
        let mut limited = ticket(ORDINARY | right::DERIVE, &[A]);
        limited.ticket_id = [9; 16];
        limited.truths = 60;
        let mut deriving = scene.host();
        scene.owner.open(&mut deriving, &limited).unwrap();
        for target in [copies, empty] {
            let sum = int8(&mut deriving, "int8pl", stored[20], stored[3]);
            let mut into = |table| promote(&mut deriving, table, 1, Kind::Int8, &[sum]).map(drop);
            if target == copies {
                assert_eq!(into(target), Ok(()), "52 truths");
            }
            for target in [table, copies, empty] {
                let refused = into(target);
                assert_eq!(refused, fault(Fault::BudgetSpent), "53 truths are not left");
            }
        }
    });
}

#[test]
fn malformed_columns_of_a_relation_are_refused() {
    with_zone("columns", |scene| {
        let mut host = scene.host();
        let name = path(16_384).join("\0");
        let sound = column_record(Class::Ordered, &name);
        let of_class = |class: u8| {
            let mut record = sound.clone();
            record[3] = class;
            record
        };
        let cut = sound[..sound.len() - 1].to_vec();
        let longer = [&sound[..], &[0]].concat();
        let bad_names =
            ["", "app", "a\0b\0c", "a\0b\0c\0d\0e"].map(|name| column_record(Class::Ordered, name));
        for bad in [cut, longer, of_class(3), of_class(4)]
            .iter()
            .chain(&bad_names)
        {
            let refused = partition_with(&mut host, 16_384, 1, bad);
            assert_eq!(refused, fault(Fault::BadRequest), "{bad:?}");
        }
        for (count, len) in [(2, sound.len()), (1, usize::MAX), (u32::MAX, 1 << 20)] {
            let descriptor = Descriptor {
                flags: flag::NEW,
                n: count,
                a: len as u64,
                ..Descriptor::of(Op::Partition)
            };
            let refused = host.call(descriptor, go_on).map(|answer| answer.value);
            assert_eq!(refused, fault(Fault::BadRequest), "{count}, {len}");
        }
        assert!(partition_with(&mut host, 16_384, 1, &sound).is_ok());
        let opaque = column_record(Class::Opaque, "");
        assert!(partition_with(&mut host, 16_384, 1, &opaque).is_ok());
    });
}

/// A server that says of a document or a boolean that it is ordered.
#[test]
fn a_class_that_the_kind_cannot_have_is_refused() {
    with_zone("impossible", |scene| {
        let mut host = scene.host();
        for kind in [Kind::Jsonb, Kind::Bool] {
            let mut record = column_record(Class::Ordered, &path(16_384).join("\0"));
            record[2] = kind.number();
            let refused = partition_with(&mut host, 16_384, 1, &record);
            assert_eq!(refused, fault(Fault::BadRequest), "{kind:?}");
        }
    });
}

/// Attack: columns without end, so that a manifest cannot name them any more.
#[test]
fn a_column_that_no_table_can_have_is_refused() {
    with_zone("numbers", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let table = partition(&mut host, 16_384);
        for column in [0, 1601, u16::MAX] {
            let mut record = column_record(Class::Ordered, &path(16_384).join("\0"));
            record[..2].copy_from_slice(&column.to_le_bytes());
            let refused = partition_with(&mut host, 16_384, 1, &record);
            assert_eq!(refused, fault(Fault::BadRequest), "{column}");
            let constant = scene.int8(&mut host, A, 1);
            let refused = promote(&mut host, table, column, Kind::Int8, &[constant]);
            assert_eq!(refused, fault(Fault::BadRequest), "{column}");
        }
    });
}
