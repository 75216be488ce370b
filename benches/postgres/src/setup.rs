//! Three instances with the same rows.
//!
//! Must not: be inside a measurement.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use strongroom_benches::bytes::entropy;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::postgres::{Account, Place, Tools};
use strongroom_benches::{Failure, note};
use tempfile::TempDir;

use crate::options::Options;
use crate::peer::{Node, Peer};
use crate::pgbench;

/// The database for everything that does not fit into the page cache.
pub(crate) const LARGE: &str = "large";
/// The one that does: pgbench's scale 1, 17 MB.
pub(crate) const SMALL: &str = "small";
/// The one that `pgbench -i` fills again and again.
pub(crate) const BULK: &str = "bulk";
/// Rows of `items` for each unit of the scale: about as many bytes as pgbench's tables have.
const ITEMS: u32 = 50_000;
/// Entropy of a file of rows, in bits per byte: plain below the first, sealed above the second.
const ENTROPY: (f64, f64) = (7.0, 7.9);

/// What the instances are made in; gone when dropped.
pub(crate) struct Workshop {
    directory: TempDir,
    pub(crate) place: Place,
}

impl Workshop {
    /// Under `options.report.directory`.
    pub(crate) fn open(options: &Options) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("strongroom-bench-")
            .tempdir_in(options.report.directory.canonicalize()?)?;
        let place = Place::make(&Tools::find()?, Account::here()?, directory.path())?;
        Ok(Self { directory, place })
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The rows of `items`, in PostgreSQL's text format.
    pub(crate) fn rows(&self) -> String {
        self.path("rows.copy").display().to_string()
    }

    /// The three instances, running and empty.
    pub(crate) fn nodes(&self, options: &Options) -> Result<Vec<Node<'_>>, Failure> {
        let key_file = self.path("bench.key");
        new_key_file(&key_file)?;
        self.place.account.own(&key_file)?;
        Peer::ALL
            .into_iter()
            .map(|peer| Node::make(&self.place, peer, self.directory.path(), &key_file, options))
            .collect()
    }
}

/// Fills an instance with all that the workloads need.
pub(crate) fn fill(node: &Node<'_>, scale: u32) -> Result<(), Failure> {
    note(&format!("loading {}", node.peer.name()));
    for (database, scale) in [(SMALL, 1), (LARGE, scale), (BULK, 1)] {
        node.cluster
            .psql("postgres", &format!("CREATE DATABASE {database};"))?;
        pgbench::initialise(&node.cluster, database, scale)?;
    }
    node.cluster.psql(SMALL, "CREATE EXTENSION pg_prewarm;")?;
    items(node, LARGE, scale.saturating_mul(ITEMS))?;
    look_at_disk(node, LARGE)
}

/// A table of text that does not repeat.
pub(crate) fn items(node: &Node<'_>, database: &str, rows: u32) -> Result<(), Failure> {
    let sql = format!(
        "CREATE TABLE items (id int, grp int, note text);
         INSERT INTO items SELECT i, i % 1000, md5(i::text) || md5((i * 7)::text)
         FROM generate_series(1, {rows}) AS i;
         VACUUM ANALYZE items;
         CHECKPOINT;"
    );
    node.cluster.psql(database, &sql)?;
    Ok(())
}

/// Writes the rows of `items` to a file for COPY, outside the data directories.
pub(crate) fn export(node: &Node<'_>, database: &str, file: &str) -> Result<(), Failure> {
    node.cluster
        .psql(database, &format!("COPY items TO '{file}';"))?;
    Ok(())
}

/// What is said to be sealed is sealed, and what is said to be plain is plain: the entropy of rows
/// on the disk.
pub(crate) fn look_at_disk(node: &Node<'_>, database: &str) -> Result<(), Failure> {
    let path = node
        .cluster
        .psql(database, "SELECT pg_relation_filepath('items');")?;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(node.cluster.data().join(Path::new(&path)))?;
    file.take(1 << 18).read_to_end(&mut bytes)?;
    let bits = entropy(&bytes);
    let (plain_max, sealed_min) = ENTROPY;
    let as_expected = if node.cluster.sealed() {
        bits > sealed_min
    } else {
        bits < plain_max
    };
    if as_expected {
        Ok(())
    } else {
        Err(format!("{}: {bits:.3} bits per byte on the disk", node.peer.name()).into())
    }
}
