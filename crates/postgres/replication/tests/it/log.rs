//! Goal: the streamed log is the server's log, byte for byte, and every way in which it ends is
//! told apart. Method: real servers; segments compared with the server's own files; timelines,
//! slots, timeouts, shutdowns, kills.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use strongroom_postgres_replication::{
    Connection, Error, Lsn, NextTimeline, Positions, Started, WalEvent, WalStream,
};
use strongroom_testing_support::postgres as support;
use strongroom_testing_support::postgres::{Room, Server, checked, installed, until};

const SEGMENT: u64 = 16 << 20;
const WAIT: Duration = Duration::from_secs(10);

fn streaming<'a>(
    connection: &'a mut Connection,
    slot: Option<&str>,
    from: Lsn,
    timeline: u32,
) -> WalStream<'a> {
    match connection.start_replication(slot, from, timeline).unwrap() {
        Started::Streaming(stream) => stream,
        Started::TimelineEnded(next) => unreachable!("{next:?}"),
    }
}

/// Segments by the position of their beginning, as far as they were received.
#[derive(Default)]
struct Segments(BTreeMap<u64, Vec<u8>>);

impl Segments {
    fn put(&mut self, mut start: Lsn, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let segment = start.segment_start(SEGMENT);
            let room = usize::try_from(SEGMENT - (start.0 - segment.0)).unwrap();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.0.entry(segment.0).or_default().extend(now);
            start = start.after(now.len() as u64);
            bytes = later;
        }
    }
}

fn file(timeline: u32, segment: u64) -> String {
    let number = segment / SEGMENT;
    let in_log = (1 << 32) / SEGMENT;
    format!(
        "{timeline:08X}{:08X}{:08X}",
        number / in_log,
        number % in_log
    )
}

/// Follows the log until `end` was received.
fn follow(stream: &mut WalStream<'_>, segments: &mut Segments, end: Lsn) {
    while stream.received() < end {
        match stream.next(WAIT).unwrap() {
            WalEvent::Data { start, bytes, .. } => segments.put(start, bytes),
            WalEvent::Keepalive { .. } => {}
            other => unreachable!("{other:?}"),
        }
    }
}

/// Writes some segments' worth of log; where it ends.
fn write(server: &Server<'_>, rows: u32) -> Lsn {
    server.sql(&format!(
        "CREATE TABLE IF NOT EXISTS t (n int, x text); \
         INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, {rows}) n"
    ));
    server.sql("SELECT pg_switch_wal()");
    server
        .sql("SELECT pg_current_wal_flush_lsn()")
        .parse()
        .unwrap()
}

#[test]
fn the_log_is_the_servers_byte_for_byte() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "wal_keep_size = 512MB\n");
    let mut connection = server.connect();
    assert_eq!(connection.wal_segment_bytes().unwrap(), SEGMENT);
    let identity = connection.identify_system().unwrap();
    let from = identity.position.segment_start(SEGMENT);
    let first = write(&server, 50_000);
    let mut stream = streaming(&mut connection, None, from, identity.timeline);
    let mut segments = Segments::default();
    follow(&mut stream, &mut segments, first);
    // What is written while it is followed.
    let second = write(&server, 30_000);
    follow(&mut stream, &mut segments, second);
    assert_eq!(stream.stop(WAIT).unwrap(), None);
    // After a stop the connection is of use again.
    assert_eq!(
        connection.identify_system().unwrap().system,
        identity.system
    );

    let last = second.segment_start(SEGMENT).0;
    assert!(segments.0.len() >= 4, "{} segments", segments.0.len());
    for (at, bytes) in &segments.0 {
        let path = server.data.join("pg_wal").join(file(1, *at));
        let theirs = fs::read(path).unwrap();
        let ours = bytes.len();
        assert!(
            ours == theirs.len() || *at >= last,
            "{ours} bytes at {}",
            Lsn(*at)
        );
        assert_eq!(
            Some(bytes.as_slice()),
            theirs.get(..ours),
            "at {}",
            Lsn(*at)
        );
    }
}

