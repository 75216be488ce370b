//! PostgreSQL's values outside PostgreSQL: binary and text forms, arithmetic, comparison, aggregates, as PostgreSQL 15 has them.
//!
//! The zone computes with it on values as its store keeps them; the data owner's client converts forms with it. Invariant V1 of
//! docs/internals/columns.md: results, errors and their SQLSTATE are PostgreSQL's, or there is an error. Nothing here does I/O, reads a clock
//! or depends on the machine's locale; results and buffers are zeroised when dropped. Must not: name a FID, a key or an envelope.
//!
//! | module | what of PostgreSQL |
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
mod like;
mod numeric;
mod text;
mod textual;
mod value;
mod zone;

pub use aggregate::Accumulator;
pub use binary::{receive, send};
pub use compare::{compare, token_bytes};
pub use compute::{Computation, Condition, compute, test};
pub use input::Unreadable;
pub use text::{parse, parse_interval, print};
pub use value::{Buf, Operand, Out, Settings, Value};
pub use zone::Zone;
