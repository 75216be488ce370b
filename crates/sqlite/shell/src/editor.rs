//! The interactive shell: prompt, line editing, history, Ctrl-C.
//!
//! Must not: end at an error of SQL; the caller's console gets it, and the next statement is read.

use std::path::PathBuf;
use std::rc::Rc;

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use strongroom_format::code;

use crate::complete::Names;
use crate::error::Error;
use crate::feed::{self, Feed, Flow, Unit};
use crate::history::{self, History};
use crate::session::Session;

const PROMPT: &str = "strongroom> ";
const PROMPT_WITHIN: &str = "       ...> ";

/// Reads statements and dot-commands from the terminal and runs them until the input ends or
/// `.quit`. Errors of statements go to the console. Loads and extends the history file, if one is
/// named. Replaces the handler of SIGINT, which then interrupts the running statement.
/// SR-5001 if the handler cannot be installed or the terminal cannot be read; the errors of writing
/// results that a flush reports.
pub(crate) fn run(session: &mut Session<'_>, history: Option<PathBuf>) -> Result<(), Error> {
    let interrupt = session.connection.get_interrupt_handle();
    // While the editor reads, the terminal sends no signal; this is for running statements.
    ctrlc::set_handler(move || interrupt.interrupt())
        .map_err(|e| Error::new(&code::IO, format!("signal handler: {e}")))?;
    let history = History::at(history);
    let mut editor = editor(session, &history).map_err(|e| terminal(&e))?;
    session.console.note(&format!(
        "SQLite {}; .help lists the dot-commands, .quit or Ctrl-D leaves",
        rusqlite::version()
    ));
    let mut feed = Feed::default();
    loop {
        let prompt = if feed.is_partial() {
            PROMPT_WITHIN
        } else {
            PROMPT
        };
        let unit = match editor.readline(prompt) {
            Ok(line) => feed.line(&line),
            Err(ReadlineError::Interrupted) => {
                if !feed.is_partial() {
                    session.console.note(".quit or Ctrl-D leaves");
                }
                feed.clear();
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(terminal(&error)),
        };
        remember(&mut editor, &history, &unit);
        match feed::run_unit(session, &unit).and_then(|flow| session.flush().map(|()| flow)) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(()),
            Err(failure) if failure.is_closed_output() => return Err(failure),
            Err(failure) => {
                // Rows that came before the error are shown first.
                session.flush()?;
                session.console.failed(failure);
            }
        }
    }
}

type LineEditor = Editor<Names, MemHistory>;

/// Returns a line editor with completion, and with the statements of the history file. Reads that
/// file; an error only if the editor cannot be made.
fn editor(session: &Session<'_>, history: &History) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(history::ENTRIES_MAX)?
        .auto_add_history(false)
        .build();
    let memory = MemHistory::with_config(&config);
    let mut editor = Editor::with_history(config, memory)?;
    editor.set_helper(Some(Names::new(Rc::clone(&session.connection))));
    for entry in history.load() {
        editor.add_history_entry(entry)?;
    }
    Ok(editor)
}

/// Adds a statement or dot-command to the history in memory and in the file, unless it may hold a
/// key or repeats the last one. Errors are ignored.
fn remember(editor: &mut LineEditor, history: &History, unit: &Unit) {
    let (Unit::Dot(text) | Unit::Sql(text)) = unit else {
        return;
    };
    if history::mentions_key(text) {
        return;
    }
    // False for a repeated entry, which need not be stored again; an error only forgets.
    if editor.add_history_entry(text).unwrap_or(false) {
        history.append(text);
    }
}

/// Makes an SR-5001 error of the terminal.
fn terminal(error: &ReadlineError) -> Error {
    Error::new(&code::IO, format!("terminal: {error}"))
}
