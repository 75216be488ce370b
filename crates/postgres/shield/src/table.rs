//! The table of treatments: how each class of file is sealed, and why.
//!
//! Invariants: every class has exactly one treatment, stated in [`ROWS`] and nowhere else;
//! everything that is not sealed is listed there by name, with its reason. `strongroom pg status
//! --plaintext` and the documentation print this table.
//!
//! Must not: contain a rule about paths; those are in [`crate::classify`]. The `pattern` of a row
//! is for readers.

use crate::classify::Class;

/// How the bytes of a file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Treatment {
    /// Sealed with XTS in units of 16 bytes, tweaked with the block's logical address. Same length.
    Block,
    /// As `Block`, written and read at any byte.
    Wal,
    /// Sealed with XTS by file offset, under a key that is drawn when the server starts. Same
    /// length.
    Temporary,
    /// A header, then a keystream by offset, under a key that is drawn when the server starts.
    BootStream,
    /// A header, then a keystream by offset, under the instance's key.
    Stream,
    /// A header with a random identity of the file, then authenticated chunks, which are bound to
    /// that identity and, where the instance binds names, to the file's name.
    Container,
    /// Not sealed.
    Plain,
    /// Stored unchanged, because there is nothing to seal or it is sealed already.
    Untouched,
    /// Strongroom's own: hidden from the programs under the shield.
    Hidden,
    /// Refused.
    Refuse,
}

impl Treatment {
    /// Whether files of this treatment cannot be read without a key.
    #[must_use]
    pub const fn is_sealed(self) -> bool {
        matches!(
            self,
            Self::Block
                | Self::Wal
                | Self::Temporary
                | Self::BootStream
                | Self::Stream
                | Self::Container
        )
    }

    /// Whether files of this treatment are of no use after the server has stopped, because their
    /// key is gone.
    #[must_use]
    pub const fn dies_with_the_server(self) -> bool {
        matches!(self, Self::Temporary | Self::BootStream)
    }

    /// Returns the treatment as one word, for tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Wal => "wal",
            Self::Temporary => "temporary",
            Self::BootStream => "boot-stream",
            Self::Stream => "stream",
            Self::Container => "container",
            Self::Plain => "plain",
            Self::Untouched => "untouched",
            Self::Hidden => "hidden",
            Self::Refuse => "refuse",
        }
    }
}

/// Whether a path of this class names a file that is sealed. False for the class of unknown names,
/// which anything, also a directory, may have.
#[must_use]
pub fn is_sealed_file(class: Class) -> bool {
    treatment(class).is_sealed() && class != Class::Unknown
}

/// One class of files and its treatment.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The class.
    pub class: Class,
    /// Its paths, relative to the data directory, for readers.
    pub pattern: &'static str,
    /// What is done.
    pub treatment: Treatment,
    /// Why this and not something else.
    pub reason: &'static str,
}

macro_rules! rows {
    ($($class:ident, $treatment:ident, $pattern:literal, $reason:literal;)*) => {
        /// Every class, its treatment, and the reason.
        pub const ROWS: &[Row] = &[$(Row {
            class: Class::$class,
            pattern: $pattern,
            treatment: Treatment::$treatment,
            reason: $reason,
        }),*];

        /// Returns the treatment of this class: how its files are stored.
        #[must_use]
        pub const fn treatment(class: Class) -> Treatment {
            match class {
                $(Class::$class => Treatment::$treatment,)*
            }
        }
    };
}

