//! `START_REPLICATION`: the write-ahead log as it is written.
//!
//! Invariants:
//! - Q14: each piece of the log begins where the one before ended, and the first where it was asked
//!   for: the received log has no gap and no repetition, or the stream fails.
//! - Q15: the server hears only of positions that the caller has confirmed. A slot keeps the log
//!   from the flushed position on: a position that is reported too early loses log.
//! - Q16: the ways in which a stream ends are distinguished: the timeline ended, the server shut
//!   down in good order, or it ended early, which is an error.

use std::ops::Range;
use std::time::Duration;

use bytes::BufMut as _;
use postgres_protocol::message::frontend;
use strongroom_postgres_wire::Fields;
use strongroom_postgres_wire::client::{Error, Reply, Result, Row, WaitLimit};

use crate::command::{parse_column, slot_name};
use crate::connection::{Connection, Sent, State};
use crate::lsn::{Lsn, clock};

const STARTING: &str = "the stream of the log was being begun";
const DURING: &str = "the log was being received";
const STOPPING: &str = "the stream of the log was being ended";

/// How far a receiver has come. Zero is "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Written, perhaps not durably.
    pub write: Lsn,
    /// Durable: the server may remove the log before it.
    pub flush: Lsn,
    /// Replayed; 0 for a receiver that only stores the log.
    pub apply: Lsn,
}

/// Where the log goes on after a timeline that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTimeline {
    /// The timeline.
    pub timeline: u32,
    /// The position at which it begins.
    pub start: Lsn,
}

/// The answer to a request for the log.
#[derive(Debug)]
pub enum Started<'a> {
    /// The stream.
    Streaming(WalStream<'a>),
    /// The timeline ends just where the log was asked for.
    TimelineEnded(NextTimeline),
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalEvent<'a> {
    /// Bytes of the log.
    Data {
        /// Where they are in it.
        start: Lsn,
        /// How far the server's own log reaches.
        server_end: Lsn,
        /// They need not begin or end with a record, a page or a segment.
        bytes: &'a [u8],
    },
    /// The server is alive. If it asked for an answer, it has got the positions that were confirmed
    /// last.
    Keepalive {
        /// How far the server's own log reaches.
        server_end: Lsn,
    },
    /// Nothing came in the time that was given.
    Idle,
    /// The timeline has ended: everything of it was received. The connection is ready for the next
    /// one.
    TimelineEnd(NextTimeline),
    /// The server has sent everything and shuts down. The connection is over.
    ServerShutDown,
}

/// A stream of the log. Dropped before its end, it gives its connection up; [`Self::stop`] does
/// not.
#[derive(Debug)]
pub struct WalStream<'a> {
    connection: &'a mut Connection,
    received: Lsn,
    confirmed: Positions,
    over: Option<Over>,
}

#[derive(Clone, Copy, Debug)]
enum Over {
    Timeline(NextTimeline),
    ShutDown,
}

enum Place {
    Data(Lsn, Lsn, Range<usize>),
    Keepalive(Lsn),
    Idle,
    Over(Over),
}

