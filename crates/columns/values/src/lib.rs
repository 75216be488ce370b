//! PostgreSQL's values outside PostgreSQL: binary and text forms, arithmetic, comparison,
//! aggregates, as PostgreSQL 15 has them.
//!
//! The zone uses it to compute on the values of its store; the data owner's client uses it to
//! convert forms. Invariant V1 of docs/internals/columns.md: results, errors and their SQLSTATE are
//! PostgreSQL's, or there is an error. Nothing here does I/O, reads a clock or depends on the
//! machine's locale; results and buffers are zeroised when dropped. Must not: name a FID, a key or
//! an envelope.
//!
//! | module | counterpart in PostgreSQL |
//! |---|---|
//! | `binary`, `text` | `recv` and `send`, input and output functions |
//! | `compute` | the functions of `strongroom_columns_ring::function` |
//! | `compare`, `aggregate` | B-tree order and equality; transition, combine and final functions |
#![forbid(unsafe_code)]

mod aggregate;
mod binary;
mod compare;
mod compute;
mod datetime;
mod field;
mod float;
mod input;
mod interval;
mod jsonb;
mod like;
mod numeric;
mod regular_expression;
mod text;
mod textual;
mod time_of_day;
mod time_zone;
mod uuid;
mod value;
mod words;

pub use aggregate::Accumulator;
pub use binary::{receive, send};
pub use compare::{Prepared, compare, token_bytes};
pub use compute::{Computation, Condition, compute, test};
pub use input::Unreadable;
pub use numeric::arithmetic::{coerce as fit_numeric, has_precision, precision_and_scale};
pub use text::{parse, parse_interval, print};
pub use time_zone::TimeZone;
pub use value::{Buf, Operand, Out, Settings, Value};
pub use words::WordFunction;
