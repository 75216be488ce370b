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

use crate::command::{check_slot_name, parse_column};
use crate::connection::{Connection, Sent, State};
use crate::lsn::{Lsn, timestamp};

const STARTING: &str = "the stream of the log was being begun";
const DURING: &str = "the log was being received";
const STOPPING: &str = "the stream of the log was being ended";

/// Positions up to which a receiver has the log. Zero is "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// The log before it is written, perhaps not durably.
    pub write: Lsn,
    /// The log before it is durable at the receiver: the server may remove it.
    pub flush: Lsn,
    /// The log before it is replayed; 0 for a receiver that only stores the log.
    pub apply: Lsn,
}

/// The timeline that follows one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTimeline {
    /// Its number.
    pub timeline: u32,
    /// The position at which it begins.
    pub start: Lsn,
}

/// The answer to a request for the log.
#[derive(Debug)]
pub enum Started<'a> {
    /// The stream.
    Streaming(WalStream<'a>),
    /// There is no stream: the timeline ends exactly at the requested position.
    TimelineEnded(NextTimeline),
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalEvent<'a> {
    /// Bytes of the log.
    Data {
        /// The position of their first byte.
        start: Lsn,
        /// How far the server's own log reaches.
        server_end: Lsn,
        /// The bytes. They need not begin or end with a record, a page or a segment.
        bytes: &'a [u8],
    },
    /// The server is alive. If it requested a reply, the stream has sent it the positions that were
    /// confirmed last.
    Keepalive {
        /// How far the server's own log reaches.
        server_end: Lsn,
    },
    /// Nothing came in the time that was given.
    Idle,
    /// The timeline has ended, and all of it was received. The connection is ready to start the
    /// next one.
    TimelineEnd(NextTimeline),
    /// The server has sent everything and shuts down. The connection is over.
    ServerShutDown,
}

/// A stream of the log. A stream that is dropped before its end gives its connection up;
/// [`Self::stop`] ends a stream and keeps the connection.
#[derive(Debug)]
pub struct WalStream<'a> {
    connection: &'a mut Connection,
    received: Lsn,
    confirmed: Positions,
    end: Option<End>,
}

/// How a stream has ended in good order.
#[derive(Clone, Copy, Debug)]
enum End {
    Timeline(NextTimeline),
    ShutDown,
}

/// A [`WalEvent`] whose bytes are still a range of the connection's input.
enum Event {
    /// First position, the server's end, the bytes.
    Data(Lsn, Lsn, Range<usize>),
    /// The server's end.
    Keepalive(Lsn),
    Idle,
    End(End),
}

