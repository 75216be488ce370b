//! Classifies the paths of a PostgreSQL instance: the class of a file, and the identity that its
//! tweak is made from.
//!
//! Covers PostgreSQL 15 to 18. Every rule is anchored at the whole path relative to the data
//! directory; a path that no rule matches is [`Class::Unknown`], which is sealed.
//!
//! Invariants:
//! 1. The class depends on the path alone: classifying reads no file, allocates nothing, never
//!    panics.
//! 2. The identity of a block depends on what PostgreSQL preserves in a copy, a move and an upgrade
//!    (database, relation, fork, segment), never on the tablespace or on the version directory.
//! 3. A file that PostgreSQL renames into place has the same treatment, and the same identity,
//!    under both names. The one exception is [`Class::WalTemp`], whose contents are converted when
//!    it is renamed.
//!
//! Must not: determine how a class is sealed; that is [`crate::table`].
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use crate::name_parser::{NameParser, split_first_component};
use crate::path::{file_name, is_version_directory, tablespace};

mod small;

use small::{exported_snapshot, in_logical, in_slots, in_wal, slru, statistics, two_phase};

/// What a file is to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// A segment of a relation's fork.
    Relation,
    /// The same of a temporary relation.
    TemporaryRelation,
    /// A segment of the write-ahead log.
    Wal,
    /// `xlogtemp.<pid>`: to be renamed to a segment or to a timeline's history.
    WalTemp,
    /// `RECOVERYXLOG`: a segment as the restore command wrote it, renamed before it is read.
    WalRestored,
    /// A timeline's history.
    TimelineHistory,
    /// A backup's label, kept beside the log.
    BackupHistory,
    /// Empty files whose names record what was archived.
    ArchiveStatus,
    /// Which blocks a part of the log changed (17 and later).
    WalSummary,
    /// A segment of a transaction-status log and the like.
    Slru,
    /// The control file.
    Control,
    /// The relation map of a database or of the instance.
    RelationMap,
    /// Saved descriptors of system catalogs.
    RelcacheInit,
    /// The state of a prepared transaction.
    TwoPhase,
    /// The state of a replication slot.
    SlotState,
    /// Changes that logical decoding could not hold in memory.
    Spill,
    /// A snapshot of logical decoding.
    Snapbuild,
    /// Row movements of a rewritten catalog, for logical decoding.
    RewriteMapping,
    /// How far replication origins have been applied.
    Origins,
    /// A temporary file of one process.
    BufFile,
    /// A temporary file that several processes share.
    Fileset,
    /// Statistics saved at shutdown, and what extensions save beside them.
    Statistics,
    /// Texts of statements, written by several processes.
    QueryTexts,
    /// Which blocks were in memory.
    Prewarm,
    /// An exported snapshot.
    ExportedSnapshot,
    /// A relation in an incremental backup (17 and later).
    Incremental,
    /// What `pg_upgrade` dumps and loads.
    UpgradeDump,
    /// The server's log.
    ServerLog,
    /// Configuration, certificates, password files.
    Configuration,
    /// Small files that programs outside the server read and write.
    Bookkeeping,
    /// Shared memory mapped from a file.
    DynamicShared,
    /// Strongroom's own files.
    Own,
    /// A directory that the grammar knows.
    Directory,
    /// No rule matches.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: &[Self] = &[
        Self::Relation,
        Self::TemporaryRelation,
        Self::Wal,
        Self::WalTemp,
        Self::WalRestored,
        Self::TimelineHistory,
        Self::BackupHistory,
        Self::ArchiveStatus,
        Self::WalSummary,
        Self::Slru,
        Self::Control,
        Self::RelationMap,
        Self::RelcacheInit,
        Self::TwoPhase,
        Self::SlotState,
        Self::Spill,
        Self::Snapbuild,
        Self::RewriteMapping,
        Self::Origins,
        Self::BufFile,
        Self::Fileset,
        Self::Statistics,
        Self::QueryTexts,
        Self::Prewarm,
        Self::ExportedSnapshot,
        Self::Incremental,
        Self::UpgradeDump,
        Self::ServerLog,
        Self::Configuration,
        Self::Bookkeeping,
        Self::DynamicShared,
        Self::Own,
        Self::Directory,
        Self::Unknown,
    ];
}

