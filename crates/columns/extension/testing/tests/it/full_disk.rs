//! Goal: a zone whose disk is full refuses what needs the disk, with SQLSTATE 53100, and nothing
//! else; nothing that was acknowledged is lost, no value is another one; and it goes on once there
//! is room.
//!
//! Method: the zone's directory is a tmpfs of a few MiB. More values than memory and disk hold; a
//! disk without a byte left under a zone that runs, that is stopped, that is killed, and that is to
//! start. Who may not mount leaves these tests out and says so.

use strongroom_columns_testing::disk::SmallDisk;
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, print_line};

/// SQLSTATE of SR-8015.
const FULL: &str = "53100";
/// MiB; the least that a zone takes.
const MEMORY: u32 = 16;
const BATCH: u32 = 1000;
/// Bytes of each text.
const LENGTH: usize = 1000;

/// A zone on a small disk, a server, a proxy. The disk goes first.
fn begin(kib: u32) -> Option<(Owner, Server, SmallDisk)> {
    let mut owner = Owner::new();
    let Some(disk) = SmallDisk::mount(&owner.path("zone"), kib) else {
        print_line("left out: only root can mount a small disk");
        return None;
    };
    owner.start_zone_with(MEMORY, &[]);
    let server = Server::start(&owner.zone_socket(), "");
    drop(server.rows("create extension strongroom_columns"));
    owner.start_proxy(server.socket());
    drop(owner.rows("create table t (id int primary key, n enc_int8(ordered), note enc_text) using strongroom; create index on t (n)"));
    drop(owner.rows("insert into t values (0, 0, 'first')"));
    Some((owner, server, disk))
}

fn note(batch: u32) -> String {
    format!("{batch:06}").repeat(LENGTH / 6)
}

/// Inserts a batch of long texts; what the server says when it refuses.
fn insert(owner: &Owner, batch: u32) -> Result<(), String> {
    let (from, to, note) = (batch * BATCH, (batch + 1) * BATCH - 1, note(batch));
    let answer = owner.run(&format!(
        "insert into t select g, {batch}, '{note}' from generate_series({from}, {to}) g"
    ));
    if answer.messages.contains("ERROR") {
        return Err(answer.messages);
    }
    Ok(())
}

/// That a batch is there, whole, by scan; or, where the disk is full, the error that says so.
fn look(owner: &Owner, batch: u32, may_be_refused: bool) {
    let sql = format!(
        "select count(*) from t where id / {BATCH} = {batch} and note = '{}' and n = {batch}",
        note(batch)
    );
    let answer = owner.run(&sql);
    let refused = answer.messages.contains(FULL);
    assert!(
        answer.rows == BATCH.to_string() || (may_be_refused && refused),
        "batch {batch}: {}{}",
        answer.rows,
        answer.messages
    );
}

#[test]
fn more_than_memory_and_disk_hold_is_refused_until_there_is_room() {
    let Some((mut owner, server, disk)) = begin(6 << 10) else {
        return;
    };
    let mut batch = 1;
    let refused = loop {
        match insert(&owner, batch) {
            Ok(()) => batch += 1,
            Err(said) => break said,
        }
        assert!(batch < 100, "it holds more than there is");
    };
    assert!(
        refused.contains(FULL) && refused.contains("SR-8015"),
        "{refused}"
    );
    assert!(batch > 10, "{batch} batches filled it");
    // Again and again: nothing breaks by trying.
    for _ in 0..3 {
        assert!(insert(&owner, batch).is_err_and(|said| said.contains(FULL)));
    }
    for done in 1..batch {
        look(&owner, done, true);
    }
    assert_eq!(
        owner.rows("select count(*) from t"),
        ((batch - 1) * BATCH + 1).to_string(),
        "plain columns go on, and no row of a refused statement is there"
    );
    // Room: without starting anything anew.
    disk.resize(96 << 10);
    assert_eq!(insert(&owner, batch), Ok(()));
    for done in 1..=batch {
        look(&owner, done, false);
    }
    // And what was acknowledged while the disk was short is there after kills too.
    owner.kill_zone();
    server.kill();
    owner.start_zone_with(MEMORY, &[]);
    server.start_again();
    owner.wait_for("select note from t where n = 0", "first");
    for done in 1..=batch {
        look(&owner, done, false);
    }
    let by_index = format!(
        "set enable_seqscan = off; select count(*), min(id), max(id) from t where n = {batch}"
    );
    assert_eq!(
        owner.rows(&by_index),
        format!("{BATCH}|{}|{}", batch * BATCH, (batch + 1) * BATCH - 1)
    );
}

/// A zone without a byte of disk: what fits into memory is served and acknowledged, because
/// PostgreSQL's log has it.
#[test]
fn without_a_byte_left_what_is_acknowledged_survives() {
    let Some((mut owner, server, disk)) = begin(4 << 10) else {
        return;
    };
    disk.fill();
    drop(owner.rows(
        "insert into t values (1, 10, 'while full'); update t set note = note || '!' where n = 10",
    ));
    let ask = "select id, n, note from t where n > 5 order by id";
    assert_eq!(owner.rows(ask), "1|10|while full!");
    // A new table's columns too: their key is durable already (S7).
    drop(
        owner.rows(
            "create table other (a enc_text) using strongroom; insert into other values ('x')",
        ),
    );
    drop(owner.rows("insert into t values (2, 20, 'too')"));
    let both = "1|10|while full!\n2|20|too";
    // A checkpoint cannot be made when a new life of the server begins: an error, and no more,
    // until there is room.
    server.crash_and_start();
    let answer = owner.run(ask);
    assert!(
        answer.rows == both || answer.messages.contains("SR-8015"),
        "{}{}",
        answer.rows,
        answer.messages
    );
    // Killed, it does not start on a full disk, and says why.
    owner.kill_zone();
    let refusal = owner.start_refused_zone(MEMORY);
    assert!(refusal.contains("SR-8015"), "{refusal}");
    assert!(server.run(ask).messages.contains("ERROR"));
    assert_eq!(server.rows("select count(*) from t"), "3");
    disk.empty();
    owner.start_zone_with(MEMORY, &[]);
    owner.wait_for(ask, both);
    drop(owner.rows("insert into other values ('y')"));
    // Stopped in order on a full disk it says that it could not write; the log still has what it
    // could not.
    disk.fill();
    drop(owner.rows("insert into t values (3, 30, 'last')"));
    let refusal = owner.stop_zone_with_failure();
    assert!(refusal.contains("SR-8015"), "{refusal}");
    disk.empty();
    owner.start_zone_with(MEMORY, &[]);
    owner.wait_for(ask, &format!("{both}\n3|30|last"));
    assert_eq!(owner.rows("select a from other order by a"), "x\ny");
}

/// A key has to be durable before the first value under it is stored (S7): the first value of all
/// is refused on a full disk.
#[test]
fn the_first_value_under_a_key_needs_the_disk() {
    let Some((owner, server, disk)) = begin(4 << 10) else {
        return;
    };
    drop(owner.rows("truncate t"));
    // The next checkpoint forgets the key that no column is bound to any more.
    server.crash_and_start();
    owner.wait_for("select count(*) from t", "0");
    drop(server.rows("select strongroom_columns.status() is null"));
    disk.fill();
    let insert = "insert into t values (1, 1, 'first again')";
    for _ in 0..2 {
        let answer = owner.run(insert);
        assert!(
            answer.messages.contains(FULL),
            "{}{}",
            answer.rows,
            answer.messages
        );
    }
    disk.empty();
    drop(owner.rows(insert));
    assert_eq!(owner.rows("select n, note from t"), "1|first again");
}
