//! What tests expect of SQL, whether they run it at the server or through the proxy.
//!
//! Must not: know who runs it.

use std::time::{Duration, Instant};

use crate::PsqlOutput;

/// Longest wait for rows: a zone that was started again has to replay the log first.
pub(crate) const ROWS_LIMIT: Duration = Duration::from_secs(60);

/// Asserts that SQL has failed, with this in its messages.
///
/// # Panics
///
/// When it has not.
#[track_caller]
pub(crate) fn assert_failed(said: &PsqlOutput, sql: &str, message: &str) {
    assert!(
        said.messages.contains(message),
        "{sql}: {}{}",
        said.rows,
        said.messages
    );
}

/// Runs SQL by `run` until it returns these rows, without an error.
///
/// # Panics
///
/// When it returns others for a minute.
#[track_caller]
pub(crate) fn run_until(rows: &str, sql: &str, run: impl Fn(&str) -> PsqlOutput) {
    let begun = Instant::now();
    loop {
        let said = run(sql);
        if said.rows == rows && !said.messages.contains("ERROR") {
            return;
        }
        assert!(
            begun.elapsed() < ROWS_LIMIT,
            "{sql}\n{}\n{}\ninstead of\n{rows}",
            said.rows,
            said.messages
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
