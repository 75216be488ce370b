//! The dot-commands: one table of names and help, one function each.
//!
//! Must not: run programs or load code; a script is data.

use std::io::BufReader;
use std::path::Path;

use strongroom_format::code;
use strongroom_keyring::paths;

use crate::error::Error;
use crate::feed::{self, Flow};
use crate::mode::Mode;
use crate::session::Session;
use crate::{dump, import, schema};

/// Deepest nesting of `.read`: a file that reads itself must end.
const READ_DEPTH_MAX: u32 = 16;

const HELP: &str = "\
.databases               schemas and their files
.dump [PATTERN]          the database, or the tables LIKE PATTERN, as SQL (plaintext)
.headers on|off          column names before rows (table, csv)
.help                    this list
.import [--skip N] FILE TABLE
                         rows of a CSV file; a new TABLE takes its column names from the first row
.indexes [TABLE]         indexes
.mode table|csv|json     how results are written
.nullvalue TEXT          what stands for NULL in a table
.output [FILE]           results into a new FILE (plaintext); without FILE back to standard output
.quit                    leave
.read FILE               run the SQL and dot-commands of FILE
.schema [PATTERN]        CREATE statements
.tables [PATTERN]        tables and views
.timer on|off            how long each statement takes
";

/// Runs one dot-command, which may print, change settings, redirect the output, or import into the
/// database. Returns whether the shell continues. An empty line does nothing.
/// SR-1001 for an unknown command or wrong arguments; the errors of the command.
pub(crate) fn run(session: &mut Session<'_>, line: &str) -> Result<Flow, Error> {
    let words = split(line)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((&name, arguments)) = words.split_first() else {
        return Ok(Flow::Continue);
    };
    match (name, arguments) {
        (".quit" | ".exit", []) => return Ok(Flow::Quit),
        (".help", []) => session.print(HELP)?,
        (".tables", rest) => tables(session, pattern(name, rest)?)?,
        (".schema", rest) => definitions(session, pattern(name, rest)?)?,
        (".indexes", rest) => indexes(session, pattern(name, rest)?)?,
        (".databases", []) => session.run_sql(
            "SELECT name, coalesce(nullif(file, ''), '(none)') AS file FROM pragma_database_list",
        )?,
        (".mode", [mode]) => {
            session.style.mode =
                Mode::from_name(mode).ok_or_else(|| usage(".mode takes table, csv or json"))?;
        }
        (".headers", [value]) => session.style.headers = on_off(name, value)?,
        (".timer", [value]) => session.timer = on_off(name, value)?,
        (".nullvalue", [text]) => (*text).clone_into(&mut session.style.null),
        (".dump", rest) => dump::run(session, pattern(name, rest)?)?,
        (".output", []) => session.redirect(None)?,
        (".output", [file]) => session.redirect(Some(Path::new(file)))?,
        (".read", [file]) => return run_file(session, Path::new(file)),
        (".import", [file, table]) => import::run(session, Path::new(file), table, 0)?,
        (".import", ["--skip", count, file, table]) => {
            let skip = count.parse();
            let skip = skip.map_err(|_| usage(".import --skip takes a number of rows"))?;
            import::run(session, Path::new(file), table, skip)?;
        }
        _ if HELP
            .lines()
            .any(|line| line.split(' ').next() == Some(name)) =>
        {
            return Err(usage(&format!(
                "{name} does not take these arguments; see .help"
            )));
        }
        _ => return Err(usage(&format!("no such dot-command: {name}; see .help"))),
    }
    Ok(Flow::Continue)
}

/// Makes an SR-1001 error.
fn usage(text: &str) -> Error {
    Error::new(&code::USAGE, text)
}

/// Parses the argument of a setting: `on` is true, `off` is false. SR-1001 for anything else.
fn on_off(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(usage(&format!("{name} takes on or off"))),
    }
}

