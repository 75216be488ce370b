//! Data directories that `initdb` has made once, and that tests copy: `initdb` takes a second of
//! processor time, and some three hundred tests want a new instance.
//!
//! The copies are kept below the target directory, one for each set of options, and are made anew
//! when a program that they were made with has changed. All copies of one have the same system
//! identifier and, sealed, the same instance key: a test with several instances numbers them.
//!
//! Must not: start a server, or change what is kept.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::is_root;
use crate::process::checked;
use crate::product;

/// The file of an instance that names, by its absolute path, where its key comes from.
const KEY_SOURCE: &str = "strongroom.conf";

/// What a data directory is made of: two with the same recipe are the same.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// The options of `initdb`, and what else makes a difference, such as the contents of a key
    /// file.
    pub options: Vec<String>,
    /// The programs and libraries that make it; it is made anew when one of them has changed.
    pub programs: Vec<PathBuf>,
    /// The test's own directory. A copy names its own one wherever the first one named this.
    pub room: &'a Path,
}

impl<'a> Recipe<'a> {
    /// The data directory of a plain instance: these options, and the `initdb` of these programs.
    /// Instances with different numbers have different system identifiers.
    pub fn plain(options: &[&str], number: u16, bin: &Path, room: &'a Path) -> Self {
        let mut options: Vec<String> = options.iter().map(|word| String::from(*word)).collect();
        options.push(format!("number {number}"));
        Self {
            options,
            programs: vec![bin.join("initdb"), bin.join("postgres")],
            room,
        }
    }

    /// The same of a sealed instance, which the command makes with this key file and the preload
    /// library `shield`.
    pub fn sealed(self, key: &Path, command: &Path, shield: &Path) -> Self {
        let Self {
            mut options,
            mut programs,
            room,
        } = self;
        options.push(fs::read_to_string(key).unwrap());
        programs.extend([command.to_owned(), shield.to_owned()]);
        Self {
            options,
            programs,
            room,
        }
    }

    /// Makes the data directory `data`, which is in the room and does not exist: by `make` the
    /// first time, later by copying what it made then.
    pub fn fill(&self, data: &Path, make: impl FnOnce()) {
        let kept = self.kept();
        fs::create_dir_all(&kept).unwrap();
        let lock = File::create(kept.join("lock")).unwrap();
        lock.lock_shared().unwrap();
        if self.is_kept(&kept) {
            self.copy(&kept, data);
            lock.unlock().unwrap();
            return;
        }
        lock.unlock().unwrap();
        lock.lock().unwrap();
        // Another test may have made it meanwhile.
        if self.is_kept(&kept) {
            self.copy(&kept, data);
        } else {
            make();
            self.keep(data, &kept);
        }
        lock.unlock().unwrap();
    }

    /// Where the copy for these options is kept.
    fn kept(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (&self.options, is_root()).hash(&mut hasher);
        let name = format!("{:016x}", hasher.finish());
        product::target().join("clusters").join(name)
    }

    /// Name, length and time of the last change of each program.
    fn stamp(&self) -> String {
        let of = |path: &PathBuf| {
            let about = fs::metadata(path).unwrap();
            let (seconds, nanoseconds) = (about.mtime(), about.mtime_nsec());
            format!(
                "{} {} {seconds}.{nanoseconds}\n",
                path.display(),
                about.len()
            )
        };
        self.programs.iter().map(of).collect()
    }

    fn is_kept(&self, kept: &Path) -> bool {
        fs::read_to_string(kept.join("stamp")).is_ok_and(|stamp| stamp == self.stamp())
    }

    fn keep(&self, data: &Path, kept: &Path) {
        drop(fs::remove_file(kept.join("stamp")));
        drop(fs::remove_dir_all(kept.join("data")));
        copy_all(data, &kept.join("data"));
        put(&kept.join("room"), self.room.to_str().unwrap());
        // Last: without it there is no copy.
        put(&kept.join("stamp"), &self.stamp());
    }

    fn copy(&self, kept: &Path, data: &Path) {
        copy_all(&kept.join("data"), data);
        let source = data.join(KEY_SOURCE);
        if let Ok(text) = fs::read_to_string(&source) {
            let first = fs::read_to_string(kept.join("room")).unwrap();
            put(&source, &text.replace(&first, self.room.to_str().unwrap()));
        }
    }
}

/// Copies a directory with owners, modes and times.
fn copy_all(from: &Path, to: &Path) {
    checked(Command::new("cp").args(["-a", "-T"]).arg(from).arg(to));
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test's file, which nothing depends on after a crash"
)]
fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
