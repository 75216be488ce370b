//! For tests of what root does on another user's files: planted commands that write down as whom
//! they run, and a look at everything of root's.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use strongroom_testing_support::product::SHIELD;
use tempfile::TempDir;

use super::{Place, is_root};

/// Whether such a test can be done; says when not.
#[expect(clippy::print_stderr, reason = "a test that is not done says so")]
pub(crate) fn can_be_tried() -> bool {
    if !is_root() {
        eprintln!("skipped: only root can act as somebody else");
    }
    is_root()
}

/// The number of the user that owns the place.
pub(crate) fn owner(place: &Place) -> String {
    fs::metadata(place.path(".")).unwrap().uid().to_string()
}

/// A command line that writes down as whom it runs and prints the key.
pub(crate) fn planted(place: &Place) -> String {
    let (who, key) = (place.path("who"), place.path("key"));
    format!("id -u >> {}; cat {}", who.display(), key.display())
}

/// As whom planted commands ran since this was asked last.
pub(crate) fn ran_as(place: &Place) -> Vec<String> {
    let text = fs::read_to_string(place.path("who")).unwrap_or_default();
    drop(fs::remove_file(place.path("who")));
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn library(place: &Place) -> PathBuf {
    place.product().join(SHIELD)
}

/// A directory of root's, below which nothing is anybody else's.
pub(crate) fn root_place() -> TempDir {
    let place = tempfile::Builder::new()
        .prefix("sr-root-")
        .tempdir()
        .unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}

/// What is known of everything below a directory: changes when anything is touched.
pub(crate) fn state(directory: &Path) -> Vec<String> {
    let mut left = vec![directory.to_path_buf()];
    let mut found = Vec::new();
    while let Some(path) = left.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            let below = fs::read_dir(&path).unwrap();
            left.extend(below.map(|entry| entry.unwrap().path()));
        }
        let (path, mode, len) = (path.display(), about.mode(), about.len());
        let (user, group) = (about.uid(), about.gid());
        let changed = (about.mtime(), about.mtime_nsec());
        let touched = (about.ctime(), about.ctime_nsec());
        found.push(format!(
            "{path} {mode:o} {user}:{group} {len} {changed:?} {touched:?}"
        ));
    }
    found.sort();
    found
}
