//! Which code made each system call on an instance's files: a trace by strace(1) with call stacks.
//!
//! The code that called the C library decides: the first frame of the stack outside of it. Under
//! the shield that has to be the shield, whatever was called; a call that comes from PostgreSQL's
//! own code is one that the shield did not see.
//!
//! Must not: know how the shield does its work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_postgres_shield::classify::classify;
use strongroom_postgres_shield::table::{Treatment, treatment};

/// A system call on a file below the data directory.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// The file, relative to the data directory.
    pub path: String,
    /// Whether the file was named by its path, not by a descriptor.
    pub named: bool,
    /// Whether the shield made it.
    pub shielded: bool,
    /// The line of the trace and the stack below it, for whoever reads it.
    pub shown: String,
}

/// Calls that neither move bytes of a file nor depend on its content or size; they may reach the
/// kernel directly. Those on names are on directories and links, which the shield leaves as they
/// are.
const IMMATERIAL: &[&str] = &[
    "chdir",
    "mkdir",
    "rmdir",
    "readlink",
    "symlink",
    "chmod",
    "fchmod",
    "chown",
    "getcwd",
    "utimensat",
    "statfs",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fadvise64",
    "syncfs",
    "getdents64",
    "execve",
    "flock",
];

/// Every call that names a file, and those on descriptors that can be a file's.
const TRACED: &str = "trace=%file,read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,pwritev2,lseek,\
    ftruncate,fallocate,fstat,mmap,close,dup,dup2,dup3,fcntl,ioctl,copy_file_range,sendfile,splice,tee,vmsplice,\
    fsync,fdatasync,sync_file_range,fadvise64,getdents64,fchmod,fchown,flock,io_uring_setup,io_uring_register";

impl Call {
    /// Whether the shield should have seen it and did not.
    #[must_use]
    pub fn escaped(&self) -> bool {
        // opendir(): the shield is at readdir().
        let directory = self.name == "openat" && self.shown.contains("O_DIRECTORY");
        if self.shielded || directory || IMMATERIAL.contains(&self.name.as_str()) {
            return false;
        }
        // What is stored in clear, once opened, is the C library's and the program's own affair.
        self.named || !self.is_plain()
    }

    fn is_plain(&self) -> bool {
        let class = classify(self.path.as_bytes()).class;
        matches!(treatment(class), Treatment::Plain | Treatment::Untouched)
    }
}

/// Puts strace before a program, which writes one file for each process into `directory`.
/// `library`: the preload library, which strace itself must not be under.
#[must_use]
pub fn traced(program: &Command, directory: &Path, library: Option<&Path>) -> Vec<String> {
    let mut words = vec![String::from("strace")];
    words.extend(
        [
            "-ff",
            "--seccomp-bpf",
            "-k",
            "-y",
            "-s",
            "0",
            "-e",
            TRACED,
            "-e",
            "signal=none",
            "-o",
        ]
        .map(String::from),
    );
    words.push(directory.join("t").display().to_string());
    if let Some(library) = library {
        words.extend([
            String::from("-E"),
            format!("LD_PRELOAD={}", library.display()),
        ]);
    }
    words.push(program.get_program().to_string_lossy().into_owned());
    words.extend(
        program
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned()),
    );
    words
}

/// The calls on files below `data` in the traces in `directory`.
///
/// # Panics
/// When a trace cannot be read.
#[must_use]
pub fn calls(directory: &Path, data: &Path) -> Vec<Call> {
    let entries = fs::read_dir(directory).expect("the directory of traces");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read(&file).expect("a trace");
        of_process(&String::from_utf8_lossy(&text), data, &mut found);
    }
    found
}

fn of_process(text: &str, data: &Path, found: &mut Vec<Call>) {
    let mut lines = text.lines().peekable();
    // A program before the last execve is a shell or strace's own child.
    while let Some(line) = lines.next() {
        let mut stack = Vec::new();
        while let Some(frame) = lines.next_if(|line| line.starts_with(" > ")) {
            stack.push(frame);
        }
        let Some((name, arguments)) = line.split_once('(') else {
            continue;
        };
        let Some((path, named)) = file_of(arguments, data) else {
            continue;
        };
        let outside = stack.iter().find(|frame| !is_c_library(frame));
        let mut shown = String::from(line);
        for frame in stack.iter().take(6) {
            shown.push('\n');
            shown.push_str(frame);
        }
        found.push(Call {
            name: String::from(name),
            path,
            named,
            shielded: outside.is_some_and(|frame| frame.contains("libstrongroom_shield")),
            shown,
        });
    }
}

fn is_c_library(frame: &str) -> bool {
    ["/libc.so.6(", "/libpthread.so.0(", "/ld-linux", "[vdso]"]
        .iter()
        .any(|name| frame.contains(name))
}

/// The first file below the data directory that the arguments name, and whether by a path. Relative
/// paths are the server's, which stands in the data directory.
fn file_of(arguments: &str, data: &Path) -> Option<(String, bool)> {
    let data = data.to_str()?;
    let below = |path: &str| {
        let rest = path.strip_prefix(data)?;
        (rest.is_empty() || rest.starts_with('/'))
            .then(|| String::from(rest.trim_start_matches('/')))
    };
    // Between quotes stand paths; contents are not shown.
    let quoted = arguments
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|path| !path.is_empty());
    for path in quoted {
        if path.starts_with('/') {
            if let Some(path) = below(path) {
                return Some((path, true));
            }
        } else if arguments.contains(&format!("AT_FDCWD<{data}>"))
            || !arguments.starts_with("AT_FDCWD")
        {
            return Some((String::from(path.trim_start_matches("./")), true));
        }
    }
    let descriptor = arguments.split_once('<')?;
    if descriptor.0.starts_with("AT_FDCWD") {
        return None;
    }
    below(descriptor.1.split_once('>')?.0).map(|path| (path, false))
}
