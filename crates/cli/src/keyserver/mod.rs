//! `strongroom keyserver`: the key server itself, and its administration over HTTPS.
//!
//! Must not: take a token, a share or a private key from the command line; speak HTTP or TLS, which
//! are strongroom-keys-server's and strongroom-keys-client's.

mod admin;
mod audit;
mod change;
mod destroy;
mod forget;
mod grant;
mod grants;
mod init;
mod join;
mod keys;
mod nodes;
mod offline;
mod renew;
mod report;
mod revoke;
mod run;
mod seal;
mod status;
mod token;
mod tokens;
mod unseal;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// The key server: keeps wrapped keys and delivers them to enrolled nodes.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver init --store /var/lib/strongroom/keys.db --root-provider file:/etc/strongroom/root.key --name keys.example.org\n  strongroom keyserver run --config /var/lib/strongroom/server.toml"))]
pub(crate) struct KeyserverArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Run(run::RunArgs),
    Join(join::JoinArgs),
    Renew(renew::RenewArgs),
    Report(report::ReportArgs),
    ServerCert(offline::ServerCertArgs),
    BreakGlass(offline::BreakGlassArgs),
    Status(status::StatusArgs),
    Unseal(unseal::UnsealArgs),
    Seal(seal::SealArgs),
    Token(token::TokenArgs),
    Tokens(tokens::TokensArgs),
    Nodes(nodes::NodesArgs),
    Revoke(revoke::RevokeArgs),
    Grant(grant::GrantArgs),
    Ungrant(grant::UngrantArgs),
    Grants(grants::GrantsArgs),
    Keys(keys::KeysArgs),
    /// Make a key. A node gets it granted; an administrator grants it to whom it is for.
    #[command(after_help = tail!("  strongroom keyserver create --node admin.toml db-7"))]
    Create(change::KeyNameArgs),
    /// Make a new version of a key. Older ones stay.
    #[command(after_help = tail!("  strongroom keyserver rotate --node admin.toml db-7"))]
    Rotate(change::KeyNameArgs),
    /// Stop the delivery of a key.
    #[command(after_help = tail!("  strongroom keyserver disable --node admin.toml db-7"))]
    Disable(change::KeyNameArgs),
    /// Let a disabled key be delivered again.
    #[command(after_help = tail!("  strongroom keyserver enable --node admin.toml db-7"))]
    Enable(change::KeyNameArgs),
    Destroy(destroy::DestroyArgs),
    /// Call off a key's destruction while there is time. It is disabled then.
    #[command(after_help = tail!("  strongroom keyserver restore --node admin.toml db-7"))]
    Restore(change::KeyNameArgs),
    Forget(forget::ForgetArgs),
    Audit(audit::AuditArgs),
}

impl KeyserverArgs {
    /// Returns whether `--json` was given to a verb that has it.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Renew(args) => args.json,
            Verb::Report(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::Tokens(args) => args.json,
            Verb::Nodes(args) => args.json,
            Verb::Keys(args) => args.json,
            Verb::Grants(args) => args.json,
            Verb::Audit(args) => args.wants_json(),
            _ => false,
        }
    }

    /// Runs the verb that was named and returns its result.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(args) => args.run(context),
            Verb::Run(args) => args.run(),
            Verb::Join(args) => args.run(context),
            Verb::Renew(args) => args.run(context),
            Verb::Report(args) => args.run(context),
            Verb::ServerCert(args) => args.run(context),
            Verb::BreakGlass(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::Unseal(args) => args.run(context),
            Verb::Seal(args) => args.run(context),
            Verb::Token(args) => args.run(context),
            Verb::Tokens(args) => args.run(context),
            Verb::Nodes(args) => args.run(context),
            Verb::Revoke(args) => args.run(context),
            Verb::Grant(args) => args.run(context),
            Verb::Ungrant(args) => args.run(context),
            Verb::Grants(args) => args.run(context),
            Verb::Keys(args) => args.run(context),
            Verb::Create(args) => args.create(context),
            Verb::Rotate(args) => args.rotate(context),
            Verb::Disable(args) => args.switch("disable", context),
            Verb::Enable(args) => args.switch("enable", context),
            Verb::Destroy(args) => args.run(context),
            Verb::Restore(args) => args.switch("restore", context),
            Verb::Forget(args) => args.run(context),
            Verb::Audit(args) => args.run(context),
        }
    }
}