/// The identity of a file, from which a tweak is made together with the offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The class has none: no tweak is used, or the file has its own header.
    None,
    /// A relation's segment.
    Relation {
        /// Object id of the database; 0 in `global/`.
        database: u32,
        /// The relation's file number.
        relation: u32,
        /// 0 main, 1 free space map, 2 visibility map, 3 init.
        fork: u8,
        /// 0 when the relation is not temporary, else the owner's backend number plus one; below
        /// 2^24.
        backend: u32,
        /// Segment of `SEGMENT_BLOCKS` blocks, from 0. Its last block number fits 32 bits.
        segment: u32,
    },
    /// A segment of the write-ahead log.
    Wal {
        /// Timeline.
        timeline: u32,
        /// The last 16 digits of the name as one number. It names the segment whatever the segment
        /// size is.
        number: u64,
    },
    /// A segment of an SLRU.
    Slru {
        /// Which one, from 1; see [`SLRU_DIRECTORIES`].
        directory: u8,
        /// The name as a number.
        segment: u64,
    },
    /// A file of which each database has one.
    Database(u32),
    /// A file that other processes open by the same name: a hash of the name from `pgsql_tmp` on,
    /// which is unique in the instance.
    Name(u128),
}

/// A path's class and identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// What the file is.
    pub class: Class,
    /// What its tweak is made of.
    pub identity: Identity,
}

impl Classified {
    /// Makes the result for a file of this class from whose path no tweak is made: its identity is
    /// [`Identity::None`].
    const fn of(class: Class) -> Self {
        Self {
            class,
            identity: Identity::None,
        }
    }

    const DIRECTORY: Self = Self::of(Class::Directory);
}

/// Blocks in a segment of a relation: 1 GiB of 8 KiB. Instances built otherwise are refused.
pub const SEGMENT_BLOCKS: u32 = 131_072;

/// SLRU directories; the number in an identity is the position here plus one. Never reorder.
pub const SLRU_DIRECTORIES: [&[u8]; 7] = [
    b"pg_xact",
    b"pg_multixact/offsets",
    b"pg_multixact/members",
    b"pg_subtrans",
    b"pg_commit_ts",
    b"pg_notify",
    b"pg_serial",
];

/// Beginning of the names of Strongroom's own files, which lie in the data directory itself.
pub const OWN_PREFIX: &[u8] = b"strongroom.";

/// End of the name of a file that a conversion is writing, beside the one that it replaces.
pub const CONVERT_SUFFIX: &[u8] = b".strongroom-tmp";

/// Classifies a path relative to a data directory, or from a tablespace's version directory on (see
/// [`crate::path::tablespace`]): what the file is, and the identity for its tweak.
/// [`Class::Unknown`] when no rule matches. The path must be normalised: no `//`, `.`, `..`, and no
/// `/` at either end.
#[must_use]
pub fn classify(relative: &[u8]) -> Classified {
    if relative.ends_with(CONVERT_SUFFIX) {
        return Classified::of(Class::Own);
    }
    let (head, rest) = split_first_component(relative);
    let classified = match rest {
        Some(rest) => below(head, rest),
        None => in_data_directory(head),
    };
    classified.unwrap_or_else(|| in_unknown_directory(relative))
}

/// Classifies a path in the directory `head` of the data directory. `None` when no rule matches.
fn below(head: &[u8], rest: &[u8]) -> Option<Classified> {
    match head {
        b"base" => in_tablespace(rest),
        b"global" => in_database(0, rest),
        b"pg_tblspc" => in_tablespace_link(rest),
        b"pg_wal" => in_wal(rest),
        b"pg_xact" => slru(1, rest),
        b"pg_multixact" => match split_first_component(rest) {
            (b"offsets", Some(name)) => slru(2, name),
            (b"members", Some(name)) => slru(3, name),
            (b"offsets" | b"members", None) => Some(Classified::DIRECTORY),
            _ => None,
        },
        b"pg_subtrans" => slru(4, rest),
        b"pg_commit_ts" => slru(5, rest),
        b"pg_notify" => slru(6, rest),
        b"pg_serial" => slru(7, rest),
        b"pg_replslot" => in_slots(rest),
        b"pg_logical" => in_logical(rest),
        b"pg_twophase" => two_phase(rest),
        b"pg_stat" | b"pg_stat_tmp" => statistics(head, rest),
        b"pg_snapshots" => exported_snapshot(rest),
        b"pg_dynshmem" => Some(Classified::of(Class::DynamicShared)),
        b"log" | b"pg_log" | b"pg_createsubscriber_output.d" => {
            Some(Classified::of(Class::ServerLog))
        }
        b"pg_upgrade_output.d" => Some(in_upgrade_output(rest)),
        _ if head == b"conf.d" || head.ends_with(b".conf.d") => {
            Some(Classified::of(Class::Configuration))
        }
        _ if is_version_directory(head) => in_tablespace(rest),
        _ => None,
    }
}

