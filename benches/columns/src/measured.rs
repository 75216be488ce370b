//! The figures that the benchmark measures.

use std::time::Duration;

use strongroom_benches::stats::Samples;

/// The times of one run of a query.
#[derive(Clone, Copy, Default)]
pub(crate) struct QueryTimes {
    /// From sending the query to its last row, as psql measures it.
    pub(crate) wall: Duration,
    /// Processor time of the server, and of the zone.
    pub(crate) server: Duration,
    pub(crate) zone: Duration,
}

/// All runs of a query on one peer.
#[derive(Default)]
pub(crate) struct Runs {
    pub(crate) wall: Samples,
    pub(crate) server: Samples,
    pub(crate) zone: Samples,
}

impl Runs {
    /// Adds one run.
    pub(crate) fn push(&mut self, times: QueryTimes) {
        self.wall.push(times.wall);
        self.server.push(times.server);
        self.zone.push(times.zone);
    }
}

/// A query's runs on both peers.
pub(crate) struct QueryRuns {
    pub(crate) number: u32,
    pub(crate) plain: Runs,
    pub(crate) ours: Runs,
}

/// All figures.
pub(crate) struct Figures {
    pub(crate) lines: Vec<QueryRuns>,
    pub(crate) sizes: Sizes,
    /// Loading: plain, ours.
    pub(crate) load: [Duration; 2],
    /// From the start after a kill to the first answer: plain, ours.
    pub(crate) recovery: [Duration; 2],
}

/// Bytes in tables and indexes, and in the zone's files.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) plain: u64,
    pub(crate) ours: u64,
    pub(crate) zone: u64,
}
