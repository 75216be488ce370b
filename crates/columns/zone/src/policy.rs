//! The policy: decides what a ring may do.
//!
//! | a ring with | may |
//! |---|---|
//! | nothing | compare stored values of one ordered column with each other |
//! | nothing | learn which stored values of one column of class equality are equal |
//! | nothing | store values of the column's own lineage: copies and dumps of it |
//! | nothing | have stored values, and values from envelopes, sealed under the key they belong to |
//! | a ticket | what its rights say, with values whose column keys it names |
//!
//! Invariants A1 to A3 of docs/internals/columns.md. A value is judged by its [`Scope`]: the
//! column keys that it was made from. Must not: look at a value.

use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::right;
use strongroom_format::columns::{Class, Lineage, Sealer};

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
    /// All are values of the column at this address with this binding: stored ones, and some from
    /// dumps of it if `dumped`.
    Column {
        place: ColumnAddress,
        of: Binding,
        dumped: bool,
    },
    /// All are values from dumps of a column with this binding.
    Dumped(Binding),
    /// They are of several columns, or some are not stored; whether one came in an envelope.
    Mixed { constant: bool },
}

impl Common {
    /// What the values have in common if one more is added: a stored one at `place`, or one that is
    /// not stored (`None`), of the scope `scope`.
    ///
    /// A value from a dump of the column counts as one of it: who could compare it after restoring
    /// it may do so at once, as a subscriber does that looks for a row by its old values.
    pub(crate) fn with(self, place: Option<ColumnAddress>, scope: &Scope) -> Self {
        let key = scope.only_key().filter(|_| scope.lineage().is_column());
        let own = key.map(|key| Binding {
            key,
            lineage: scope.lineage(),
        });
        let of_dump = own.filter(|_| scope.origin() == Origin::Envelope);
        let constant = matches!(scope.origin(), Origin::Envelope | Origin::Constant);
        match (self, place, own, of_dump) {
            (Self::Nothing, Some(place), Some(of), _) => Self::Column {
                place,
                of,
                dumped: false,
            },
            (Self::Nothing, None, _, Some(of)) => Self::Dumped(of),
            (Self::Column { place: all, .. }, Some(place), ..) if all == place => self,
            (Self::Column { place, of, .. }, None, _, Some(one)) if one == of => Self::Column {
                place,
                of,
                dumped: true,
            },
            (Self::Dumped(of), Some(place), Some(one), _) if one == of => Self::Column {
                place,
                of,
                dumped: true,
            },
            (Self::Dumped(of), None, _, Some(one)) if one == of => self,
            _ => Self::Mixed {
                constant: constant || self.has_constant(),
            },
        }
    }

    /// Whether one of the values came in an envelope.
    const fn has_constant(self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Column { dumped, .. } => dumped,
            Self::Dumped(_) => true,
            Self::Mixed { constant } => constant,
        }
    }

    /// The right that a session needs besides that of the operation: `CONSTANT` if one of several
    /// values came in an envelope, otherwise none.
    pub(crate) const fn extra_rights(self) -> u32 {
        match self.has_constant() {
            true => right::CONSTANT,
            false => 0,
        }
    }
}

/// An answer about values that the server learns. Each counts as one truth of the ticket's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Which of two values is less, or that they are equal.
    Order,
    /// Whether values are equal, and nothing else: so also which of two comes first in the keyed
    /// order of a column.
    Equality,
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
            Self::Order | Self::Equality | Self::Condition => right::COMPARE,
            Self::Token => right::TOKEN,
            Self::Rank => right::RANK,
        }
    }

    /// Whether it may be given to everybody. The order of the values of one ordered column may,
    /// and which values of a column of class equality are equal: its owner has said so, for an
    /// index on the column tells it as well, and without it neither VACUUM nor REINDEX could run
    /// while no client is connected. What a condition says of them is in no index.
    const fn is_free(self, common: Common) -> bool {
        let Common::Column { of, .. } = common else {
            return false;
        };
        let Some(class) = of.lineage.class() else {
            return false;
        };
        match self {
            Self::Order | Self::Rank => matches!(class, Class::Ordered),
            Self::Equality => class.is_comparable(),
            Self::Condition | Self::Token => false,
        }
    }
}

/// What is known of the column into which a value is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The binding that it has. `None` if it has no values yet.
    pub(crate) bound: Option<Binding>,
    /// The lineage that the column has by its name, as the host says. `None` if it names none.
    pub(crate) by_name: Option<Lineage>,
}

/// Checks that the server may be given answers of the kind `truth` about values whose common column
/// is `common`, if they have one, and that were made from the keys of `scope`. Takes nothing from a
/// budget. It has to be called before the answer is computed: the time of a computation that is
/// refused afterwards would reveal something of its values.
///
/// # Errors
/// [`Fault::NotAllowed`] if the ticket lacks the rights or is not valid now, which its ledger
/// counts as a refusal; and without a session, which only the order or the equality of one column's
/// stored values does without.
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
        (Origin::Column | Origin::Envelope | Origin::Constant, Some(key)) => key,
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
    // A constant that is for a column is no value of it.
    let own = scope.lineage();
    let lineage = if own.is_column() && scope.origin() != Origin::Constant {
        own
    } else {
        Lineage::RESULT
    };
    Ok(Binding { key, lineage })
}

