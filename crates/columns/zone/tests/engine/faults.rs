//! What failed of that which nobody waited for is told by the next call, once (R2).

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Descriptor, Fault, Op};
use strongroom_format::columns::{Fid, Kind};

use super::{A, ORDINARY, call, earlier, fault, go_on, int8, with_zone};

#[test]
fn a_posted_fault_is_told_once() {
    with_zone("faults", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let one = scene.int8(&mut host, A, 1);
        let zero = int8(&mut host, "int8mi", one, one);
        let quotient = int8(&mut host, "int8div", one, zero);
        let further = int8(&mut host, "int8pl", quotient, one);
        let told = scene.opened_int8(&mut host, one);
        assert_eq!(told, earlier(Fault::DivisionByZero));
        // Who caught it goes on in the same statement, but not with what failed.
        assert_eq!(scene.opened_int8(&mut host, one), Ok(1));
        let two = int8(&mut host, "int8pl", one, one);
        assert_eq!(scene.opened_int8(&mut host, two), Ok(2));
        let failed = scene.opened_int8(&mut host, further);
        assert_eq!(failed, fault(Fault::DivisionByZero));
        int8(&mut host, "int8pl", further, one);
        assert_eq!(
            call(&mut host, Op::Sync, 0, 0),
            earlier(Fault::DivisionByZero)
        );
        host.end_statement(go_on).unwrap();
        assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(0));
        let stale = scene.opened_int8(&mut host, further);
        assert_eq!(stale, fault(Fault::StaleFid));
        let never = Fid::ephemeral(host.arena(), host.statement(), 1 << 12)
            .unwrap()
            .bits();
        assert_eq!(scene.opened_int8(&mut host, never), fault(Fault::ForgedFid));
        // Another backend's, and one that is no identifier at all.
        let mut other = scene.client(ORDINARY, &[A]);
        let one = scene.int8(&mut host, A, 1);
        assert_eq!(scene.opened_int8(&mut other, one), fault(Fault::ForgedFid));
        assert_eq!(scene.opened_int8(&mut other, 0), fault(Fault::ForgedFid));
    });
}

/// What nobody has asked for yet is answered whatever was posted before, and takes no fault away:
/// the next call tells it.
#[test]
fn what_is_asked_ahead_leaves_the_fault_to_who_waits() {
    with_zone("faults-ahead", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let one = scene.int8(&mut host, A, 1);
        let zero = int8(&mut host, "int8mi", one, one);
        int8(&mut host, "int8div", one, zero);
        let area = host.area(go_on).unwrap();
        area.write_words(0, &[one, one]).unwrap();
        let many = Descriptor {
            flags: u16::from(Kind::Int8.number()) | flag::AHEAD,
            n: 2,
            a: one,
            ..Descriptor::of(Op::CompareMany)
        };
        let number = host.submit(many, go_on).unwrap();
        let answer = host.answer(number, go_on).unwrap().unwrap();
        assert_eq!((answer.failure(), answer.value), (None, 2));
        let told = call(&mut host, Op::Sync, 0, 0);
        assert_eq!(told, earlier(Fault::DivisionByZero));
        assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(0));
    });
}
