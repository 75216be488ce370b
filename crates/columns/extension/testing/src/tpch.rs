//! TPC-H at a server or through the proxy: its schema, rows and queries.
//!
//! Source: TPC Benchmark H, revision 3.0.1, clauses 1.4 (schema), 2.4 (queries with their
//! validation parameters), 4.2 (rows, from a generator whose rows are those of `dbgen`). Indexes
//! are those of primary and foreign keys. Not a TPC-H result. Must not: depend on which columns are
//! confidential.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

/// The tables, small ones first.
pub const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem",
];

/// Number of queries.
pub const QUERIES: u32 = 22;

/// Directory of the texts: among the proxy's tests, which resolve them without a server.
const TEXTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/tests/tpch");

/// Clause 2.4.11.3: the fraction of query 11 is this divided by the scale.
const FRACTION: f64 = 0.0001;
const FRACTION_AT_1: &str = "0.0001000000";

fn text(name: &str) -> String {
    let path = Path::new(TEXTS).join(name);
    let read = std::fs::read_to_string(&path);
    read.unwrap_or_else(|error| unreadable(&path, &error))
}

#[expect(clippy::panic, reason = "a test without its queries tests nothing")]
fn unreadable(path: &Path, error: &std::io::Error) -> ! {
    panic!("{}: {error}", path.display())
}

/// The statements that create the tables.
#[must_use]
pub fn schema(confidential: bool) -> String {
    text(if confidential {
        "confidential.sql"
    } else {
        "schema.sql"
    })
}

/// Query `number`, from 1, without a semicolon.
#[must_use]
pub fn query(number: u32, scale: f64) -> String {
    let query = text(&format!("q{number:02}.sql"));
    let fraction = format!("{:.10}", FRACTION / scale);
    query.trim_end().replace(FRACTION_AT_1, &fraction)
}

macro_rules! lines {
    ($generator:ident, $scale:expr, $write:expr) => {
        for row in $generator::new($scale, 1, 1).iter() {
            let row = row.to_string();
            $write(row.strip_suffix('|').unwrap_or(&row))?;
        }
    };
}

/// Most rows of one COPY. What a statement computes stays in the zone until its end, and a whole
/// large table would be too much.
const COPY_ROWS: usize = 1_000_000;

/// Writes COPY statements with the rows of a table.
fn write_rows(table: &str, scale: f64, out: &mut impl Write) -> std::io::Result<()> {
    let mut rows = 0;
    let mut write = |row: &str| {
        if rows % COPY_ROWS == 0 {
            let end = if rows == 0 { "" } else { "\\.\n" };
            writeln!(out, "{end}copy {table} from stdin (delimiter '|');")?;
        }
        rows += 1;
        writeln!(out, "{row}")
    };
    match table {
        "region" => lines!(RegionGenerator, scale, write),
        "nation" => lines!(NationGenerator, scale, write),
        "supplier" => lines!(SupplierGenerator, scale, write),
        "part" => lines!(PartGenerator, scale, write),
        "partsupp" => lines!(PartSuppGenerator, scale, write),
        "customer" => lines!(CustomerGenerator, scale, write),
        "orders" => lines!(OrderGenerator, scale, write),
        "lineitem" => lines!(LineItemGenerator, scale, write),
        _ => return Err(std::io::ErrorKind::NotFound.into()),
    }
    Ok(())
}

/// Loads all tables at the socket in `host`, in one transaction, and analyses them.
///
/// # Panics
///
/// When anything fails.
pub fn load(host: &Path, scale: f64) {
    let mut psql = crate::psql_command(host);
    let started = psql
        .arg("--set=ON_ERROR_STOP=1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut psql = started.expect("psql can be run");
    let input = psql.stdin.take().expect("a pipe was asked for");
    let written = write_all(BufWriter::with_capacity(1 << 18, input), scale);
    let output = psql.wait_with_output().expect("psql ends");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && written.is_ok(),
        "loading: {messages}"
    );
}

fn write_all(mut input: impl Write, scale: f64) -> std::io::Result<()> {
    writeln!(input, "begin;")?;
    for table in TABLES {
        write_rows(table, scale, &mut input)?;
        writeln!(input, "\\.")?;
    }
    writeln!(input, "{}\ncommit; analyze;", text("indexes.sql"))?;
    input.flush()
}
