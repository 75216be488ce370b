//! The policy: decides what a ring may do.
//!
//! | a ring with | may |
//! |---|---|
//! | nothing | compare stored values of one column with each other |
//! | nothing | store values of the column's own lineage: copies and dumps of it |
//! | nothing | have stored values, and values from envelopes, sealed under the key they belong to |
//! | a ticket | what its rights say, with values whose column keys it names |
//!
//! Invariants A1 to A3 of docs/internals/columns.md. A value is judged by its [`Scope`]: the
//! column keys that it was made from. Must not: look at a value.

use strongroom_columns_ring::Fault;
use strongroom_format::columns::Lineage;
use strongroom_format::columns::channel::right;

use crate::arena::{Origin, Scope};
use crate::session::Session;
use crate::store::Binding;

/// The column of a stored value: partition and column number.
pub(crate) type ColumnAddress = (u16, u16);

/// The columns that the values of one comparison have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Common {
    /// No value was added yet.
    Nothing,
    /// All are stored values of this column.
    Column(ColumnAddress),
    /// They are of several columns, or some are not stored; whether one came in an envelope.
    Mixed { constant: bool },
}

impl Common {
    /// What the values have in common if one more is added: a stored one at `place`, or one that is
    /// not stored (`None`) and came to be as `from` says.
    pub(crate) fn with(self, place: Option<ColumnAddress>, from: Origin) -> Self {
        let constant = from == Origin::Envelope;
        match (self, place) {
            (Self::Nothing, Some(place)) => Self::Column(place),
            (Self::Column(all), Some(place)) if all == place => self,
            (Self::Mixed { constant: before }, _) => Self::Mixed {
                constant: before || constant,
            },
            _ => Self::Mixed { constant },
        }
    }

    /// The right that a session needs besides that of the operation: `CONSTANT` if one of several
    /// values came in an envelope, otherwise none.
    pub(crate) const fn extra_rights(self) -> u32 {
        match self {
            Self::Mixed { constant: true } => right::CONSTANT,
            _ => 0,
        }
    }
}

/// An answer about values that the server learns. Each counts as one truth of the ticket's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Which of two values is less, or that they are equal.
    Order,
    /// What a function says that gives a boolean, such as `LIKE`.
    Condition,
    /// A number that equal values of one statement have in common.
    Token,
    /// A value's place among others.
    Rank,
}

impl Truth {
    /// The right of a ticket that such an answer needs.
    const fn right(self) -> u32 {
        match self {
            Self::Order | Self::Condition => right::COMPARE,
            Self::Token => right::TOKEN,
            Self::Rank => right::RANK,
        }
    }

    /// Whether it may be given to everybody. The order of stored values of one column may: an index
    /// on the column tells it as well, and without it neither VACUUM nor REINDEX could run while no
    /// client is connected. What a condition says of them is in no index.
    const fn is_free(self, common: Common) -> bool {
        matches!(self, Self::Order | Self::Rank) && matches!(common, Common::Column(_))
    }
}

/// Checks that the server may be given answers of the kind `truth` about values whose common column
/// is `common`, if they have one, and that were made from the keys of `scope`. Takes nothing from a
/// budget. It has to be called before the answer is computed: the time of a computation that is
/// refused afterwards would reveal something of its values.
///
/// # Errors
/// [`Fault::NotAllowed`] if the ticket lacks the rights or is not valid now, which its ledger
/// counts as a refusal; and without a session, which only the order of one column's stored values
/// does without.
pub(crate) fn judge(
    session: Option<&mut Session>,
    truth: Truth,
    common: Common,
    scope: &Scope,
) -> Result<(), Fault> {
    if truth.is_free(common) {
        return Ok(());
    }
    let session = session.ok_or(Fault::NotAllowed)?;
    session.allow(truth.right() | common.extra_rights(), scope.keys())
}

/// The key under which a value may be sealed for the ring, and the lineage that its envelope names.
/// With a session, takes one output from its budget. Without one, only values of a column or an
/// envelope may be sealed, under their own key.
///
/// # Errors
/// [`Fault::NotAllowed`] without a session that is needed, or if its ticket lacks the right, is not
/// valid now, or names no key where one is needed; [`Fault::BudgetSpent`] if the budget has none
/// left.
pub(crate) fn output(mut session: Option<&mut Session>, scope: &Scope) -> Result<Binding, Fault> {
    let key = match (scope.origin(), scope.only_key()) {
        // A holder of the key of the column, or of the envelope, may know the value. Sealed under
        // that key it is revealed to nobody else.
        (Origin::Column | Origin::Envelope, Some(key)) => key,
        (_, only) => {
            let session = session.as_deref_mut().ok_or(Fault::NotAllowed)?;
            session.allow(right::OUTPUT, scope.keys())?;
            only.or_else(|| session.first_key())
                .ok_or(Fault::NotAllowed)?
        }
    };
    if let Some(session) = session {
        session.spend_output()?;
    }
    // A value that the zone seals must not look like one that a client sealed.
    let own = scope.lineage();
    let lineage = if own.is_column() {
        own
    } else {
        Lineage::RESULT
    };
    Ok(Binding { key, lineage })
}