#[test]
fn a_slot_moves_only_by_what_is_confirmed() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "");
    let mut connection = server.connect();
    assert_eq!(connection.read_slot("none").unwrap(), None);
    let made = connection.create_slot("physical", false, true).unwrap();
    assert_eq!(made.name, "physical");
    let taken = connection.create_slot("physical", false, true).unwrap_err();
    assert_eq!(taken.sqlstate(), Some("42710"), "{taken}");
    for wrong in ["", "Upper", "a b", "a\"b", "a;b"] {
        let refused = connection.create_slot(wrong, false, false);
        assert!(matches!(refused, Err(Error::Misuse(_))), "{wrong}");
    }
    let slot = connection.read_slot("physical").unwrap().unwrap();
    assert_eq!((slot.kind.as_str(), slot.timeline), ("physical", Some(1)));
    let restart = slot.restart.unwrap();

    let from = restart.segment_start(SEGMENT);
    let end = write(&server, 1000);
    let mut stream = streaming(&mut connection, Some("physical"), from, 1);
    follow(&mut stream, &mut Segments::default(), end);
    stream.keep_alive().unwrap();
    let kept = || server.sql("SELECT restart_lsn FROM pg_replication_slots");
    let shown = || server.sql("SELECT write_lsn, flush_lsn FROM pg_stat_replication");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(kept(), restart.to_string(), "received is not confirmed");
    let positions = Positions {
        write: end,
        ..Positions::default()
    };
    stream.confirm(positions).unwrap();
    until("written", || shown().starts_with(&end.to_string()));
    assert_eq!(kept(), restart.to_string(), "written is not durable");
    let flushed = Positions {
        flush: end,
        ..positions
    };
    stream.confirm(flushed).unwrap();
    until("flushed", || kept() == end.to_string());
    assert!(stream.stop(WAIT).unwrap().is_none());

    let mut other = server.connect();
    let stream = streaming(&mut connection, Some("physical"), end, 1);
    let busy = other.drop_slot("physical", false).unwrap_err();
    assert_eq!(busy.sqlstate(), Some("55006"), "{busy}");
    stream.stop(WAIT).unwrap();
    connection.drop_slot("physical", true).unwrap();
    assert_eq!(connection.read_slot("physical").unwrap(), None);
    let gone = connection.drop_slot("physical", false).unwrap_err();
    assert_eq!(gone.sqlstate(), Some("42704"), "{gone}");
    connection.create_slot("for_now", true, false).unwrap();
    drop(connection);
    until("temporary slots end", || kept().is_empty());
}

#[test]
fn a_busy_receiver_is_kept_and_a_silent_one_is_not() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "wal_sender_timeout = 2s\n");
    let mut connection = server.connect();
    let from = connection.identify_system().unwrap().position;
    let mut stream = streaming(&mut connection, None, from, 1);
    // Busy, and saying so.
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(400));
        stream.keep_alive().unwrap();
    }
    // Waiting: what the server asks is answered.
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(5) {
        match stream.next(Duration::from_millis(200)).unwrap() {
            WalEvent::Keepalive { .. } => asked += 1,
            WalEvent::Idle | WalEvent::Data { .. } => {}
            other => unreachable!("{other:?}"),
        }
    }
    assert!(asked >= 2, "{asked} keepalives");
    // Busy without a word.
    until("the server gives up", || {
        server.sql("SELECT count(*) FROM pg_stat_replication") == "0"
    });
    let error = loop {
        match stream.next(WAIT) {
            Ok(WalEvent::Keepalive { .. } | WalEvent::Data { .. }) => {}
            Ok(other) => unreachable!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::EndedEarly(_)), "{error}");
    assert!(matches!(stream.next(WAIT), Err(Error::GivenUp)));
    assert!(matches!(stream.keep_alive(), Err(Error::GivenUp)));
}