impl Connection {
    /// Asks for the log of `timeline` from `from` on, through a physical slot if one is named.
    ///
    /// # Errors
    /// The server's, after which the connection can be used again: log that is no longer there is
    /// SQLSTATE 58P01, a slot in use 55006. [`Error::Misuse`] for what is not the name of a slot.
    pub fn start_replication(
        &mut self,
        slot: Option<&str>,
        from: Lsn,
        timeline: u32,
    ) -> Result<Started<'_>> {
        let mut command = String::from("START_REPLICATION ");
        if let Some(name) = slot {
            slot_name(name)?;
            command = format!("{command}SLOT \"{name}\" ");
        }
        command = format!("{command}PHYSICAL {from} TIMELINE {timeline}");
        self.send(&command, STARTING)?;
        match self.reply(STARTING) {
            Ok(Reply::CopyBoth) => Ok(Started::Streaming(WalStream {
                connection: self,
                received: from,
                confirmed: Positions::default(),
                over: None,
            })),
            Ok(Reply::Columns(_)) => {
                let next = self.next_timeline(WaitLimit::Silence(self.silence()))?;
                match next {
                    Some(next) => Ok(Started::TimelineEnded(next)),
                    None => self.out_of_place("a timeline that ends in nothing"),
                }
            }
            Ok(_) => self.out_of_place("an answer that does not begin a stream"),
            Err(error) => {
                if matches!(&error, Error::Server(told) if !told.is_fatal()) {
                    self.recover(STARTING);
                }
                Err(error)
            }
        }
    }

    /// What comes after both sides have ended a copy, up to "ready".
    fn next_timeline(&mut self, limit: WaitLimit) -> Result<Option<NextTimeline>> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            match self.in_time(limit)? {
                Reply::Columns(_) | Reply::Complete(_) => {}
                Reply::Row(row) if rows.is_empty() => rows.push(row),
                Reply::Ready => break,
                _ => return self.out_of_place("a message after a stream"),
            }
        }
        let next = rows.first().map(|row| {
            Ok(NextTimeline {
                timeline: parse_column(row, 0)?,
                start: parse_column(row, 1)?,
            })
        });
        next.transpose()
    }

    fn in_time(&mut self, limit: WaitLimit) -> Result<Reply> {
        let reply = self.reply_within(limit, STOPPING)?;
        reply.ok_or_else(|| {
            self.state = State::GivenUp;
            Error::TimedOut(STOPPING)
        })
    }
}

