//! Goal: bytes that are sealed for one address never get the name of another; what PostgreSQL
//! renames, it may.
//!
//! Method: the step that a rename needs, for pairs of paths of one instance.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::sealed;

use std::os::unix::ffi::OsStrExt;

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::open_instances;
use strongroom_postgres_shield::real::Errno;
use strongroom_postgres_shield::rename::{RenameStep, rename_step};
use strongroom_postgres_shield::resolve::resolve;
use tempfile::TempDir;

const SEGMENT: &str = "pg_wal/000000010000000000000001";
const SUMMARY: &str = "pg_wal/summaries/0000000100000000010000280000000001000100.summary";
const TEMPORARY_SUMMARY: &str = "pg_wal/summaries/temp.summary";
const OTHER_SUMMARY: &str = "pg_wal/summaries/0000000100000000010001000000000001000200.summary";
const NEXT: &str = "pg_wal/000000010000000000000005";

/// The directory of an instance with this header, which is open in this process from now on.
fn opened(header: &[u8], opener: &Opener) -> TempDir {
    let place = sealed::directory();
    sealed::put(&place.path().join("strongroom.header"), header);
    assert!(open_instances::add(Instance::open(place.path(), &[], opener).unwrap()).is_ok());
    place
}

/// The directory of a new instance.
fn instance() -> TempDir {
    let opener = Opener::raw(SecretKey::generate().unwrap());
    let object = Object::create(
        &NewObject::instance(Cipher::Aes128Xts),
        &opener.recipient().unwrap(),
    )
    .unwrap();
    opened(&object.initial_bytes(), &opener)
}

/// The step that a rename in the instance needs.
fn step_of(place: &TempDir, from: &str, to: &str) -> RenameStep {
    let canonical = place.path().canonicalize().unwrap();
    let resolved = |path: &str| resolve(canonical.as_os_str().as_bytes(), path.as_bytes()).unwrap();
    rename_step(&resolved(from), &resolved(to))
}

#[test]
fn each_rename_has_the_step_it_needs() {
    let place = instance();
    let of = |from: &str, to: &str| step_of(&place, from, to);

    for (from, to) in [
        (SEGMENT, NEXT),
        (SEGMENT, "pg_wal/000000010000000000000001.partial"),
        ("global/pg_filenode.map.tmp", "global/pg_filenode.map"),
        ("base/5/pg_internal.init.77", "base/5/pg_internal.init"),
        ("pg_replslot/a/state.tmp", "pg_replslot/a/state"),
        ("pg_replslot/a.tmp", "pg_replslot/a"),
        ("pg_stat/pgstat.tmp", "pg_stat/pgstat.stat"),
        ("postgresql.auto.conf.tmp", "postgresql.auto.conf"),
        ("backup_label", "backup_label.old"),
        ("global/pg_control", "global/pg_control.old"),
        ("base/5", "base/5"),
    ] {
        assert_eq!(of(from, to), RenameStep::Nothing, "{from} -> {to}");
    }
    for to in [SEGMENT, "pg_wal/00000002.history"] {
        assert!(
            matches!(of("pg_wal/xlogtemp.77", to), RenameStep::Convert(..)),
            "{to}"
        );
    }
    assert!(matches!(
        of("pg_wal/RECOVERYXLOG", SEGMENT),
        RenameStep::CheckRestored(_)
    ));
    for (from, to) in [
        ("base/5/1", "base/5/2"),
        ("base/5/1", "base/6/1"),
        ("base/5/1", "base/5/1.1"),
        ("global/pg_filenode.map", "base/5/pg_filenode.map"),
        ("base/5/1", "elsewhere"),
        ("pg_xact/0000", "pg_xact/0001"),
        (SEGMENT, "base/5/1"),
        ("extension.state", "postgresql.conf"),
        // A directory may: that is looked at next.
        ("base/5", "moved_for_upgrade"),
    ] {
        assert_eq!(
            of(from, to),
            RenameStep::SameTreatmentOnly,
            "{from} -> {to}"
        );
    }
    for (from, to) in [
        ("base/5", "base/6"),
        ("base/5", "pg_tblspc/1/PG_15_202209061/6"),
    ] {
        assert_eq!(
            of(from, to),
            RenameStep::Refuse(Errno(libc::EXDEV)),
            "{from} -> {to}"
        );
    }
    assert_eq!(
        of("strongroom.header", "x"),
        RenameStep::Refuse(Errno(libc::ENOENT))
    );
    assert_eq!(
        of("x", "strongroom.header"),
        RenameStep::Refuse(Errno(libc::EACCES))
    );
}

