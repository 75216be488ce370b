//! The places of an instance that rows and statements reach on disk, each with a string of its own
//! that is put there and the files in which a plain instance shows it.
//!
//! Invariant: nothing here knows whether the instance is sealed.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use strongroom_testing::random::Random;
use strongroom_testing_support::process::patiently;

use crate::instance::Instance;
use crate::scan::{Found, files_of};
use crate::session::Session;

/// Settings that make PostgreSQL use its disk: little memory everywhere.
pub const SETTINGS: &str = "shared_buffers = 1MB\nwork_mem = 64kB\ntemp_buffers = 800kB\nwal_level = logical\n\
    logical_decoding_work_mem = 64kB\nautovacuum = off\nmin_parallel_table_scan_size = 0\nparallel_setup_cost = 0\n\
    parallel_tuple_cost = 0\n";

/// One place.
#[derive(Clone, Debug)]
pub struct Surface {
    /// What it is.
    pub name: &'static str,
    /// The string that is put there.
    pub canary: String,
    /// A part of the path of the files that a plain instance shows it in. Empty: it is not there in
    /// this run.
    pub place: String,
}

/// Everything that was put into an instance, and what keeps it there.
#[derive(Debug)]
pub struct Filled {
    surfaces: Vec<Surface>,
    prefix: String,
    sessions: Vec<Session>,
    decoder: Option<Child>,
}

impl Filled {
    /// Fills an instance that runs with [`SETTINGS`]; `tablespace` is an empty directory of its
    /// user.
    pub fn fill(
        instance: &Instance<'_>,
        tablespace: &std::path::Path,
        random: &mut Random,
    ) -> Self {
        let mut filled = Self {
            surfaces: Vec::new(),
            prefix: format!("canary{}", random.text(8)),
            sessions: Vec::new(),
            decoder: None,
        };
        let decodes = instance.programs().has_module("test_decoding");
        if decodes {
            // First: it waits for every transaction that is open, prepared ones too.
            instance.sql("select pg_create_logical_replication_slot('slot', 'test_decoding')");
        }
        filled.relations(instance);
        filled.elsewhere(instance, tablespace);
        filled.temporary(instance);
        filled.queues(instance);
        if decodes {
            filled.decoding(instance);
        }
        if instance.programs().has_module("pg_stat_statements") {
            filled.statements(instance);
        }
        instance.sql("checkpoint");
        filled
    }

    /// A new surface; what to put there.
    fn surface(&mut self, name: &'static str, place: &str) -> String {
        let canary = format!("{}_{name}_", self.prefix);
        self.surfaces.push(Surface {
            name,
            canary: canary.clone(),
            place: String::from(place),
        });
        canary
    }

    fn placed(&mut self, name: &str, place: String) {
        let surface = self
            .surfaces
            .iter_mut()
            .find(|surface| surface.name == name);
        surface.expect("a surface of this name").place = place;
    }

    fn relations(&mut self, instance: &Instance<'_>) {
        let [table, toast, index, statistics, comment] =
            ["table", "toast", "index", "statistics", "comment"].map(|name| self.surface(name, ""));
        let [unlogged, object, name] =
            ["unlogged", "object", "name"].map(|name| self.surface(name, ""));
        let wal = self.surface("wal", "pg_wal/0");
        instance.sql(&format!(
            "create table t (id int primary key, v text, big text, s text);
             alter table t alter big set storage external;
             insert into t select i, '{table}' || i, repeat('{toast}' || i, 300), '{statistics}' || i % 3
                 from generate_series(1, 1500) i;
             create index ti on t (('{index}' || id));
             analyze t;
             comment on table t is '{comment}';
             create table \"{name}\" ();
             create unlogged table u as select '{unlogged}' || i as x from generate_series(1, 30000) i;
             select lo_from_bytea(4711, '{object}'::bytea);
             select pg_logical_emit_message(true, 'p', '{wal}');
             create table big as select i, md5(i::text) as x from generate_series(1, 60000) i;
             alter table big set (parallel_workers = 2);"
        ));
        for (surface, relation) in [
            ("table", "'t'"),
            ("index", "'ti'"),
            ("statistics", "'pg_statistic'"),
            ("comment", "'pg_description'"),
            ("unlogged", "'u'"),
            ("object", "'pg_largeobject'"),
            ("name", "'pg_class'"),
            (
                "toast",
                "(select reltoastrelid from pg_class where relname = 't')",
            ),
        ] {
            let path = instance.sql(&format!(
                "select pg_relation_filepath({relation}::regclass)"
            ));
            self.placed(surface, path);
        }
    }

