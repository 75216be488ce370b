//! Refusals: why the proxy does not pass on a client's message, as an error for the client.
//!
//! The message goes to the data owner's own application and to nobody else: it may name a constant.

use std::fmt;

/// A refusal: SQLSTATE, message, and where in the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters.
    pub sqlstate: &'static str,
    /// What happened.
    pub message: String,
    /// What the user can do, if anything.
    pub hint: Option<&'static str>,
    /// Position in the client's statement in characters, from 1.
    pub position: Option<usize>,
    /// Bytes into the client's statement, from 0, until the position is known.
    pub(crate) offset: Option<usize>,
    /// Whether the statement has a name that the catalog does not know, which may be the reason.
    pub(crate) of_unknown: bool,
}

const HINT_PLAIN: &str = "Compare it with a column of the database's own types explicitly, or run the proxy with \
                          --plaintext-constants=allow if the server may see it.";

impl Refusal {
    /// Makes a refusal without hint and position.
    fn new(sqlstate: &'static str, message: String) -> Self {
        Self {
            sqlstate,
            message,
            hint: None,
            position: None,
            offset: None,
            of_unknown: false,
        }
    }

    /// Notes whether the statement has a name that the catalog does not know.
    pub(super) fn of_unknown(self, of_unknown: bool) -> Self {
        Self { of_unknown, ..self }
    }

    /// Makes the refusal SR-8101: a constant of a confidential expression would reach the server in
    /// clear. The message quotes the constant. `location` is its byte offset in the statement,
    /// negative when it is not known.
    pub(crate) fn constant(shown: &str, location: i32, why: &str) -> Self {
        Self {
            hint: Some(HINT_PLAIN),
            offset: usize::try_from(location).ok(),
            ..Self::new(
                "SR101",
                format!("the constant {shown} would reach the server in clear: {why} (SR-8101)"),
            )
        }
    }

    /// Makes the refusal SR-8102: a parameter that belongs to a confidential expression would reach
    /// the server in clear. `number` counts from 1.
    pub(crate) fn parameter(number: usize, why: &str) -> Self {
        Self {
            hint: Some(HINT_PLAIN),
            ..Self::new(
                "SR102",
                format!("the parameter ${number} would reach the server in clear: {why} (SR-8102)"),
            )
        }
    }

    /// Makes the refusal SR-8103: a statement of a kind that cannot be sent without giving
    /// something away. `what` is the message, to which the code is added.
    pub(crate) fn statement(what: &str, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..Self::new("SR103", format!("{what} (SR-8103)"))
        }
    }

    /// Makes a syntax error (42601) with this message, for a statement that is not sent because it
    /// cannot be parsed or written back: its constants are unknown.
    pub(crate) fn syntax(message: &str) -> Self {
        Self::new("42601", message.to_owned())
    }

    /// Makes the refusal SR-8104: a value is not one of its type, or cannot be converted. The
    /// client gets this SQLSTATE.
    pub(crate) fn value(sqlstate: &'static str, what: &str) -> Self {
        Self::new(sqlstate, format!("{what} (SR-8104)"))
    }

    /// Makes the refusal SR-8105: a message of the protocol does not have its form, or comes where
    /// it cannot.
    pub(crate) fn protocol(what: &str) -> Self {
        Self::new("08P01", format!("{what} (SR-8105)"))
    }

    /// Makes the refusal SR-8106: the server says of a pinned column that it is not confidential.
    pub(crate) fn denied(column: &impl fmt::Display) -> Self {
        const HINT: &str =
            "The column was changed, or the server lies: nothing is sent until the two agree.";
        let message = format!("the server does not say of {column} what --pin says (SR-8106)");
        Self {
            hint: Some(HINT),
            ..Self::new("SR106", message)
        }
    }

    /// Makes the refusal SR-8108: the server says that column `at` of a result, from 1, is plain,
    /// which by the statement is confidential.
    pub(crate) fn plain_result(at: usize) -> Self {
        const HINT: &str =
            "The column was changed past the proxy, or the server lies. Connect again.";
        let message = format!(
            "the server sends column {at} of the result in clear, which is confidential (SR-8108)"
        );
        Self {
            hint: Some(HINT),
            ..Self::new("SR108", message)
        }
    }

    /// Makes the refusal SR-8108: the server has given a column of the result, which is
    /// confidential, another name than the statement does. `at` counts from 1.
    pub(crate) fn other_name(at: usize) -> Self {
        let message = format!(
            "the server gives column {at} of the result the name of something else (SR-8108)"
        );
        Self::new("SR108", message)
    }

    /// Makes the refusal SR-8108: the server has sent a value that is not one of the column that a
    /// statement asks for.
    pub(crate) fn other_column() -> Self {
        const HINT: &str = "If columns of the relation have exchanged their names, say what they were called: --adopt SCHEMA.RELATION.COLUMN=SCHEMA.RELATION.FORMER.";
        let message = "the server sent a value of something else than the column that the statement asks for (SR-8108)";
        Self {
            hint: Some(HINT),
            ..Self::new("SR108", message.to_owned())
        }
    }

    /// Makes the refusal SR-8107: a relation is not what it was when its columns were learned.
    pub(crate) fn changed(differs: &str) -> Self {
        const HINT: &str = "If it was changed on purpose, past the proxy: strongroom columns pins --forget SCHEMA.RELATION.";
        Self {
            hint: Some(HINT),
            ..Self::new("SR107", format!("{differs} (SR-8107)"))
        }
    }

    /// Makes an error that the server would give, or one about the connection, with a SQLSTATE of
    /// PostgreSQL's and without a Strongroom code.
    pub(crate) fn postgres(sqlstate: &'static str, message: String) -> Self {
        Self::new(sqlstate, message)
    }

    /// Sets the position that PostgreSQL's clients show, from the byte offset of the refused
    /// constant: counted in characters of `sql`, from 1. Without an offset it changes nothing.
    pub(crate) fn with_position(mut self, sql: &str) -> Self {
        if let Some(before) = self.offset.and_then(|offset| sql.get(..offset)) {
            self.position = Some(before.chars().count().saturating_add(1));
        }
        self
    }
}

impl fmt::Display for Refusal {
    /// Writes the message alone, without SQLSTATE, hint and position. It may quote a constant of
    /// the statement, so it is for the client only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
