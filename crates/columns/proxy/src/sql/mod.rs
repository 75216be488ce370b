//! Plans a client's SQL for the server: every constant of a confidential expression becomes a
//! parameter.
//!
//! PostgreSQL's own parser makes the tree; `resolver.rs` says which constants flow together with
//! confidential values; the tree is changed and written back as SQL. Invariants:
//! - Q1 A constant that is combined with a confidential value, or with a name that is not known,
//!   never stays in the text.
//! - Q2 Every constant and parameter of a statement that touches a confidential relation was
//!   visited by the resolver; one in a construct that the resolver does not know is refused.
//! - Q3 A statement that cannot be parsed, or whose constants stand in text of another language, is
//!   sent only if nothing in its text is the name of something confidential (`unread.rs`).
//!
//! Must not: convert values, or talk to a server.

mod below;
mod calls;
mod cast;
pub mod catalog;
pub(crate) mod catalog_query;
pub(crate) mod changes;
mod changing;
mod classes;
mod clock;
mod column_name;
pub mod comparable;
mod condition;
mod copy_options;
mod defining;
mod expr;
mod flow;
mod fold;
mod functions;
mod kept;
mod lineage;
mod literal;
pub mod pins;
mod plain_definition;
mod plan;
mod position;
mod query;
pub mod refusal;
mod relation_columns;
mod resolver;
mod site;
mod sources;
mod sql_arguments;
mod storing;
mod table;
mod tree;
mod unparsed;
mod unread;
mod utility;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ParseResult, RawStmt, TransactionStmtKind};
use serde_json::Value;
use strongroom_format::columns::Kind;

use catalog::{Catalog, EncType};
pub(crate) use clock::Clock;
pub(crate) use comparable::ComparableColumn;
pub(crate) use copy_options::{CopyFormat, CopyOptions};
pub(crate) use flow::Origins;
pub(crate) use functions::{Structure, base_array_oid, confidential_type};
use literal::Form;
pub(crate) use literal::Token;
pub(crate) use plan::{
    Constant, Copies, Copy, CopyColumn, Effects, ExpectedColumn, ExpectedColumns, NamedUse, Plan,
    QueryName,
};
pub(crate) use position::Texts;
use refusal::Refusal;
use resolver::Resolver;
use site::{Destination, Site, SiteKind};
pub(crate) use utility::text_has_constant as has_constant;

/// Longest statement that is parsed, in bytes.
const STATEMENT_MAX: usize = 64 << 20;

/// Plans a string of statements: returns, in order, what is to be sent for each.
///
/// `declared` is the number of parameters whose types the client declares: numbers of new
/// parameters begin after them.
///
/// # Errors
/// 54000 for more than 64 MiB; 42601 if PostgreSQL's parser does not accept the text, and something
/// confidential is named in it; SR-8101, SR-8102 or SR-8103 if a constant, a parameter or a
/// statement cannot be sent without giving something away; 42P02 for a parameter below 1. The
/// refusal has its position in `sql` where that is known.
pub(crate) fn plan(sql: &str, catalog: &Catalog, declared: usize) -> Result<Vec<Plan>, Refusal> {
    if sql.len() > STATEMENT_MAX {
        return Err(Refusal::postgres(
            "54000",
            "the statement is longer than 64 MiB".to_owned(),
        ));
    }
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default());
    let tree = match parsed {
        Ok(parsed) => parsed.protobuf,
        Err(error) => {
            let refused = || match error {
                pg_query::Error::Parse(message) => Refusal::syntax(&message),
                _ => Refusal::syntax("the statement cannot be parsed"),
            };
            return plan_unparsed(sql, catalog)
                .map_or_else(|| Err(refused()), |plan| Ok(vec![plan]));
        }
    };
    let version = tree.version;
    let mut plans = Vec::new();
    // The catalog with the definitions of the statements before.
    let mut defined: Option<Arc<Catalog>> = None;
    for raw in tree.stmts {
        let text = statement_text(sql, &raw);
        let start = raw.stmt_location;
        let node = raw.stmt.as_deref().filter(|_| catalog.is_confidential());
        let known = defined.as_deref().unwrap_or(catalog);
        let changes = node.map(|node| changing::changed_relations(node, known));
        let changes = changes.unwrap_or_default();
        let node = node.filter(|node| utility::may_define(node)).cloned();
        let mut plan = plan_statement(raw, text, version, known, declared)
            .map_err(|refusal| refusal.with_position(sql))?;
        plan.changes = changes;
        if let Some(node) = node {
            defined = plan.define(known, &node, text).or(defined);
        }
        plan.start = usize::try_from(start).unwrap_or(0);
        plan.len = text.len();
        plans.push(plan);
    }
    if let Some(last) = plans.last_mut() {
        last.defined = defined;
    }
    Ok(plans)
}

