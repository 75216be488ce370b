//! Runs a command beside a server with the extension, its zone and the owner's proxy, which all end
//! with it: `strongroom-columns-beside COMMAND ARGUMENT..`.
//!
//! The command finds the directories of the sockets in the environment: SERVER and PROXY. Lines for
//! `postgresql.conf` may be given in `STRONGROOM_SETTINGS`. The program needs what the tests need
//! (`STRONGROOM_COMMAND`, an installed extension). Its exit status is the command's. Must not:
//! leave a process running.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode};

use strongroom_columns_testing::owner::start_all;
use strongroom_columns_testing::{must, print_line};

const SETTINGS: &str = "max_connections = 100\nmax_wal_size = 2GB\nlog_min_messages = warning\nmax_prepared_transactions = 10";

/// Starts everything and runs the command; 2 if there is no command, or none that can be run.
fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        print_line("usage: strongroom-columns-beside COMMAND ARGUMENT..");
        return ExitCode::from(2);
    };
    let more = std::env::var("STRONGROOM_SETTINGS").unwrap_or_default();
    let (owner, server) = start_all(&format!("{SETTINGS}\n{more}"));
    // The command may run as another user.
    let open = Permissions::from_mode(0o777);
    must(
        std::fs::set_permissions(owner.proxy_socket(), open),
        "the proxy's socket",
    );
    let done = Command::new(&program)
        .args(arguments)
        .env("SERVER", server.socket())
        .env("PROXY", owner.proxy_directory())
        .status();
    match done {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            print_line(&format!("{}: {error}", program.display()));
            ExitCode::from(2)
        }
    }
}
