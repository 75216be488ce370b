//! Goal: every row of the grammar for PostgreSQL 15 to 18 classifies as it should, nothing that
//! only looks like one does, no bytes make it panic, and it is fast enough to be called at each
//! open.
//!
//! Names are spelled as PostgreSQL prints them; the files of a real instance are in
//! `real_instance.rs`.
#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]

use std::hint::black_box;
use std::time::Instant;

use strongroom_postgres_shield::classify::{Class, Classified, Identity, classify};
use strongroom_postgres_shield::path;
use strongroom_postgres_shield::table::treatment;

fn class(path: &str) -> Class {
    classify(path.as_bytes()).class
}

fn identity(path: &str) -> Identity {
    classify(path.as_bytes()).identity
}

fn relation(database: u32, relation: u32, fork: u8, backend: u32, segment: u32) -> Identity {
    Identity::Relation {
        database,
        relation,
        fork,
        backend,
        segment,
    }
}

const GRAMMAR: &[(Class, &[&str])] = &[
    (
        Class::Relation,
        &[
            "base/1/1259",
            "base/5/16384.1",
            "base/5/16384_fsm",
            "base/5/16384_vm.2",
            "base/5/16384_init",
            "global/1262",
            "global/1262_fsm",
            "pg_tblspc/16390/PG_15_202209061/5/16391.3",
            "PG_18_202506291/5/16391",
            "space/inside/PG_18_202506291/5/16391",
            "base/moved_for_upgrade/5/1259",
            "base/moved_for_upgrade/5_old_catalogs/1259",
            "base/4294967295/4294967295",
            "base/1/2.32766",
        ],
    ),
    (
        Class::TemporaryRelation,
        &[
            "base/5/t3_16384",
            "base/5/t0_16384_fsm.1",
            "PG_17_202406281/5/t12_9",
        ],
    ),
    (
        Class::Wal,
        &[
            "pg_wal/000000010000000000000001",
            "pg_wal/0000000A000000FF000000FE.partial",
        ],
    ),
    (Class::WalTemp, &["pg_wal/xlogtemp.4711"]),
    (Class::WalRestored, &["pg_wal/RECOVERYXLOG"]),
    (
        Class::TimelineHistory,
        &[
            "pg_wal/00000002.history",
            "pg_wal/RECOVERYHISTORY",
            "pg_wal/00000002.history.tmp",
        ],
    ),
    (
        Class::BackupHistory,
        &["pg_wal/000000010000000000000003.00000028.backup"],
    ),
    (
        Class::ArchiveStatus,
        &[
            "pg_wal/archive_status/000000010000000000000001.ready",
            "pg_wal/archive_status/00000002.history.done",
        ],
    ),
    (
        Class::WalSummary,
        &[
            "pg_wal/summaries/0000000100000000010000280000000001000130.summary",
            "pg_wal/summaries/temp.summary",
        ],
    ),
    (
        Class::Slru,
        &[
            "pg_xact/0000",
            "pg_xact/0FFFF",
            "pg_multixact/offsets/0000",
            "pg_multixact/members/14078",
            "pg_subtrans/0001",
            "pg_commit_ts/123456",
            "pg_notify/0000",
            "pg_notify/00000000000000A",
            "pg_serial/000000000000001",
        ],
    ),
    (
        Class::Control,
        &["global/pg_control", "global/pg_control.old"],
    ),
    (
        Class::RelationMap,
        &[
            "global/pg_filenode.map",
            "global/pg_filenode.map.tmp",
            "base/5/pg_filenode.map",
            "base/5/pg_filenode.map.tmp",
            "pg_tblspc/16390/PG_15_202209061/16400/pg_filenode.map",
        ],
    ),
    (
        Class::RelcacheInit,
        &[
            "global/pg_internal.init",
            "base/5/pg_internal.init",
            "base/5/pg_internal.init.4711",
        ],
    ),
    (
        Class::TwoPhase,
        &[
            "pg_twophase/000002F1",
            "pg_twophase/00000000000002F1",
            "pg_twophase/000002F1.tmp",
            "pg_twophase/00000000000002F1.tmp",
        ],
    ),
    (
        Class::SlotState,
        &[
            "pg_replslot/a_slot/state",
            "pg_replslot/a_slot.tmp/state.tmp",
        ],
    ),
    (
        Class::Spill,
        &["pg_replslot/a_slot/xid-734-lsn-0-1000000.spill"],
    ),
    (
        Class::Snapbuild,
        &[
            "pg_logical/snapshots/0-15C5E88.snap",
            "pg_logical/snapshots/0-15C5E88.snap.4711.tmp",
        ],
    ),
    (
        Class::RewriteMapping,
        &["pg_logical/mappings/map-5-4e3-0_15D7348-2d3-2d4"],
    ),
    (
        Class::Origins,
        &[
            "pg_logical/replorigin_checkpoint",
            "pg_logical/replorigin_checkpoint.tmp",
        ],
    ),
    (
        Class::BufFile,
        &[
            "base/pgsql_tmp/pgsql_tmp4711.0",
            "pg_tblspc/16390/PG_15_202209061/pgsql_tmp/pgsql_tmp4711.12",
        ],
    ),
    (
        Class::Fileset,
        &[
            "base/pgsql_tmp/pgsql_tmp4711.0.fileset/i0of4.p0.0",
            "PG_15_202209061/pgsql_tmp/pgsql_tmp4711.0.fileset/16394-734.changes.0",
        ],
    ),
    (
        Class::Statistics,
        &[
            "pg_stat/pgstat.stat",
            "pg_stat/pgstat.tmp",
            "pg_stat/pg_stat_statements.stat.tmp",
        ],
    ),
    (Class::QueryTexts, &["pg_stat_tmp/pgss_query_texts.stat"]),
    (
        Class::Prewarm,
        &["autoprewarm.blocks", "autoprewarm.blocks.tmp"],
    ),
    (
        Class::ExportedSnapshot,
        &[
            "pg_snapshots/00000003-0000001B-1",
            "pg_snapshots/00000003-0000001B-1.tmp",
        ],
    ),
    (
        Class::Incremental,
        &["base/5/INCREMENTAL.16384.1", "global/INCREMENTAL.1262"],
    ),
    (
        Class::UpgradeDump,
        &["pg_upgrade_output.d/20260101T000000.000/dump/pg_upgrade_dump_5.custom"],
    ),
    (
        Class::ServerLog,
        &[
            "log/postgresql-2026-01-01_000000.log",
            "log/postgresql.csv",
            "logfile",
            "start.log",
            "pg_upgrade_output.d/20260101T000000.000/log/pg_upgrade_server.log",
        ],
    ),
    (
        Class::Configuration,
        &[
            "postgresql.conf",
            "postgresql.auto.conf",
            "postgresql.auto.conf.tmp",
            "pg_hba.conf",
            "pg_hba.conf.backup",
            "conf.d/50-local.conf",
            "server.key",
            "server.crt",
        ],
    ),
    (
        Class::Bookkeeping,
        &[
            "PG_VERSION",
            "base/5/PG_VERSION",
            "postmaster.pid",
            "postmaster.opts",
            "standby.signal",
            "recovery.signal",
            "promote",
            "backup_label",
            "backup_label.old",
            "tablespace_map",
            "backup_manifest",
            "current_logfiles.tmp",
            ".s.PGSQL.5432.lock",
        ],
    ),
    (Class::DynamicShared, &["pg_dynshmem/mmap.1804289383"]),
    (
        Class::Own,
        &[
            "strongroom.header",
            "strongroom.header-strongroom",
            ".strongroom.header.0123.tmp",
            "strongroom.conf",
            "base/5/16384.strongroom-tmp",
        ],
    ),
    (
        Class::Directory,
        &[
            "",
            "base",
            "base/5",
            "base/pgsql_tmp",
            "base/pgsql_tmp/pgsql_tmp4711.0.fileset",
            "pg_tblspc/16390",
            "pg_tblspc/16390/PG_15_202209061",
            "pg_tblspc/16390/PG_15_202209061/5",
            "pg_multixact/members",
            "pg_replslot/a_slot.tmp",
            "pg_logical/mappings",
            "pg_wal/archive_status",
            "PG_15_202209061",
        ],
    ),
    (
        Class::Unknown,
        &[
            "extension.data",
            "base/5/16384_foo",
            "base/5/016384",
            "base/5/16384.0",
            "base/5/16384.01",
            "base/5/16384.32767",
            "base/5/4294967296",
            "base/5/0",
            "base/5/16384/x",
            "base/5/16384 ",
            "base/x/16384",
            "base/5/t_16384",
            "base/5/t16777215_16384",
            "base/5/pg_control",
            "global/pg_controlx",
            "base/5/pg_internal.init.x",
            "base/pgsql_tmp/other",
            "base/pgsql_tmp/pgsql_tmp1.0.fileset/a/b",
            "pg_wal/00000001000000000000000g",
            "pg_wal/00000001000000000000000a",
            "pg_wal/0000000100000000000000011",
            "pg_wal/000000010000000000000001.other",
            "pg_wal/xlogtemp.",
            "pg_wal/archive_status/sub/x.done",
            "pg_xact/000",
            "pg_xact/0000000",
            "pg_xact/00000000000000A1",
            "pg_xact/000g",
            "pg_twophase/000002f1",
            "pg_twophase/000002F1.tmp.tmp",
            "pg_twophase/.tmp",
            "pg_replslot/a_slot/sub/state",
            "pg_stat/sub/x",
            "pg_logical/snapshots/x",
            "pg_tblspc/16390/other/5/1",
            "PG_15/5/1",
            "sub/PG_VERSION",
            "sub/strongroom.header",
            "pgsql_tmp",
        ],
    ),
];