/// The binding of a column into which a value may be stored. `bound` is the binding that the column
/// has already, `draw` draws a lineage for a column that has none. Storing a computed value counts
/// as one output against the session's budget.
///
/// Stored values of one column may be compared without a ticket. So without one a column takes only
/// values of its own lineage: copies and dumps of it, or of the one column that it is a copy of.
/// Anything else would let an operator compare values of two columns, or constants.
///
/// # Errors
/// [`Fault::NotAllowed`] without a session or right that is needed, or with a ticket that is not
/// valid now: storing a value in a column of another key also makes it readable under that key.
/// [`Fault::BudgetSpent`] if the budget has no output left; those of `draw`.
pub(crate) fn store(
    session: Option<&mut Session>,
    scope: &Scope,
    bound: Option<Binding>,
    draw: impl FnOnce() -> Result<Lineage, Fault>,
) -> Result<Binding, Fault> {
    let lineage = scope.lineage();
    let own = scope.only_key().filter(|_| lineage.is_column());
    let own = own.map(|key| Binding { key, lineage });
    match (own, bound) {
        (Some(own), Some(bound)) if own == bound => return Ok(bound),
        (Some(own), None) if session.is_none() || scope.origin() == Origin::Envelope => {
            return Ok(own);
        }
        _ => {}
    }
    let session = session.ok_or(Fault::NotAllowed)?;
    let key = bound.map(|bound| bound.key).or_else(|| scope.only_key());
    let key = key
        .or_else(|| session.first_key())
        .ok_or(Fault::NotAllowed)?;
    let mut wanted = match scope.origin() {
        Origin::Column => right::COMPUTE,
        Origin::Envelope => right::CONSTANT,
        Origin::Computed => right::OUTPUT,
    };
    if scope.only_key() != Some(key) {
        wanted |= right::OUTPUT;
    }
    session.allow(wanted, scope.keys())?;
    session.allow(wanted, &[key])?;
    if scope.origin() == Origin::Computed {
        session.spend_output()?;
    }
    match bound {
        Some(bound) => Ok(bound),
        None => Ok(Binding {
            key,
            lineage: draw()?,
        }),
    }
}

/// Checks that a value of this scope may be given in clear. Takes one output from the session's
/// budget, and counts the value in its ledger.
///
/// # Errors
/// [`Fault::NotAllowed`] without a session, or if its ticket lacks the right or is not valid now;
/// [`Fault::BudgetSpent`] if the budget has none left. The ledger counts what a ticket refuses.
pub(crate) fn declassify(session: Option<&mut Session>, scope: &Scope) -> Result<(), Fault> {
    let session = session.ok_or(Fault::NotAllowed)?;
    session.allow(right::DECLASSIFY, scope.keys())?;
    session.spend_output()?;
    session.ledger().count_declassified(1);
    Ok(())
}

/// The scope of a value that came in clear: that of a constant under the first key of the session's
/// ticket. A client that may choose such values can find out any value by comparing, so it needs
/// the same right as for reading values in clear. The session's ledger counts the value.
///
/// # Errors
/// [`Fault::NotAllowed`] without a session, or if its ticket names no key; also if the ticket lacks
/// the right or is not valid now, which the ledger counts as a refusal.
pub(crate) fn classify(session: Option<&mut Session>) -> Result<Scope, Fault> {
    let session = session.ok_or(Fault::NotAllowed)?;
    let key = session.first_key().ok_or(Fault::NotAllowed)?;
    session.allow(right::DECLASSIFY, &[key])?;
    session.ledger().count_classified(1);
    Ok(Scope::envelope(Binding {
        key,
        lineage: Lineage::CLIENT,
    }))
}

#[cfg(test)]
mod tests {
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
        Session::new([9; 16], ticket, crate::session::Ledger::new())
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

    /// A column of this key; its lineage is the key's first byte.
    fn bound(key: KeyId) -> Binding {
        Binding {
            key,
            lineage: Lineage::of(u64::from(key[0]) + 100),
        }
    }

    fn column(key: KeyId) -> Scope {
        Scope::column(bound(key))
    }

    /// The scope of a constant that the data owner's client sealed.
    fn constant(key: KeyId) -> Scope {
        Scope::envelope(Binding {
            key,
            lineage: Lineage::CLIENT,
        })
    }

    fn draw() -> Result<Lineage, Fault> {
        Ok(Lineage::of(7777))
    }

    const A: KeyId = [1; 16];
    const B: KeyId = [2; 16];

