//! What is backed up: a PostgreSQL server with the TPC-H tables, at rest; a directory with the same
//! rows as text.
//!
//! Must not: change once it is made.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;

use strongroom_benches::Failure;
use strongroom_benches::postgres::{Cluster, Place, Server, failed};
use strongroom_benches::tpch::{Kind, TABLES, Table, lines};

/// Settings of the source: nothing happens in it by itself.
const SETTINGS: [(&str, &str); 5] = [
    ("autovacuum", "off"),
    ("max_wal_size", "4GB"),
    ("checkpoint_timeout", "1h"),
    ("shared_buffers", "128MB"),
    ("wal_level", "replica"),
];
/// Bytes of a cluster with the tables and indexes at scale 1, about: what the default of `--size`
/// is reckoned with.
const BYTES_AT_SCALE_1: f64 = 1.75e9;
/// Bytes of the text of lineitem at scale 1, about.
const TEXT_AT_SCALE_1: f64 = 7.6e8;
/// The database.
const DATABASE: &str = "postgres";

/// A running server with about `bytes` of data.
pub(crate) fn server<'place>(
    place: &'place Place,
    data: &Path,
    bytes: u64,
) -> Result<(Cluster<'place>, Server), Failure> {
    let cluster = Cluster::initdb(place, data, None, &[], &SETTINGS)?;
    let (server, _) = Server::start(&cluster)?;
    let scale = bytes as f64 / BYTES_AT_SCALE_1;
    for table in TABLES {
        load(&cluster, table, scale)?;
    }
    // No hint bit is set by a reader afterwards, and nothing is written any more.
    cluster.psql(DATABASE, "VACUUM FREEZE;")?;
    cluster.psql(DATABASE, "CHECKPOINT;")?;
    Ok((cluster, server))
}

fn load(cluster: &Cluster<'_>, table: &Table, scale: f64) -> Result<(), Failure> {
    let columns: Vec<String> = table
        .columns
        .iter()
        .map(|(name, kind)| format!("{name} {}", sql(*kind, name)))
        .collect();
    let create = format!("CREATE TABLE {} ({});", table.name, columns.join(", "));
    cluster.psql(DATABASE, &create)?;
    let copy = format!("COPY {} FROM STDIN (DELIMITER '|')", table.name);
    let mut psql = cluster.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", DATABASE, "-c"]);
    psql.arg(copy).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = psql.spawn()?;
    let input = child.stdin.take().ok_or("psql has no input")?;
    let written = text(table, scale, BufWriter::with_capacity(1 << 20, input));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(failed("psql", &output));
    }
    written?;
    let key = table.columns.first().map(|(name, _)| *name);
    for columns in key
        .filter(|_| table.key)
        .iter()
        .chain(table.indexes.iter().take(1))
    {
        cluster.psql(
            DATABASE,
            &format!("CREATE INDEX ON {} ({columns});", table.name),
        )?;
    }
    Ok(())
}

fn sql(kind: Kind, name: &str) -> &'static str {
    match kind {
        Kind::Integer => "bigint",
        Kind::Decimal => "numeric(15,2)",
        Kind::Text if name.ends_with("date") => "date",
        Kind::Text => "text",
    }
}

fn text(table: &Table, scale: f64, mut out: impl Write) -> Result<(), Failure> {
    for line in lines(table, scale)? {
        out.write_all(line.trim_end_matches('|').as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// A directory with about `bytes` of rows as text, in several files.
pub(crate) fn directory(path: &Path, bytes: u64) -> Result<(), Failure> {
    std::fs::create_dir(path)?;
    let scale = (bytes as f64 / TEXT_AT_SCALE_1).max(0.001);
    for table in TABLES {
        let file = File::create_new(path.join(format!("{}.tbl", table.name)))?;
        // The other tables are a third of it.
        text(table, scale * 0.7, BufWriter::with_capacity(1 << 20, file))?;
    }
    Ok(())
}
