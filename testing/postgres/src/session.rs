//! A session of `psql` that stays open: what holds a cursor, a transaction or a temporary table
//! while the test looks at the files.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The line that ends an answer.
const END: &str = "-- end of answer --";

/// An open session.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Starts `psql`, given with its connection options, which prints errors among its answers.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn open(mut psql: Command) -> Self {
        psql.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = psql.spawn().expect("psql can be started");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            input,
            output,
        }
    }

    /// Sends statements without waiting.
    ///
    /// # Errors
    /// When `psql` has ended.
    pub fn send(&mut self, statements: &str) -> std::io::Result<()> {
        writeln!(self.input, "{statements}\n\\echo {END}")?;
        self.input.flush()
    }

    /// The answer to what was sent. `None` when the session ended, or a statement failed.
    pub fn answer(&mut self) -> Option<String> {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim_end() == END {
                return Some(answer);
            }
            answer.push_str(&line);
        }
    }

    /// Sends and waits. `None` when the session ended, or a statement failed.
    pub fn try_ask(&mut self, statements: &str) -> Option<String> {
        self.send(statements).ok()?;
        self.answer()
    }

    /// Sends and waits.
    ///
    /// # Panics
    /// When the session ended, or a statement failed.
    pub fn ask(&mut self, statements: &str) -> String {
        self.try_ask(statements).unwrap_or_else(|| {
            let shown = statements.get(..200).unwrap_or(statements);
            unreachable_session(shown)
        })
    }
}

#[expect(clippy::panic, reason = "a test stops at the first surprise")]
fn unreachable_session(statements: &str) -> ! {
    panic!("the session ended at: {statements} (see the server's log)")
}

impl Drop for Session {
    fn drop(&mut self) {
        // Its server process notices by itself; a kill of psql cannot leave anything behind.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