/// Whether a text defines a column of a confidential type, as far as the parser reads it.
pub(crate) fn defines_confidential(sql: &str, catalog: &Catalog) -> bool {
    let mut nodes = unparsed::statements(sql).into_iter().flatten();
    nodes.any(|node| {
        !changing::changed_relations(&node, catalog)
            .defined
            .is_empty()
    })
}

/// Whether a text is PREPARE TRANSACTION, and nothing else.
pub(crate) fn prepares_transaction(sql: &str) -> bool {
    let nodes = unparsed::statements(sql).unwrap_or_default();
    let [only] = nodes.as_slice() else {
        return false;
    };
    matches!(
        only.node.as_ref(),
        Some(NodeEnum::TransactionStmt(end)) if end.kind() == TransactionStmtKind::TransStmtPrepare
    )
}

/// Plans a text that the proxy does not read: it is sent as it is. `None` if something confidential
/// is named in it, or if of which query its rows are is not known.
pub(crate) fn plan_unparsed(sql: &str, catalog: &Catalog) -> Option<Plan> {
    let (mut plan, effects) = plan_unread(sql, catalog)?;
    if let Some(effects) = effects {
        plan.effects = plan.effects.with_transactions_of(effects);
    }
    Some(plan)
}

/// Plans a text as [`plan_unparsed`] does; returns its effects, too, if they are known.
fn plan_unread(sql: &str, catalog: &Catalog) -> Option<(Plan, Option<Effects>)> {
    let unparsed::Uses {
        named,
        copies,
        effects,
    } = unparsed::uses(sql, catalog)?;
    let plan = || Plan {
        named,
        ..Plan::of_unparsed(sql, copies)
    };
    unread::may_be_sent(catalog, sql).then(|| (plan(), effects))
}

/// Plans a text that is not UTF-8, because the client's encoding is another one: it is sent as it
/// is. `None` if something confidential is named in it, or may be because it has a name outside
/// ASCII. In every encoding of PostgreSQL bytes of ASCII are themselves, except that the second one
/// of a character may look like a letter, which is a part of the same word then.
pub(crate) fn plan_undecoded(text: &[u8], catalog: &Catalog) -> Option<Plan> {
    let text = String::from_utf8_lossy(text);
    let (mut plan, effects) = plan_unread(&text, catalog)?;
    if let Some(effects) = effects {
        plan.effects = effects;
    }
    Some(plan).filter(|_| unread::has_ascii_names(catalog))
}

/// The function that sets what SET sets.
const SET_CONFIG: &[u8] = b"set_config";

/// Returns the text of one statement of the string, without its semicolon.
fn statement_text<'s>(sql: &'s str, raw: &RawStmt) -> &'s str {
    let start = usize::try_from(raw.stmt_location).unwrap_or(0);
    let rest = sql.get(start..).unwrap_or(sql);
    match usize::try_from(raw.stmt_len) {
        Ok(len) if len > 0 => rest.get(..len).unwrap_or(rest),
        _ => rest,
    }
}

/// Whether a text has these letters in a row, in capitals or not, wherever that is.
pub(crate) fn mentions(text: &[u8], word: &[u8]) -> bool {
    let mut parts = text.windows(word.len());
    parts.any(|part| part.eq_ignore_ascii_case(word))
}

/// Plans one statement. Without confidential types in the database it is sent as it is. Fails as
/// [`plan()`] does, but for the length and for what the parser refuses.
fn plan_statement(
    raw: RawStmt,
    text: &str,
    version: i32,
    catalog: &Catalog,
    declared: usize,
) -> Result<Plan, Refusal> {
    let node = raw.stmt.map(|node| *node).unwrap_or_default();
    let mut plan = Plan {
        sql: text.to_owned(),
        is_parsed: true,
        effects: utility::effects(&node),
        named: utility::named_use(&node),
        ..Plan::default()
    };
    plan.effects.sets_zone |= mentions(text.as_bytes(), SET_CONFIG);
    if !catalog.is_confidential() {
        return Ok(plan);
    }
    let mut resolver = Resolver::new(catalog, text);
    let planned = plan_with(&mut resolver, node, plan, version, declared);
    planned.map_err(|refusal| refusal.of_unknown(!resolver.unknown.is_empty()))
}

