//! `strongroom-tour-sqlite`: the first part of the tour, which `make demo` shows while the
//! `strongroom` command is being built. It leaves its databases for `strongroom-tour rest`.
//!
//! The exit code is 0 only if no check failed.
//!
//! Must not: need the command.

use std::process::ExitCode;
use std::time::Instant;

use strongroom_benches::{Failure, note};
use strongroom_tour::checks::Checks;
use strongroom_tour::engine;
use strongroom_tour::place::Place;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            note(&format!("strongroom-tour-sqlite: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Failure> {
    let begin = Instant::now();
    let mut checks = Checks::default();
    engine::run(&Place::emptied()?, &mut checks)?;
    checks.summary(begin.elapsed().as_secs())
}
