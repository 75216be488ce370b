//! What older servers read in another way than the proxy's parser, which is of PostgreSQL 18.
//!
//! A word that is reserved in PostgreSQL 18 only can be the name of a column or function of an
//! older server. Must not: tell versions apart; the server's word on its version is not taken.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionForm, FuncCall, JsonExprOp, Node};

use super::flow::Flow;
use super::resolver::Resolver;
use super::tree::names;

/// The name of a function that is written without parentheses since PostgreSQL 16.
const SYSTEM_USER: &str = "system_user";

/// Returns whether the grammar has made this call of the word `SYSTEM_USER`.
pub(super) fn is_system_user(call: &FuncCall) -> bool {
    call.funcformat() == CoercionForm::CoerceSqlSyntax
        && names(&call.funcname) == ["pg_catalog", SYSTEM_USER]
}

impl Resolver<'_> {
    /// Returns what is known of `SYSTEM_USER`: plain, unless a column or a row of the name, which
    /// PostgreSQL 15 takes it for, is confidential.
    pub(super) fn system_user(&mut self) -> Flow {
        let sources = self.scopes.iter().flatten();
        let mut columns = sources.filter_map(|source| {
            let whole = || (source.alias == SYSTEM_USER).then(|| source.columns.whole());
            source.columns.find_or_open(SYSTEM_USER).or_else(whole)
        });
        let found = columns.find(|flow| flow.confidential);
        self.touched |= found.is_some();
        let either = Flow {
            // It is not certain that a result is confidential.
            origins: None,
            label: None,
            ..found.unwrap_or_default()
        };
        either.indirect()
    }

    /// Returns whether the construct is, for PostgreSQL 15, a call of a function that has a
    /// confidential argument or result.
    pub(super) fn may_be_a_call_in_15(&self, node: &Node) -> bool {
        let name = match node.node.as_ref() {
            Some(NodeEnum::JsonFuncExpr(of)) => match of.op() {
                JsonExprOp::JsonExistsOp => "json_exists",
                JsonExprOp::JsonQueryOp => "json_query",
                JsonExprOp::JsonTableOp => "json_table",
                _ => "json_value",
            },
            Some(NodeEnum::JsonTable(_)) => "json_table",
            Some(NodeEnum::JsonParseExpr(_)) => "json",
            Some(NodeEnum::JsonScalarExpr(_)) => "json_scalar",
            Some(NodeEnum::JsonSerializeExpr(_)) => "json_serialize",
            Some(NodeEnum::JsonObjectConstructor(_)) => "json_object",
            Some(NodeEnum::JsonArrayConstructor(_) | NodeEnum::JsonArrayQueryConstructor(_)) => {
                "json_array"
            }
            Some(NodeEnum::JsonObjectAgg(_)) => "json_objectagg",
            Some(NodeEnum::JsonArrayAgg(_)) => "json_arrayagg",
            Some(NodeEnum::MergeSupportFunc(_)) => "merge_action",
            _ => return false,
        };
        self.catalog.has_function(name)
    }
}
