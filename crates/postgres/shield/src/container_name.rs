//! The name that a container is bound to (docs/spec/postgres.md, "Names of containers").
//!
//! Without such a name an attacker could replace one container by another: the state of a
//! replication slot by that of another slot. PostgreSQL writes small files under a temporary name
//! and renames them, so that a container is bound to its final name, which both paths of such a
//! rename give here. Files of classes without a rule all have the same, empty name.
//!
//! Invariants: N5. The name depends on the path relative to the data directory alone. Nothing
//! allocates. A file that PostgreSQL renames into place has one name under both paths, except
//! `temp.summary`, which is sealed again before the rename ([`crate::rename`]).
//!
//! Must not: read a file, or be used for block files and streams.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use strongroom_crypto::sha256;
use strongroom_format::postgres::container::CONTAINER_NAME;

use crate::classify::Class;
use crate::name_parser::split_first_component;
use crate::path::file_name;

/// The digest of a name, as it is in the associated data: the first bytes of its SHA-256.
pub type NameDigest = [u8; CONTAINER_NAME];

/// The parts of a name, to be concatenated.
type NameParts<'path> = [&'path [u8]; 4];

/// The directory of replication slots, with the `/` at its end.
const SLOTS: &[u8] = b"pg_replslot/";
/// The end of temporary names.
const TEMPORARY: &[u8] = b".tmp";

/// The temporary file of PostgreSQL's WAL summarizer: the one container that is sealed for its new
/// name before it is renamed. After a kill between the two it opens under neither name. PostgreSQL
/// empties it before it writes one, and reads none.
pub const TEMPORARY_SUMMARY: &[u8] = b"pg_wal/summaries/temp.summary";

/// Returns the digest of the name to which the container at `relative` is bound; `class` is its
/// class. For a class without a rule it is that of the empty name.
#[must_use]
pub fn name_digest(class: Class, relative: &[u8]) -> NameDigest {
    hash_parts(&parts(class, relative))
}

/// Whether a file of this class and name is the WAL summarizer's temporary file
/// ([`TEMPORARY_SUMMARY`]).
#[must_use]
pub fn is_temporary_summary(class: Class, name: &NameDigest) -> bool {
    class == Class::WalSummary && *name == name_digest(class, TEMPORARY_SUMMARY)
}

/// Returns the digest of the name of the file `state` in the directory `relative`, if that is the
/// directory of a replication slot (`pg_replslot/NAME` or `NAME.tmp`, which give the same digest);
/// else `None`. A rename of a slot's directory under which the digest changes would take the state
/// to another name than the one it is sealed for, and is refused.
#[must_use]
pub fn slot_directory_digest(relative: &[u8]) -> Option<NameDigest> {
    let slot = relative.strip_prefix(SLOTS)?;
    let is_directory = !slot.is_empty() && !slot.contains(&b'/');
    is_directory.then(|| hash_parts(&state_of(slot)))
}

/// Returns the first 16 bytes of the SHA-256 of a name.
fn hash_parts(parts: &NameParts<'_>) -> NameDigest {
    let [digest @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = sha256(parts);
    digest
}

/// Returns the parts of the name of a container at `relative`, which has this class: its final path
/// for most classes, and the empty name for a class without a rule.
fn parts(class: Class, relative: &[u8]) -> NameParts<'_> {
    match class {
        Class::TwoPhase | Class::Origins | Class::Prewarm => whole(final_path(relative)),
        Class::Statistics if relative == b"pg_stat/pgstat.tmp" => whole(b"pg_stat/pgstat.stat"),
        Class::Statistics => whole(final_path(relative)),
        Class::WalSummary => whole(relative),
        Class::SlotState => {
            let below = relative.strip_prefix(SLOTS).unwrap_or(relative);
            state_of(split_first_component(below).0)
        }
        Class::Snapbuild => whole(up_to(relative, b".snap")),
        Class::RelcacheInit => in_database_or_global(relative, b"pg_internal.init"),
        Class::Incremental => in_database_or_global(relative, file_name(relative)),
        // It is not known how files of these classes get their names.
        _ => whole(b""),
    }
}

/// Returns a name that is the path itself.
fn whole(path: &[u8]) -> NameParts<'_> {
    [path, b"", b"", b""]
}

/// Returns the name of the state of the replication slot in the directory `slot`, which may have
/// its temporary name.
fn state_of(slot: &[u8]) -> NameParts<'_> {
    [SLOTS, final_path(slot), b"/state", b""]
}

/// Returns the path without the ending `.tmp` of a temporary name.
fn final_path(path: &[u8]) -> &[u8] {
    path.strip_suffix(TEMPORARY).unwrap_or(path)
}

/// Returns the path up to the end of the first `mark`; all of it when there is none.
fn up_to<'path>(path: &'path [u8], mark: &[u8]) -> &'path [u8] {
    let at = path.windows(mark.len()).position(|part| part == mark);
    at.and_then(|at| path.get(..at.checked_add(mark.len())?))
        .unwrap_or(path)
}