#[test]
fn every_row_of_the_grammar() {
    for (expected, paths) in GRAMMAR {
        for path in *paths {
            assert_eq!(class(path), *expected, "{path}");
        }
    }
    for class in Class::ALL {
        assert!(
            GRAMMAR.iter().any(|(known, _)| known == class),
            "no example of {class:?}"
        );
    }
}

#[test]
fn identities_are_the_logical_address() {
    for (path, expected) in [
        ("base/5/16384", relation(5, 16384, 0, 0, 0)),
        ("base/5/16384_fsm", relation(5, 16384, 1, 0, 0)),
        ("base/5/16384_vm.7", relation(5, 16384, 2, 0, 7)),
        ("base/5/16384_init", relation(5, 16384, 3, 0, 0)),
        ("base/5/t3_16384.1", relation(5, 16384, 0, 4, 1)),
        ("base/5/t0_16384", relation(5, 16384, 0, 1, 0)),
        ("global/1262", relation(0, 1262, 0, 0, 0)),
        (
            "pg_xact/00FF",
            Identity::Slru {
                directory: 1,
                segment: 255,
            },
        ),
        (
            "pg_notify/00000000000000A",
            Identity::Slru {
                directory: 6,
                segment: 10,
            },
        ),
        (
            "pg_notify/000A",
            Identity::Slru {
                directory: 6,
                segment: 10,
            },
        ),
        (
            "pg_wal/0000000200000003000000FE",
            Identity::Wal {
                timeline: 2,
                number: 0x0000_0003_0000_00FE,
            },
        ),
        ("global/pg_filenode.map", Identity::Database(0)),
        ("base/5/pg_filenode.map", Identity::Database(5)),
        ("global/pg_control", Identity::None),
        ("extension.data", Identity::None),
    ] {
        assert_eq!(identity(path), expected, "{path}");
    }
}

