//! What a ticket gives, and on which columns.

use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::right;
use strongroom_rpc::{Fault, Op};

use super::{A, B, ORDINARY, call, fault, int8, intake, of_kind, ticket, with_zone};

#[test]
fn a_ticket_gives_its_rights_on_its_columns_and_no_more() {
    with_zone("rights", |scene| {
        // Both keys are there while this session is.
        let other = scene.client(ORDINARY, &[A, B]);
        let mut host = scene.client(right::COMPARE | right::COMPUTE, &[A]);
        let a = scene.int8(&mut host, A, 1);
        let compared = of_kind(&mut host, Op::Compare, Kind::Int8, a, a);
        assert_eq!(compared, fault(Fault::NotAllowed), "a constant");
        let mut host = scene.client(ORDINARY & !right::OUTPUT, &[A]);
        let (a, b) = (scene.int8(&mut host, A, 1), scene.int8(&mut host, B, 1));
        let sum = int8(&mut host, "int8pl", a, a);
        assert_eq!(scene.opened_int8(&mut host, sum), fault(Fault::NotAllowed));
        assert_eq!(
            scene.opened_int8(&mut host, a),
            Ok(1),
            "what came in may go out"
        );
        int8(&mut host, "int8pl", a, b);
        assert_eq!(
            call(&mut host, Op::Sync, 0, 0),
            fault(Fault::NotAllowed),
            "B is not the ticket's"
        );
        drop(other);
    });
}

/// A session that another one of its ring replaces is over, and its keys go with it.
#[test]
fn the_next_session_of_a_ring_ends_the_one_before() {
    with_zone("next", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let sealed = scene.owner.seal(A, Kind::Int8, &[0; 8]);
        assert!(intake(&mut host, Kind::Int8, &sealed, 0).is_ok());
        scene
            .owner
            .open(&mut host, &ticket(ORDINARY, &[B]))
            .unwrap();
        let refused = intake(&mut host, Kind::Int8, &sealed, 0);
        assert_eq!(refused, fault(Fault::NoColumnKey));
    });
}