    #[test]
    fn nothing_may_compare_one_column_with_itself_and_no_more() {
        let of = column(A);
        let one = Common::Nothing
            .with(Some((3, 1)), Origin::Column)
            .with(Some((3, 1)), Origin::Column);
        assert_eq!(judge(None, Truth::Order, one, &of), Ok(()));
        assert_eq!(judge(None, Truth::Rank, one, &of), Ok(()));
        for truth in [Truth::Token, Truth::Condition] {
            let answer = judge(None, truth, one, &of);
            assert_eq!(answer, Err(Fault::NotAllowed), "{truth:?}");
        }
        let two = one.with(Some((3, 2)), Origin::Column);
        let other_table = one.with(Some((4, 1)), Origin::Column);
        let constant = one.with(None, Origin::Envelope);
        let result = one.with(None, Origin::Computed);
        for mixed in [two, other_table, constant, result, Common::Nothing] {
            let answer = judge(None, Truth::Order, mixed, &of);
            assert_eq!(answer, Err(Fault::NotAllowed), "{mixed:?}");
        }
    }

    #[test]
    fn what_everybody_gets_needs_no_right_of_a_ticket() {
        let of = column(A);
        let one = Common::Nothing.with(Some((3, 1)), Origin::Column);
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
            .with(Some((3, 1)), Origin::Column)
            .with(None, Origin::Envelope);
        let before = Common::Nothing
            .with(None, Origin::Envelope)
            .with(Some((3, 1)), Origin::Column);
        for common in [behind, before, before.with(None, Origin::Computed)] {
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
        assert_eq!(output(None, &Scope::envelope(bound(A))), Ok(bound(A)));
        assert_eq!(
            output(None, &constant(B)),
            result(B),
            "never as something of a client"
        );
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
        let dumped = Scope::envelope(bound(A));
        for scope in [&column(A), &dumped] {
            assert_eq!(store(None, scope, None, draw), Ok(bound(A)), "a restore");
            assert_eq!(store(None, scope, Some(bound(A)), draw), Ok(bound(A)));
            let other = Binding {
                lineage: Lineage::of(300),
                ..bound(A)
            };
            for target in [other, bound(B)] {
                let answer = store(None, scope, Some(target), draw);
                assert_eq!(answer, Err(Fault::NotAllowed));
            }
        }
        for scope in [constant(A), computed(&[A]), computed(&[A, B])] {
            for target in [None, Some(bound(A))] {
                let answer = store(None, &scope, target, draw);
                assert_eq!(answer, Err(Fault::NotAllowed), "{scope:?}");
            }
        }
        let result = Scope::envelope(Binding {
            key: A,
            lineage: Lineage::RESULT,
        });
        assert_eq!(store(None, &result, None, draw), Err(Fault::NotAllowed));
    }

    #[test]
    fn with_a_ticket_storing_takes_the_right_to_what_is_stored() {
        let drawn = |key| {
            Ok(Binding {
                key,
                lineage: Lineage::of(7777),
            })
        };
        for (scope, right) in [
            (constant(A), right::CONSTANT),
            (column(A), right::COMPUTE),
            (computed(&[A]), right::OUTPUT),
        ] {
            let target = Binding {
                lineage: Lineage::of(300),
                ..bound(A)
            };
            let mut has = session(right, &[A], 9);
            assert_eq!(store(Some(&mut has), &scope, None, draw), drawn(A));
            let answer = store(Some(&mut has), &scope, Some(target), draw);
            assert_eq!(answer, Ok(target));
            let mut has_not = session(right::ORDINARY & !right, &[A], 9);
            for target in [None, Some(target)] {
                let answer = store(Some(&mut has_not), &scope, target, draw);
                assert_eq!(answer, Err(Fault::NotAllowed), "{scope:?}");
            }
            let mut other = session(right::ORDINARY, &[B], 9);
            let answer = store(Some(&mut other), &scope, Some(target), draw);
            assert_eq!(answer, Err(Fault::NotAllowed), "a key that is not named");
        }
        let mut spent = session(right::OUTPUT, &[A], 1);
        let scope = computed(&[A]);
        assert!(store(Some(&mut spent), &scope, None, draw).is_ok());
        let answer = store(Some(&mut spent), &scope, None, draw);
        assert_eq!(answer, Err(Fault::BudgetSpent));
    }

    #[test]
    fn a_value_goes_under_another_key_with_the_right_to_outputs_on_both() {
        let all = right::OUTPUT | right::COMPUTE;
        for keys in [&[A][..], &[B]] {
            let mut one = session(all, keys, 9);
            let answer = store(Some(&mut one), &column(A), Some(bound(B)), draw);
            assert_eq!(answer, Err(Fault::NotAllowed));
        }
        let mut without = session(right::COMPUTE, &[A, B], 9);
        let answer = store(Some(&mut without), &column(A), Some(bound(B)), draw);
        assert_eq!(answer, Err(Fault::NotAllowed));
        let mut both = session(all, &[B, A], 9);
        let answer = store(Some(&mut both), &column(A), Some(bound(B)), draw);
        assert_eq!(answer, Ok(bound(B)));
        let answer = store(Some(&mut both), &computed(&[A, B]), None, draw);
        assert_eq!(answer.map(|to| to.key), Ok(B), "the first of the ticket");
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
}
