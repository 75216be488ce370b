//! The process that the tests pause, watch and kill. What it does is its first argument; the rest
//! is `name=value`.
//!
//! Must not: be given a key on its command line, or do anything that a test in the parent does not
//! check.

mod session;
mod writer;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use strongroom_sqlite::{KeySource, OpenOptions};

type Failure = Box<dyn std::error::Error>;

/// The arguments after the first.
struct Given(BTreeMap<String, String>);

impl Given {
    fn text(&self, name: &str) -> Result<&str, Failure> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| format!("no {name}").into())
    }

    fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        self.text(name).map(PathBuf::from)
    }

    fn number(&self, name: &str) -> Result<u64, Failure> {
        self.0
            .get(name)
            .map_or(Ok(0), |text| text.parse().map_err(Failure::from))
    }

    fn options(&self, key: &str) -> Result<OpenOptions, Failure> {
        let key = KeySource::File(self.path(key)?);
        Ok(OpenOptions {
            key: Some(key),
            create: true,
            freshness: self.number("freshness")? != 0,
            ..OpenOptions::default()
        })
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().unwrap_or_default();
    let pairs = arguments.filter_map(|pair| {
        pair.split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    });
    let given = Given(pairs.collect());
    strongroom_sqlite::register()?;
    strongroom_sqlite_vfs::to_stderr(true);
    match task.as_str() {
        "session" => session::run(),
        "ledger" => writer::ledger(&given),
        "bank" => writer::bank(&given),
        "watch" => writer::watch(&given),
        "rekey" => writer::rekey(&given),
        "encrypt" => writer::encrypt(&given),
        "decrypt" => writer::decrypt(&given),
        other => Err(format!("unknown task {other:?}").into()),
    }
}

/// One line to the parent, at once.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
