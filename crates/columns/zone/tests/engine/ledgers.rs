//! Goal: what sessions are told under one column key has an end for all of them together, and what
//! was told is in the key's ledger.
//! Method: a key with a limit, and several sessions whose tickets have none.

use strongroom_columns_ring::{Fault, Host, Op};
use strongroom_columns_zone::key_ledger::LedgerBook as _;
use strongroom_columns_zone::store::Store;
use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::right::ORDINARY;
use strongroom_format::columns::channel::{LIMITLESS, Limit};

use super::refused::computed;
use super::{
    A, B, Scene, call, fault, go_on, int8, lineage, of_kind, ordered_partition, output, promote,
    with_store,
};

/// Limits the key A.
fn limited(truths: u64, outputs: u64) -> impl FnOnce(&mut Store) {
    move |store| {
        let limit = Limit {
            key_id: A,
            period: 0,
            truths,
            outputs,
        };
        store.set_limit(&limit).unwrap();
    }
}

/// Compares two new values under this key.
fn compared(scene: &Scene, host: &mut Host, key: [u8; 16]) -> Result<u64, super::Broken> {
    let (a, b) = (scene.int8(host, key, 1), scene.int8(host, key, 1));
    let answer = of_kind(host, Op::Compare, Kind::Int8, a, b);
    host.end_statement(go_on).unwrap();
    answer
}

#[test]
fn all_sessions_under_a_key_share_its_limit() {
    with_store("shared-limit", limited(5, LIMITLESS), |scene| {
        let mut one = scene.client(ORDINARY, &[A, B]);
        for _ in 0..3 {
            assert_eq!(compared(scene, &mut one, A), Ok(0));
        }
        // A connection that comes later gets no limit of its own.
        drop(one);
        let mut other = scene.client(ORDINARY, &[A, B]);
        for _ in 0..2 {
            assert_eq!(compared(scene, &mut other, A), Ok(0));
        }
        let before = computed(scene, &mut other);
        assert_eq!(compared(scene, &mut other, A), fault(Fault::BudgetSpent));
        let mut third = scene.client(ORDINARY, &[A]);
        assert_eq!(compared(scene, &mut third, A), fault(Fault::BudgetSpent));
        assert_eq!(computed(scene, &mut other), before, "nothing was computed");
        // Another key has its own.
        for _ in 0..10 {
            assert_eq!(compared(scene, &mut other, B), Ok(0));
        }
    });
}

#[test]
fn that_a_computation_has_failed_or_not_is_charged_to_the_keys_it_was_made_from() {
    with_store("charged-checks", limited(2, LIMITLESS), |scene| {
        let mut host = scene.client(ORDINARY, &[A, B]);
        for (key, expected) in [(B, Ok(0)), (B, Ok(0)), (A, Ok(0)), (B, Ok(0)), (A, Ok(0))] {
            let a = scene.int8(&mut host, key, 1);
            int8(&mut host, "int8pl", a, a);
            assert_eq!(call(&mut host, Op::Sync, 0, 0), expected);
            host.end_statement(go_on).unwrap();
        }
        let a = scene.int8(&mut host, A, 1);
        let b = scene.int8(&mut host, B, 1);
        int8(&mut host, "int8pl", a, b);
        let spent = fault(Fault::BudgetSpent);
        assert!(matches!(
            call(&mut host, Op::Sync, 0, 0),
            Err(super::Broken::Earlier(Fault::BudgetSpent)
                | super::Broken::Fault(Fault::BudgetSpent))
        ));
        host.end_statement(go_on).unwrap();
        assert_eq!(compared(scene, &mut host, A), spent);
    });
}

#[test]
fn values_that_leave_are_limited_too() {
    with_store("limited-values", limited(LIMITLESS, 2), |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let a = scene.int8(&mut host, A, 1);
        let twice = output(&mut host, Kind::Int8, &[a, a]);
        assert_eq!(twice.map(|sealed| sealed.len()), Ok(2));
        assert_eq!(
            output(&mut host, Kind::Int8, &[a]),
            fault(Fault::BudgetSpent)
        );
        assert_eq!(compared(scene, &mut host, A), Ok(0), "answers are not");
    });
}

/// Stores 1 and 2 in an ordered column under the key A.
fn ordered(scene: &Scene, owner: &mut Host) -> Vec<u64> {
    let table = ordered_partition(owner, 16_384);
    let of = lineage(16_384);
    let constants = [1, 2].map(|value| scene.int8_for(of, owner, A, value));
    let (fids, _) = promote(owner, table, 1, Kind::Int8, &constants).unwrap();
    owner.end_statement(go_on).unwrap();
    fids
}

/// Attack: a session of another key spends the limit of the owner's, and says in the owner's ledger
/// that its client was told something.
#[test]
fn a_session_of_another_key_is_not_charged_to_the_owner_s() {
    with_store("foreign-session", limited(4, 2), |scene| {
        let mut owner = scene.client(ORDINARY, &[A]);
        let fids = ordered(scene, &mut owner);
        let compare = |host: &mut Host| of_kind(host, Op::Compare, Kind::Int8, fids[0], fids[1]);
        let mut foreign = scene.client(ORDINARY, &[B]);
        for _ in 0..9 {
            assert_eq!(compare(&mut foreign), Ok(u64::MAX), "as everybody");
            assert!(output(&mut foreign, Kind::Int8, &fids[..1]).is_ok());
        }
        for _ in 0..4 {
            assert_eq!(compare(&mut owner), Ok(u64::MAX));
        }
        assert_eq!(compare(&mut owner), fault(Fault::BudgetSpent));
        assert!(output(&mut owner, Kind::Int8, &fids).is_ok());
        let spent = output(&mut owner, Kind::Int8, &fids[..1]);
        assert_eq!(spent, fault(Fault::BudgetSpent));
        // Of what the owner has spent nothing keeps others from what everybody may have.
        assert_eq!(compare(&mut foreign), Ok(u64::MAX));
    });
}

#[test]
fn order_without_a_session_is_not_limited() {
    with_store("sessionless-order", limited(0, LIMITLESS), |scene| {
        let mut owner = scene.client(ORDINARY, &[A]);
        let fids = ordered(scene, &mut owner);
        let compare = |host: &mut Host| of_kind(host, Op::Compare, Kind::Int8, fids[0], fids[1]);
        assert_eq!(compare(&mut owner), fault(Fault::BudgetSpent));
        let mut stranger = scene.host();
        assert_eq!(compare(&mut stranger), Ok(u64::MAX), "less");
    });
}
