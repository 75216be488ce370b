//! The `strongroom` command: parses the command line, runs one subcommand, reports how it ended.
//!
//! Invariants:
//! 1. Results go to standard output, everything else to standard error.
//! 2. The exit code is the class of the error's code; see docs/reference/exit-codes.md.
//! 3. With `--json`, standard output holds exactly one JSON object, also when the command fails.
//!    Only `keyserver audit`, which shows a log, prints one object for each row, each on its line.
//! 4. Core dumps are switched off before anything else is done.
//! 5. Root has become the owner of what the command is pointed at before a subcommand begins
//!    ([`strongroom_launch::owner`]).
//!
//! Must not: seal or open anything itself, take a secret from the command line.
#![deny(clippy::expect_used)]

mod allocator;
mod args;
mod backup;
mod cert;
mod columns;
mod context;
mod documentation;
mod duckdb;
mod explain;
mod failure;
mod help;
mod inspect;
mod key;
mod key_options;
mod keyring;
mod keys;
mod keyserver;
mod output;
mod pg;
mod progress;
mod sealed_sqlite;
mod signals;
mod sqlite;
mod verification;
mod verify;
mod volume;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use strongroom_format::code;
use strongroom_launch::owner;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;

/// What this program starts itself with for the sake of a provider's module. Nothing for people.
const PROVIDER_CHILD: &str = "--provider-child";

/// What the preload library and the extension start this program with, to have a root key of a
/// provider that they do not have.
const PROVIDER_FETCH: &str = "--provider-fetch";

/// Writes the root key that a provider delivers to standard output, as raw key material, for
/// another program of Strongroom that lacks this provider. `arguments` are the provider's number
/// and argument.
/// Returns the exit code, after printing any failure: SR-1001 for other arguments or if standard
/// output is a terminal; SR-5001 if it cannot be written; the errors of the provider.
fn print_root_key(arguments: &[std::ffi::OsString]) -> ExitCode {
    use std::io::{IsTerminal as _, Write as _};
    let usage = || Failure::usage("this is for programs of Strongroom");
    let mut out = std::io::stdout();
    let asked = match arguments {
        [number, argument] if !out.is_terminal() => {
            let number = number.to_str().and_then(|number| number.parse().ok());
            number.zip(argument.to_str())
        }
        _ => None,
    };
    let delivered = asked.ok_or_else(usage).and_then(|(number, argument)| {
        let material = strongroom_keyring::provider::deliver(number, argument)?;
        let printed = out
            .write_all(material.as_slice())
            .and_then(|()| out.flush());
        printed.map_err(|error| strongroom_keyring::Error::io("printing", error).into())
    });
    match delivered {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(false),
    }
}

/// Disables core dumps (unless `STRONGROOM_ALLOW_CORE_DUMPS` is 1, for tests), registers the
/// providers, and runs the command line. As a hidden first argument selects, serves another program
/// of Strongroom instead. Returns the exit code.
fn main() -> ExitCode {
    // The tests' leak scans need core dumps to look into; nothing else should set this.
    if std::env::var_os("STRONGROOM_ALLOW_CORE_DUMPS").is_none_or(|value| value != "1") {
        strongroom_crypto::forbid_core_dumps();
    }
    strongroom_keys_providers::register();
    strongroom_keys_client::tell_waiting(failure::waiting);
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == PROVIDER_CHILD)
    {
        return match strongroom_keys_providers::serve_child() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(code::BUG.class.exit_code()),
        };
    }
    strongroom_keys_providers::child::set_launcher(strongroom_keys_providers::child::Launcher {
        program: "/proc/self/exe".into(),
        arguments: vec![PROVIDER_CHILD.into()],
        environment: Vec::new(),
    });
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == PROVIDER_FETCH)
    {
        return print_root_key(&std::env::args_os().skip(2).collect::<Vec<_>>());
    }
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if backup::is_wal_fetch(&arguments) {
        // Whatever goes wrong, PostgreSQL must not take it for the end of the archive.
        return backup::run_never_absent(|| parse_and_run(&arguments));
    }
    parse_and_run(&arguments)
}

