//! Processes of a server as an operator with root sees them: lists them, reads their memory, kills
//! them.
//!
//! Must not: touch a process that is not the server's.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use strongroom_testing_support::process::{children, is_alive, patiently, signal};

use crate::Server;

/// How long processes may take to end after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that are read at a time from a process's memory.
const PIECE: usize = 1 << 20;

impl Server {
    /// Process number of the postmaster.
    ///
    /// # Panics
    ///
    /// When the server does not run.
    #[must_use]
    pub fn postmaster(&self) -> u32 {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let text = text.expect("the server runs");
        let first = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        first.expect("a process number")
    }

    /// All processes of the server, the postmaster first, each with its title.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, String)> {
        let postmaster = self.postmaster();
        let mut found = vec![(postmaster, title(postmaster))];
        let started = children(postmaster).into_iter();
        found.extend(started.map(|number| (number, title(number))));
        found
    }

    /// Stops the processes of the server with this in their title, until it is killed.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn suspend(&self, title: &str) {
        let all = self.processes().into_iter();
        let meant: Vec<u32> = all
            .filter(|(_, of)| of.contains(title))
            .map(|(number, _)| number)
            .collect();
        assert!(!meant.is_empty(), "there is no {title}");
        signal("-STOP", &meant);
    }

    /// Ends every process of the server with SIGKILL, the postmaster first, and waits until all
    /// have ended.
    ///
    /// # Panics
    ///
    /// When one stays.
    pub fn kill(&self) {
        let processes = self.processes();
        for (number, _) in &processes {
            signal("-KILL", &[*number]);
        }
        // The postmaster is reaped by its parent, and the processes that it has started by init.
        let ended = patiently(KILL_LIMIT, || {
            !processes.iter().any(|(number, _)| is_alive(*number))
        });
        assert!(ended, "a process stays: {processes:?}");
        // A zombie that is not reaped would be taken for a running postmaster.
        for lock in [
            self.data().join("postmaster.pid"),
            self.socket().join(".s.PGSQL.5432.lock"),
        ] {
            drop(std::fs::remove_file(lock));
        }
    }
}

/// Command line of a process, which PostgreSQL sets to the process's title.
fn title(process: u32) -> String {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Processor time that a process has used in user and kernel mode, in clock ticks.
#[must_use]
pub fn processor_ticks(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let Some((_, rest)) = text.rsplit_once(") ") else {
        return 0;
    };
    // proc(5): utime and stime are fields 14 and 15, without the first two, which were cut off.
    let fields: Vec<&str> = rest.split(' ').collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse().ok());
    field(11).unwrap_or(0) + field(12).unwrap_or(0)
}

/// Searches the readable memory of a process for `needles`: for each hit the index of the needle
/// and the mapping, and how many bytes were searched, so that a test can check that the search was
/// not empty.
#[must_use]
pub fn search_memory(process: u32, needles: &[Vec<u8>]) -> (Vec<(usize, String)>, u64) {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let (mut found, mut searched) = (Vec::new(), 0);
    let Ok(mut memory) = File::open(format!("/proc/{process}/mem")) else {
        return (found, searched);
    };
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let readable = rest.starts_with('r');
        let bounds = range.split_once('-').and_then(|(from, to)| {
            Some((
                u64::from_str_radix(from, 16).ok()?,
                u64::from_str_radix(to, 16).ok()?,
            ))
        });
        if let Some((from, to)) = bounds.filter(|_| readable) {
            searched += search_range(&mut memory, from, to, needles, |which| {
                found.push((which, line.to_owned()));
            });
        }
    }
    (found, searched)
}

/// Searches a range of a process's memory; how many bytes were searched.
fn search_range(
    memory: &mut File,
    from: u64,
    to: u64,
    needles: &[Vec<u8>],
    mut found: impl FnMut(usize),
) -> u64 {
    let overlap = needles.iter().map(Vec::len).max().unwrap_or(1) - 1;
    let (mut buffer, mut at, mut searched) = (Vec::new(), from, 0);
    while at < to {
        if memory.seek(SeekFrom::Start(at)).is_err() {
            break;
        }
        let left = usize::try_from(to - at).unwrap_or(usize::MAX);
        let keep = buffer.len().min(overlap);
        buffer.drain(..buffer.len() - keep);
        let held = buffer.len();
        buffer.resize(held + left.min(PIECE), 0);
        let read = match buffer.get_mut(held..).map(|into| memory.read(into)) {
            Some(Ok(read)) if read > 0 => read,
            // Pages that cannot be read: devices, and mappings that are gone.
            _ => break,
        };
        buffer.truncate(held + read);
        searched += u64::try_from(read).unwrap_or(0);
        at += u64::try_from(read).unwrap_or(0);
        for (which, needle) in needles.iter().enumerate() {
            if contains(&buffer, needle) {
                found(which);
            }
        }
    }
    searched
}

/// Whether `needle` is in `bytes`.
#[must_use]
pub fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else {
        return false;
    };
    let mut at = 0;
    while let Some(next) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|byte| byte == first))
    {
        if bytes
            .get(at + next..)
            .is_some_and(|rest| rest.starts_with(needle))
        {
            return true;
        }
        at += next + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{contains, search_memory};

    #[test]
    fn a_string_in_a_process_is_found() {
        // Made at run time, so that it is nowhere in the program's own file.
        let needle: Vec<u8> = (0..24_u8)
            .map(|byte| byte.wrapping_mul(37) ^ 0x5a)
            .collect();
        let absent: Vec<u8> = needle.iter().rev().map(|byte| !byte).collect();
        let kept = needle.repeat(3);
        let (found, searched) = search_memory(std::process::id(), &[needle]);
        assert!(
            !found.is_empty() && searched > 1 << 20,
            "{found:?} {searched}"
        );
        assert!(!contains(&kept, &absent));
    }
}
