//! `strongroom completion SHELL` and `strongroom man`: completion scripts and manual pages, made
//! from the definition of the command line itself, so that they always agree with it.

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use strongroom_keyring::durable;

use crate::args::Cli;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Name of the command and prefix of its pages.
const NAME: &str = "strongroom";

/// Print the completion script of a shell.
#[derive(Args)]
#[command(after_help = tail!("  strongroom completion bash > /etc/bash_completion.d/strongroom"))]
pub(crate) struct CompletionArgs {
    /// The shell that reads the script
    shell: Shell,
}

impl CompletionArgs {
    /// Prints the completion script for the shell that was named. SR-5001 if standard output cannot
    /// be written.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), NAME, &mut script);
        context.output.text(&String::from_utf8_lossy(&script))
    }
}

/// Print the manual page, or write the pages of all commands into a directory.
#[derive(Args)]
#[command(after_help = tail!("  strongroom man --out /usr/local/share/man/man1"))]
pub(crate) struct ManArgs {
    /// The directory for the pages, one for each command: strongroom-pg-encrypt.1 and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManArgs {
    /// Returns the output directory if there is one, whose owner root becomes.
    pub(crate) fn subjects(&self) -> Vec<PathBuf> {
        self.out.clone().into_iter().collect()
    }

    /// Prints the page of the command itself; with `--out`, writes the pages of all commands into
    /// that directory instead, which must exist. SR-5001 if a file or standard output cannot be
    /// written.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut command = Cli::command();
        command.build();
        match self.out {
            Some(directory) => write_pages(&command, NAME, &directory),
            None => context
                .output
                .text(&String::from_utf8_lossy(&page(&command)?)),
        }
    }
}

/// Writes the manual pages of `command` and, recursively, of its visible subcommands into
/// `directory`, as `NAME.1` and `NAME-SUBCOMMAND.1`. Replaces files that are there. SR-5001 when
/// the system reports an error.
fn write_pages(command: &clap::Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    durable::replace(&path, &page(command)?, 0o644).map_err(|e| Failure::io(&path, &e))?;
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        if below.get_name() != "help" {
            write_pages(below, &format!("{name}-{}", below.get_name()), directory)?;
        }
    }
    Ok(())
}

/// Returns the manual page of one command in the language of man(7). SR-5001 if it cannot be
/// rendered.
fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let title = command
        .get_bin_name()
        .map_or_else(|| NAME.to_owned(), |name| name.replace(' ', "-"));
    let mut page = Vec::new();
    Man::new(command.clone())
        .title(title)
        .manual("Strongroom")
        .render(&mut page)
        .map_err(|e| Failure::output(&e))?;
    Ok(page)
}