/// Returns the LIKE pattern that was given, or `%`, which matches everything, without one. SR-1001
/// for several.
fn pattern<'a>(name: &str, arguments: &[&'a str]) -> Result<&'a str, Error> {
    match arguments {
        [] => Ok("%"),
        [pattern] => Ok(pattern),
        _ => Err(usage(&format!("{name} takes one pattern at most"))),
    }
}

/// Prints the names of tables and views that match the LIKE pattern, in all schemas. If the schema
/// cannot be read, SR-1005, SR-6010 (busy) or the VFS's error, such as SR-4001 for a damaged page;
/// the errors of the output.
fn tables(session: &mut Session<'_>, pattern: &str) -> Result<(), Error> {
    let condition = "type IN ('table', 'view') AND name LIKE ?1";
    let names = schema::names(&session.connection, condition, pattern)?;
    print_lines(session, names)
}

/// Prints the names of the indexes of tables that match the LIKE pattern, in all schemas. Errors as
/// [`tables`].
fn indexes(session: &mut Session<'_>, pattern: &str) -> Result<(), Error> {
    let condition = "type = 'index' AND tbl_name LIKE ?1";
    let names = schema::names(&session.connection, condition, pattern)?;
    print_lines(session, names)
}

/// Prints the CREATE statements of what matches the LIKE pattern, in all schemas. Errors as
/// [`tables`].
fn definitions(session: &mut Session<'_>, pattern: &str) -> Result<(), Error> {
    let found = schema::definitions(&session.connection, pattern)?;
    print_lines(session, found.into_iter().map(|sql| format!("{sql};")))
}

/// Writes lines to where results go. Errors: those of the output.
fn print_lines(
    session: &mut Session<'_>,
    lines: impl IntoIterator<Item = String>,
) -> Result<(), Error> {
    for line in lines {
        session.print(&line)?;
        session.print("\n")?;
    }
    Ok(())
}

/// Runs the statements and dot-commands of a file, up to the first that fails. A `.quit` in it ends
/// the file only, so that the shell always continues. SR-1001 for the 17th level of nesting,
/// SR-1003 for a file that the connection has open, SR-1006 or SR-1007 if there is no such file;
/// otherwise the error of the command that fails, with file and line.
fn run_file(session: &mut Session<'_>, path: &Path) -> Result<Flow, Error> {
    if session.depth == READ_DEPTH_MAX {
        return Err(usage(".read is nested too deeply"));
    }
    schema::refuse_open_file(&session.connection, path)?;
    let (file, _) = paths::open_to_read(path)?;
    session.depth += 1;
    let outcome = feed::run_script(session, BufReader::new(file), &path.display().to_string());
    session.depth -= 1;
    // `.quit` in a file ends that file.
    outcome.map(|_| Flow::Continue)
}

/// Splits a line at white space; '...' and "..." keep it. SR-1001 for a quote that is not closed.
fn split(line: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, tail) = next_word(rest)?;
        words.push(word);
        rest = tail.trim_start();
    }
    Ok(words)
}

/// Returns the first word of a text that begins with one, without its quotes, and what follows it.
/// SR-1001 for a quote that is not closed.
fn next_word(text: &str) -> Result<(String, &str), Error> {
    let mut characters = text.chars();
    match characters.next() {
        Some(quote @ ('\'' | '"')) => characters
            .as_str()
            .split_once(quote)
            .map(|(word, tail)| (word.to_owned(), tail))
            .ok_or_else(|| usage("a quote is not closed")),
        _ => {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            let (word, tail) = text.split_at(end);
            Ok((word.to_owned(), tail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_and_quotes() {
        let words = split(".import 'a b.csv' \"t 1\"  x ").ok().unwrap();
        assert_eq!(words, [".import", "a b.csv", "t 1", "x"]);
        assert_eq!(split(".nullvalue ''").ok().unwrap(), [".nullvalue", ""]);
        assert!(split(".read 'x").is_err());
    }
}
