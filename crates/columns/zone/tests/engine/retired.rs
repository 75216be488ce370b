//! Retired partitions: which ones there are, and that a drop takes the one that is meant.

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Op};

use crate::lineages::ordered_partition;
use crate::{call, fault, go_on, with_zone};

/// The first retired partition above this number, and what tells it from others; 0 for none.
fn next(host: &mut Host, after: u64) -> (u64, u32) {
    let descriptor = Descriptor {
        a: after,
        ..Descriptor::of(Op::NextRetired)
    };
    let answer = host.call(descriptor, go_on).unwrap();
    (answer.value, answer.aux)
}

/// Gives a partition to the relation with these numbers.
fn reassign(host: &mut Host, partition: u64, relation: [u32; 3]) {
    let bytes: Vec<u8> = relation.iter().flat_map(|one| one.to_le_bytes()).collect();
    host.area(go_on).unwrap().write(0, &bytes).unwrap();
    call(host, Op::ReassignPartition, partition, 0).unwrap();
}

fn drop_meant(host: &mut Host, partition: u64, flags: u16, n: u32) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        a: partition,
        flags,
        n,
        ..Descriptor::of(Op::Drop)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

#[test]
fn a_drop_takes_the_partition_that_is_meant() {
    with_zone("retired", |scene| {
        let mut host = scene.host();
        let (live, gone) = (
            ordered_partition(&mut host, 16_384),
            ordered_partition(&mut host, 16_385),
        );
        assert_eq!(next(&mut host, 0), (0, 0));
        let number = u32::try_from(gone).unwrap();
        reassign(&mut host, gone, [0, 5, number]);
        let (found, mark) = next(&mut host, 0);
        assert_eq!((found, next(&mut host, gone).0), (gone, 0));
        let unknown = fault(Fault::PartitionUnknown);
        for (partition, flags, n) in [
            (live, flag::RETIRED, mark),
            (gone, flag::RETIRED, mark.wrapping_add(1)),
            (live, flag::OF_DATABASE, 6),
            (gone, flag::OF_DATABASE, 6),
        ] {
            let refused = drop_meant(&mut host, partition, flags, n);
            assert_eq!(refused, unknown, "{partition} {flags} {n}");
        }
        // The number in another partition's hands, which is retired in its turn.
        reassign(&mut host, gone, [1663, 5, 16_386]);
        assert_eq!(drop_meant(&mut host, gone, flag::RETIRED, mark), unknown);
        reassign(&mut host, gone, [0, 5, number]);
        assert_eq!(drop_meant(&mut host, gone, flag::RETIRED, mark), unknown);
        let (_, mark) = next(&mut host, 0);
        assert_eq!(drop_meant(&mut host, gone, flag::RETIRED, mark), Ok(0));
        assert_eq!(next(&mut host, 0).0, 0);
        assert_eq!(drop_meant(&mut host, live, flag::OF_DATABASE, 5), Ok(0));
    });
}

/// The partition of the relation with these numbers, which is not made.
fn found(host: &mut Host, relation: [u32; 3], flags: u16) -> Result<u64, Broken> {
    let bytes: Vec<u8> = relation.iter().flat_map(|one| one.to_le_bytes()).collect();
    let bytes = [&bytes[..], &[0; 4]].concat();
    host.area(go_on)?.write(0, &bytes).unwrap();
    let descriptor = Descriptor {
        flags,
        ..Descriptor::of(Op::Partition)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

/// The host's transaction may be undone by a crash until somebody has asked for what it has made.
#[test]
fn a_partition_goes_back_until_its_new_relation_has_asked_for_it() {
    with_zone("moved", |scene| {
        let mut host = scene.host();
        let [first, second, retired] = [[1663, 5, 16_384], [1663, 5, 16_399], [0, 5, 1]];
        let unknown = fault(Fault::PartitionUnknown);
        let table = ordered_partition(&mut host, 16_384);
        reassign(&mut host, table, second);
        assert_eq!(found(&mut host, second, flag::MOVING), Ok(table));
        assert_eq!(found(&mut host, first, 0), Ok(table), "it was undone");
        assert_eq!(found(&mut host, second, 0), unknown);
        reassign(&mut host, table, second);
        assert_eq!(found(&mut host, second, 0), Ok(table));
        assert_eq!(found(&mut host, first, 0), unknown, "it holds");
        // What is retired does not come back.
        reassign(&mut host, table, retired);
        assert_eq!(found(&mut host, second, 0), unknown);
        reassign(&mut host, table, first);
        assert_eq!(found(&mut host, retired, 0), unknown);
        assert_eq!(found(&mut host, first, flag::MOVING), Ok(table));
    });
}

/// A host whose numbers of sweeps cannot be of any history gets none that would never end.
#[test]
fn numbers_of_sweeps_stay_small() {
    with_zone("sweeps", |scene| {
        let mut host = scene.host();
        let partition = ordered_partition(&mut host, 16_384);
        for after in [u64::MAX, 1 << 33] {
            let refused = call(&mut host, Op::MarkBegin, partition, after);
            assert_eq!(refused, fault(Fault::BadRequest));
        }
        assert_eq!(call(&mut host, Op::MarkBegin, partition, 1000), Ok(1001));
        assert_eq!(call(&mut host, Op::MarkBegin, partition, 3), Ok(1002));
    });
}