/// Plans one statement, in a database with confidential types, with a resolver of its own. Fails as
/// [`plan_statement`] does.
fn plan_with(
    resolver: &mut Resolver<'_>,
    mut node: Node,
    mut plan: Plan,
    version: i32,
    declared: usize,
) -> Result<Plan, Refusal> {
    let fixed = utility::walk(resolver, &mut node, &mut plan)?;
    plan.unknown = resolver.unknown.clone();
    plan.unread = resolver.unread;
    if let Some(refusal) = resolver.refusal.take() {
        return Err(refusal);
    }
    for site in &resolver.sites {
        let SiteKind::Parameter(number) = site.kind else {
            continue;
        };
        if number < 1 {
            // The server refuses it too, but in a text that was written anew the number would be
            // another one.
            return Err(Refusal::postgres(
                "42P02",
                format!("there is no parameter ${number}"),
            ));
        }
        plan.parameters = plan.parameters.max(number);
        if site.form.is_some() {
            plan.confidential.insert(number);
        }
        if let Some(structure) = site.structure {
            plan.structural.insert(number, structure);
        }
    }
    plan.stored = stored_parameters(resolver);
    plan.touched = resolver.touched;
    if !resolver.touched {
        return Ok(plan);
    }
    if !fixed.counted_elsewhere {
        check_all_visited(&node, resolver)?;
    }
    if fixed.keeps && resolver.can_keep_constants() {
        resolver.begin_keeping();
    } else if let Some(why) = fixed.text {
        return check_unchangeable(resolver, why).map(|()| plan);
    } else {
        let first = plan
            .parameters
            .max(i32::try_from(declared).unwrap_or(i32::MAX));
        let (numbers, constants) = number_constants(resolver, first);
        plan.constants = constants;
        resolver.begin_applying(numbers);
    }
    utility::walk(resolver, &mut node, &mut plan)?;
    plan.kept = std::mem::take(&mut resolver.kept);
    // R4: the second walk must not mark anything.
    if let Some(refusal) = resolver.refusal.take() {
        return Err(refusal);
    }
    if resolver.changed {
        plan.sql = deparse(node, version)?;
        plan.changed = true;
    }
    Ok(plan)
}

/// Returns the client's parameters that are stored in one comparable column each.
fn stored_parameters(resolver: &Resolver<'_>) -> BTreeMap<i32, ComparableColumn> {
    let mut found: BTreeMap<i32, Destination> = BTreeMap::new();
    for site in &resolver.sites {
        let SiteKind::Parameter(number) = site.kind else {
            continue;
        };
        let known = found.entry(number).or_default();
        match site.destination {
            Destination::Nowhere => {}
            Destination::Column(column) => known.add(column),
            Destination::Several => *known = Destination::Several,
        }
    }
    let single = found
        .into_iter()
        .filter_map(|(number, known)| Some((number, known.column()?)));
    single.collect()
}

/// Checks a statement whose text the server keeps or reads without parameters: none of its
/// constants may be confidential. Otherwise fails with SR-8101, SR-8102 or SR-8103, which quote
/// `why`.
fn check_unchangeable(resolver: &Resolver<'_>, why: &'static str) -> Result<(), Refusal> {
    let marked =
        |site: &&Site| site.form.is_some() && !matches!(site.kind, SiteKind::RecursiveColumn);
    let Some(site) = resolver.sites.iter().find(marked) else {
        return Ok(());
    };
    Err(match &site.kind {
        SiteKind::Constant(literal) => literal.refusal(why),
        SiteKind::Parameter(number) => {
            Refusal::parameter(usize::try_from(*number).unwrap_or(0), why)
        }
        SiteKind::Cast(_) | SiteKind::RecursiveColumn => Refusal::statement(
            "a confidential value is cast to a base type in a statement that cannot be changed",
            "Name the confidential type in the cast.",
        ),
    })
}

