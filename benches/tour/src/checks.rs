//! The tour's output: numbered lines, each of them a check that can fail.
//!
//! Invariant: a line ends in "ok" only when its check held; an error is a failure, not the end of
//! the tour.
//! Must not: print a line that is not a check, apart from headings.

use std::io::Write as _;

use strongroom_benches::Failure;

/// What a check found: whether it holds, and the figures that show it.
#[derive(Debug)]
pub struct Found {
    holds: bool,
    measured: String,
}

/// What a check found.
///
/// # Errors
/// None: it is the last expression of a check.
pub fn found(holds: bool, measured: impl Into<String>) -> Result<Found, Failure> {
    Ok(Found {
        holds,
        measured: measured.into(),
    })
}

/// Column widths, in characters.
const WHAT: usize = 46;
const MEASURED: usize = 52;

/// The lines so far.
#[derive(Debug, Default)]
pub struct Checks {
    passed: u32,
    failed: u32,
}

impl Checks {
    /// Prints a heading.
    ///
    /// # Errors
    /// The line cannot be printed.
    pub fn heading(&self, text: &str) -> Result<(), Failure> {
        writeln!(std::io::stdout(), "\n{text}")?;
        Ok(())
    }

    /// Runs `check` and prints its line.
    ///
    /// # Errors
    /// The line cannot be printed. A check that fails, or ends in an error, is a line of its own.
    pub fn check(
        &mut self,
        what: &str,
        check: impl FnOnce() -> Result<Found, Failure>,
    ) -> Result<(), Failure> {
        let found = check().unwrap_or_else(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or("no reason given").to_owned();
            Found {
                holds: false,
                measured: line,
            }
        });
        let verdict = if found.holds {
            self.passed += 1;
            "ok"
        } else {
            self.failed += 1;
            "FAILED"
        };
        let number = self.passed + self.failed;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{number:3}  {what:<WHAT$} {:<MEASURED$} {verdict}",
            found.measured
        )?;
        out.flush()?;
        Ok(())
    }

    /// Prints the last line. True when nothing failed.
    ///
    /// # Errors
    /// The line cannot be printed.
    pub fn summary(&self, seconds: u64) -> Result<bool, Failure> {
        writeln!(
            std::io::stdout(),
            "\n{} passed, {} failed, {seconds} s",
            self.passed,
            self.failed
        )?;
        Ok(self.failed == 0)
    }
}
