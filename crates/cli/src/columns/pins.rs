//! `strongroom columns pins`: what the proxy has learned of relations with confidential columns.
//!
//! Must not: connect to a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use strongroom_columns_proxy::relations::{
    ColumnName, FunctionName, KnownRelations, RelationName, Shape, adopted_to_json,
    function_to_json, relation_to_json,
};
use strongroom_columns_proxy::sql::comparable::{ColumnPath, FormerName, LineageNames};

use super::proxy::parse_adopted_column;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::output::columns;

/// Show the columns of relations as the proxy saw them first, or have it learn a relation again.
///
/// The proxy refuses statements with a relation whose columns are not what they were (SR-8107), and
/// with one that has the name of a relation that is gone. When a relation was changed on purpose,
/// past the proxy, forget it: the next connection takes it as the server says then. A function that
/// had a confidential argument or result gets confidential constants until it is forgotten, by its
/// name with brackets behind it. Where names have changed, say what a comparable column was called
/// when its values were stored; its own name takes that back. Proxies that run learn of all this
/// within 10 seconds.
#[derive(Args)]
#[command(after_help = tail!(
    "  strongroom columns pins\n  strongroom columns pins --forget public.staff\n  \
     strongroom columns pins --adopt public.staff.level=public.staff.grade"
))]
pub(super) struct PinsArgs {
    /// The proxy's file. Beside the keyring unless given
    #[arg(long, value_name = "FILE")]
    pins: Option<PathBuf>,
    /// Relation to be learned again, or function: its name with brackets behind it
    #[arg(long, value_name = "SCHEMA.RELATION", value_parser = parse_forgotten)]
    forget: Vec<Forgotten>,
    /// Column that was renamed, or restored under another name, and what it was called when its
    /// values were stored: SCHEMA.RELATION.COLUMN=[DATABASE.]SCHEMA.RELATION.COLUMN
    #[arg(long = "adopt", value_name = "NOW=BEFORE", value_parser = parse_adopted_column)]
    adopted: Vec<(ColumnPath, FormerName)>,
    /// Of this database only
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["forget", "adopted"])]
    pub(super) json: bool,
}

/// What `--forget` names, as in the catalog.
#[derive(Clone)]
enum Forgotten {
    /// Schema and name of a relation.
    Relation(String, String),
    /// Name of a function, in whatever schema.
    Function(String),
}

impl PinsArgs {
    /// Prints what is known, or forgets the relations that are named. SR-5001 if the file cannot be
    /// read or written, or was not written by a proxy; SR-1001 if a relation that is named is not
    /// known.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keyring = context.keyring_path();
        let path = self.pins.unwrap_or_else(|| keyring.with_extension("pins"));
        let about = |error: std::io::Error| Failure::io(&path, &error);
        let relations = KnownRelations::at(path.clone()).map_err(about)?;
        let database = self.database.as_deref();
        let wanted = |of: &str| database.is_none_or(|wanted| wanted == of);
        for forgotten in &self.forget {
            let (count, shown) = match forgotten {
                Forgotten::Relation(schema, relation) => (
                    relations.forget(|name| {
                        wanted(&name.database)
                            // A statement may have named it without its schema.
                            && (name.schema == *schema || name.schema.is_empty())
                            && name.relation == *relation
                    }),
                    format!("{schema}.{relation}"),
                ),
                Forgotten::Function(function) => (
                    relations.forget_functions(|name| {
                        wanted(&name.database) && name.function == *function
                    }),
                    format!("{function}()"),
                ),
            };
            check_known(count.map_err(about)?, &shown)?;
            note(&format!("{shown} is forgotten"));
        }
        for (column, before) in &self.adopted {
            let count = relations.adopt(|name| wanted(&name.database), column, before);
            let [schema, relation, _] = column;
            check_known(count.map_err(about)?, &format!("{schema}.{relation}"))?;
            let (column, before) = (column.join("."), before.path.join("."));
            note(&format!("{column} is known as {before}"));
        }
        if !(self.forget.is_empty() && self.adopted.is_empty()) {
            return Ok(());
        }
        let known = relations.known().map_err(about)?;
        let relations = known.relations.iter();
        let relations = relations.filter(|(name, _)| wanted(&name.database));
        let functions = known.functions.iter();
        let functions = functions.filter(|name| wanted(&name.database));
        let adopted = known.adopted.iter();
        let adopted = adopted.filter(|(name, _)| wanted(&name.database));
        if self.json {
            let relations: Vec<Value> = relations
                .map(|(name, shape)| relation_to_json(name, shape))
                .collect();
            let functions: Vec<Value> = functions.map(function_to_json).collect();
            let adopted: Vec<Value> = adopted
                .map(|(name, lineage_of)| adopted_to_json(name, lineage_of))
                .collect();
            let known =
                json!({ "relations": relations, "functions": functions, "adopted": adopted });
            return context.output.json(&known);
        }
        let rows = rows(relations, functions, adopted);
        context.output.text(&columns(&rows))
    }
}

/// Fails with SR-1001 if `count` is 0: nothing that is known has the name `shown`.
fn check_known(count: usize, shown: &str) -> Result<(), Failure> {
    if count == 0 {
        let what = format!("{shown} is not among what is known");
        return Err(Failure::usage(&what));
    }
    Ok(())
}

/// The lines of the table that is shown.
fn rows<'k>(
    relations: impl Iterator<Item = (&'k RelationName, &'k Shape)>,
    functions: impl Iterator<Item = &'k FunctionName>,
    adopted: impl Iterator<Item = (&'k ColumnName, &'k LineageNames)>,
) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["SERVER", "DATABASE", "RELATION", "COLUMNS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, shape) in relations {
        let shown: Vec<String> = shape
            .columns
            .iter()
            .chain(&shape.defined)
            .map(|(name, what)| format!("{name} {what}"))
            .collect();
        let shown_name = match name.schema.as_str() {
            "" => name.relation.clone(),
            schema => format!("{schema}.{}", name.relation),
        };
        rows.push(vec![
            name.server.clone(),
            name.database.clone(),
            shown_name,
            shown.join(", "),
        ]);
    }
    for name in functions {
        rows.push(vec![
            name.server.clone(),
            name.database.clone(),
            format!("{}()", name.function),
            "a function with confidential values".to_owned(),
        ]);
    }
    for (name, lineage_of) in adopted {
        rows.push(vec![
            name.server.clone(),
            name.database.clone(),
            name.path.join("."),
            format!("has the lineage of {}", lineage_of.join(".")),
        ]);
    }
    rows
}

/// Parses `SCHEMA.RELATION` or `FUNCTION()`. The error is the text that clap shows.
fn parse_forgotten(text: &str) -> Result<Forgotten, String> {
    if let Some(function) = text.strip_suffix("()").filter(|name| !name.is_empty()) {
        return Ok(Forgotten::Function(function.to_owned()));
    }
    let parts = text.split_once('.');
    let named = parts.filter(|(schema, relation)| !schema.is_empty() && !relation.is_empty());
    let (schema, relation) =
        named.ok_or("SCHEMA.RELATION or FUNCTION(), named as in the catalog")?;
    Ok(Forgotten::Relation(schema.to_owned(), relation.to_owned()))
}
