//! What a ticket gives, and on which columns.

use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::right;
use strongroom_rpc::{Fault, Op};

use super::{A, B, ORDINARY, call, fault, int8, of_kind, with_zone};

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
