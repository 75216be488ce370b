//! What each ring may do, by its ticket and by the scope of the values.

use super::*;
use crate::arena::Scopes;
use crate::session::KeyId;
use strongroom_format::columns::channel::Ticket;

fn session(rights: u32, keys: &[KeyId], budget: u64) -> Session {
    let ticket = Ticket {
        rights,
        ticket_id: [0; 16],
        not_before: 0,
        not_after: u64::MAX,
        truths: budget,
        outputs: budget,
        keys: keys.to_vec(),
    };
    Session::new(
        [9; 16],
        ticket,
        crate::session::Ledger::new(),
        "test".into(),
    )
}

fn computed(keys: &[KeyId]) -> Scope {
    let mut scopes = Scopes::new();
    let mut ids = keys.iter().map(|key| scopes.intern(column(*key)).unwrap());
    let first = ids.next().unwrap();
    let rest: Vec<_> = ids.collect();
    let mut all = scopes.join_cached(first, first).unwrap();
    for id in rest {
        all = scopes.join_cached(all, id).unwrap();
    }
    scopes.get(all).unwrap().clone()
}

/// An ordered column of this key; its lineage has the key's first byte.
fn bound(key: KeyId) -> Binding {
    Binding {
        key,
        lineage: Lineage::of_column(u64::from(key[0]) << 8, Class::Ordered),
    }
}

/// Another ordered column of this key.
fn other(key: KeyId) -> Binding {
    Binding {
        key,
        lineage: Lineage::of_column(300 << 8, Class::Ordered),
    }
}

/// An opaque column of this key.
fn opaque(key: KeyId) -> Binding {
    Binding {
        key,
        lineage: Lineage::of_column(u64::from(key[0]) << 8, Class::Opaque),
    }
}

fn column(key: KeyId) -> Scope {
    Scope::column(bound(key))
}

/// The scope of a value of this column in a dump.
fn dumped(of: Binding) -> Scope {
    Scope::envelope(of, Sealer::Zone)
}

/// The scope of a constant that the data owner's client sealed for no column.
fn constant(key: KeyId) -> Scope {
    constant_for(Binding {
        key,
        lineage: Lineage::CLIENT,
    })
}

/// The scope of a constant that the data owner's client sealed for this column.
fn constant_for(of: Binding) -> Scope {
    Scope::envelope(of, Sealer::Client)
}

fn draw() -> Result<Lineage, Fault> {
    Ok(Lineage::of_column(7777 << 8, Class::Opaque))
}

/// A column that is bound already, and would have another name.
const fn to(of: Binding) -> Target {
    Target {
        bound: Some(of),
        by_name: None,
    }
}

/// An opaque column without values.
const EMPTY: Target = Target {
    bound: None,
    by_name: None,
};

/// An ordered column without values, whose name gives this lineage.
const fn named(of: Binding) -> Target {
    Target {
        bound: None,
        by_name: Some(of.lineage),
    }
}

/// Stores a value into a column that has 41 values.
fn store_in(
    session: Option<&mut Session>,
    scope: &Scope,
    target: Target,
) -> Result<Binding, Fault> {
    store(session, scope, target, |_| 41, draw)
}

const A: KeyId = [1; 16];
const B: KeyId = [2; 16];