    fn elsewhere(&mut self, instance: &Instance<'_>, tablespace: &std::path::Path) {
        let copied = self.surface("file_copy", "");
        let logged = self.surface("wal_log", "");
        let moved = self.surface("tablespace", "pg_tblspc/");
        instance.sql(&format!(
            "create tablespace outside location '{}'",
            tablespace.display()
        ));
        instance.sql("create database source");
        for (database, canary, strategy) in [("d1", copied, "file_copy"), ("d2", logged, "wal_log")]
        {
            instance.sql_in(
                "source",
                &format!("create table {database} as select '{canary}'::text as x"),
            );
            instance.sql(&format!(
                "create database {database} template source strategy {strategy}"
            ));
            let oid = instance.sql(&format!(
                "select oid from pg_database where datname = '{database}'"
            ));
            let surface = if database == "d1" {
                "file_copy"
            } else {
                "wal_log"
            };
            self.placed(surface, format!("base/{oid}/"));
            assert_eq!(
                instance.sql_in(database, &format!("select count(*) from {database}")),
                "1"
            );
        }
        instance.sql_in(
            "d1",
            &format!("create table moved as select '{moved}'::text as x"),
        );
        instance.sql("alter database d1 set tablespace outside");
        assert_eq!(instance.sql_in("d1", "select count(*) from moved"), "1");
        // The copy is in the tablespace now.
        self.placed("file_copy", String::from("pg_tblspc/"));
    }

    fn temporary(&mut self, instance: &Instance<'_>) {
        let table = self.surface("temp_table", "/t");
        let [sort, hash, held] =
            ["sort", "hash", "held_cursor"].map(|name| self.surface(name, "pgsql_tmp"));
        self.surface("shared_sort", ".fileset/");
        let mut session = instance.session();
        session.ask(&format!(
            "create temp table tt as select '{table}' || i as x, i from generate_series(1, 40000) i;
             begin;
             declare h cursor with hold for select '{held}' || i as x from generate_series(1, 20000) i;
             commit;
             begin;
             declare s scroll cursor for select '{sort}' || i as x from generate_series(1, 30000) i order by 1 desc;
             fetch 5 from s;
             set local enable_mergejoin = off; set local enable_nestloop = off;
             declare j cursor for select * from (select i, '{hash}' || i as x from generate_series(1, 30000) i offset 0) a
                 join (select i, '{hash}b' || i as y from generate_series(1, 30000) i offset 0) b using (i);
             fetch 5 from j;"
        ));
        self.sessions.push(session);
    }

    fn queues(&mut self, instance: &Instance<'_>) {
        let two_phase = self.surface("two_phase", "pg_twophase/");
        let notify = self.surface("notify", "pg_notify/");
        instance.sql(&format!(
            "begin; create table prepared as select 1 as x; prepare transaction '{two_phase}'"
        ));
        let mut listener = instance.session();
        listener.ask("listen ch; begin; select 1;");
        self.sessions.push(listener);
        // More pages than the server keeps in memory.
        instance.sql(&format!(
            "select count(pg_notify('ch', '{notify}' || i || repeat('n', 7000))) from generate_series(1, 60) i"
        ));
    }

    fn decoding(&mut self, instance: &Instance<'_>) {
        let spill = self.surface("spill", ".spill");
        let mut decoder = instance.client("pg_recvlogical");
        decoder.args([
            "-d",
            "postgres",
            "--slot",
            "slot",
            "--start",
            "-f",
            "/dev/null",
            "--no-loop",
        ]);
        let decoder = decoder.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.decoder = Some(decoder.expect("pg_recvlogical can be started"));
        let mut session = instance.session();
        let answer = session.ask(&format!(
            "create table decoded (x text); begin; insert into decoded select '{spill}' || i \
             from generate_series(1, 20000) i; select 'xid-' || pg_current_xact_id(); select pg_switch_wal();"
        ));
        self.sessions.push(session);
        // By its transaction: the decoder spills the large ones before it as well, while it catches
        // up.
        let transaction = answer.lines().find(|line| line.starts_with("xid-"));
        let of_transaction = format!("{}-", transaction.expect("a transaction's id"));
        let large = |path: &String| {
            let about = std::fs::metadata(instance.data().join(path));
            path.ends_with(".spill")
                && path.contains(&of_transaction)
                && about.is_ok_and(|about| about.len() > 1_000_000)
        };
        let spilled = || files_of(instance.data()).iter().any(large);
        assert!(
            patiently(Duration::from_secs(20), spilled),
            "nothing was spilled"
        );
    }

