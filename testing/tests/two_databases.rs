//! Goal: a transaction over two databases is rolled back in both or in neither, whatever was done
//! to the journals in between; else it is an error.
//!
//! Method: the files are copied at the moment before the commit, when both databases are written
//! and the super-journal is about to be removed. Put back, they are what a crash leaves: hot
//! journals that name a super-journal. Then the end of one journal, where that name stands, is
//! changed, cut off or written behind.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "files of a test fit in memory"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use strongroom_format::journal::{JOURNAL_SLOT, journal_slot_offset, journal_slots};
use strongroom_sqlite::open;
use strongroom_testing::intercept;
use strongroom_testing::random::{Random, seed};
use strongroom_testing::setup::Room;

type Files = BTreeMap<PathBuf, Vec<u8>>;

static WATCHED: Mutex<Option<(PathBuf, Files)>> = Mutex::new(None);

/// Copies the room as it is before the last file is removed or cut while there is a super-journal.
fn copy() {
    let mut watched = WATCHED.lock().unwrap();
    if let Some((room, files)) = watched.as_mut() {
        let now = all(room);
        if now.keys().any(|path| is_super(path)) {
            *files = now;
        }
    }
}

fn is_super(path: &Path) -> bool {
    path.display().to_string().contains("-mj")
}

fn all(room: &Path) -> Files {
    let files = std::fs::read_dir(room)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

fn put_back(room: &Room, files: &Files) {
    for path in all(room.path()).keys() {
        std::fs::remove_file(path).unwrap();
    }
    for (path, bytes) in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        room.put(name, bytes).unwrap();
    }
}

/// The value in a database, or the code of the error.
fn value(room: &Room, name: &str) -> Result<i64, u16> {
    let connection = open(&room.at(name), &room.options("first")).map_err(|e| e.code().number)?;
    connection
        .query_row("SELECT sum(a) FROM t", [], |row| row.get(0))
        .map_err(|error| strongroom_sqlite::explain(error).code().number)
}

#[test]
fn both_or_neither_or_an_error() {
    strongroom_sqlite::register().unwrap();
    intercept::install().unwrap();
    let room = Room::new(&mut Random::new(seed())).unwrap();
    let connection = open(&room.at("a.db"), &room.options("first")).unwrap();
    connection
        .execute("ATTACH ?1 AS other", [room.sealed_uri("b.db", "")])
        .unwrap();
    let fill = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<2000)";
    let sql = format!(
        "CREATE TABLE t(a); CREATE TABLE other.t(a);
         INSERT INTO t {fill} SELECT 1 FROM n; INSERT INTO other.t {fill} SELECT 1 FROM n;"
    );
    connection.execute_batch(&sql).unwrap();
    *WATCHED.lock().unwrap() = Some((room.path().to_owned(), Files::new()));
    intercept::before_removal(Some(copy));
    connection
        .execute_batch("BEGIN; UPDATE t SET a=2; UPDATE other.t SET a=2; COMMIT")
        .unwrap();
    intercept::before_removal(None);
    drop(connection);
    let files = WATCHED.lock().unwrap().take().unwrap().1;
    assert!(files.keys().any(|path| is_super(path)), "no super-journal");

    let journal = room.at("a.db-journal");
    let whole = files[&journal].clone();
    let slots = journal_slots(whole.len() as u64);
    let mut cases: Vec<(String, Vec<u8>)> = vec![("as it was".to_owned(), whole.clone())];
    for back in 1..=2 {
        let at = journal_slot_offset(slots - back) as usize;
        for offset in (0..JOURNAL_SLOT as usize).step_by(61) {
            let mut changed = whole.clone();
            changed[at + offset] ^= 4;
            cases.push((format!("slot {back} from the end, byte {offset}"), changed));
        }
        cases.push((format!("without the last {back}"), whole[..at].to_vec()));
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(&whole[whole.len() - JOURNAL_SLOT as usize..]);
    cases.push(("the last slot twice".to_owned(), longer));
    let (mut kept, mut refused) = (0, 0);
    for committed in [false, true] {
        for (what, changed) in &cases {
            let mut files = files.clone();
            files.insert(journal.clone(), changed.clone());
            if committed {
                files.retain(|path, _| !is_super(path));
            }
            put_back(&room, &files);
            let expected = if committed { 4000 } else { 2000 };
            match value(&room, "a.db") {
                Ok(found) => {
                    kept += 1;
                    assert_eq!(found, expected, "{what}, super-journal gone: {committed}");
                }
                Err(code) => {
                    refused += 1;
                    assert!(*changed != whole && code == 4004, "{what}: {code}");
                }
            }
            assert_eq!(value(&room, "b.db"), Ok(expected), "{what}, b.db");
        }
    }
    assert!(kept >= 2 && refused > 20, "{kept} kept, {refused} refused");
}