/// Gives every constant that was marked as confidential the number of a parameter, counted from
/// `first` + 1. Equal ones beside values of one kind share theirs, so that an expression in GROUP
/// BY stays equal to the one in the result. Returns the number by site, `None` for sites that stay,
/// and the constants by number.
fn number_constants(resolver: &Resolver<'_>, first: i32) -> (Vec<Option<i32>>, Vec<Constant>) {
    let mut numbers = Vec::with_capacity(resolver.sites.len());
    let mut constants: Vec<(Constant, Form, Option<Kind>)> = Vec::new();
    let mut last = first;
    for site in &resolver.sites {
        let (SiteKind::Constant(literal), Some(form)) = (&site.kind, site.form) else {
            numbers.push(None);
            continue;
        };
        let settled = form != Form::Bare || site.beside.is_some();
        let column = site.destination.column();
        let same = constants.iter().find(|(known, known_form, beside)| {
            settled
                && *known_form == form
                && known.column == column
                && *beside == site.beside
                && known.literal.token == literal.token
                && known.literal.text == literal.text
        });
        if let Some((known, ..)) = same {
            numbers.push(Some(known.number));
            continue;
        }
        last = last.saturating_add(1);
        numbers.push(Some(last));
        constants.push((
            Constant {
                number: last,
                literal: literal.clone(),
                of: match form {
                    Form::Bare => None,
                    Form::Typed(kind) => Some(EncType { kind, array: false }),
                    Form::Array(kind) => Some(EncType { kind, array: true }),
                },
                column,
            },
            form,
            site.beside,
        ));
    }
    (
        numbers,
        constants
            .into_iter()
            .map(|(constant, ..)| constant)
            .collect(),
    )
}

/// Checks that the resolver has visited every constant and every parameter of the tree. Fails with
/// SR-8101 or SR-8102 for the first that it has not, and with 42601 if the tree is nested too
/// deeply to be read.
fn check_all_visited(node: &Node, resolver: &Resolver<'_>) -> Result<(), Refusal> {
    let Ok(tree) = serde_json::to_value(node) else {
        return Err(Refusal::syntax("the statement is nested too deeply"));
    };
    let mut constants = BTreeSet::new();
    let mut parameters = BTreeSet::new();
    for site in &resolver.sites {
        match &site.kind {
            SiteKind::Constant(literal) => drop(constants.insert(i64::from(literal.location))),
            SiteKind::Parameter(number) => drop(parameters.insert(i64::from(*number))),
            SiteKind::Cast(_) | SiteKind::RecursiveColumn => {}
        }
    }
    let mut unvisited = UnvisitedSites {
        constants: &constants,
        parameters: &parameters,
        found: None,
    };
    unvisited.search(&tree);
    unvisited.found.map_or(Ok(()), Err)
}

struct UnvisitedSites<'a> {
    constants: &'a BTreeSet<i64>,
    parameters: &'a BTreeSet<i64>,
    found: Option<Refusal>,
}

impl UnvisitedSites<'_> {
    /// Searches the tree for constants and parameters that were not visited, and keeps the refusal
    /// of the first one. Modifiers of types are passed over.
    fn search(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.search(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match name.as_str() {
                        // Modifiers of types are not data.
                        "type_name" | "TypeName" => {}
                        "AConst" => self.constant(field),
                        "ParamRef" => self.parameter(field),
                        _ => self.search(field),
                    }
                }
            }
            _ => {}
        }
    }

    /// Keeps the refusal of a constant (SR-8101) if it was not visited, is not NULL, and is the
    /// first.
    fn constant(&mut self, constant: &Value) {
        let null = constant.get("isnull").and_then(Value::as_bool) == Some(true);
        let location = constant
            .get("location")
            .and_then(Value::as_i64)
            .unwrap_or(-1);
        if !null && !self.constants.contains(&location) {
            let at = i32::try_from(location).unwrap_or(-1);
            let why = "it stands in a construct whose meaning the proxy does not know, beside confidential values";
            self.found
                .get_or_insert_with(|| Refusal::constant("here", at, why));
        }
    }

    /// Keeps the refusal of a parameter (SR-8102) if it was not visited and is the first.
    fn parameter(&mut self, param: &Value) {
        let number = param.get("number").and_then(Value::as_i64).unwrap_or(0);
        if !self.parameters.contains(&number) {
            let why = "it stands in a construct whose meaning the proxy does not know, beside confidential values";
            self.found.get_or_insert_with(|| {
                Refusal::parameter(usize::try_from(number).unwrap_or(0), why)
            });
        }
    }
}

/// Writes the changed tree back as SQL. Fails with a syntax error (42601) if that is not possible.
fn deparse(node: Node, version: i32) -> Result<String, Refusal> {
    let raw = RawStmt {
        stmt: Some(Box::new(node)),
        stmt_location: 0,
        stmt_len: 0,
    };
    let tree = ParseResult {
        version,
        stmts: vec![raw],
    };
    tree.deparse(pg_query::DeparseOptions::default())
        .map_err(|_| Refusal::syntax("the statement cannot be written back as SQL"))
}

#[cfg(test)]
pub(crate) mod tests;