impl WalStream<'_> {
    /// Up to where the log was received.
    #[must_use]
    pub const fn received(&self) -> Lsn {
        self.received
    }

    /// The positions that were confirmed last: the server was told them, or had shut down.
    #[must_use]
    pub const fn confirmed(&self) -> Positions {
        self.confirmed
    }

    /// The next event; returns after `wait` at the latest, also in the middle of a message, which
    /// is not lost. Once the stream is over, it says so again.
    ///
    /// # Errors
    /// The server's, of the protocol, of the connection. Every later call is [`Error::GivenUp`].
    pub fn next(&mut self, wait: Duration) -> Result<WalEvent<'_>> {
        let place = match self.over {
            Some(over) => Place::Over(over),
            None => self.advance(wait)?,
        };
        Ok(match place {
            Place::Data(start, server_end, range) => WalEvent::Data {
                start,
                server_end,
                bytes: self.connection.session.bytes(range),
            },
            Place::Keepalive(server_end) => WalEvent::Keepalive { server_end },
            Place::Idle => WalEvent::Idle,
            Place::Over(Over::Timeline(next)) => WalEvent::TimelineEnd(next),
            Place::Over(Over::ShutDown) => WalEvent::ServerShutDown,
        })
    }

    fn advance(&mut self, wait: Duration) -> Result<Place> {
        let limit = WaitLimit::of(wait);
        let Some(reply) = self.connection.reply_within(limit, DURING)? else {
            return Ok(Place::Idle);
        };
        match reply {
            Reply::CopyData(body) => self.take(body),
            Reply::CopyDone => {
                frontend::copy_done(self.connection.output());
                self.connection.flush(DURING)?;
                let limit = WaitLimit::Silence(self.connection.silence());
                match self.connection.next_timeline(limit)? {
                    Some(next) => Ok(self.end(Over::Timeline(next))),
                    None => self
                        .connection
                        .out_of_place("a timeline that ends in nothing"),
                }
            }
            // A server that shuts down says that the command is done, and nothing of the copy.
            Reply::Complete(_) => {
                self.connection.state = State::GivenUp;
                Ok(self.end(Over::ShutDown))
            }
            _ => self
                .connection
                .out_of_place("a message that does not belong into a stream"),
        }
    }

    fn end(&mut self, over: Over) -> Place {
        self.over = Some(over);
        Place::Over(over)
    }

    /// One message of the copy: its first byte says what it is.
    fn take(&mut self, body: Range<usize>) -> Result<Place> {
        let payload = self.connection.session.bytes(body.clone());
        let mut fields = Fields(payload);
        let kind = fields.byte();
        let head = match kind {
            Some(b'w') => fields.uint64().zip(fields.uint64()).zip(fields.uint64()),
            Some(b'k') => fields.uint64().zip(fields.uint64()).zip(Some(0)),
            _ => None,
        };
        let Some(((first, second), _clock)) = head else {
            return self
                .connection
                .out_of_place("a part of a stream that is none");
        };
        if kind == Some(b'w') {
            let bytes = fields.0.len();
            if Lsn(first) != self.received {
                let text = format!("log from {} where {} is next", Lsn(first), self.received);
                return self.connection.out_of_place(text);
            }
            self.received = self.received.after(bytes as u64);
            return Ok(Place::Data(
                Lsn(first),
                Lsn(second),
                body.end - bytes..body.end,
            ));
        }
        match (fields.byte(), fields.0) {
            (Some(0), []) => {}
            (Some(1), []) => self.keep_alive()?,
            _ => return self.connection.out_of_place("a keepalive that is none"),
        }
        Ok(Place::Keepalive(Lsn(first)))
    }

    /// Confirms positions, and tells the server. They do not go back, `flush` is not after `write`,
    /// and neither is after what was received.
    ///
    /// # Errors
    /// [`Error::Misuse`], after which the stream goes on; those of the connection.
    pub fn confirm(&mut self, positions: Positions) -> Result<()> {
        let before = self.confirmed;
        let forward = positions.write >= before.write
            && positions.flush >= before.flush
            && positions.apply >= before.apply;
        let ordered = positions.flush <= positions.write
            && positions.apply <= positions.write
            && positions.write <= self.received;
        if !forward || !ordered {
            return Err(Error::Misuse(
                "positions that were not received, or that go back",
            ));
        }
        self.confirmed = positions;
        self.keep_alive()
    }

    /// Tells the server again what was confirmed last. Whoever is busy with what was received calls
    /// it now and then: a server gives a receiver up that it has not heard of for
    /// `wal_sender_timeout`, a minute by default.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn keep_alive(&mut self) -> Result<()> {
        if self.over.is_some() {
            return Ok(());
        }
        if self.connection.state != State::Busy {
            return Err(Error::GivenUp);
        }
        let output = self.connection.output();
        // Type and length of CopyData, then a standby status update: type, three positions, clock,
        // "answer at once".
        output.put_u8(b'd');
        output.put_u32(4 + 1 + 4 * 8 + 1);
        output.put_u8(b'r');
        for position in [
            self.confirmed.write,
            self.confirmed.flush,
            self.confirmed.apply,
        ] {
            output.put_u64(position.0);
        }
        output.put_i64(clock());
        output.put_u8(0);
        // A server that shuts down may be gone when its last request is answered. It waits before
        // until all of the log was confirmed, so nothing is missing.
        if self.connection.flush_unless_done(DURING)? == Sent::AfterTheEnd {
            self.over = Some(Over::ShutDown);
        }
        Ok(())
    }

    /// Ends the stream in good order, within `wait`, after which the connection is ready again.
    /// What the server had sent beyond [`Self::received`] is thrown away.
    ///
    /// # Errors
    /// Those of the server, of the protocol, of the connection.
    pub fn stop(self, wait: Duration) -> Result<Option<NextTimeline>> {
        match self.over {
            Some(Over::Timeline(next)) => return Ok(Some(next)),
            Some(Over::ShutDown) => return Ok(None),
            None => {}
        }
        let limit = WaitLimit::of(wait);
        frontend::copy_done(self.connection.output());
        if self.connection.flush_unless_done(STOPPING)? == Sent::AfterTheEnd {
            return Ok(None);
        }
        loop {
            match self.connection.in_time(limit)? {
                // A busy server must not outlast the deadline either.
                Reply::CopyData(_) if limit.has_passed() => {
                    self.connection.state = State::GivenUp;
                    return Err(Error::TimedOut(STOPPING));
                }
                Reply::CopyData(_) => {}
                Reply::CopyDone => return self.connection.next_timeline(limit),
                // It shut down meanwhile.
                Reply::Complete(_) => {
                    self.connection.state = State::GivenUp;
                    return Ok(None);
                }
                _ => return self.connection.out_of_place("an end that is none"),
            }
        }
    }
}
