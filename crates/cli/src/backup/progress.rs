//! How far a backup, a verification or a restore has come: a bar on a terminal, or lines of JSON
//! for schedulers.
//!
//! Must not: write to standard output; write anything when standard error is no terminal, unless
//! JSON was asked for.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::to_stderr;

/// Work shorter than this shows no bar.
const QUIET: Duration = Duration::from_secs(1);
/// Between two lines of JSON.
const STEP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A bar, if standard error is a terminal
    #[default]
    Auto,
    /// One JSON object a line on standard error
    Json,
    /// Nothing
    None,
}

/// How progress is shown.
#[derive(Args, Clone, Copy, Default)]
pub(super) struct ProgressOptions {
    /// How progress is shown
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    progress: Form,
}

/// One line for a scheduler. A stable contract: docs/reference/backup.md.
#[derive(Serialize)]
struct Line {
    operation: &'static str,
    bytes_done: u64,
    bytes_total: Option<u64>,
    bytes_per_s: u64,
    seconds_left: Option<u64>,
}

/// Some work under way.
pub(super) struct ProgressReporter {
    operation: &'static str,
    form: Form,
    started: Instant,
    told: Instant,
    bar: Option<ProgressBar>,
    done: u64,
    /// Bytes of all of it; 0 while that is not known.
    total: Arc<AtomicU64>,
}

impl ProgressReporter {
    /// Begins to measure the time of an operation. Without an option, progress is shown only if
    /// standard error is a terminal.
    pub(super) fn new(operation: &'static str, options: ProgressOptions) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let form = match options.progress {
            Form::Auto if !on_terminal => Form::None,
            form => form,
        };
        let now = Instant::now();
        Self {
            operation,
            form,
            started: now,
            told: now,
            bar: None,
            done: 0,
            total: Arc::default(),
        }
    }

    /// Returns the variable for the number of bytes in all, for a source that finds it out while it
    /// works. `None` if no progress is shown.
    pub(super) fn total(&self) -> Option<Arc<AtomicU64>> {
        (self.form != Form::None).then(|| Arc::clone(&self.total))
    }

    /// Sets the number of bytes in all.
    pub(super) fn with_total(self, total: u64) -> Self {
        self.total.store(total, Ordering::Relaxed);
        self
    }

    /// Shows that `done` bytes are done: on the bar, which appears after a second, or as a line of
    /// JSON on standard error at most once a second.
    pub(super) fn update(&mut self, done: u64) {
        self.done = done;
        match self.form {
            Form::None => {}
            Form::Json if self.told.elapsed() >= STEP => {
                self.told = Instant::now();
                self.print_line();
            }
            Form::Json => {}
            Form::Auto => self.draw(),
        }
    }

    /// Ends the display after success. With JSON, a last line is written in any case; a bar is
    /// removed.
    pub(super) fn finish(self) {
        if self.form == Form::Json {
            self.print_line();
        }
    }

    /// Writes one line of JSON to standard error: bytes done and in all, rate and seconds left, as
    /// far as they are known.
    fn print_line(&self) {
        let total = Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0);
        let rate = self.rate();
        let left = total.map(|total| total.saturating_sub(self.done));
        let line = Line {
            operation: self.operation,
            bytes_done: self.done,
            // An estimate that was exceeded is dropped.
            bytes_total: total.filter(|total| *total >= self.done),
            bytes_per_s: rate,
            seconds_left: left.and_then(|left| left.checked_div(rate)),
        };
        if let Ok(line) = serde_json::to_string(&line) {
            to_stderr(&format!("{line}\n"));
        }
    }

    /// Returns the bytes per second since the beginning, rounded down.
    fn rate(&self) -> u64 {
        // Milliseconds, so that what takes less than a second has a rate.
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.done.saturating_mul(1000) / elapsed.max(1)
    }

    /// Draws the bar with rate and time left, unless it is the first second. Without a total, or
    /// when it is exceeded, the bar has no length.
    fn draw(&mut self) {
        if self.bar.is_none() && self.started.elapsed() < QUIET {
            return;
        }
        let total = self.total.load(Ordering::Relaxed);
        let (operation, rate) = (self.operation, self.rate());
        let bar = self.bar.get_or_insert_with(|| new_bar(operation));
        // A total may become known while it is shown, and an estimate may be passed.
        let known = total >= self.done && total > 0;
        if known && bar.length() != Some(total) {
            bar.set_style(style(KNOWN));
            bar.set_length(total);
        } else if !known && bar.length().is_some() {
            bar.unset_length();
            bar.set_style(style(UNKNOWN));
        }
        // The bar's own rate is of its last moments, and it begins late.
        let mut speed = format!("{}/s", HumanBytes(rate));
        let left = total.saturating_sub(self.done).checked_div(rate);
        if let Some(left) = left.filter(|_| known) {
            let left = HumanDuration(Duration::from_secs(left));
            speed = format!("{speed}  {left:#} left");
        }
        bar.set_prefix(speed);
        bar.set_position(self.done);
    }
}

impl Drop for ProgressReporter {
    /// Removes the bar from the terminal.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const KNOWN: &str = "{msg} {wide_bar} {bytes} of {total_bytes}  {prefix}";
const UNKNOWN: &str = "{msg} {spinner} {bytes} of an unknown total  {prefix}";

/// Returns a bar of unknown length, labelled for the operation.
fn new_bar(operation: &'static str) -> ProgressBar {
    let message = match operation {
        "create" => "backing up",
        "verify" => "verifying",
        _ => "restoring",
    };
    let bar = ProgressBar::no_length().with_message(message);
    bar.with_style(style(UNKNOWN))
}

/// Returns the style for a template; the default style if the template is not valid.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