/// Classifies a name in the data directory itself. `None` when no rule matches.
fn in_data_directory(name: &[u8]) -> Option<Classified> {
    let class = match name {
        b""
        | b"base"
        | b"global"
        | b"log"
        | b"pg_log"
        | b"pg_commit_ts"
        | b"pg_dynshmem"
        | b"pg_logical"
        | b"pg_multixact"
        | b"pg_notify"
        | b"pg_replslot"
        | b"pg_serial"
        | b"pg_snapshots"
        | b"pg_stat"
        | b"pg_stat_tmp"
        | b"pg_subtrans"
        | b"pg_tblspc"
        | b"pg_twophase"
        | b"pg_wal"
        | b"pg_xact"
        | b"pg_upgrade_output.d"
        | b"lost+found"
        | b"pg_createsubscriber_output.d"
        | b"conf.d" => Class::Directory,
        // pg_upgrade makes the files named `...test` to find out whether files can be linked or
        // cloned.
        b"PG_VERSION"
        | b"PG_VERSION.linktest"
        | b"PG_VERSION.clonetest"
        | b"PG_VERSION.copy_file_range_test"
        | b"postmaster.pid"
        | b"postmaster.opts"
        | b"standby.signal"
        | b"recovery.signal"
        | b"recovery.done"
        | b"promote"
        | b"logrotate"
        | b"backup_label"
        | b"backup_label.old"
        | b"tablespace_map"
        | b"tablespace_map.old"
        | b"backup_manifest"
        | b"backup_manifest.tmp"
        | b"current_logfiles"
        | b"current_logfiles.tmp"
        | b"patroni.dynamic.json" => Class::Bookkeeping,
        b"autoprewarm.blocks" | b"autoprewarm.blocks.tmp" => Class::Prewarm,
        b"logfile" | b"serverlog" => Class::ServerLog,
        _ if name.starts_with(OWN_PREFIX) || name.starts_with(b".strongroom.") => Class::Own,
        _ if is_version_directory(name) || name.ends_with(b".conf.d") => Class::Directory,
        _ if is_configuration(name) => Class::Configuration,
        _ if name.starts_with(b".s.PGSQL.") => Class::Bookkeeping,
        _ if name.ends_with(b".log") => Class::ServerLog,
        _ => return None,
    };
    Some(Classified::of(class))
}

/// Whether this is the name of a file that administrators or the TLS, Kerberos and client libraries
/// read.
fn is_configuration(name: &[u8]) -> bool {
    const SUFFIXES: [&[u8]; 7] = [
        b".conf",
        b".conf.tmp",
        b".crt",
        b".key",
        b".pem",
        b".crl",
        b".keytab",
    ];
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || name.windows(6).any(|part| part == b".conf.")
        || matches!(name, b".pgpass" | b"pgpass")
}

/// Classifies a path in a directory that no rule knows: an administrator's, an extension's, or a
/// tablespace inside the data directory, whose files are recognized by its version directory.
/// [`Class::Unknown`] otherwise.
fn in_unknown_directory(relative: &[u8]) -> Classified {
    tablespace(relative)
        .and_then(|at| relative.get(at..))
        .map(split_first_component)
        .and_then(|(_, rest)| match rest {
            Some(rest) => in_tablespace(rest),
            None => Some(Classified::DIRECTORY),
        })
        .unwrap_or(Classified::of(Class::Unknown))
}

/// Classifies a path below `base` or below a tablespace's version directory. `None` when no rule
/// matches.
fn in_tablespace(path: &[u8]) -> Option<Classified> {
    match split_first_component(path) {
        (b"pgsql_tmp", None) => Some(Classified::DIRECTORY),
        (b"pgsql_tmp", Some(rest)) => temporary(path, rest),
        // `pg_upgrade --swap` moves the old databases here (18).
        (b"moved_for_upgrade", None) => Some(Classified::DIRECTORY),
        (b"moved_for_upgrade", Some(rest)) => database_directory(rest, b"_old_catalogs"),
        _ => database_directory(path, b""),
    }
}

/// Classifies a path below the directory of a database, whose name is a number, and may end with
/// `suffix`. `None` when no rule matches.
fn database_directory(path: &[u8], suffix: &[u8]) -> Option<Classified> {
    let (name, rest) = split_first_component(path);
    let mut parser = NameParser::new(name);
    let database = parser.decimal()?;
    if !suffix.is_empty() {
        parser.optional(suffix);
    }
    parser.end()?;
    match rest {
        Some(rest) => in_database(database, rest),
        None => Some(Classified::DIRECTORY),
    }
}

