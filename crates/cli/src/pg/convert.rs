//! What `encrypt`, `decrypt` and `rotate` share: threads, progress, and the text of their reports.
//!
//! Must not: convert anything, which strongroom-postgres-shield does.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use strongroom_format::text::printable;
use strongroom_postgres_shield::convert::{self, Phase, Report};

use crate::failure::note;
use crate::progress::Progress;

/// `--threads`.
#[derive(Args)]
pub(super) struct ThreadsOption {
    /// Files converted at the same time [default: one for each processor]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u16).range(0..=1024))]
    threads: u16,
}

/// A progress bar for each phase.
pub(super) struct Bars {
    converting: &'static str,
    shown: Mutex<Option<(Phase, Progress)>>,
}

impl Bars {
    /// Returns bars of which none is shown yet. `converting` is the label of the first phase.
    pub(super) fn new(converting: &'static str) -> Self {
        Self {
            converting,
            shown: Mutex::new(None),
        }
    }

    /// Shows how far the conversion has come. When another phase begins, replaces the bar by a new
    /// one.
    fn update(&self, at: convert::Progress) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.as_ref().is_none_or(|(phase, _)| *phase != at.phase) {
            // The former bar is taken away before the next one appears.
            *shown = None;
        }
        let label = match at.phase {
            Phase::Converting => self.converting,
            Phase::Verifying => "reading back",
        };
        let (_, bar) = shown.get_or_insert_with(|| (at.phase, Progress::new(label)));
        bar.update(at.bytes, at.bytes_total);
    }
}

impl ThreadsOption {
    /// Calls `convert` with the number of threads that was given (0: one for each processor) and
    /// with a function that updates `bars`; returns its result.
    pub(super) fn run<T>(
        &self,
        bars: &Bars,
        convert: impl FnOnce(&convert::Options<'_>) -> T,
    ) -> T {
        convert(&convert::Options {
            threads: usize::from(self.threads),
            progress: &|at| bars.update(at),
        })
    }
}

/// Returns as text how many files this run converted, and how many bytes were converted; for a
/// resumed run also how many files earlier runs had converted, whose bytes are in the number.
pub(super) fn amount(report: &Report) -> String {
    let mut out = format!("{} files, {} bytes", report.converted, report.bytes);
    if report.resumed {
        // Writing to a string cannot fail.
        let _written = write!(
            out,
            ", resumed; {} files had been converted before",
            report.converted_before
        );
    }
    out
}

/// Writes notes to standard error about temporary files that were removed, hard links, and symbolic
/// links that were not followed. Writes nothing if there are none.
pub(super) fn remarks(report: &Report) {
    if report.removed > 0 {
        note(&format!(
            "{} temporary files were removed, as PostgreSQL does at its next start",
            report.removed
        ));
    }
    for path in &report.other_names {
        let shown = printable(&path.display().to_string());
        note(&format!(
            "{shown} has other names (hard links); under those it is as before"
        ));
    }
    for path in &report.not_followed {
        let shown = printable(&path.display().to_string());
        note(&format!(
            "{shown} is a symbolic link that PostgreSQL does not make: not followed, as before"
        ));
    }
}
