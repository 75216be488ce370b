//! A progress bar on standard error, for work that takes more than a second, on a terminal only.
//!
//! Must not: write to standard output, or anything at all when standard error is not a terminal.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows no bar.
const QUIET: Duration = Duration::from_secs(1);

/// Shows how far some work has come, in bytes or pages.
pub(crate) struct Progress {
    label: &'static str,
    started: Instant,
    on_terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins to measure time for a bar with this label. Shows nothing yet.
    pub(crate) fn new(label: &'static str) -> Self {
        Self {
            label,
            started: Instant::now(),
            on_terminal: std::io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Shows `done` of `total` on the bar; `total` is 0 while it is not known. Shows nothing within
    /// the first second, or if standard error is not a terminal.
    pub(crate) fn update(&mut self, done: u64, total: u64) {
        if !self.on_terminal || (self.bar.is_none() && self.started.elapsed() < QUIET) {
            return;
        }
        let label = self.label;
        let bar = self.bar.get_or_insert_with(|| new_bar(label));
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Progress {
    /// Removes the bar from the terminal.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns a progress bar of length 0 with this label.
fn new_bar(label: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message(label);
    match ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}%  {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
