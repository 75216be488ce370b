//! Removes temporary files of runs that were killed, by their names and age.
//!
//! Must not: remove a file that was changed within a day, or one that the caller does not recognize
//! by its name.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// No run leaves a file that it is writing unchanged for so long.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes the regular files of `directory`, not of directories in it, whose names `is_ours`
/// accepts and that were not changed for a day. A missing directory, or a file that somebody else
/// removes meanwhile, is no error; nor is a file whose age cannot be read, which stays.
///
/// # Errors
/// The system's when the directory cannot be read or a file cannot be removed; files after it stay.
pub(crate) fn collect(directory: &Path, is_ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let named = entry.file_name().to_str().is_some_and(&is_ours);
        if named && is_old(&entry).unwrap_or(false) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether this is a regular file that was not changed for a day. False when its time is in the
/// future, which may be after the clock was set.
fn is_old(entry: &fs::DirEntry) -> io::Result<bool> {
    let about = entry.metadata()?;
    let age = SystemTime::now().duration_since(about.modified()?);
    Ok(about.is_file() && age.is_ok_and(|age| age > AGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_claimed_and_old_goes() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let old = SystemTime::now() - AGE - Duration::from_secs(60);
        let soon = SystemTime::now() + AGE + AGE;
        for (name, time) in [
            (".old.tmp", old),
            (".new.tmp", SystemTime::now()),
            (".soon.tmp", soon),
            ("old", old),
        ] {
            let file = fs::File::create(path(name)).unwrap();
            file.set_modified(time).unwrap();
        }
        fs::create_dir(path(".directory.tmp")).unwrap();
        std::os::unix::fs::symlink("old", path(".link.tmp")).unwrap();
        collect(place.path(), |name| name.ends_with(".tmp")).unwrap();
        let left = [
            ".directory.tmp",
            ".link.tmp",
            ".new.tmp",
            ".soon.tmp",
            "old",
        ];
        let mut names: Vec<String> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, left);
        collect(&path("absent"), |_| true).unwrap();
    }
}
