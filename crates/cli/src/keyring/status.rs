//! `strongroom keyring status`: what a keyring says without its root key.
//!
//! Must not: ask for the root key. What is shown is checksummed, not authenticated.

use clap::Args;
use serde::Serialize;
use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;
use strongroom_keyring::provider::locator;
use strongroom_keyring::{KeyInfo, Keyring, Status};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Show a keyring without its root key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring status --json"))]
pub(super) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
struct StatusJson {
    path: String,
    object_id: String,
    created: String,
    created_unix_s: u64,
    provider: &'static str,
    provider_argument: String,
    generation: u64,
    exported: bool,
    keys: Vec<KeyJson>,
    certificates: usize,
}

/// One version of one key, here and in `key list`.
#[derive(Serialize)]
pub(crate) struct KeyJson {
    name: String,
    version: u32,
    state: &'static str,
    created: String,
    created_unix_s: u64,
}

impl StatusArgs {
    /// Prints id, creation time, provider, generation, the numbers of keys and certificates, and
    /// whether everything is exported, as text or JSON. Needs no root key, so nothing is
    /// authenticated. SR-2004 if there is no keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = context.keyring_path();
        let status = Keyring::status(&path)?;
        let shown = path.display().to_string();
        if self.json {
            return context.output.json(&json(shown, &status));
        }
        // A wrapped root key, which is no secret, is for machines: `--json` has it.
        let provider = match locator(&status.provider_argument) {
            "" => status.provider.to_owned(),
            argument => format!("{}:{}", status.provider, printable(argument)),
        };
        let exported = if status.unexported { "no" } else { "yes" };
        let text = format!(
            "keyring:    {}\nobject id:  {}\ncreated:    {}\nprovider:   {provider}\n\
             generation: {}\nkeys:       {} (versions counted)\ncerts:      {}\nexported:   {exported}\n",
            printable(&shown),
            hex(&status.object_id),
            rfc3339(status.created_unix_s),
            status.generation,
            status.keys.len(),
            status.certificates.len(),
        );
        context.output.text(&text)
    }
}

/// Returns the JSON result for this status. `path` is the path as it is to be shown.
fn json(path: String, status: &Status) -> StatusJson {
    StatusJson {
        path,
        object_id: hex(&status.object_id),
        created: rfc3339(status.created_unix_s),
        created_unix_s: status.created_unix_s,
        provider: status.provider,
        provider_argument: status.provider_argument.clone(),
        generation: status.generation,
        exported: !status.unexported,
        keys: status.keys.iter().map(KeyJson::of).collect(),
        certificates: status.certificates.len(),
    }
}

impl KeyJson {
    /// Returns the JSON form of one version of a key, without the key itself.
    pub(crate) fn of(key: &KeyInfo) -> Self {
        Self {
            name: key.name.clone(),
            version: key.version,
            state: key.state.name(),
            created: rfc3339(key.created_unix_s),
            created_unix_s: key.created_unix_s,
        }
    }
}