#[test]
fn the_place_of_a_database_does_not_enter_its_identity() {
    let here = classify(b"base/5/16384_vm.2");
    for elsewhere in [
        "pg_tblspc/16390/PG_15_202209061/5/16384_vm.2",
        "PG_18_202506291/5/16384_vm.2",
        "base/moved_for_upgrade/5/16384_vm.2",
    ] {
        assert_eq!(classify(elsewhere.as_bytes()), here, "{elsewhere}");
    }
    let outside = b"/mnt/disk/space/PG_15_202209061/5/16384_vm.2";
    let at = path::tablespace(outside).expect("a tablespace");
    assert_eq!(classify(outside.get(at..).expect("within")), here);
    let by_link = identity("pg_tblspc/16390/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0.fileset/a.0");
    assert_eq!(
        identity("PG_15_202209061/pgsql_tmp/pgsql_tmp1.0.fileset/a.0"),
        by_link
    );
    assert_ne!(
        identity("PG_15_202209061/pgsql_tmp/pgsql_tmp1.0.fileset/a.1"),
        by_link
    );
}

#[test]
fn a_file_that_is_renamed_keeps_treatment_and_identity() {
    for (from, to) in [
        ("base/5/pg_filenode.map.tmp", "base/5/pg_filenode.map"),
        ("base/5/pg_internal.init.4711", "base/5/pg_internal.init"),
        ("pg_replslot/s.tmp/state.tmp", "pg_replslot/s/state"),
        (
            "pg_logical/snapshots/0-1.snap.7.tmp",
            "pg_logical/snapshots/0-1.snap",
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
        (
            "pg_snapshots/00000003-0000001B-1.tmp",
            "pg_snapshots/00000003-0000001B-1",
        ),
        ("current_logfiles.tmp", "current_logfiles"),
        ("postgresql.auto.conf.tmp", "postgresql.auto.conf"),
        ("backup_label", "backup_label.old"),
        ("tablespace_map", "tablespace_map.old"),
        ("backup_manifest.tmp", "backup_manifest"),
        ("pg_wal/RECOVERYHISTORY", "pg_wal/00000002.history"),
        ("pg_wal/00000002.history.tmp", "pg_wal/00000002.history"),
        (
            "pg_wal/000000010000000000000001",
            "pg_wal/000000010000000000000001.partial",
        ),
        (
            "pg_wal/summaries/temp.summary",
            "pg_wal/summaries/0000000100000000010000280000000001000130.summary",
        ),
        (
            "pg_wal/archive_status/000000010000000000000001.ready",
            "pg_wal/archive_status/000000010000000000000001.done",
        ),
        ("global/pg_control", "global/pg_control.old"),
    ] {
        let (before, after) = (classify(from.as_bytes()), classify(to.as_bytes()));
        assert_eq!(
            treatment(before.class),
            treatment(after.class),
            "{from} -> {to}"
        );
        assert_eq!(before.identity, after.identity, "{from} -> {to}");
    }
}

/// A small generator of its own, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("small").max(1);
        usize::try_from(self.next() % limit).expect("small")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let mut random = Random(0x5eed_0001);
    let names: Vec<&str> = GRAMMAR
        .iter()
        .flat_map(|(_, paths)| paths.iter().copied())
        .collect();
    let mut out = [0_u8; 512];
    let mut unknown = 0_u32;
    for _ in 0..200_000 {
        let mut bytes = match random.below(3) {
            0 => (0..random.below(60)).map(|_| random.byte()).collect(),
            _ => names[random.below(names.len())].as_bytes().to_vec(),
        };
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len() + 1);
            match random.below(4) {
                0 => bytes.insert(at, random.byte()),
                1 => bytes.insert(at, b"/._0f9G"[random.below(7)]),
                2 => drop(bytes.splice(at.., []).count()),
                _ if at < bytes.len() => bytes[at] = random.byte(),
                _ => {}
            }
        }
        let Classified { class, .. } = black_box(classify(&bytes));
        unknown += u32::from(class == Class::Unknown);
        if let Some(at) = path::tablespace(&bytes) {
            assert!(at < bytes.len());
        }
        if let Some(normal) = path::normalise(b"/data", &bytes, &mut out) {
            assert!(normal.starts_with(b"/"));
            assert!(!normal.windows(2).any(|pair| pair == b"//"));
        }
    }
    assert!(unknown > 1000, "the generator makes odd names");
}

#[test]
fn it_is_fast_enough_for_each_open() {
    let names: Vec<&[u8]> = GRAMMAR
        .iter()
        .flat_map(|(_, paths)| paths.iter().map(|path| path.as_bytes()))
        .collect();
    let rounds = 2_000_u32;
    // The best of several runs: other work on the machine only ever adds.
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                for name in &names {
                    black_box(classify(black_box(name)));
                }
            }
            let calls = u32::try_from(names.len()).expect("few") * rounds;
            start.elapsed().as_nanos() / u128::from(calls)
        })
        .min()
        .expect("five runs");
    let limit = if cfg!(debug_assertions) { 4_000 } else { 200 };
    assert!(best < limit, "{best} ns for each path");
}