/// Returns the name of a file in `global`, or in the directory of a database as if that were in
/// `base`: copies of a database and `pg_upgrade` put it into another tablespace or version
/// directory.
fn in_database_or_global<'path>(relative: &'path [u8], name: &'path [u8]) -> NameParts<'path> {
    if relative.starts_with(b"global/") {
        return [b"global/", name, b"", b""];
    }
    let directory = relative
        .iter()
        .rposition(|&byte| byte == b'/')
        .and_then(|at| relative.get(..at));
    let database = file_name(directory.unwrap_or_default());
    let database = database.strip_suffix(b"_old_catalogs").unwrap_or(database);
    [b"base/", database, b"/", name]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::classify;
    use crate::table::{ROWS, Treatment, treatment};

    fn name(path: &str) -> String {
        let class = classify(path.as_bytes()).class;
        assert_eq!(treatment(class), Treatment::Container, "{path}");
        String::from_utf8(parts(class, path.as_bytes()).concat()).unwrap()
    }

    #[test]
    fn a_temporary_name_is_the_final_one() {
        for (temporary, last) in [
            ("pg_twophase/0000030A.tmp", "pg_twophase/0000030A"),
            (
                "pg_twophase/000000000000030A.tmp",
                "pg_twophase/000000000000030A",
            ),
            ("pg_replslot/a/state.tmp", "pg_replslot/a/state"),
            ("pg_replslot/a.tmp/state", "pg_replslot/a/state"),
            ("pg_replslot/a.tmp/state.tmp", "pg_replslot/a/state"),
            (
                "pg_logical/snapshots/0-15A3.snap.4711.tmp",
                "pg_logical/snapshots/0-15A3.snap",
            ),
            (
                "pg_logical/replorigin_checkpoint.tmp",
                "pg_logical/replorigin_checkpoint",
            ),
            ("pg_stat/pgstat.tmp", "pg_stat/pgstat.stat"),
            (
                "pg_stat/pg_stat_statements.stat.tmp",
                "pg_stat/pg_stat_statements.stat",
            ),
            ("autoprewarm.blocks.tmp", "autoprewarm.blocks"),
            ("global/pg_internal.init.77", "global/pg_internal.init"),
            ("base/5/pg_internal.init.77", "base/5/pg_internal.init"),
        ] {
            assert_eq!(name(temporary), last);
            assert_eq!(name(last), last);
        }
    }

    #[test]
    fn a_databases_files_have_one_name_in_every_tablespace() {
        for path in [
            "pg_tblspc/16390/PG_15_202209061/5/pg_internal.init",
            "PG_17_202406281/5/pg_internal.init.9",
            "spaces/PG_17_202406281/5/pg_internal.init",
            "base/moved_for_upgrade/5_old_catalogs/pg_internal.init",
        ] {
            assert_eq!(name(path), "base/5/pg_internal.init", "{path}");
        }
        assert_eq!(
            name("pg_tblspc/1/PG_17_202406281/5/INCREMENTAL.16384.1"),
            "base/5/INCREMENTAL.16384.1"
        );
    }

    #[test]
    fn files_that_must_not_be_exchanged_have_different_names() {
        let names = [
            "pg_replslot/a/state",
            "pg_replslot/b/state",
            "pg_twophase/0000030A",
            "pg_twophase/0000030B",
            "pg_logical/snapshots/0-15A3.snap",
            "pg_logical/snapshots/0-15A4.snap",
            "pg_logical/replorigin_checkpoint",
            "pg_stat/pgstat.stat",
            "pg_stat/pg_stat_statements.stat",
            "pg_stat_tmp/pg_stat_statements.stat",
            "base/5/pg_internal.init",
            "base/6/pg_internal.init",
            "global/pg_internal.init",
            "base/5/INCREMENTAL.16384",
            "base/5/INCREMENTAL.16384_fsm",
            "autoprewarm.blocks",
            "pg_wal/summaries/temp.summary",
            "pg_wal/summaries/0000000100000000010000280000000001000100.summary",
            "an_extension/its.file",
        ];
        let digests =
            names.map(|path| name_digest(classify(path.as_bytes()).class, path.as_bytes()));
        let different: std::collections::BTreeSet<NameDigest> = digests.into();
        assert_eq!(different.len(), names.len());
        // Files that no rule names are not told apart.
        assert_eq!(name("an_extension/its.file"), "");
        assert_eq!(name("other"), "");
    }

    #[test]
    fn every_class_of_containers_was_considered() {
        let containers = ROWS
            .iter()
            .filter(|row| row.treatment == Treatment::Container);
        let unbound: Vec<Class> = containers
            .map(|row| row.class)
            .filter(|&class| parts(class, b"pg_replslot/a/state").concat() == b"")
            .collect();
        assert_eq!(unbound, [Class::UpgradeDump, Class::Unknown]);
    }

    #[test]
    fn a_slots_directory_stands_for_its_state() {
        let state = name_digest(Class::SlotState, b"pg_replslot/a/state");
        assert_eq!(slot_directory_digest(b"pg_replslot/a"), Some(state));
        assert_eq!(slot_directory_digest(b"pg_replslot/a.tmp"), Some(state));
        assert_ne!(slot_directory_digest(b"pg_replslot/b"), Some(state));
        for other in [&b"pg_replslot"[..], b"pg_replslot/", b"base/5", b""] {
            assert_eq!(slot_directory_digest(other), None);
        }
    }
}
