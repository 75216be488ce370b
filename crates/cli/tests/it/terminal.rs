//! The interactive shell, on a pseudo-terminal: prompts, history, completion, Ctrl-C.
//!
//! Method: the real binary on the far side of a terminal; the test types and reads what appears.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;
use crate::common::on_terminal;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::Place;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longest wait for anything to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// A shell and the terminal it runs on.
struct Typist {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Typist {
    fn start(place: &Place) -> Self {
        let (near, far) = on_terminal::new();
        // Wide, so that no line is broken.
        let size = Winsize {
            ws_row: 50,
            ws_col: 400,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&near, size).unwrap();
        let end = || Stdio::from(far.try_clone().unwrap());
        let mut command = place.command();
        command
            .args(["sqlite", "shell", "a.db"])
            .env("TERM", "xterm");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let keyboard = near;
        let mut reader = keyboard.try_clone().unwrap();
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The terminal ends with an error when its far side is closed.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keyboard,
            screen,
            seen: String::new(),
        }
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` appears after what was waited for before.
    #[track_caller]
    fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} did not appear in {:?}", self.seen),
            }
        }
    }

    /// Ctrl-D at the prompt. (Before the prompt the terminal itself would take it.)
    #[track_caller]
    fn leaves(mut self) {
        self.sees("strongroom> ");
        self.types("\x04");
        self.ends();
    }

    /// Types `.quit` until the shell has ended: what is typed while a statement runs is thrown away
    /// at the next prompt.
    #[track_caller]
    fn quits(mut self) {
        for _ in 0..10 {
            // Fails when it has just ended.
            drop(self.keyboard.write_all(b".quit\r"));
            if self.has_ended_within(PATIENCE / 10) {
                return;
            }
        }
        panic!("the shell did not end");
    }

    #[track_caller]
    fn ends(&mut self) {
        assert!(self.has_ended_within(PATIENCE), "the shell did not end");
    }

    #[track_caller]
    fn has_ended_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(0));
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        // Fails when the shell has ended, as it should have.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn statements_errors_and_an_orderly_end() {
    let place = Place::new();
    place.plain_database("a.db", 3);
    let mut typist = Typist::start(&place);
    typist.sees("strongroom> ");
    typist.types("SELECT count(*) AS howmany\r");
    typist.sees("...> ");
    typist.types("FROM t;\r");
    typist.sees("howmany\r\n-------\r\n      3\r\n");
    // An error does not end the shell.
    typist.types("SELECT nope;\r");
    typist.sees("error[SR-1005]");
    // Ctrl-C gives up what was begun.
    typist.types("SELECT 'begun\r");
    typist.sees("...> ");
    typist.types("\x03");
    typist.sees("strongroom> ");
    typist.types("SELECT 'after' AS x;\r");
    typist.sees("-----\r\nafter\r\n");
    typist.leaves();
}

#[test]
fn history_is_private_and_holds_no_key() {
    let place = Place::new();
    place.plain_database("a.db", 3);
    let mut typist = Typist::start(&place);
    typist.sees("strongroom> ");
    typist.types("SELECT 1 AS one,\r");
    typist.sees("...> ");
    typist.types("2 AS two;\r");
    typist.sees("1 |   2\r\n");
    typist.types("PRAGMA key = 'hunter2';\r");
    typist.sees("strongroom> ");
    typist.types("SELECT strongroom_key('a', 'hunter2');\r");
    typist.sees("strongroom> ");
    typist.quits();

    let history = place.path("state/strongroom/history");
    let text = std::fs::read_to_string(&history).unwrap();
    assert_eq!(text, "SELECT 1 AS one,\\n2 AS two;\n.quit\n");
    assert_eq!(
        std::fs::metadata(&history).unwrap().permissions().mode() & 0o777,
        0o600
    );

    // The next shell has it: arrow up, past .quit, and run.
    let mut typist = Typist::start(&place);
    typist.sees("strongroom> ");
    typist.types("\x1b[A\x1b[A\r");
    typist.sees("1 |   2\r\n");
    typist.leaves();
}

#[test]
fn tab_completes_names() {
    let place = Place::new();
    place.plain_database("a.db", 3);
    place
        .run(&[
            "sqlite",
            "shell",
            "a.db",
            "-c",
            "CREATE TABLE customers(citizenship)",
        ])
        .succeeded();
    let mut typist = Typist::start(&place);
    typist.sees("strongroom> ");
    typist.types("sel\t count(citiz\t) AS n from custo\t;\r");
    typist.sees("n\r\n-\r\n0\r\n");
    typist.leaves();
}

#[test]
fn an_interrupt_stops_the_statement_and_not_the_shell() {
    let place = Place::new();
    place.plain_database("a.db", 3);
    let mut typist = Typist::start(&place);
    typist.sees("strongroom> ");
    // Counts for ever.
    typist.types(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n;\r",
    );
    typist.sees("max(i) FROM n;");
    let pid = Pid::from_child(&typist.child);
    let started = Instant::now();
    while !typist.seen.contains("error[SR-1005]") && started.elapsed() < PATIENCE {
        // The editor sets the terminal back before the statement starts: until then, again.
        kill_process(pid, Signal::INT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        while let Ok(bytes) = typist.screen.try_recv() {
            typist.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    typist.sees("interrupted");
    typist.sees("strongroom> ");
    typist.types("SELECT 'alive' AS x;\r");
    typist.sees("-----\r\nalive\r\n");
    typist.leaves();
}
