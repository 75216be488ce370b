//! Receives a server's log as it is written, into the archive: whole segments as `wal_push`
//! archives them, and pieces of the one that is being written.
//!
//! Invariants:
//! - B15: a position is reported to the server as flushed only when all log up to it is durable on
//!   the medium. Archived files that are only listed are made durable before they count: their
//!   writer may have been killed before it did so.
//! - B16: a receiver starts with the first byte of the segment in which the archive ends, so that
//!   no segment is left out, and each archived segment was received from its first byte to its
//!   last.
//!
//! Must not: write log to any place but the medium; go on when the server no longer has log that is
//! needed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_postgres_replication::{
    Config, Connection, Error as ServerError, Lsn, NextTimeline, Positions, Started, WalEvent,
    WalStream,
};

use crate::log_names::{Piece, parse_segment_name};
use crate::medium::list;
use crate::medium_rules::medium_for_archive;
use crate::options::CreateOptions;
use crate::partial_segment::{contiguous_pieces, remove_pieces};
use crate::store::Store;
use crate::wal::{archived_system, make_durable, wal_push};
use crate::{Error, Result};

/// The most bytes that are received before they are made durable, even while more arrive.
const PENDING_MAX: usize = 4 << 20;
/// The most pieces of one segment; then they are replaced by one.
const PIECES_MAX: usize = 64;
/// The interval of keepalive messages to the server.
const ALIVE: Duration = Duration::from_secs(10);
/// How often an idle receiver checks whether it must stop.
const LOOK: Duration = Duration::from_millis(200);
/// How long a stream may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// The waits between attempts to connect: doubled from the first to the last.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Options of a receiver.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// The replication slot to use.
    pub slot: Option<String>,
    /// Make the slot if it does not exist.
    pub create_slot: bool,
    /// End when the log up to this position is durable.
    pub until: Option<Lsn>,
    /// End with an error when the connection is lost, instead of trying again.
    pub once: bool,
}

/// A progress report of a receiver.
#[derive(Debug)]
pub enum Received {
    /// The stream has begun at this position of this timeline.
    From(Lsn, u32),
    /// The connection was lost, or could not be made; it is tried again after so long.
    Lost(String, Duration),
}

/// Receives log until `stop` is set, or `options.until` is reached, and archives it. A lost
/// connection is made again, after a growing wait, unless `options.once`; `tell` gets the progress.
///
/// # Errors
/// SR-7101 when there is no medium; SR-7104 or SR-7105 when it is sealed and the log would not be
/// or the other way round; SR-7165 when the archive is another cluster's; SR-7166 when the server
/// reports an error that a new attempt cannot help, or, with `options.once`, the connection is lost
/// or the server shuts down; SR-7120 when the archive has another file of a segment's name;
/// SR-5001, or SR-7141 to SR-7143 for an object store, when the medium fails.
pub fn wal_receive(
    store: &dyn Store,
    config: &Config,
    sealing: &CreateOptions<'_>,
    options: &ReceiveOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Received),
) -> Result<()> {
    medium_for_archive(store, sealing)?;
    let mut wait = WAITS.0;
    loop {
        let mut receiver = Receiver {
            store,
            sealing,
            options,
            stop,
            segment: Segment::default(),
            received: false,
        };
        let lost = match receiver.connect(config, tell) {
            Ok(Ended::Done) => return Ok(()),
            Ok(Ended::ShutDown) => String::from("the server has shut down"),
            Err(Failed::Medium(error)) => return Err(error),
            Err(Failed::Server(error)) if !options.once && is_worth_retrying(&error) => {
                error.to_string()
            }
            Err(Failed::Server(error)) => {
                return Err(Error::new(&code::RECEIVE, error.to_string()));
            }
        };
        if options.once {
            return Err(Error::new(&code::RECEIVE, lost));
        }
        if receiver.received {
            wait = WAITS.0;
        }
        tell(Received::Lost(lost, wait));
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(LOOK.min(wait));
        }
        wait = wait.saturating_mul(2).min(WAITS.1);
    }
}