#[test]
fn a_server_that_ended_the_connection_is_heard_though_we_were_writing() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "");
    let mut connection = server.connect();
    let from = connection.identify_system().unwrap().position;
    let mut stream = streaming(&mut connection, None, from, 1);
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    until("the sender has ended", || {
        server.sql("SELECT count(*) FROM pg_stat_replication") == "0"
    });
    let mut ended = None;
    for _ in 0..20 {
        if let Err(error) = stream.keep_alive() {
            ended = Some(error);
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let error = ended.unwrap();
    assert_eq!(error.sqlstate(), Some("57P01"), "{error}");
    assert!(matches!(stream.keep_alive(), Err(Error::GivenUp)));
}

#[test]
fn a_shutdown_is_told_apart_from_a_kill() {
    let room = Room::new();
    // The checkpoint of a shutdown removes segments that a slow receiver without a slot has not
    // read.
    let server = Server::started(&room, &installed(), "wal_keep_size = 256MB\n");
    let mut connection = server.connect();
    let from = connection.identify_system().unwrap().position;
    let mut stream = streaming(&mut connection, None, from, 1);
    write(&server, 1000);
    let data = server.data.clone();
    let bin = server.bin.clone();
    let stopping = std::thread::spawn(move || support::stop_in(&bin, &data, "fast"));
    loop {
        match stream.next(WAIT).unwrap() {
            // The server waits for us to have everything.
            WalEvent::Data { .. } | WalEvent::Keepalive { .. } => {
                let positions = Positions {
                    write: stream.received(),
                    flush: stream.received(),
                    apply: Lsn(0),
                };
                stream.confirm(positions).unwrap();
            }
            WalEvent::ServerShutDown => break,
            other => unreachable!("{other:?}"),
        }
    }
    assert_eq!(stream.next(WAIT).unwrap(), WalEvent::ServerShutDown);
    stopping.join().unwrap();
    let told = checked(server.program("pg_controldata").arg(&server.data));
    let line = told
        .lines()
        .find(|line| line.starts_with("Latest checkpoint location"));
    let checkpoint: Lsn = line
        .unwrap()
        .split_whitespace()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        stream.received() > checkpoint,
        "the last checkpoint has come too"
    );
    assert!(matches!(connection.identify_system(), Err(Error::GivenUp)));

    server.start();
    let mut connection = server.connect();
    let from = connection.identify_system().unwrap().position;
    let mut stream = streaming(&mut connection, None, from, 1);
    server.kill(&server.sql("SELECT pid FROM pg_stat_replication"));
    let error = loop {
        match stream.next(WAIT) {
            Ok(WalEvent::ServerShutDown | WalEvent::TimelineEnd(_)) => unreachable!("no end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::EndedEarly(_)), "{error}");
}

/// Makes the server a primary on the next timeline.
fn promote(server: &Server<'_>) {
    server.stop("fast");
    support::put(&server.data.join("standby.signal"), b"");
    server.start();
    checked(
        server
            .program("pg_ctl")
            .args(["promote", "-w", "-s", "-D"])
            .arg(&server.data),
    );
}

fn to_the_end(stream: &mut WalStream<'_>, segments: &mut Segments) -> NextTimeline {
    loop {
        match stream.next(WAIT).unwrap() {
            WalEvent::Data { start, bytes, .. } => segments.put(start, bytes),
            WalEvent::Keepalive { .. } => {}
            WalEvent::TimelineEnd(next) => return next,
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn the_log_goes_on_over_a_change_of_timeline() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "wal_keep_size = 512MB\n");
    let from = server.connect().identify_system().unwrap().position;
    let from = from.segment_start(SEGMENT);
    write(&server, 1000);
    promote(&server);
    write(&server, 1000);
    let mut connection = server.connect();
    let identity = connection.identify_system().unwrap();
    assert_eq!(identity.timeline, 2);
    let none = connection.timeline_history(1).unwrap_err();
    assert_eq!(none.sqlstate(), Some("58P01"), "{none}");
    let history = connection.timeline_history(2).unwrap();
    assert_eq!(history.file, "00000002.history");
    let theirs = fs::read(server.data.join("pg_wal").join(&history.file)).unwrap();
    assert_eq!(history.content, theirs);

    let mut segments = Segments::default();
    let mut stream = streaming(&mut connection, None, from, 1);
    let next = to_the_end(&mut stream, &mut segments);
    assert_eq!(next.timeline, 2);
    assert_eq!(stream.received(), next.start);
    assert_eq!(stream.next(WAIT).unwrap(), WalEvent::TimelineEnd(next));
    assert_eq!(stream.stop(WAIT).unwrap(), Some(next));
    let text = String::from_utf8(history.content).unwrap();
    assert!(text.starts_with(&format!("1\t{}\t", next.start)), "{text}");

    // From the place where it ends, there is nothing more of the old one.
    match connection.start_replication(None, next.start, 1).unwrap() {
        Started::TimelineEnded(again) => assert_eq!(again, next),
        Started::Streaming(_) => unreachable!("a stream of nothing"),
    }
    let mut stream = streaming(&mut connection, None, next.start, 2);
    let mut later = Segments::default();
    follow(&mut stream, &mut later, identity.position);
    stream.stop(WAIT).unwrap();
    // What of the old timeline is before the change is the new one's too.
    for (at, bytes) in &segments.0 {
        let own = server.data.join("pg_wal").join(file(1, *at));
        let path = if *at == next.start.segment_start(SEGMENT).0 {
            server.data.join("pg_wal").join(file(2, *at))
        } else {
            own
        };
        compare(&path, 0, bytes);
    }
    for (at, bytes) in &later.0 {
        let skipped = usize::try_from(next.start.0.saturating_sub(*at)).unwrap();
        compare(
            &server.data.join("pg_wal").join(file(2, *at)),
            skipped,
            bytes,
        );
    }
}

fn compare(path: &Path, skipped: usize, ours: &[u8]) {
    let theirs = fs::read(path).unwrap();
    let part = theirs.get(skipped..skipped + ours.len());
    assert!(part == Some(ours), "{}", path.display());
}

/// What asking for this log leads to. The server finds some of it out only after it has said yes.
fn first_error(server: &Server<'_>, from: Lsn, timeline: u32) -> Error {
    let mut connection = server.connect();
    let mut stream = match connection.start_replication(None, from, timeline) {
        Ok(Started::Streaming(stream)) => stream,
        Ok(Started::TimelineEnded(next)) => unreachable!("{next:?}"),
        Err(error) => return error,
    };
    loop {
        match stream.next(WAIT) {
            Err(error) => return error,
            Ok(WalEvent::Keepalive { .. }) => {}
            Ok(other) => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn log_that_is_gone_or_not_there_yet_is_the_servers_error() {
    let room = Room::new();
    let server = Server::started(&room, &installed(), "");
    let mut connection = server.connect();
    for _ in 0..3 {
        write(&server, 100);
    }
    server.sql("CHECKPOINT");
    let gone = first_error(&server, Lsn(0x100_0000), 1);
    assert_eq!(gone.sqlstate(), Some("58P01"), "{gone}");
    let ahead = first_error(&server, Lsn(1 << 40), 1);
    assert_eq!(ahead.sqlstate(), Some("XX000"), "{ahead}");
    let other = first_error(&server, Lsn(0x100_0000), 9);
    assert!(other.sqlstate().is_some(), "{other}");
    let slot = connection
        .start_replication(Some("none"), Lsn(0x100_0000), 1)
        .map(drop);
    assert_eq!(slot.unwrap_err().sqlstate(), Some("42704"));
    connection.identify_system().unwrap();
    let unknown = connection.show("no_such_setting").unwrap_err();
    assert_eq!(unknown.sqlstate(), Some("42704"), "{unknown}");
    assert!(matches!(
        connection.show("a; SHOW b"),
        Err(Error::Misuse(_))
    ));
}