#[test]
fn a_container_keeps_the_name_that_it_is_bound_to() {
    let place = instance();
    let of = |from: &str, to: &str| step_of(&place, from, to);
    for (from, to) in [
        (
            "pg_logical/snapshots/0-1.snap.77.tmp",
            "pg_logical/snapshots/0-1.snap",
        ),
        (
            "pg_logical/replorigin_checkpoint.tmp",
            "pg_logical/replorigin_checkpoint",
        ),
        ("pg_twophase/0000030A.tmp", "pg_twophase/0000030A"),
        (
            "pg_stat/pg_stat_statements.stat.tmp",
            "pg_stat/pg_stat_statements.stat",
        ),
        ("autoprewarm.blocks.tmp", "autoprewarm.blocks"),
        // Files that no rule names are not bound.
        ("extension.new", "extension.state"),
    ] {
        assert_eq!(of(from, to), RenameStep::Nothing, "{from} -> {to}");
    }
    assert!(matches!(
        of(TEMPORARY_SUMMARY, SUMMARY),
        RenameStep::Rebind(..)
    ));
    for (from, to) in [
        ("pg_replslot/a/state", "pg_replslot/b/state"),
        ("pg_replslot/a", "pg_replslot/b"),
        ("pg_replslot/a.tmp", "pg_replslot/b"),
        ("pg_twophase/0000030A", "pg_twophase/0000030B"),
        ("pg_twophase/0000030A", "pg_replslot/a/state"),
        (
            "pg_logical/snapshots/0-1.snap",
            "pg_logical/snapshots/0-2.snap",
        ),
        ("base/5/pg_internal.init", "base/6/pg_internal.init"),
        ("pg_stat/one.stat", "pg_stat/two.stat"),
        ("extension.new", "pg_stat/extension.stat"),
        ("pg_stat/extension.stat", "extension.old"),
        // The summarizer's temporary file is the only one that is sealed for another name.
        (SUMMARY, OTHER_SUMMARY),
        (SUMMARY, TEMPORARY_SUMMARY),
        (TEMPORARY_SUMMARY, "pg_stat/extension.stat"),
    ] {
        assert_eq!(of(from, to), RenameStep::SameNameOnly, "{from} -> {to}");
    }
}

/// In an instance from before names were bound, nothing about a container belongs to its name.
#[test]
fn where_names_are_not_bound_containers_and_slots_change_theirs() {
    let (header, opener) = sealed::vector("postgres-unbound-names");
    let place = opened(&header, &opener);
    for (from, to) in [
        ("pg_replslot/a/state", "pg_replslot/b/state"),
        ("pg_replslot/a", "pg_replslot/b"),
        ("pg_twophase/0000030A", "pg_replslot/a/state"),
        ("pg_stat/extension.stat", "extension.old"),
        (SUMMARY, OTHER_SUMMARY),
        (SUMMARY, TEMPORARY_SUMMARY),
        (TEMPORARY_SUMMARY, SUMMARY),
    ] {
        assert_eq!(
            step_of(&place, from, to),
            RenameStep::Nothing,
            "{from} -> {to}"
        );
    }
    // What else a rename must not do is refused as in every instance.
    for (from, to) in [
        ("base/5/1", "base/5/2"),
        ("pg_stat/extension.stat", "postgresql.conf"),
    ] {
        let step = step_of(&place, from, to);
        assert_eq!(step, RenameStep::SameTreatmentOnly, "{from} -> {to}");
    }
}