/// Whether trying again can help: the network failed, the server is starting, stopping or has too
/// many connections, or another receiver still uses the slot.
fn is_worth_retrying(error: &ServerError) -> bool {
    match error {
        ServerError::Connect { .. }
        | ServerError::EndedEarly(_)
        | ServerError::TimedOut(_)
        | ServerError::Io(_) => true,
        ServerError::Server(told) => {
            let class = told.sqlstate.get(..2).unwrap_or_default();
            ["08", "53", "57"].contains(&class) || told.sqlstate == "55006"
        }
        _ => false,
    }
}

/// Returns the timeline and the end of the cluster's newest set: recovery from it needs the log
/// from there on. `None` when the medium has no such set. A standby's set has only the beginning of
/// that segment. Heads are not authenticated here: a forged one can only make the receiver start
/// elsewhere. SR-7101 when there is no medium; errors of the store.
fn newest_set(store: &dyn Store, system: u64) -> Result<Option<(u32, Lsn)>> {
    let system = system.to_string();
    let mut ends = list(store)?.sets.into_iter().rev().filter_map(|set| {
        let facts = set.description.postgres?;
        let end: Lsn = facts.end_lsn.parse().ok()?;
        let of = facts.system_identifier == system && end.0 > 0;
        of.then_some((facts.end_timeline, Lsn(end.0.saturating_sub(1))))
    });
    Ok(ends.next())
}

enum Failed {
    Server(ServerError),
    Medium(Error),
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Medium(error)
    }
}

enum Ended {
    /// The receiver was told to stop, or has reached the wanted position.
    Done,
    ShutDown,
}

enum StreamEnd {
    Timeline(NextTimeline),
    Ended(Ended),
}

/// The segment that is being received.
#[derive(Default)]
struct Segment {
    timeline: u32,
    /// Where it begins.
    start: u64,
    /// Bytes of a segment.
    size: usize,
    content: Vec<u8>,
    /// How many of its bytes are durable in pieces, perhaps from an earlier run.
    durable: usize,
    pieces: Vec<Piece>,
}

impl Segment {
    /// The name that PostgreSQL gives it (`XLogFileName`, `src/include/access/xlog_internal.h`).
    fn name(&self) -> String {
        let size = self.size.max(1) as u64;
        let (number, in_file) = (self.start / size, (1_u64 << 32) / size);
        let (file, within) = (number / in_file.max(1), number % in_file.max(1));
        format!("{:08X}{file:08X}{within:08X}", self.timeline)
    }

    /// Begins the segment that starts at `start`, with nothing received; what was received of the
    /// former one is forgotten.
    fn go_to(&mut self, timeline: u32, start: u64) {
        self.timeline = timeline;
        self.start = start;
        self.content.clear();
        self.durable = 0;
        self.pieces.clear();
    }

    /// The position up to which everything that was received is durable.
    fn flushed(&self) -> Lsn {
        let durable = self.durable.min(self.content.len());
        Lsn(self.start.saturating_add(durable as u64))
    }
}

struct Receiver<'a> {
    store: &'a dyn Store,
    sealing: &'a CreateOptions<'a>,
    options: &'a ReceiveOptions,
    stop: &'a AtomicBool,
    segment: Segment,
    received: bool,
}

