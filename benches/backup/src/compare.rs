//! Whether what a tool restored is what was backed up, and how large what it stored is (B2: nobody
//! is measured while failing).
//!
//! Must not: be inside a measurement.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use strongroom_benches::Failure;

/// Every regular file below `source` is below `restored` with the same bytes, and no file more.
/// What a server makes again by itself does not count.
pub(crate) fn same_trees(source: &Path, restored: &Path) -> Result<(), Failure> {
    let [expected, found] = [files(source)?, files(restored)?];
    if let Some(other) = expected.symmetric_difference(&found).next() {
        return Err(format!("{}: on one side only", other.display()).into());
    }
    if expected.is_empty() {
        return Err(format!("{}: nothing to compare", source.display()).into());
    }
    for name in &expected {
        if !same_bytes(&source.join(name), &restored.join(name))? {
            return Err(format!("{}: other bytes", name.display()).into());
        }
    }
    Ok(())
}

/// Whether two files have the same bytes.
pub(crate) fn same_bytes(one: &Path, other: &Path) -> Result<bool, Failure> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut buffers = [vec![0; 1 << 20], vec![0; 1 << 20]];
    loop {
        let [first, second] = &mut buffers;
        let got = one.read(first)?;
        if got == 0 {
            return Ok(true);
        }
        let (first, second) = (
            first.get(..got).unwrap_or_default(),
            second.get_mut(..got).unwrap_or_default(),
        );
        other.read_exact(second)?;
        if first != second {
            return Ok(false);
        }
    }
}

/// Bytes of all regular files below `directory`.
pub(crate) fn size_of(directory: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for name in files(directory)? {
        sum += fs::metadata(directory.join(name))?.len();
    }
    Ok(sum)
}

fn files(root: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let sort = entry.file_type()?;
            let name = entry.file_name();
            let passing = name == "pg_internal.init" || name == "pgsql_tmp";
            if sort.is_dir() && !passing {
                open.push(entry.path());
            } else if sort.is_file() && !passing {
                found.insert(entry.path().strip_prefix(root)?.to_path_buf());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{same_trees, size_of};
    use std::io::Write as _;
    use std::path::Path;

    fn tree(root: &Path, names: &[(&str, &[u8])]) {
        for (name, bytes) in names {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = std::fs::File::create(path).unwrap();
            file.write_all(bytes).unwrap();
        }
    }

    #[test]
    fn only_the_same_tree_is_the_same() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        tree(&path("a"), &[("1", b"one"), ("d/2", b"two")]);
        tree(
            &path("b"),
            &[("1", b"one"), ("d/2", b"two"), ("d/pg_internal.init", b"x")],
        );
        tree(&path("c"), &[("1", b"one"), ("d/2", b"twO")]);
        tree(&path("d"), &[("1", b"one")]);
        tree(&path("e"), &[("1", b"one"), ("d/2", b"two"), ("3", b"")]);
        same_trees(&path("a"), &path("b")).unwrap();
        for other in ["c", "d", "e"] {
            same_trees(&path("a"), &path(other)).unwrap_err();
        }
        std::fs::create_dir(path("f")).unwrap();
        same_trees(&path("f"), &path("f")).unwrap_err();
        assert_eq!(size_of(&path("a")).unwrap(), 6);
    }
}