#[test]
fn nothing_may_compare_an_ordered_column_with_itself_and_no_more() {
    let of = column(A);
    let one = Common::Nothing
        .with(Some((3, 1)), &of)
        .with(Some((3, 1)), &of);
    assert_eq!(judge(None, Truth::Order, one, &of), Ok(()));
    assert_eq!(judge(None, Truth::Rank, one, &of), Ok(()));
    for truth in [Truth::Token, Truth::Condition] {
        let answer = judge(None, truth, one, &of);
        assert_eq!(answer, Err(Fault::NotAllowed), "{truth:?}");
    }
    let two = one.with(Some((3, 2)), &of);
    let other_table = one.with(Some((4, 1)), &of);
    let with_constant = one.with(None, &constant(A));
    let result = one.with(None, &computed(&[A]));
    let of = Scope::column(opaque(A));
    let opaque = Common::Nothing
        .with(Some((3, 1)), &of)
        .with(Some((3, 1)), &of);
    for refused in [
        two,
        other_table,
        with_constant,
        result,
        opaque,
        Common::Nothing,
    ] {
        for truth in [Truth::Order, Truth::Rank] {
            let answer = judge(None, truth, refused, &of);
            assert_eq!(answer, Err(Fault::NotAllowed), "{refused:?}");
        }
    }
    let mut session = session(right::COMPARE, &[A], 5);
    let answer = judge(Some(&mut session), Truth::Order, opaque, &of);
    assert_eq!(answer, Ok(()), "with a ticket");
}

#[test]
fn what_everybody_gets_needs_no_right_of_a_ticket() {
    let of = column(A);
    let one = Common::Nothing.with(Some((3, 1)), &column(A));
    let mut other = session(right::OUTPUT, &[B], 5);
    for truth in [Truth::Order, Truth::Rank] {
        assert_eq!(judge(Some(&mut other), truth, one, &of), Ok(()));
    }
    assert_eq!(other.ledger().refusals(), 0);
    for truth in [Truth::Token, Truth::Condition] {
        let answer = judge(Some(&mut other), truth, one, &of);
        assert_eq!(answer, Err(Fault::NotAllowed), "{truth:?}");
    }
    assert_eq!(other.ledger().refusals(), 2);
}

#[test]
fn constants_need_their_own_right_wherever_they_stand() {
    let scope = column(A);
    let behind = Common::Nothing
        .with(Some((3, 1)), &column(A))
        .with(None, &constant(A));
    let before = Common::Nothing
        .with(None, &constant(A))
        .with(Some((3, 1)), &column(A));
    for common in [behind, before, before.with(None, &computed(&[A]))] {
        for truth in [Truth::Order, Truth::Condition] {
            let mut without = session(right::COMPARE, &[A], 5);
            let answer = judge(Some(&mut without), truth, common, &scope);
            assert_eq!(answer, Err(Fault::NotAllowed), "{common:?}");
            let mut with = session(right::COMPARE | right::CONSTANT, &[A], 5);
            let answer = judge(Some(&mut with), truth, common, &scope);
            assert_eq!(answer, Ok(()), "{common:?}");
        }
    }
}

#[test]
fn answers_are_given_on_the_ticket_s_columns_only() {
    let mixed = Common::Mixed { constant: false };
    let mut one = session(right::COMPARE, &[A], 9);
    let own = judge(Some(&mut one), Truth::Order, mixed, &computed(&[A]));
    assert_eq!(own, Ok(()));
    let both = judge(Some(&mut one), Truth::Order, mixed, &computed(&[A, B]));
    assert_eq!(both, Err(Fault::NotAllowed));
}

#[test]
fn a_value_is_sealed_under_its_own_key_or_with_the_right_to_outputs() {
    let result = |key| {
        Ok(Binding {
            key,
            lineage: Lineage::RESULT,
        })
    };
    assert_eq!(output(None, &column(A)), Ok(bound(A)));
    assert_eq!(output(None, &dumped(bound(A))), Ok(bound(A)));
    for of in [constant(B), constant_for(bound(B))] {
        let answer = output(None, &of);
        assert_eq!(answer, result(B), "a constant is no column's value");
    }
    assert_eq!(output(None, &computed(&[A])), Err(Fault::NotAllowed));
    let mut owner = session(right::OUTPUT, &[B, A], 2);
    assert_eq!(output(Some(&mut owner), &computed(&[A])), result(A));
    assert_eq!(
        output(Some(&mut owner), &computed(&[A, B])),
        result(B),
        "the first of the ticket"
    );
    assert_eq!(
        output(Some(&mut owner), &computed(&[A])),
        Err(Fault::BudgetSpent)
    );
    let mut stranger = session(right::OUTPUT, &[B], 2);
    assert_eq!(
        output(Some(&mut stranger), &computed(&[A])),
        Err(Fault::NotAllowed)
    );
}

