//! Functions that tell the time, as constants: beside a confidential value the proxy's clock
//! counts.
//!
//! The server's clock would be a value that its operator chooses, to be compared with a column.
//! Must not: look at a clock; `proxy/clock.rs` does.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SqlValueFunctionOp};
use strongroom_format::columns::Kind;

use super::tree::names;

/// What a function tells of the time at which the transaction began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The moment: `now()`.
    Moment,
    /// What the clocks of the session's time zone show then: `LOCALTIMESTAMP`.
    Local,
    /// The time of day that they show then: `LOCALTIME`.
    LocalTime,
    /// The day that it is then in the session's time zone: `CURRENT_DATE`.
    Day,
}

impl Clock {
    /// Returns what the expression tells, and its name for a message. `None` if it is not one of
    /// these functions, or rounds the time.
    pub(crate) fn of(node: &Node) -> Option<(Self, &'static str)> {
        match node.node.as_ref()? {
            NodeEnum::FuncCall(call) if call.args.is_empty() && call.over.is_none() => {
                match names(&call.funcname).as_slice() {
                    [name] | ["pg_catalog", name] => Self::of_function(name),
                    _ => None,
                }
            }
            NodeEnum::SqlvalueFunction(function) => match function.op() {
                SqlValueFunctionOp::SvfopCurrentDate => Some((Self::Day, "CURRENT_DATE")),
                SqlValueFunctionOp::SvfopCurrentTimestamp => {
                    Some((Self::Moment, "CURRENT_TIMESTAMP"))
                }
                SqlValueFunctionOp::SvfopLocaltimestamp => Some((Self::Local, "LOCALTIMESTAMP")),
                SqlValueFunctionOp::SvfopLocaltime => Some((Self::LocalTime, "LOCALTIME")),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns what a function without arguments tells, and its name. `None` if it is none of
    /// these.
    fn of_function(name: &str) -> Option<(Self, &'static str)> {
        let name = match name {
            "now" => "now()",
            "transaction_timestamp" => "transaction_timestamp()",
            "statement_timestamp" => "statement_timestamp()",
            "clock_timestamp" => "clock_timestamp()",
            _ => return None,
        };
        Some((Self::Moment, name))
    }

    /// Returns the kind of the value.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Moment => Kind::Timestamptz,
            Self::Local => Kind::Timestamp,
            Self::LocalTime => Kind::Time,
            Self::Day => Kind::Date,
        }
    }
}
