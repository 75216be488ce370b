//! Goal: the log is made durable wherever it ends, also with its page or its segment.
//!
//! Method: a server whose log is made to end there while nothing else is written to it.

use std::time::{Duration, Instant};

use strongroom_columns_testing::owner::start_all;

/// A message of just the length that is left of the page: header 24, head of the data 5, that of
/// the message 24, its prefix 2.
const FILL: &str = "do $$ declare n int; begin
    n := 8192 - ((pg_current_wal_insert_lsn() - '0/0') % 8192)::int - 55;
    if n < 300 then n := n + 8192 - 24; end if;
    perform pg_logical_emit_message(false, 'x', repeat('a', n)); end $$";

#[test]
fn the_worker_and_a_sweep_make_a_log_durable_that_ends_with_its_page() {
    let settings = "autovacuum = off\nstrongroom.sweep_interval = 0\nstrongroom.checkpoint_interval = 100ms\nbgwriter_lru_maxpages = 0";
    let (owner, server) = start_all(settings);
    drop(owner.rows(
        "create table t (id int, code enc_int4) using strongroom; insert into t values (1, 1)",
    ));
    // How far the next record is behind a page, or behind a segment, there and afterwards.
    for (make, after, header) in [
        (FILL, "% 8192", "24"),
        ("select from pg_switch_wal()", "% 16777216", "40"),
    ] {
        let behind = format!("select (pg_current_wal_insert_lsn() - '0/0') {after}");
        let begun = Instant::now();
        let mut seen = 0;
        while seen < 2 {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "the log does not end there"
            );
            drop(server.rows(make));
            if server.rows(&behind) != header {
                continue;
            }
            drop(server.rows("select strongroom_columns.sweep('t')"));
            std::thread::sleep(Duration::from_millis(1500));
            // Nothing was written meanwhile: the worker has met the end.
            seen += u32::from(server.rows(&behind) == header);
        }
    }
    let said = server.log_text();
    assert!(!said.contains("is not satisfied"), "{}", server.log_tail());
    drop(owner.rows("insert into t values (2, 2)"));
    assert_eq!(owner.rows("select sum(code) from t"), "3");
}