/// Parses the command line and runs the command; help, the version and usage errors are printed.
/// Returns the exit code.
fn parse_and_run(arguments: &[std::ffi::OsString]) -> ExitCode {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => run(cli),
        Err(error) => refused_arguments(&error, arguments),
    }
}

/// Runs one command and returns its exit code. If this is root and the command's paths belong to
/// another user, the program first starts itself again as that user; SR-6020 or SR-6021 if it
/// cannot. Flushes standard output, then prints warnings that were collected meanwhile (key files
/// that others can read, memory that is not locked, weak key slots, older keyrings) and the
/// failure.
fn run(cli: Cli) -> ExitCode {
    let json = cli.command.wants_json();
    let mut context = Context {
        keyring: keys::keyring_path(cli.keyring),
        output: Output::stdout(),
    };
    let subjects = cli.command.subjects(context.keyring.as_deref());
    let acted = owner::become_owner_of(&subjects, failure::note).map_err(Failure::from);
    let result = acted.and_then(|()| dispatch(cli.command, &mut context));
    let result = match (result, context.output.flush()) {
        (Ok(()), Err(error)) => Err(error),
        (result, _) => result,
    };
    for path in strongroom_keyring::source::take_open_files() {
        failure::warn(&code::KEY_FILE_OPEN, &path.display().to_string());
    }
    if !strongroom_crypto::memory_is_locked() {
        failure::warn(&code::MEMORY_NOT_LOCKED, "");
    }
    if strongroom_keyring::take_text_as_raw_key_warning() {
        failure::warn(&code::TEXT_AS_RAW_KEY, "");
    }
    if strongroom_keyring::take_older_keyring_warning() {
        failure::warn(&code::KEYRING_OLDER_USED, "");
    }
    // The VFS has taken the warnings of the keyring from while a database was opened, with its
    // path.
    for (code, detail) in strongroom_sqlite::take_warnings() {
        failure::warn(code, &detail);
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

/// Runs the command that was named and returns its result.
fn dispatch(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Keyring(args) => args.run(context),
        Command::Key(args) => args.run(context),
        Command::Cert(args) => args.run(context),
        Command::Sqlite(args) => args.run(context),
        Command::Pg(args) => args.run(context),
        Command::Duckdb(args) => args.run(context),
        Command::Backup(args) => args.run(context),
        Command::Columns(args) => args.run(context),
        Command::Volume(args) => args.run(context),
        Command::Keyserver(args) => args.run(context),
        Command::Inspect(args) => args.run(context),
        Command::Verify(args) => args.run(context),
        Command::Explain(args) => args.run(context),
        Command::Completion(args) => args.run(context),
        Command::Man(args) => args.run(context),
    }
}

/// Reports what clap returned instead of arguments, and returns the exit code. Help and version are
/// printed to standard output and succeed. Everything else is SR-1001 on standard error, as JSON
/// too if `--json` is among the arguments; without any subcommand the help is printed before it.
/// For `backup wal-fetch` the exit code of an error is one that makes PostgreSQL stop.
fn refused_arguments(error: &clap::Error, arguments: &[std::ffi::OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Only a closed standard output makes this fail, and then there is no reader of the
            // reason.
            return match error.print() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::from(code::IO.class.exit_code()),
            };
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            failure::to_stderr(&format!("{}\n", error.render()));
            return Failure::usage("a command is missing").report_usage(false);
        }
        _ => {}
    }
    let text = error.render().to_string();
    let json = arguments.iter().any(|argument| argument == "--json");
    let failure = Failure::usage(text.strip_prefix("error: ").unwrap_or(&text));
    if backup::is_wal_fetch(arguments) {
        return backup::with_stopping_code(failure).report_usage(json);
    }
    failure.report_usage(json)
}
