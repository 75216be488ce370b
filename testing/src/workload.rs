//! Seeded SQL for two databases in lockstep: the same statements, so the same results and the same
//! errors, whatever file they are kept in.
//!
//! Invariants:
//! D1. Every result is determined by the statements before it: no clock, no `random()`, no order
//! left open.
//! D2. Errors are part of it: constraints that fail, transactions that are not open, tables that
//! are not there.
//!
//! Must not: name a file; `$other$` stands for the second database's.

use crate::random::Random;

/// A stream of statements.
pub struct Workload {
    random: Random,
    /// Page counts are compared only where both databases reserve the same bytes per page.
    page_counts: bool,
}

const JOURNALS: &[&str] = &["delete", "truncate", "persist", "memory", "wal", "wal"];

impl Workload {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64, page_counts: bool) -> Self {
        Self {
            random: Random::new(seed),
            page_counts,
        }
    }

    /// Statements that a workload begins with.
    #[must_use]
    pub fn beginning(&mut self) -> Vec<String> {
        let auto_vacuum = self.random.below(3);
        [
            &format!("PRAGMA auto_vacuum={auto_vacuum}"),
            "PRAGMA temp_store=file",
            "PRAGMA cache_size=10",
            "PRAGMA temp.cache_size=10",
            "CREATE TABLE t0(a INTEGER PRIMARY KEY, b TEXT, c INT, d BLOB)",
            // A sealed database has its page size from the start, so it takes another auto_vacuum
            // only with a VACUUM.
            "VACUUM",
            "PRAGMA auto_vacuum",
            "CREATE TABLE t1(a INTEGER, b TEXT, c INT UNIQUE, d BLOB, PRIMARY KEY(b, a)) WITHOUT ROWID",
            "CREATE TABLE t2(a INTEGER PRIMARY KEY, b TEXT CHECK(length(b)<4000), c INT REFERENCES t0(a), d)",
            "CREATE VIRTUAL TABLE words USING fts5(b)",
        ]
        .map(str::to_owned)
        .into()
    }

    /// The next statement.
    pub fn statement(&mut self) -> String {
        match self.random.below(100) {
            0..25 => self.insert(),
            25..36 => self.update(),
            36..44 => self.delete(),
            44..58 => self.select(),
            58..74 => self.transaction(),
            74..82 => self.schema(),
            82..90 => self.second(),
            _ => self.pragma(),
        }
    }

    fn table(&mut self) -> &'static str {
        const TABLES: &[&str] = &[
            "t0",
            "t0",
            "t1",
            "t1",
            "t2",
            "s0",
            "other.o0",
            "nosuchtable",
        ];
        self.random.one_of(TABLES)
    }

    /// Rows of a length that may need overflow pages, numbered from a random start so that some
    /// collide.
    fn insert(&mut self) -> String {
        let table = self.table();
        const VERBS: &[&str] = &[
            "INSERT",
            "INSERT OR IGNORE",
            "INSERT OR REPLACE",
            "INSERT OR ROLLBACK",
        ];
        let verb = self.random.one_of(VERBS);
        let (start, rows) = (self.random.below(600), 1 + self.random.below(120));
        let (len, factor) = (self.random.below(300), 1 + self.random.below(97));
        let blob = if self.random.once_in(8) { 9000 } else { 40 };
        if self.random.once_in(8) {
            return format!(
                "INSERT INTO words VALUES('w{start} common w{rows} {}')",
                "x".repeat(blob.min(200))
            );
        }
        format!(
            "{verb} INTO {table} SELECT x, printf('%0*d', {len}+x%50, x*{factor}), (x*{factor})%1009, zeroblob((x*{factor})%{blob}) \
             FROM (WITH RECURSIVE n(x) AS (SELECT {start} UNION ALL SELECT x+1 FROM n WHERE x<{start}+{rows}) SELECT x FROM n)"
        )
    }

    fn update(&mut self) -> String {
        let table = self.table();
        let (from, span, what) = (
            self.random.below(600),
            self.random.below(200),
            self.random.below(5),
        );
        let set = match what {
            0 => "b=b||'-changed'".to_owned(),
            1 => "c=c+1".to_owned(),
            2 => format!("d=zeroblob({})", self.random.below(6000)),
            3 => "b=substr(b,1,length(b)/2)".to_owned(),
            _ => "a=a+1000".to_owned(),
        };
        format!(
            "UPDATE {table} SET {set} WHERE a BETWEEN {from} AND {}",
            from + span
        )
    }

    fn delete(&mut self) -> String {
        let table = self.table();
        let (from, span) = (self.random.below(700), self.random.below(300));
        match self.random.below(6) {
            0 => format!("DELETE FROM {table}"),
            1 => format!("DELETE FROM words WHERE rowid%{}=0", 1 + span % 5),
            _ => format!(
                "DELETE FROM {table} WHERE a BETWEEN {from} AND {}",
                from + span
            ),
        }
    }

    fn select(&mut self) -> String {
        let table = self.table();
        let modulus = 2 + self.random.below(9);
        match self.random.below(9) {
            0 => format!("SELECT a, b, c, length(d) FROM {table} ORDER BY b, a, c LIMIT 200"),
            1 => format!("SELECT c%{modulus} AS k, count(*), sum(a), min(b), max(length(d)) FROM {table} GROUP BY k ORDER BY k"),
            2 => format!("SELECT x.a, y.c FROM {table} x JOIN t0 y ON x.c=y.a ORDER BY 1, 2 LIMIT 300"),
            3 => format!("SELECT b FROM {table} UNION SELECT b FROM t0 ORDER BY 1 LIMIT 100"),
            4 => format!("SELECT a, sum(c) OVER (ORDER BY a, b ROWS 5 PRECEDING) FROM {table} ORDER BY a, b LIMIT 100"),
            5 => "SELECT rowid, length(b) FROM words WHERE words MATCH 'common' ORDER BY rowid LIMIT 50".to_owned(),
            6 => format!("SELECT count(*), total(length(b)), total(a), total(length(d)) FROM {table}"),
            7 => format!("SELECT DISTINCT substr(b, 1, 3) FROM {table} ORDER BY 1"),
            _ => format!("WITH m AS MATERIALIZED (SELECT a, b FROM {table}) SELECT count(*) FROM m x JOIN m y USING(a)"),
        }
    }

    fn transaction(&mut self) -> String {
        let statements = [
            "BEGIN",
            "BEGIN IMMEDIATE",
            "COMMIT",
            "COMMIT",
            "COMMIT",
            "ROLLBACK",
            "SAVEPOINT one",
            "SAVEPOINT two",
            "ROLLBACK TO one",
            "ROLLBACK TO two",
            "RELEASE one",
            "RELEASE two",
        ];
        self.random.one_of(&statements).to_owned()
    }

    fn schema(&mut self) -> String {
        let statements = [
            "CREATE INDEX i0 ON t0(b)",
            "CREATE INDEX i1 ON t1(c, b)",
            "CREATE UNIQUE INDEX i2 ON t2(b)",
            "DROP INDEX IF EXISTS i0",
            "DROP INDEX i1",
            "DROP INDEX i2",
            "REINDEX t0",
            "ANALYZE t0",
            "ALTER TABLE t2 ADD COLUMN e TEXT DEFAULT 'added'",
            "ALTER TABLE t2 DROP COLUMN e",
            "DROP TABLE IF EXISTS t2",
            "CREATE TABLE t2(a INTEGER PRIMARY KEY, b TEXT, c INT, d)",
            "CREATE TEMP TABLE s0(a, b, c, d)",
            "CREATE INDEX temp.si ON s0(b)",
            "DROP TABLE s0",
            "CREATE TABLE copied AS SELECT a, b, c, d FROM t0 ORDER BY b",
            "DROP TABLE copied",
            "CREATE TRIGGER g AFTER DELETE ON t1 BEGIN UPDATE t0 SET c=old.a WHERE a=old.c; END",
            "DROP TRIGGER g",
        ];
        self.random.one_of(&statements).to_owned()
    }

    fn second(&mut self) -> String {
        let statements = [
            "ATTACH '$other$' AS other",
            "ATTACH '$other$' AS other",
            "DETACH other",
            "CREATE TABLE other.o0(a INTEGER PRIMARY KEY, b TEXT, c INT, d)",
            "INSERT OR REPLACE INTO other.o0 SELECT a, b, c, d FROM t0",
            "INSERT OR IGNORE INTO t0 SELECT a, b, c, d FROM other.o0",
            "VACUUM other",
            "PRAGMA other.integrity_check",
        ];
        self.random.one_of(&statements).to_owned()
    }

    fn pragma(&mut self) -> String {
        let journal = self.random.one_of(JOURNALS);
        let number = self.random.below(60);
        match self.random.below(if self.page_counts { 13 } else { 11 }) {
            0 | 1 => format!("PRAGMA journal_mode={journal}"),
            2 => "VACUUM".to_owned(),
            3 => format!("PRAGMA incremental_vacuum({number})"),
            4 => "PRAGMA integrity_check".to_owned(),
            5 => "PRAGMA foreign_key_check".to_owned(),
            6 => format!("PRAGMA auto_vacuum={}", number % 3),
            7 => format!("PRAGMA user_version={number}"),
            8 => format!("PRAGMA cache_size={}", 5 + number),
            9 => format!("PRAGMA foreign_keys={}", number % 2),
            10 => format!("PRAGMA secure_delete={}", number % 2),
            11 => "PRAGMA page_count".to_owned(),
            _ => "PRAGMA freelist_count".to_owned(),
        }
    }
}
