//! `strongroom columns pins`: what the proxy has learned of relations with confidential columns.
//!
//! Must not: connect to a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use strongroom_columns_proxy::relations::{KnownRelations, RelationName, to_json};
use strongroom_keyring::Keyring;

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::output::columns;

/// Show the columns of relations as the proxy saw them first, or have it learn a relation again.
///
/// The proxy refuses statements with a relation whose columns are not what they were (SR-8107).
/// When a relation was changed on purpose, past the proxy, forget it: the next connection takes it
/// as the server says then. Proxies that run learn of it within 10 seconds.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns pins\n  strongroom columns pins --forget public.staff"))]
pub(super) struct PinsArgs {
    /// The proxy's file. Beside the keyring unless given
    #[arg(long, value_name = "FILE")]
    pins: Option<PathBuf>,
    /// Relation to be learned again, as in the catalog
    #[arg(long, value_name = "SCHEMA.RELATION", value_parser = parse_relation)]
    forget: Vec<(String, String)>,
    /// Of this database only
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "forget")]
    pub(super) json: bool,
}

impl PinsArgs {
    /// Prints what is known, or forgets the relations that are named. SR-5001 if the file cannot be
    /// read or written, or was not written by a proxy; SR-1001 if a relation to be forgotten is not
    /// known.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let keyring = context
            .keyring
            .clone()
            .unwrap_or_else(Keyring::default_path);
        let path = self.pins.unwrap_or_else(|| keyring.with_extension("pins"));
        let about = |error: std::io::Error| Failure::io(&path, &error);
        let relations = KnownRelations::at(path.clone()).map_err(about)?;
        let database = self.database.as_deref();
        let wanted = |name: &RelationName| database.is_none_or(|wanted| wanted == name.database);
        for (schema, relation) in &self.forget {
            let forgotten = relations.forget(|name| {
                wanted(name) && name.schema == *schema && name.relation == *relation
            });
            if forgotten.map_err(about)? == 0 {
                let what = format!("{schema}.{relation} is not among the known relations");
                return Err(Failure::usage(&what));
            }
            note(&format!("{schema}.{relation} is forgotten"));
        }
        if !self.forget.is_empty() {
            return Ok(());
        }
        let known = relations.known().map_err(about)?;
        let known = known.iter().filter(|(name, _)| wanted(name));
        if self.json {
            let known: Vec<Value> = known.map(|(name, shape)| to_json(name, shape)).collect();
            return context.output.json(&json!({ "relations": known }));
        }
        let mut rows = vec![
            ["SERVER", "DATABASE", "RELATION", "COLUMNS"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for (name, shape) in known {
            let shown: Vec<String> = shape
                .columns
                .iter()
                .map(|(name, what)| format!("{name} {what}"))
                .collect();
            rows.push(vec![
                name.server.clone(),
                name.database.clone(),
                format!("{}.{}", name.schema, name.relation),
                shown.join(", "),
            ]);
        }
        context.output.text(&columns(&rows))
    }
}

/// Parses `SCHEMA.RELATION`. The error is the text that clap shows.
fn parse_relation(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('.');
    let named = parts.filter(|(schema, relation)| !schema.is_empty() && !relation.is_empty());
    let (schema, relation) = named.ok_or("SCHEMA.RELATION, as in the catalog")?;
    Ok((schema.to_owned(), relation.to_owned()))
}