impl Connection {
    /// Requests the log of `timeline` from `from` on, through a physical slot if one is named.
    ///
    /// # Errors
    /// [`Error::Server`] when the server refuses, after which the connection can be used again: a
    /// segment that was removed is SQLSTATE 58P01, a slot in use 55006. [`Error::Misuse`] for a
    /// malformed name of a slot; [`Error::Protocol`] and those of the connection, which give the
    /// connection up.
    pub fn start_replication(
        &mut self,
        slot: Option<&str>,
        from: Lsn,
        timeline: u32,
    ) -> Result<Started<'_>> {
        let mut command = String::from("START_REPLICATION ");
        if let Some(name) = slot {
            check_slot_name(name)?;
            command = format!("{command}SLOT \"{name}\" ");
        }
        command = format!("{command}PHYSICAL {from} TIMELINE {timeline}");
        self.send(&command, STARTING)?;
        match self.reply(STARTING) {
            Ok(Reply::CopyBoth) => Ok(Started::Streaming(WalStream {
                connection: self,
                received: from,
                confirmed: Positions::default(),
                end: None,
            })),
            Ok(Reply::Columns(_)) => {
                let next = self.next_timeline(WaitLimit::Silence(self.silence()))?;
                match next {
                    Some(next) => Ok(Started::TimelineEnded(next)),
                    None => self.fail_protocol("a timeline that ends in nothing"),
                }
            }
            Ok(_) => self.fail_protocol("an answer that does not begin a stream"),
            Err(error) => {
                if matches!(&error, Error::Server(told) if !told.is_fatal()) {
                    self.recover(STARTING);
                }
                Err(error)
            }
        }
    }

    /// Reads from the end of a copy on both sides to `ReadyForQuery`, and returns the next
    /// timeline. `None` when the server names none.
    fn next_timeline(&mut self, limit: WaitLimit) -> Result<Option<NextTimeline>> {
        let mut rows: Vec<Row> = Vec::new();
        loop {
            match self.reply_or_time_out(limit)? {
                Reply::Columns(_) | Reply::Complete(_) => {}
                Reply::Row(row) if rows.is_empty() => rows.push(row),
                Reply::Ready => break,
                _ => return self.fail_protocol("a message after a stream"),
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

    /// Waits for the next message of the server within this limit. Any error gives the connection
    /// up: [`Error::TimedOut`] when the limit was reached, else that of the server or the
    /// connection.
    fn reply_or_time_out(&mut self, limit: WaitLimit) -> Result<Reply> {
        let reply = self.reply_within(limit, STOPPING)?;
        reply.ok_or_else(|| {
            self.state = State::GivenUp;
            Error::TimedOut(STOPPING)
        })
    }
}

impl WalStream<'_> {
    /// Returns the position up to which the log was received.
    #[must_use]
    pub const fn received(&self) -> Lsn {
        self.received
    }

    /// Returns the positions that were confirmed last. The server has got them, or had shut down.
    #[must_use]
    pub const fn confirmed(&self) -> Positions {
        self.confirmed
    }

    /// Waits for the next event and returns it: [`WalEvent::Idle`] after `wait` at the latest; a
    /// message of which a part has come is not lost. After the end of the stream every call returns
    /// that end.
    ///
    /// # Errors
    /// [`Error::Server`] when the server ends the stream; [`Error::Protocol`], also for log that
    /// does not follow on what was received; [`Error::EndedEarly`] and [`Error::Io`] of the
    /// connection. Every later call is [`Error::GivenUp`].
    pub fn next(&mut self, wait: Duration) -> Result<WalEvent<'_>> {
        let event = match self.end {
            Some(end) => Event::End(end),
            None => self.advance(wait)?,
        };
        Ok(match event {
            Event::Data(start, server_end, range) => WalEvent::Data {
                start,
                server_end,
                bytes: self.connection.session.bytes(range),
            },
            Event::Keepalive(server_end) => WalEvent::Keepalive { server_end },
            Event::Idle => WalEvent::Idle,
            Event::End(End::Timeline(next)) => WalEvent::TimelineEnd(next),
            Event::End(End::ShutDown) => WalEvent::ServerShutDown,
        })
    }

    /// Waits at most `wait` for one message of a stream that has not ended, and returns it as an
    /// event; `Idle` when none came. At the end of a timeline it answers the server and reads the
    /// next timeline; when the server shuts down, the connection is over.
    ///
    /// # Errors
    /// Those of the connection; [`Error::Protocol`] for a message that does not belong here.
    fn advance(&mut self, wait: Duration) -> Result<Event> {
        let limit = WaitLimit::of(wait);
        let Some(reply) = self.connection.reply_within(limit, DURING)? else {
            return Ok(Event::Idle);
        };
        match reply {
            Reply::CopyData(body) => self.parse(body),
            Reply::CopyDone => {
                frontend::copy_done(self.connection.output());
                self.connection.flush(DURING)?;
                let limit = WaitLimit::Silence(self.connection.silence());
                match self.connection.next_timeline(limit)? {
                    Some(next) => Ok(self.end(End::Timeline(next))),
                    None => self
                        .connection
                        .fail_protocol("a timeline that ends in nothing"),
                }
            }
            // A server that shuts down says that the command is done, and nothing of the copy.
            Reply::Complete(_) => {
                self.connection.state = State::GivenUp;
                Ok(self.end(End::ShutDown))
            }
            _ => self
                .connection
                .fail_protocol("a message that does not belong into a stream"),
        }
    }

    /// Records how the stream has ended, and returns that as an event.
    fn end(&mut self, end: End) -> Event {
        self.end = Some(end);
        Event::End(end)
    }

    /// Parses one `CopyData`, whose first byte is its kind, counts the log that it brings, and
    /// answers a keepalive that requests a reply. [`Error::Protocol`] for log that does not follow
    /// on what was received, and for a malformed message; the errors of answering.
    fn parse(&mut self, body: Range<usize>) -> Result<Event> {
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
                .fail_protocol("a part of a stream that is none");
        };
        if kind == Some(b'w') {
            let bytes = fields.0.len();
            if Lsn(first) != self.received {
                let text = format!("log from {} where {} is next", Lsn(first), self.received);
                return self.connection.fail_protocol(text);
            }
            self.received = self.received.after(bytes as u64);
            return Ok(Event::Data(
                Lsn(first),
                Lsn(second),
                body.end - bytes..body.end,
            ));
        }
        match (fields.byte(), fields.0) {
            (Some(0), []) => {}
            (Some(1), []) => self.keep_alive()?,
            _ => return self.connection.fail_protocol("a keepalive that is none"),
        }
        Ok(Event::Keepalive(Lsn(first)))
    }

    /// Confirms positions and sends them to the server, which may then remove the log before
    /// `flush`. After the end of the stream it succeeds, but sends nothing. No position may be
    /// before the one confirmed last, `flush` and `apply` not after `write`, and `write` not after
    /// [`Self::received`].
    ///
    /// # Errors
    /// [`Error::Misuse`] for other positions: nothing is sent, and the stream can be continued.
    /// Those of [`Self::keep_alive`], after which it cannot.
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

    /// Sends the positions that were confirmed last again. A caller that processes what it received
    /// for long calls it now and then: a server closes the connection of a receiver that has sent
    /// nothing for `wal_sender_timeout`, a minute by default. After the end it does nothing.
    ///
    /// # Errors
    /// [`Error::Server`] when the server has ended the stream; [`Error::GivenUp`] after an earlier
    /// failure; those of the connection, which give it up.
    pub fn keep_alive(&mut self) -> Result<()> {
        if self.end.is_some() {
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
        output.put_i64(timestamp());
        output.put_u8(0);
        // A server that shuts down may be gone when its last request is answered. Before that it
        // waits until all of the log was confirmed, so nothing is missing.
        if self.connection.flush_or_end(DURING)? == Sent::AfterTheEnd {
            self.end = Some(End::ShutDown);
        }
        Ok(())
    }

    /// Ends the stream in good order, within `wait`, after which the connection is ready again
    /// unless the server shut down. Log that the server had sent beyond [`Self::received`] is
    /// discarded. Returns the next timeline if this one has ended; `None` otherwise.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when the server has not answered within `wait`; [`Error::Server`],
    /// [`Error::Protocol`]; those of the connection. All of them give the connection up.
    pub fn stop(self, wait: Duration) -> Result<Option<NextTimeline>> {
        match self.end {
            Some(End::Timeline(next)) => return Ok(Some(next)),
            Some(End::ShutDown) => return Ok(None),
            None => {}
        }
        let limit = WaitLimit::of(wait);
        frontend::copy_done(self.connection.output());
        if self.connection.flush_or_end(STOPPING)? == Sent::AfterTheEnd {
            return Ok(None);
        }
        loop {
            match self.connection.reply_or_time_out(limit)? {
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
                _ => return self.connection.fail_protocol("an end that is none"),
            }
        }
    }
}
