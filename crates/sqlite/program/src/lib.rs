//! Determines from the bytes of an executable whether the SQLite extension can be preloaded into
//! it. The command `strongroom sqlite run` and the library that it preloads use this.
//!
//! The dynamic linker loads the extension. It ignores `LD_PRELOAD` where a program runs with other
//! privileges than its caller's, and a static program has no dynamic linker. Where an executable
//! contains its own SQLite, calls of it bypass any preloaded library.
//!
//! Must not: allocate, since a child of `fork` calls it; read files; panic for any bytes.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::expect_used
    )
)]

mod elf;

pub use elf::{dynamic_linker, has_own_sqlite, is_elf, kind, links_sqlite};

/// Most `#!` lines that lead to another one; the kernel follows as many.
pub const SCRIPTS: u32 = 4;

/// Longest executable that is searched, in bytes.
pub const EXECUTABLE_MAX: u64 = 1 << 30;

/// Permission bits by which a program runs with other privileges than its caller's (set-user-ID and
/// set-group-ID).
pub const OTHER_RIGHTS: u32 = 0o6000;

/// Returns the first bytes of a database (SQLite file format, section 1.3), which every SQLite
/// contains as a constant. Computed when it is used, so that the libraries that search for it do
/// not contain it.
#[must_use]
pub fn sqlite_magic() -> [u8; 16] {
    let mut magic = *b"\x003 tamrof etiLQS";
    magic.reverse();
    magic
}

/// Returns the program that the kernel runs for a script whose first line, without `#!`, is `line`;
/// where that is `env`, the name of the program that `env` runs. `None` when the line names none.
#[must_use]
pub fn interpreter(line: &[u8]) -> Option<Interpreter<'_>> {
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    if first.rsplit(|byte| *byte == b'/').next() != Some(b"env") {
        return Some(Interpreter::Program(first));
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    Some(Interpreter::ByEnv(named))
}

/// The program that a script's first line runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpreter<'a> {
    /// The file of this path.
    Program(&'a [u8]),
    /// The program of this name, for which `env` searches.
    ByEnv(&'a [u8]),
}

/// Returns the first line of a script, without `#!`. `None`: not a script.
#[must_use]
pub fn script_line(bytes: &[u8]) -> Option<&[u8]> {
    let line = bytes.strip_prefix(b"#!")?;
    line.split(|byte| *byte == b'\n').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_a_program() {
        use Interpreter::{ByEnv, Program};
        let cases: [(&[u8], Option<Interpreter<'_>>); 10] = [
            (b"#!/bin/sh\nenv x", Some(Program(b"/bin/sh"))),
            (b"#! \t/bin/sh -e", Some(Program(b"/bin/sh"))),
            (b"#!/usr/bin/env python3\r\n", Some(ByEnv(b"python3"))),
            (
                b"#!/usr/bin/env -S A=1 busybox sh\n",
                Some(ByEnv(b"busybox")),
            ),
            (b"#!env x", Some(ByEnv(b"x"))),
            (b"#!/opt/environment x", Some(Program(b"/opt/environment"))),
            (b"#!", None),
            (b"#!\n/bin/sh", None),
            (b"#!/usr/bin/env -S A=1\n", None),
            (b"#!\xff\0\xfe", Some(Program(b"\xff\0\xfe"))),
        ];
        for (script, expected) in cases {
            let line = script_line(script).unwrap();
            assert_eq!(interpreter(line), expected, "{}", script.escape_ascii());
        }
        for no_script in [&b""[..], b"#", b" #!/bin/sh", b"\x7fELF"] {
            assert_eq!(script_line(no_script), None);
        }
    }

    #[test]
    fn the_magic_is_that_of_sqlite() {
        assert_eq!(&sqlite_magic(), b"SQLite format 3\0");
    }
}