    fn statements(&mut self, instance: &Instance<'_>) {
        let running = self.surface("statement", "pg_stat_tmp/");
        instance.sql(&format!(
            "create extension pg_stat_statements; select 1, 2, 3 as \"{running}\""
        ));
        let seen = instance.sql(&format!(
            "select query from pg_stat_statements where query ~ '{running}'"
        ));
        assert!(seen.contains(&running), "{seen}");
    }

    /// The string of the surface, which has to be there.
    fn canary(&self, name: &str) -> &str {
        let surface = self.surfaces.iter().find(|surface| surface.name == name);
        &surface.expect("a surface of this name").canary
    }

    /// Searches while a parallel sort has its files on disk.
    ///
    /// # Panics
    /// When none is caught in ten attempts.
    #[must_use]
    pub fn search_shared(&self, instance: &Instance<'_>, more: &[PathBuf]) -> Found {
        let canary = self.canary("shared_sort");
        for _ in 0..10 {
            let mut session = instance.session();
            let build = format!(
                "set max_parallel_maintenance_workers = 2; set maintenance_work_mem = '1MB'; \
                 create index shared on big (('{canary}' || x)); drop index shared;"
            );
            session.send(&build).expect("a session");
            let written = |path: &String| {
                let about = std::fs::metadata(instance.data().join(path));
                path.contains(".fileset/") && about.is_ok_and(|about| about.len() > 100_000)
            };
            let temporary = instance.data().join("base/pgsql_tmp");
            let caught = patiently(Duration::from_secs(2), || {
                files_of(&temporary)
                    .iter()
                    .any(|path| written(&format!("base/pgsql_tmp/{path}")))
            });
            instance.freeze();
            let found = self.search(instance, more);
            instance.thaw();
            let there = found
                .files_seen
                .iter()
                .any(|path| path.contains(".fileset/"));
            assert!(session.answer().is_some(), "the index is built");
            if caught && there {
                return found;
            }
        }
        unreachable_surface()
    }

    /// Searches everything as it is now.
    #[must_use]
    pub fn search(&self, instance: &Instance<'_>, more: &[PathBuf]) -> Found {
        let mut places = vec![instance.data().to_owned()];
        places.extend_from_slice(more);
        Found::search(&places, std::slice::from_ref(&self.prefix), &self.needles())
    }

    fn needles(&self) -> Vec<String> {
        self.surfaces
            .iter()
            .map(|surface| surface.canary.clone())
            .collect()
    }

    /// The surfaces whose string was not found where it has to be in a plain instance.
    #[must_use]
    pub fn not_found(&self, found: &Found) -> Vec<String> {
        let shown = |surface: &&Surface| {
            let hits = found.hits.get(&surface.canary);
            !hits.is_some_and(|files| files.iter().any(|path| path.contains(&surface.place)))
        };
        let missing = self.surfaces.iter().filter(shown);
        missing
            .map(|surface| {
                let hits = found.hits.get(&surface.canary);
                format!("{} (in {}; found in {hits:?})", surface.name, surface.place)
            })
            .collect()
    }

    /// The number of surfaces.
    #[must_use]
    pub const fn surfaces(&self) -> usize {
        self.surfaces.len()
    }

    /// Ends the sessions, so that the server can stop, and what would hinder a later start.
    pub fn release(&mut self) {
        self.sessions.clear();
        if let Some(mut decoder) = self.decoder.take() {
            drop(decoder.kill());
            drop(decoder.wait());
        }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.release();
    }
}

#[expect(clippy::panic, reason = "a test stops at the first surprise")]
fn unreachable_surface() -> Found {
    panic!("no parallel sort was caught with its files on disk")
}