/// Classifies a path below `pg_tblspc`: a link's name, then the tablespace's version directory.
/// `None` when no rule matches.
fn in_tablespace_link(path: &[u8]) -> Option<Classified> {
    let (name, rest) = split_first_component(path);
    let mut parser = NameParser::new(name);
    parser.decimal()?;
    parser.end()?;
    let Some(rest) = rest else {
        return Some(Classified::DIRECTORY);
    };
    let (version, rest) = split_first_component(rest);
    if !is_version_directory(version) {
        return None;
    }
    match rest {
        Some(rest) => in_tablespace(rest),
        None => Some(Classified::DIRECTORY),
    }
}

/// Classifies a file in a database's directory, or in `global` (`database` 0). `None` for an
/// unknown name.
fn in_database(database: u32, name: &[u8]) -> Option<Classified> {
    match name {
        // pgBackRest restores it under the second name and renames it; pg_upgrade disables an
        // instance by the third.
        b"pg_control" | b"pg_control.pgbackrest.tmp" | b"pg_control.old" if database == 0 => {
            return Some(Classified::of(Class::Control));
        }
        b"pg_filenode.map" | b"pg_filenode.map.tmp" => {
            return Some(Classified {
                class: Class::RelationMap,
                identity: Identity::Database(database),
            });
        }
        b"PG_VERSION" => return Some(Classified::of(Class::Bookkeeping)),
        _ => {}
    }
    let mut parser = NameParser::new(name);
    if parser.optional(b"pg_internal.init") {
        if parser.end().is_none() {
            parser.expect(b".")?;
            parser.decimal()?;
            parser.end()?;
        }
        return Some(Classified::of(Class::RelcacheInit));
    }
    if parser.optional(b"INCREMENTAL.") {
        relation(database, parser)?;
        return Some(Classified::of(Class::Incremental));
    }
    relation(database, parser)
}

/// Classifies the name of a relation's segment:
/// `[t<backend>_]<relation>[_fsm|_vm|_init][.<segment>]`. `None` for any other name, and for
/// numbers that do not fit the tweak.
fn relation(database: u32, mut parser: NameParser<'_>) -> Option<Classified> {
    let (class, backend) = if parser.optional(b"t") {
        let backend = parser.decimal()?;
        parser.expect(b"_")?;
        (Class::TemporaryRelation, backend.checked_add(1)?)
    } else {
        (Class::Relation, 0)
    };
    let relation = parser.decimal()?;
    let fork = match () {
        () if parser.optional(b"_fsm") => 1,
        () if parser.optional(b"_vm") => 2,
        () if parser.optional(b"_init") => 3,
        () => 0,
    };
    let segment = match parser.optional(b".") {
        true => parser.decimal().filter(|&segment| segment > 0)?,
        false => 0,
    };
    parser.end()?;
    // Larger numbers do not fit the tweak, so that such a file cannot be sealed as a relation;
    // PostgreSQL makes none.
    let fits = relation > 0 && backend < 1 << 24 && segment < u32::MAX / SEGMENT_BLOCKS;
    fits.then_some(Classified {
        class,
        identity: Identity::Relation {
            database,
            relation,
            fork,
            backend,
            segment,
        },
    })
}

/// Classifies a path below `pgsql_tmp`: `rest` follows that directory's name, with which `path`
/// begins. `None` for a name that PostgreSQL does not use there.
fn temporary(path: &[u8], rest: &[u8]) -> Option<Classified> {
    let (name, below) = split_first_component(rest);
    let mut parser = NameParser::new(name);
    parser.expect(b"pgsql_tmp")?;
    parser.skip_digits()?;
    parser.expect(b".")?;
    parser.skip_digits()?;
    let is_fileset = parser.optional(b".fileset");
    parser.end()?;
    let class = match (is_fileset, below) {
        (true, None) => return Some(Classified::DIRECTORY),
        (true, Some(below)) if !below.contains(&b'/') => Class::Fileset,
        (false, None) => Class::BufFile,
        _ => return None,
    };
    let identity = Identity::Name(hash(path));
    Some(Classified { class, identity })
}

/// Classifies a path below `pg_upgrade_output.d`: `<time>/dump/…` and `<time>/log/…`. What is not a
/// log is a dump.
fn in_upgrade_output(path: &[u8]) -> Classified {
    let (_, rest) = split_first_component(path);
    match rest.map(split_first_component) {
        None | Some((b"dump" | b"log", None)) => Classified::DIRECTORY,
        Some((b"log", Some(_))) => Classified::of(Class::ServerLog),
        Some(_) if file_name(path).ends_with(b".log") => Classified::of(Class::ServerLog),
        Some(_) => Classified::of(Class::UpgradeDump),
    }
}

/// Computes FNV-1a with 128 bits. Two names that collide would share a tweak, under a key that
/// exists only while the server runs. Nothing is looked up by this hash.
fn hash(name: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    name.iter().fold(BASIS, |hash, &byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    })
}