#[test]
fn without_a_ticket_a_column_takes_what_is_of_its_lineage_and_no_more() {
    for of in [bound(A), opaque(A)] {
        for scope in [&Scope::column(of), &dumped(of)] {
            for empty in [EMPTY, named(other(A))] {
                assert_eq!(store_in(None, scope, empty), Ok(of), "a restore");
            }
            assert_eq!(store_in(None, scope, to(of)), Ok(of));
            for target in [other(A), bound(B)] {
                let answer = store_in(None, scope, to(target));
                assert_eq!(answer, Err(Fault::NotAllowed));
            }
        }
    }
    let result = dumped(Binding {
        key: A,
        lineage: Lineage::RESULT,
    });
    for scope in [
        constant(A),
        constant_for(bound(A)),
        computed(&[A]),
        computed(&[A, B]),
        result,
    ] {
        for target in [EMPTY, named(bound(A)), to(bound(A)), to(opaque(A))] {
            let answer = store_in(None, &scope, target);
            assert_eq!(answer, Err(Fault::NotAllowed), "{scope:?}");
        }
    }
}

#[test]
fn with_a_ticket_storing_takes_the_right_to_what_is_stored() {
    let drawn = draw().map(|lineage| Binding { key: A, lineage });
    for (scope, right) in [
        (constant(A), right::CONSTANT),
        (constant_for(bound(A)), right::CONSTANT),
        (column(A), right::COMPUTE),
        (computed(&[A]), right::OUTPUT),
    ] {
        let target = to(opaque(A));
        let mut has = session(right, &[A], 9);
        assert_eq!(store_in(Some(&mut has), &scope, EMPTY), drawn);
        let answer = store_in(Some(&mut has), &scope, target);
        assert_eq!(answer, Ok(opaque(A)));
        assert_eq!(has.ledger().truths(), 0);
        let mut has_not = session(right::ALL & !right, &[A], 9);
        for target in [EMPTY, target] {
            let answer = store_in(Some(&mut has_not), &scope, target);
            assert_eq!(answer, Err(Fault::NotAllowed), "{scope:?}");
        }
        let mut other = session(right::ALL, &[B], 9);
        let answer = store_in(Some(&mut other), &scope, target);
        assert_eq!(answer, Err(Fault::NotAllowed), "a key that is not named");
    }
    let mut spent = session(right::OUTPUT, &[A], 1);
    let scope = computed(&[A]);
    assert!(store_in(Some(&mut spent), &scope, EMPTY).is_ok());
    let answer = store_in(Some(&mut spent), &scope, EMPTY);
    assert_eq!(answer, Err(Fault::BudgetSpent));
}

#[test]
fn an_ordered_column_takes_what_its_owner_has_named_for_it() {
    let ordinary = || session(right::ORDINARY, &[A], 9);
    let mine = constant_for(bound(A));
    // The host's name for an empty column does not count where the owner has named one.
    for target in [to(bound(A)), named(bound(A)), named(other(A))] {
        let answer = store_in(Some(&mut ordinary()), &mine, target);
        assert_eq!(answer, Ok(bound(A)), "{target:?}");
    }
    // Nothing that others have put into the column beforehand goes beside the owner's values.
    let mut derives = session(right::ALL, &[A], u64::MAX);
    for session in [&mut ordinary(), &mut derives] {
        let answer = store_in(Some(session), &mine, to(other(A)));
        assert_eq!(answer, Err(Fault::NotNamed));
        assert_eq!(session.ledger().refusals(), 1);
    }
    for scope in [constant(A), computed(&[A]), Scope::column(other(A))] {
        let answer = store_in(Some(&mut ordinary()), &scope, to(bound(A)));
        assert_eq!(answer, Err(Fault::NotNamed), "{scope:?}");
    }
    for scope in [constant(A), computed(&[A]), Scope::column(opaque(A))] {
        let answer = store_in(Some(&mut ordinary()), &scope, named(bound(A)));
        assert_eq!(answer, Err(Fault::NotNamed), "{scope:?}");
    }
    // A copy of an ordered column is one of it.
    let copied = store_in(Some(&mut ordinary()), &column(A), named(other(A)));
    assert_eq!(copied, Ok(bound(A)));
}

