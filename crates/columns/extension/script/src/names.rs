//! SQL names of types and arguments, and the cost of a function.
//!
//! Must not: write anything.

use strongroom_columns_ring::function::{Arg, Function, Gives};
use strongroom_format::columns::Kind;

/// The planner's cost of a function, in units of a cheap built-in function. A call of the zone
/// takes some hundred nanoseconds, so conditions on plain columns are to be checked first.
pub(crate) const COST: u32 = 10;

/// The name of the extension's type for values of this kind: `enc_` and the plain type's name.
pub(crate) fn type_name(kind: Kind) -> String {
    format!("enc_{}", kind.base())
}

/// The SQL type of an argument.
pub(crate) fn arg_type(arg: Arg) -> String {
    match arg {
        Arg::Of(kind) => type_name(kind),
        Arg::Plain => "integer".to_owned(),
        Arg::Name => "text".to_owned(),
    }
}

/// The SQL types of a function's arguments, separated by commas, without the parentheses.
pub(crate) fn arguments(function: &Function) -> String {
    let types: Vec<String> = function.args.iter().map(|arg| arg_type(*arg)).collect();
    types.join(", ")
}

/// The SQL type of a function's result.
pub(crate) fn result_type(function: &Function) -> String {
    match function.gives {
        Gives::Value(kind) => type_name(kind),
        Gives::Truth => "boolean".to_owned(),
    }
}
