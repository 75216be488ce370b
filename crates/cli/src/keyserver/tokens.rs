//! `strongroom keyserver tokens`: tokens that were not used, and taking one back.
//!
//! Must not: show a token. The server has only its hash.

use clap::Args;
use serde_json::json;
use strongroom_format::code;
use strongroom_format::text::printable;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, hex_id, plain, time};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::output::columns;

/// List the tokens that were not used, or take one back.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver tokens --node admin.toml"))]
pub(super) struct TokensArgs {
    /// Take back the token of this id
    #[arg(long, value_name = "ID", conflicts_with = "json")]
    withdraw: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

impl TokensArgs {
    /// Requests the unused tokens and prints who they are for, when they expire, and their ids, as
    /// a table or JSON; with `--withdraw`, has the server remove one instead. SR-8459 for an id
    /// that is not 64 hexadecimal digits; SR-8400 or SR-8401 if the node's configuration or one of
    /// its files cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if let Some(id) = &self.withdraw {
            let address = hex_id(id, 64).ok_or_else(|| {
                let detail = format!("{}: an id has 64 hexadecimal digits", printable(id));
                Failure::new(&code::SERVER_NO_TOKEN, detail)
            })?;
            let path = format!("/v1/tokens/{address}");
            self.server.change(&Method::DELETE, &path, None)?;
            return context.output.line(&format!("taken back: {id}"));
        }
        let tokens = self.server.all("/v1/tokens", "tokens", "id")?;
        if self.json {
            return context.output.json(&json!({"tokens": tokens}));
        }
        let heads = ["NAME", "ROLE", "CREATE", "DESTROY", "EXPIRES", "ID"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(tokens.iter().map(|token| {
            let mut row = ["node", "role", "may_create", "may_destroy"]
                .map(|member| plain(&token[member]))
                .to_vec();
            row.extend([time(&token["expires"]), plain(&token["id"])]);
            row
        }));
        context.output.text(&columns(&rows))
    }
}