#[test]
fn other_values_in_an_ordered_column_cost_what_they_can_tell() {
    for scope in [constant(A), computed(&[A]), Scope::column(opaque(A))] {
        for target in [to(bound(A)), named(bound(A))] {
            let mut derives = session(right::ALL, &[A], 84);
            for _ in 0..2 {
                let answer = store_in(Some(&mut derives), &scope, target);
                assert_eq!(answer, Ok(bound(A)), "{scope:?}");
            }
            // The column has 41 values.
            assert_eq!(derives.ledger().truths(), 84);
            let answer = store_in(Some(&mut derives), &scope, target);
            assert_eq!(answer, Err(Fault::BudgetSpent));
        }
    }
}

#[test]
fn a_value_goes_under_another_key_with_the_right_to_outputs_on_both() {
    let all = right::OUTPUT | right::COMPUTE;
    let from = Scope::column(opaque(A));
    for keys in [&[A][..], &[B]] {
        let mut one = session(all, keys, 9);
        let answer = store_in(Some(&mut one), &from, to(opaque(B)));
        assert_eq!(answer, Err(Fault::NotAllowed));
    }
    let mut without = session(right::COMPUTE, &[A, B], 9);
    let answer = store_in(Some(&mut without), &from, to(opaque(B)));
    assert_eq!(answer, Err(Fault::NotAllowed));
    let mut both = session(all, &[B, A], 9);
    let answer = store_in(Some(&mut both), &from, to(opaque(B)));
    assert_eq!(answer, Ok(opaque(B)));
    let answer = store_in(Some(&mut both), &computed(&[A, B]), EMPTY);
    assert_eq!(answer.map(|to| to.key), Ok(B), "the first of the ticket");
    // A new version of the key seals a constant for the same column.
    let newer = constant_for(Binding { key: B, ..bound(A) });
    let mut rotated = session(right::ORDINARY, &[B, A], 9);
    let answer = store_in(Some(&mut rotated), &newer, to(bound(A)));
    assert_eq!(answer, Ok(bound(A)));
}

#[test]
fn values_in_clear_need_a_right_of_their_own_both_ways() {
    let scope = column(A);
    assert_eq!(declassify(None, &scope), Err(Fault::NotAllowed));
    assert_eq!(classify(None).err(), Some(Fault::NotAllowed));
    let mut ordinary = session(right::ORDINARY, &[A], 9);
    let answer = declassify(Some(&mut ordinary), &scope);
    assert_eq!(answer, Err(Fault::NotAllowed));
    assert_eq!(classify(Some(&mut ordinary)).err(), Some(Fault::NotAllowed));
    let mut owner = session(right::DECLASSIFY, &[A], 1);
    let other = declassify(Some(&mut owner), &computed(&[A, B]));
    assert_eq!(other, Err(Fault::NotAllowed), "a key that is not named");
    assert_eq!(declassify(Some(&mut owner), &computed(&[A])), Ok(()));
    let spent = declassify(Some(&mut owner), &scope);
    assert_eq!(spent, Err(Fault::BudgetSpent));
    assert_eq!(classify(Some(&mut owner)), Ok(constant(A)));
    let ledger = owner.ledger().to_json();
    assert!(ledger.contains("\"declassified\":1,\"classified\":1"));
}
