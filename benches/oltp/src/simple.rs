//! Loops of the kind of sysbench's `oltp_point_select`, `oltp_read_write` and `oltp_write_only`:
//! the same table, the same statements in the same numbers. The columns `k`, `c` and `pad` are
//! confidential; the index on `k` is one on a confidential column.

use fastrand::Rng;

use crate::Schema;
use crate::wire::{Client, Failure};

/// The kind of loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One row by its key.
    PointSelect,
    /// Ten of those, four ranges of a hundred rows, and what [`Self::WriteOnly`] does, in one
    /// transaction.
    ReadWrite,
    /// An update of an indexed column, one of another, a deletion, and an insertion, in one
    /// transaction.
    WriteOnly,
}

impl Kind {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::PointSelect, "point select"),
        (Self::ReadWrite, "read-write"),
        (Self::WriteOnly, "write-only"),
    ];
}

/// Rows of a range.
const RANGE: u32 = 100;

/// Makes and fills the table `sbtest1`.
///
/// # Errors
/// The server's.
pub fn load(client: &mut Client, schema: Schema, rows: u32, seed: u64) -> Result<(), Failure> {
    let sql = format!(
        "CREATE TABLE sbtest1 (id int, k {} NOT NULL, c {} NOT NULL, pad {} NOT NULL){}",
        schema.of_indexed("int4"),
        schema.of("text"),
        schema.of("text"),
        schema.method()
    );
    let _made = client.query(&sql)?;
    let mut random = Rng::with_seed(seed);
    let lines = (1..=rows).map(|id| {
        let (k, c, pad) = (
            random.u32(1..=rows),
            digits(&mut random, 10),
            digits(&mut random, 5),
        );
        format!("{id}\t{k}\t{c}\t{pad}\n")
    });
    let _copied = client.copy_in("COPY sbtest1 (id, k, c, pad) FROM STDIN", lines)?;
    for sql in [
        "ALTER TABLE sbtest1 ADD PRIMARY KEY (id)",
        "CREATE INDEX k_1 ON sbtest1 (k)",
        "VACUUM ANALYZE sbtest1",
    ] {
        let _done = client.query(sql)?;
    }
    Ok(())
}

/// Groups of eleven digits, as sysbench makes them.
fn digits(random: &mut Rng, groups: usize) -> String {
    let group = |random: &mut Rng| -> String { (0..11).map(|_| random.digit(10)).collect() };
    let groups: Vec<String> = (0..groups).map(|_| group(random)).collect();
    groups.join("-")
}

/// Runs one transaction of the loop.
///
/// # Errors
/// The server's; the transaction is rolled back.
pub fn transact(
    client: &mut Client,
    random: &mut Rng,
    kind: Kind,
    rows: u32,
) -> Result<(), Failure> {
    let result = match kind {
        Kind::PointSelect => return select(client, random, rows),
        Kind::ReadWrite => read(client, random, rows).and_then(|()| write(client, random, rows)),
        Kind::WriteOnly => client
            .query("BEGIN")
            .and_then(|_| write(client, random, rows)),
    };
    if result.is_err() && client.in_transaction() {
        // The first error is the one to report.
        let _rolled_back = client.query("ROLLBACK");
    }
    result
}

fn select(client: &mut Client, random: &mut Rng, rows: u32) -> Result<(), Failure> {
    let id = random.u32(1..=rows).to_string();
    let _row = client.execute("SELECT c FROM sbtest1 WHERE id = $1", &[Some(&id)])?;
    Ok(())
}

fn read(client: &mut Client, random: &mut Rng, rows: u32) -> Result<(), Failure> {
    let _begun = client.query("BEGIN")?;
    for _ in 0..10 {
        select(client, random, rows)?;
    }
    for sql in [
        "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2",
        "SELECT sum(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2",
        "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c",
        "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c",
    ] {
        let from = random.u32(1..=rows);
        let to = (from + RANGE - 1).to_string();
        let _rows = client.execute(sql, &[Some(&from.to_string()), Some(&to)])?;
    }
    Ok(())
}

fn write(client: &mut Client, random: &mut Rng, rows: u32) -> Result<(), Failure> {
    let id = random.u32(1..=rows).to_string();
    let _indexed = client.execute("UPDATE sbtest1 SET k = k + 1 WHERE id = $1", &[Some(&id)])?;
    let (id, c) = (random.u32(1..=rows).to_string(), digits(random, 10));
    let _other = client.execute(
        "UPDATE sbtest1 SET c = $2 WHERE id = $1",
        &[Some(&id), Some(&c)],
    )?;
    let (id, k) = (
        random.u32(1..=rows).to_string(),
        random.u32(1..=rows).to_string(),
    );
    let (c, pad) = (digits(random, 10), digits(random, 5));
    let _gone = client.execute("DELETE FROM sbtest1 WHERE id = $1", &[Some(&id)])?;
    let sql = "INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)";
    let _back = client.execute(sql, &[Some(&id), Some(&k), Some(&c), Some(&pad)])?;
    client.query("COMMIT").map(drop)
}
