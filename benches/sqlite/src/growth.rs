//! How costs grow with a database: rows of 400 bytes, a scan and random reads, at several sizes.
//!
//! Must not: run one engine's rounds apart from the others'.

use serde::Serialize;
use strongroom_benches::stats::median;
use strongroom_benches::{Failure, note};

use crate::driver::{self, Script};
use crate::engine::Engine;
use crate::options::{agree, order};
use crate::setup::{Place, make};

/// Random reads of one round.
const READS: u32 = 5000;
/// Rows that fill a MiB.
const ROWS_A_MIB: u32 = 2500;

/// Figures of one engine at one size.
#[derive(Serialize)]
pub(crate) struct Grown {
    pub(crate) mebibytes: u32,
    pub(crate) engine: &'static str,
    /// Seconds of a scan with a warm cache, median.
    pub(crate) scan: f64,
    /// Seconds of one random read, median.
    pub(crate) read: f64,
}

/// Every engine at every size.
pub(crate) fn measure(
    place: &Place,
    engines: &[Engine],
    sizes: &[u32],
    rounds: u32,
) -> Result<Vec<Grown>, Failure> {
    // Reading does not know of freshness.
    let is_reader = |engine: &&Engine| **engine != Engine::Fresh;
    let engines: Vec<Engine> = engines.iter().filter(is_reader).copied().collect();
    let mut grown = Vec::new();
    for size in sizes {
        note(&format!("a database of {size} MiB"));
        grown.extend(at_size(place, &engines, *size, rounds)?);
    }
    Ok(grown)
}

fn at_size(
    place: &Place,
    engines: &[Engine],
    mebibytes: u32,
    rounds: u32,
) -> Result<Vec<Grown>, Failure> {
    let rows = mebibytes * ROWS_A_MIB;
    let path = |engine: Engine| place.path(&format!("growth-{}.db", engine.name()));
    let fill = format!(
        "sql PRAGMA journal_mode=off\nsql PRAGMA synchronous=OFF\nsql CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)\n\
         sql WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
         INSERT INTO t SELECT i, printf('carefully %0390d', (i * 2654435761) % 4294967296) FROM n\n"
    );
    for engine in engines {
        make(place, *engine, &path(*engine), &fill)?;
    }
    let mut seconds = vec![[Vec::new(), Vec::new()]; engines.len()];
    for round in 0..rounds {
        let lines = [
            "time SELECT count(*), sum(length(b)) FROM t".to_owned(),
            format!("reads {READS} {round} {rows} one SELECT length(b) FROM t WHERE a = ?1"),
        ];
        for (which, line) in lines.into_iter().enumerate() {
            let mut agreed = None;
            for index in order(engines.len(), round) {
                let engine = engines[index];
                let script = Script {
                    before: place.opened_at(engine, &path(engine))?,
                    measured: vec![line.clone()],
                    ..Script::default()
                };
                let done = driver::run(&place.program(engine), &script)?;
                agree(&mut agreed, &done.digest, engine, &line)?;
                seconds[index][which].push(done.amount);
            }
        }
    }
    let mut grown = Vec::new();
    for (engine, [scans, reads]) in engines.iter().zip(&seconds) {
        std::fs::remove_file(path(*engine))?;
        grown.push(Grown {
            mebibytes,
            engine: engine.name(),
            scan: median(scans),
            read: median(reads) / f64::from(READS),
        });
    }
    Ok(grown)
}