rows! {
    Relation, Block, "base/<db>/<rel>[_fsm|_vm|_init][.<seg>], global/<rel>, pg_tblspc/<oid>/PG_*/<db>/<rel>",
        "user data in blocks of 8 KiB that are rewritten in place, torn by crashes and copied between tablespaces";
    TemporaryRelation, Block, "base/<db>/t<backend>_<rel>",
        "as relations; the backend's number is part of the address";
    Wal, Wal, "pg_wal/<24 hex>[.partial]",
        "all user data; pages are rewritten while they fill, and standbys write at any byte";
    WalTemp, Wal, "pg_wal/xlogtemp.<pid>",
        "becomes a segment or a timeline's history; converted when it is renamed";
    Slru, Block, "pg_xact, pg_multixact/*, pg_subtrans, pg_commit_ts, pg_notify, pg_serial",
        "transaction status and NOTIFY payloads; pages have no full-page images, so a torn write must be harmless";
    Control, Block, "global/pg_control",
        "sealed so that a server without the shield does not start";
    RelationMap, Block, "global/pg_filenode.map, base/<db>/pg_filenode.map",
        "copied byte for byte by CREATE DATABASE, written in place by 15";
    BufFile, Temporary, "base/pgsql_tmp/pgsql_tmp<pid>.<n>",
        "rows of sorts and hashes, read at any byte; of no use after a restart";
    Fileset, Temporary, "base/pgsql_tmp/pgsql_tmp<pid>.<n>.fileset/*",
        "as above, opened by several processes by name";
    Spill, BootStream, "pg_replslot/<slot>/xid-*.spill",
        "rows, appended and read at any byte; removed at start-up";
    QueryTexts, BootStream, "pg_stat_tmp/*texts.stat",
        "texts of statements, written at any byte by many processes; made anew at start-up";
    RewriteMapping, Stream, "pg_logical/mappings/map-*",
        "records of 36 bytes, appended, and cut at any byte in recovery";
    TwoPhase, Container, "pg_twophase/<8 or 16 hex>[.tmp]",
        "written whole, and renamed by newer minor releases; authenticated because it can be";
    SlotState, Container, "pg_replslot/<slot>/state[.tmp]",
        "written whole and renamed, together with its directory";
    Snapbuild, Container, "pg_logical/snapshots/*.snap",
        "written whole and renamed";
    Origins, Container, "pg_logical/replorigin_checkpoint[.tmp]",
        "written whole and renamed";
    WalSummary, Container, "pg_wal/summaries/*.summary",
        "written whole and renamed";
    RelcacheInit, Container, "global/pg_internal.init, base/<db>/pg_internal.init[.<pid>]",
        "written whole and renamed";
    Statistics, Container, "pg_stat/*, pg_stat_tmp/*",
        "written whole and renamed; what extensions keep here may hold texts of statements";
    Prewarm, Container, "autoprewarm.blocks[.tmp]",
        "written whole and renamed";
    Incremental, Container, "base/<db>/INCREMENTAL.<rel>[.<seg>]",
        "user data in a file of odd length";
    UpgradeDump, Container, "pg_upgrade_output.d/*/dump/*",
        "from 18 on the dumps hold statistics, and with them values of columns";
    Unknown, Container, "anything else in the data directory",
        "what is not known is sealed";
    TimelineHistory, Plain, "pg_wal/<8 hex>.history, pg_wal/RECOVERYHISTORY",
        "timelines and log positions; the archive command and the restore command, outside the shield, exchange it";
    BackupHistory, Plain, "pg_wal/<24 hex>.<8 hex>.backup",
        "log positions and the backup's label; archived by name";
    ArchiveStatus, Plain, "pg_wal/archive_status/*.ready|.done",
        "empty files: the names say it all";
    ExportedSnapshot, Plain, "pg_snapshots/*",
        "transaction ids";
    ServerLog, Plain, "log/*, *.log, logfile, serverlog, pg_upgrade_output.d/*/log/*",
        "read by people and by log shippers; can hold statements: see log_statement, log_min_error_statement, log_parameter_max_length";
    Configuration, Plain, "*.conf, *.conf.*, conf.d/*, *.crt, *.key, *.pem, *.crl, *.keytab, .pgpass",
        "edited by hand, and read before and outside the server; protect secrets in it by other means";
    Bookkeeping, Plain, "PG_VERSION, postmaster.*, *.signal, promote, backup_label, tablespace_map, backup_manifest, current_logfiles, .s.PGSQL.*",
        "programs outside the shield read and write it; versions, process ids and log positions";
    WalRestored, Untouched, "pg_wal/RECOVERYXLOG",
        "as it lies in the archive, sealed or in clear; what is in clear is sealed before it gets the name of a segment";
    Directory, Untouched, "the directories themselves",
        "names of files are not hidden";
    Own, Hidden, "strongroom.*, *.strongroom-tmp",
        "the instance's header and configuration, and unfinished conversions";
    DynamicShared, Refuse, "pg_dynshmem/*",
        "memory mapped from a file cannot be sealed; set dynamic_shared_memory_type to posix";
}

/// Returns the row of this class; `None` when the table has none.
#[must_use]
pub fn row(class: Class) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.class == class)
}

/// Yields what is not sealed: the rows whose files hold something and are stored in clear.
pub fn plaintext() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(|row| row.treatment == Treatment::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_exactly_one_row() {
        for &class in Class::ALL {
            let rows = ROWS.iter().filter(|row| row.class == class).count();
            assert_eq!(rows, 1, "{class:?}");
            assert_eq!(row(class).map(|row| row.treatment), Some(treatment(class)));
        }
        assert_eq!(ROWS.len(), Class::ALL.len());
    }

    #[test]
    fn the_plaintext_list_is_the_reviewed_one() {
        let listed: Vec<Class> = plaintext().map(|row| row.class).collect();
        let reviewed = [
            Class::TimelineHistory,
            Class::BackupHistory,
            Class::ArchiveStatus,
            Class::ExportedSnapshot,
            Class::ServerLog,
            Class::Configuration,
            Class::Bookkeeping,
        ];
        assert_eq!(
            listed, reviewed,
            "a class in clear needs a review of what it can hold"
        );
        assert!(treatment(Class::Unknown).is_sealed());
    }

    #[test]
    fn reasons_are_given() {
        for row in ROWS {
            assert!(
                row.reason.len() > 12 && !row.pattern.is_empty(),
                "{:?}",
                row.class
            );
        }
    }
}