impl Receiver<'_> {
    /// Connects, begins where the archive ends, and receives until the end, following the server to
    /// new timelines. Returns `Done` when the receiver was told to stop or has all wanted log.
    /// SR-7165 when the archive is another cluster's; errors of the server and the medium.
    fn connect(
        &mut self,
        config: &Config,
        tell: &mut dyn FnMut(Received),
    ) -> std::result::Result<Ended, Failed> {
        let mut connection = Connection::open(config)?;
        let identity = connection.identify_system()?;
        let size = connection.wal_segment_bytes()?;
        let found = archived_system(self.store)?;
        if let Some(found) = found.filter(|found| *found != identity.system.to_string()) {
            let detail = format!("{found}, the server is {}", identity.system);
            return Err(Error::new(&code::ARCHIVE_FOREIGN, detail).into());
        }
        let slot = self.options.slot.as_deref();
        let reserved = self.slot_position(&mut connection)?;
        self.segment.size = usize::try_from(size).unwrap_or(usize::MAX);
        let set = newest_set(self.store, identity.system)?;
        let fallback = set
            .or(reserved)
            .unwrap_or((identity.timeline, identity.position));
        self.choose_start(fallback)?;
        loop {
            self.archive_history(&mut connection, self.segment.timeline)?;
            let (from, timeline) = (Lsn(self.segment.start), self.segment.timeline);
            let next = match connection.start_replication(slot, from, timeline)? {
                Started::TimelineEnded(next) => next,
                Started::Streaming(mut stream) => {
                    tell(Received::From(from, timeline));
                    match self.receive_stream(&mut stream)? {
                        StreamEnd::Timeline(next) => next,
                        StreamEnd::Ended(Ended::ShutDown) => return Ok(Ended::ShutDown),
                        StreamEnd::Ended(Ended::Done) => {
                            // Everything is durable and confirmed: how the connection ends does not
                            // matter.
                            drop(stream.stop(ENDING));
                            return Ok(Ended::Done);
                        }
                    }
                }
            };
            self.segment
                .go_to(next.timeline, next.start.segment_start(size).0);
        }
    }

    /// Returns the timeline and position from which the slot keeps log; `None` without a slot, or
    /// when it keeps none. Makes the slot if it does not exist and `create_slot` is set. Errors of
    /// the server and the connection.
    fn slot_position(
        &self,
        connection: &mut Connection,
    ) -> std::result::Result<Option<(u32, Lsn)>, ServerError> {
        let Some(name) = &self.options.slot else {
            return Ok(None);
        };
        let mut found = connection.read_slot(name)?;
        if found.is_none() && self.options.create_slot {
            connection.create_slot(name, false, true)?;
            found = connection.read_slot(name)?;
        }
        let found = found.and_then(|slot| slot.timeline.zip(slot.restart));
        Ok(found)
    }

    /// Chooses where to begin: after the last whole segment of the archive, or with the segment of
    /// which it has pieces; with an empty archive, with the segment of `fallback`. Makes the files
    /// that count durable, and removes pieces of segments that are whole. SR-7106 or SR-7110 when
    /// one of these files is damaged; errors of the store.
    fn choose_start(&mut self, fallback: (u32, Lsn)) -> Result<()> {
        let failed = |error| Error::io(self.store.shown(), error);
        let listed = self.store.list("wal").map_err(failed)?;
        let size = self.segment.size.max(1) as u64;
        let mut pieces = Vec::new();
        // Number, timeline, and whether it is whole. The archive ends with the greatest.
        let mut last: Option<(u64, u32, bool)> = None;
        for (name, _) in &listed {
            let piece = Piece::of(name);
            let of = piece.as_ref().map_or(name.as_str(), |piece| &piece.segment);
            if let Some((timeline, number)) = parse_segment_name(of) {
                let timeline = u32::try_from(timeline).unwrap_or(u32::MAX);
                last = last.max(Some((number, timeline, piece.is_none())));
            }
            pieces.extend(piece);
        }
        let Some((number, timeline, whole)) = last else {
            self.segment
                .go_to(fallback.0, fallback.1.segment_start(size).0);
            return Ok(());
        };
        let within = number & 0xffff_ffff;
        let start = (number & !0xffff_ffff).saturating_add(within.saturating_mul(size));
        self.segment.go_to(timeline, start);
        let name = self.segment.name();
        // Pieces of whole segments, which a killed receiver did not remove.
        let is_whole = |piece: &Piece| {
            let names = listed.binary_search_by(|(name, _)| name.as_str().cmp(&piece.segment));
            names.is_ok()
        };
        let (done, open): (Vec<Piece>, Vec<Piece>) = pieces.into_iter().partition(is_whole);
        let mut followed: BTreeSet<&str> =
            done.iter().map(|piece| piece.segment.as_str()).collect();
        if whole {
            followed.insert(&name);
        }
        for name in followed {
            make_durable(self.store, name)?;
        }
        remove_pieces(self.store, &done)?;
        if whole {
            self.segment.go_to(timeline, start.saturating_add(size));
            return Ok(());
        }
        let (chosen, durable) = contiguous_pieces(&open, &name);
        for piece in &chosen {
            make_durable(self.store, &piece.name())?;
        }
        self.segment.durable = usize::try_from(durable).unwrap_or(0);
        self.segment.pieces = open
            .into_iter()
            .filter(|piece| piece.segment == name)
            .collect();
        Ok(())
    }

    /// Fetches the history of a timeline from the server and archives it; without it recovery does
    /// not find its way to the timeline. Does nothing for timeline 1, which has none. Errors of the
    /// server, of the archive (SR-7120 when it has another file of that name) and of the medium.
    fn archive_history(
        &self,
        connection: &mut Connection,
        timeline: u32,
    ) -> std::result::Result<(), Failed> {
        if timeline > 1 {
            let history = connection.timeline_history(timeline)?;
            wal_push(self.store, &history.file, &history.content, self.sealing)?;
        }
        Ok(())
    }

    /// Receives one stream to its end: archives what arrives, confirms what is durable, and sends
    /// keepalive messages. Returns at the timeline's end, when the server shuts down, when `stop`
    /// is set, or when all wanted log is durable. Errors of the server and of the medium.
    fn receive_stream(
        &mut self,
        stream: &mut WalStream<'_>,
    ) -> std::result::Result<StreamEnd, Failed> {
        let mut incoming = Vec::new();
        let mut told = Instant::now();
        loop {
            let pending = self.segment.content.len() > self.segment.durable;
            let wait = if pending { Duration::ZERO } else { LOOK };
            let mut idle = false;
            let mut end = None;
            match stream.next(wait)? {
                WalEvent::Data { bytes, .. } => incoming.extend_from_slice(bytes),
                WalEvent::Idle => idle = true,
                WalEvent::Keepalive { .. } => {}
                WalEvent::TimelineEnd(next) => end = Some(StreamEnd::Timeline(next)),
                WalEvent::ServerShutDown => end = Some(StreamEnd::Ended(Ended::ShutDown)),
            }
            self.add_received(stream, &mut incoming)?;
            let stopping = self.stop.load(Ordering::Relaxed);
            let pending = self
                .segment
                .content
                .len()
                .saturating_sub(self.segment.durable);
            if pending > 0 && (idle || stopping || end.is_some() || pending >= PENDING_MAX) {
                self.flush(stream)?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
            let flushed = self.segment.flushed();
            if flushed > stream.confirmed().flush {
                self.confirm(stream, flushed)?;
                told = Instant::now();
            } else if told.elapsed() >= ALIVE {
                stream.keep_alive()?;
                told = Instant::now();
            }
            if stopping || self.options.until.is_some_and(|until| flushed >= until) {
                return Ok(StreamEnd::Ended(Ended::Done));
            }
        }
    }

    /// Tells the server that the log is received up to where the stream is and durable up to
    /// `flush`; the server may then remove the log before `flush`. Succeeds without effect when
    /// the stream has ended or the server has shut down. Errors: the server's, when it has ended
    /// the stream with one, and those of the connection.
    fn confirm(
        &self,
        stream: &mut WalStream<'_>,
        flush: Lsn,
    ) -> std::result::Result<(), ServerError> {
        stream.confirm(Positions {
            write: stream.received(),
            flush,
            apply: Lsn(0),
        })
    }

    /// Moves the received bytes out of `incoming` into the segment, and archives each segment that
    /// is complete; its pieces are removed then. Errors of the server and of the medium.
    fn add_received(
        &mut self,
        stream: &mut WalStream<'_>,
        incoming: &mut Vec<u8>,
    ) -> std::result::Result<(), Failed> {
        while !incoming.is_empty() {
            self.received = true;
            let room = self.segment.size.saturating_sub(self.segment.content.len());
            let now = incoming.drain(..room.min(incoming.len()));
            self.segment.content.extend(now);
            if self.segment.content.len() < self.segment.size {
                continue;
            }
            let name = self.segment.name();
            self.archive(stream, &name, 0)?;
            remove_pieces(self.store, &self.segment.pieces)?;
            let next = self.segment.start.saturating_add(self.segment.size as u64);
            self.segment.go_to(self.segment.timeline, next);
        }
        Ok(())
    }

    /// Archives what is not durable yet as a new piece; when there are many pieces, one piece
    /// replaces them all, and they are removed. Errors as [`Self::archive`].
    fn flush(&mut self, stream: &mut WalStream<'_>) -> std::result::Result<(), Failed> {
        let together = self.segment.pieces.len() >= PIECES_MAX;
        let start = if together { 0 } else { self.segment.durable };
        let end = self.segment.content.len();
        let piece = Piece {
            segment: self.segment.name(),
            start: start as u64,
            end: end as u64,
        };
        self.archive(stream, &piece.name(), start)?;
        self.segment.durable = end;
        if together {
            remove_pieces(self.store, &self.segment.pieces)?;
            self.segment.pieces.clear();
        }
        self.segment.pieces.push(piece);
        Ok(())
    }

    /// Archives the segment's bytes from `from` on under `name`, in a thread of its own, and sends
    /// keepalive messages meanwhile. Returns when they are durable. SR-7120 when the archive has
    /// other contents of that name; errors of the store and the connection.
    fn archive(
        &self,
        stream: &mut WalStream<'_>,
        name: &str,
        from: usize,
    ) -> std::result::Result<(), Failed> {
        let content = self.segment.content.get(from..).unwrap_or_default();
        let (store, sealing) = (self.store, self.sealing);
        thread::scope(|scope| {
            let (done, is_done) = channel();
            let job = scope.spawn(move || {
                let pushed = wal_push(store, name, content, sealing);
                // When the stream has failed, nobody waits for this.
                let _sent: std::result::Result<(), _> = done.send(());
                pushed
            });
            let mut alive = Ok(());
            while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(ALIVE) {
                if alive.is_ok() {
                    alive = stream.keep_alive();
                }
            }
            let pushed = job.join();
            let pushed = pushed.map_err(|_| Error::new(&code::BUG, "archiving panicked"))?;
            pushed?;
            Ok(alive?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_the_name_that_postgresql_gives_it() {
        let name = |timeline, start, size| {
            let mut segment = Segment {
                size,
                ..Segment::default()
            };
            segment.go_to(timeline, start);
            segment.name()
        };
        assert_eq!(name(1, 0x300_0000, 16 << 20), "000000010000000000000003");
        assert_eq!(
            name(10, 0x2_ff00_0000, 16 << 20),
            "0000000A00000002000000FF"
        );
        assert_eq!(name(1, 0x1_4000_0000, 1 << 30), "000000010000000100000001");
        assert_eq!(name(1, 0x10_0000, 1 << 20), "000000010000000000000001");
    }

    #[test]
    fn nothing_is_flushed_that_was_not_received_again() {
        let mut segment = Segment {
            size: 16 << 20,
            ..Segment::default()
        };
        segment.go_to(1, 0x300_0000);
        segment.durable = 100;
        assert_eq!(segment.flushed(), Lsn(0x300_0000));
        segment.content = vec![0; 40];
        assert_eq!(segment.flushed(), Lsn(0x300_0028));
        segment.content = vec![0; 400];
        assert_eq!(segment.flushed(), Lsn(0x300_0064));
    }
}