/// The binding of a column into which a value may be stored, which the column takes if it has none.
/// `draw` draws the lineage of a column without a name; `values` counts the values of all columns
/// with this binding. Storing a computed value counts as one output against the session's budget.
///
/// Stored values of a comparable column - ordered, or of class equality - may be compared without a
/// ticket. So nothing may decide what they are compared with but their owner: such a column takes
/// values of its own lineage, and constants that their owner's client has sealed for it. Anything
/// else - what was computed, another column's values, a constant that names no column - takes the
/// right `DERIVE`, and as many truths as comparing it with each value of that binding would: a
/// value can be dumped from one column and restored into, or compared with, any other of its
/// binding.
///
/// # Errors
/// - [`Fault::NotAllowed`] without a session or right that is needed, or with a ticket that is not
///   valid now: storing a value in a column of another key also makes it readable under that key.
/// - [`Fault::NotNamed`] for a value that takes the right `DERIVE`, without it, and for a constant
///   that was sealed for another column than this comparable one.
/// - [`Fault::BudgetSpent`] if the budget has no output left, or not enough truths.
/// - Those of `draw`.
pub(crate) fn store(
    session: Option<&mut Session>,
    scope: &Scope,
    target: Target,
    values: impl FnOnce(Binding) -> u64,
    draw: impl FnOnce() -> Result<Lineage, Fault>,
) -> Result<Binding, Fault> {
    if let Some(own) = stays_what_it_is(session.is_some(), scope, target) {
        return Ok(own);
    }
    let session = session.ok_or(Fault::NotAllowed)?;
    let key = target.bound.map(|bound| bound.key);
    let key = key
        .or_else(|| scope.only_key())
        .or_else(|| session.first_key());
    let key = key.ok_or(Fault::NotAllowed)?;
    let sealed_for = Some(scope.lineage())
        .filter(|lineage| scope.origin() == Origin::Constant && lineage.is_column());
    let lineage = match (target.bound, target.by_name) {
        (Some(bound), _) => Some(bound.lineage),
        // The owner's word counts more than the host's.
        (None, Some(by_name)) if is_comparable(by_name) => sealed_for.or(Some(by_name)),
        (None, by_name) => by_name,
    };
    let mut wanted = match scope.origin() {
        Origin::Column => right::COMPUTE,
        Origin::Envelope | Origin::Constant => right::CONSTANT,
        Origin::Computed => right::OUTPUT,
    };
    if scope.only_key() != Some(key) {
        wanted |= right::OUTPUT;
    }
    session.allow(wanted, scope.keys())?;
    session.allow(wanted, &[key])?;
    if let Some(lineage) = lineage.filter(|lineage| is_comparable(*lineage))
        && sealed_for != Some(lineage)
    {
        if sealed_for.is_some() {
            session.count_refusal();
            return Err(Fault::NotNamed);
        }
        let allowed = session.allow(right::DERIVE, &[key]);
        allowed.map_err(|_| Fault::NotNamed)?;
        let values = values(Binding { key, lineage });
        session.spend_truths(values.saturating_add(1))?;
    }
    if scope.origin() == Origin::Computed {
        session.spend_output()?;
    }
    let lineage = lineage.map_or_else(draw, Ok)?;
    Ok(Binding { key, lineage })
}

/// Whether it is the lineage of a column whose values can be compared without a session.
fn is_comparable(lineage: Lineage) -> bool {
    lineage.class().is_some_and(Class::is_comparable)
}

/// The binding of a value that may be stored because it is the column's own: a value of it that was
/// copied, or dumped and restored. A column without values becomes what they are of: without a
/// session always, with one for a dump, and for values of a comparable column in one of its class.
/// `None` for every other value.
fn stays_what_it_is(in_session: bool, scope: &Scope, target: Target) -> Option<Binding> {
    let zone_made = matches!(scope.origin(), Origin::Column | Origin::Envelope);
    let lineage = Some(scope.lineage()).filter(|lineage| zone_made && lineage.is_column())?;
    let own = Binding {
        key: scope.only_key()?,
        lineage,
    };
    let restores = !in_session
        || scope.origin() == Origin::Envelope
        || (is_comparable(lineage) && target.by_name.and_then(Lineage::class) == lineage.class());
    match target.bound {
        Some(bound) => (own == bound).then_some(bound),
        None => restores.then_some(own),
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
    session.count_declassified();
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
    let of = Binding {
        key,
        lineage: Lineage::CLIENT,
    };
    Ok(Scope::envelope(of, Sealer::Client))
}

#[cfg(test)]
mod tests;
