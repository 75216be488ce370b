//! Goal: what this crate computes is what PostgreSQL 15 computes, to the last digit, the scale and
//! the error. Method: a server of the tests' own and this crate are given the same random
//! arguments, thousands for each function, aggregate, comparison and form; every difference is
//! listed.
//!
//! `STRONGROOM_SEED` repeats a run, `STRONGROOM_CASES` sets the cases for each function (2000).
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::big_endian_bytes,
    reason = "a test: it fails where something is wrong, says its seed, and writes files that need not last"
)]

mod aggregates;
mod forms;
mod functions;
mod random;
mod server;

/// Differences, of which only some are shown.
#[derive(Default)]
pub(crate) struct Differences {
    shown: Vec<String>,
    count: usize,
}

impl Differences {
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.shown.len() < 40 {
            self.shown.push(what());
        }
    }

    /// # Panics
    /// When there is any.
    pub(crate) fn none(self, of: usize) {
        assert!(
            self.count == 0,
            "{} of {of} differ:\n{}",
            self.count,
            self.shown.join("\n")
        );
    }
}

/// What one side says: a value's text, NULL, or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Value(String),
    Null,
    Error(String, String),
}

impl Said {
    /// What the server's side of a test prints: `=` and the text, `0`, or `!` with SQLSTATE and
    /// message.
    pub(crate) fn parse(field: &str) -> Self {
        if field == "0" {
            return Self::Null;
        }
        if let Some(text) = field.strip_prefix('=') {
            return Self::Value(text.to_owned());
        }
        let error = field.strip_prefix('!').unwrap();
        let (state, message) = error.split_at(5);
        Self::Error(state.to_owned(), message.trim_start().to_owned())
    }
}

/// The server's function that computes `expression` of `a`, `b`, `c` and catches its error.
pub(crate) fn caught(expression: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION pg_temp.call(a text, b text, c text) RETURNS text LANGUAGE plpgsql AS $call$
         DECLARE r text; BEGIN SELECT ({expression})::text INTO r; RETURN coalesce('=' || r, '0');
         EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLSTATE || ' ' || SQLERRM; END $call$;\n"
    )
}

/// The part of a script that calls it for these arguments, and prints a line for each.
pub(crate) fn called(cases: &[Vec<String>]) -> String {
    let mut script = String::from(
        "CREATE TEMP TABLE IF NOT EXISTS cases (i int, a text, b text, c text); TRUNCATE cases;
         COPY cases FROM STDIN;\n",
    );
    for (at, args) in cases.iter().enumerate() {
        let field = |at: usize| {
            args.get(at)
                .map_or_else(|| "\\N".to_owned(), |arg| server::escaped(arg))
        };
        script += &format!("{at}\t{}\t{}\t{}\n", field(0), field(1), field(2));
    }
    script += "\\.\nCOPY (SELECT pg_temp.call(a, b, c) FROM cases ORDER BY i) TO STDOUT;\n";
    script
}

/// Runs a script whose calls print one line each.
pub(crate) fn answers(server: &server::Server, script: &str) -> Vec<Said> {
    let output = server.run(script);
    output
        .lines()
        .map(|line| Said::parse(&server::unescaped(line)))
        .collect()
}
