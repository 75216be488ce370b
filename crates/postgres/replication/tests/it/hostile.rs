//! Goal: whatever a server sends, the client ends in a bounded time with an error or a whole
//! backup, never with a part that looks like one. Method: scripts of a server's bytes over a pair
//! of sockets, cut at every place, changed at random.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::script;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use script::*;
use strongroom_postgres_replication::{
    BackupEnd, BackupEvent, BackupOptions, Config, Connection, Error, Lsn, Started, WalEvent,
};

/// Takes a backup; what it held, and its end.
fn take(connection: &mut Connection) -> Result<(Vec<u8>, BackupEnd), Error> {
    let mut held = Vec::new();
    let mut backup = connection.base_backup(&BackupOptions::default())?;
    loop {
        match backup.next()? {
            BackupEvent::Archive { name, tablespace } => {
                held.extend(name.as_bytes());
                held.extend(
                    tablespace.map_or(&b"-"[..], |path| path.as_os_str().as_encoded_bytes()),
                );
            }
            BackupEvent::Data(bytes) | BackupEvent::ManifestData(bytes) => held.extend(bytes),
            BackupEvent::Manifest => held.extend(b"|"),
            BackupEvent::Progress(bytes) => held.extend(bytes.to_string().as_bytes()),
            BackupEvent::End(end) => {
                assert_eq!(
                    backup.next()?,
                    BackupEvent::End(end),
                    "the end stays the end"
                );
                return Ok((held, end));
            }
        }
    }
}

fn whole_run(bytes: Vec<u8>) -> Result<(Vec<u8>, BackupEnd), Error> {
    let mut connection = Connection::on_socket(server(bytes), &config())?;
    take(&mut connection)
}

#[test]
fn a_whole_backup_is_what_was_sent() {
    let mut connection = open(&backup());
    assert_eq!(connection.major(), 17);
    let (held, end) = take(&mut connection).unwrap();
    let expected = b"16384.tar/elsewherefirst archive13base.tar-second archive|{}";
    assert_eq!(held, expected);
    assert_eq!(end.position, Lsn(0x200_0100));
    assert!(connection.is_ready());
    let notices = connection.take_notices();
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].message, "careful");
}

#[test]
fn a_stream_cut_anywhere_ends_early() {
    let whole = [startup(), backup()].concat();
    for length in 0..whole.len() {
        let cut = whole[..length].to_vec();
        match whole_run(cut) {
            Err(Error::EndedEarly(_)) => {}
            other => unreachable!("{length} of {} bytes: {other:?}", whole.len()),
        }
    }
    whole_run(whole).unwrap();
}

/// Backups that are not whole, each in one way.
fn wrong_backups() -> Vec<(&'static str, Vec<u8>)> {
    let archives = archives();
    let begin = begin_of_backup();
    let (all, man, end) = (archives.concat(), manifest(), end_of_backup());
    let base_only = archives[4..].concat();
    let no_end_row = [message(b'c', b""), complete(), ready()].concat();
    vec![
        ("no manifest", [&begin[..], &all, &end].concat()),
        ("no archive", [&begin[..], &man, &end].concat()),
        (
            "one archive of two",
            [&begin[..], &base_only, &man, &end].concat(),
        ),
        (
            "three archives of two",
            [&begin[..], &all, &base_only, &man, &end].concat(),
        ),
        (
            "two manifests",
            [&begin[..], &all, &man, &man, &end].concat(),
        ),
        (
            "an archive after the manifest",
            [&begin[..], &all, &man, &base_only, &end].concat(),
        ),
        (
            "data before an archive",
            [&begin[..], &copy(b'd', b"x"), &all, &man, &end].concat(),
        ),
        (
            "no position at the end",
            [&begin[..], &all, &man, &no_end_row].concat(),
        ),
        (
            "no end of the copy",
            [&begin[..], &all, &man, &complete(), &ready()].concat(),
        ),
        (
            "a name that is a path",
            [&begin[..], &copy(b'n', b"../x.tar\0\0")].concat(),
        ),
        (
            "a name that is hidden",
            [&begin[..], &copy(b'n', b".x\0\0")].concat(),
        ),
        (
            "a kind that is unknown",
            [&begin[..], &all, &copy(b'q', b"")].concat(),
        ),
        (
            "a kind that is missing",
            [&begin[..], &message(b'd', b"")].concat(),
        ),
        (
            "no beginning",
            [
                message(b'H', &[0, 0, 0]),
                all.clone(),
                man.clone(),
                end.clone(),
            ]
            .concat(),
        ),
    ]
}

#[test]
fn a_part_that_is_missing_or_misplaced_is_an_error() {
    for (name, bytes) in wrong_backups() {
        let mut connection = open(&bytes);
        match take(&mut connection) {
            Err(Error::Protocol(_)) => {}
            other => unreachable!("{name}: {other:?}"),
        }
        assert!(!connection.is_ready(), "{name}");
        assert!(
            matches!(connection.identify_system(), Err(Error::GivenUp)),
            "{name}"
        );
    }
}

#[test]
fn an_error_of_the_server_in_the_middle_is_that_error() {
    let error = message(b'E', b"SFEHLER\0VERROR\0CXX001\0Mbad\x1bpage\0Dwhere\0\0");
    let bytes = [
        begin_of_backup(),
        archives().concat(),
        error.clone(),
        ready(),
        end_of_backup(),
    ];
    match take(&mut open(&bytes.concat())) {
        Err(Error::Server(told)) => {
            assert_eq!(
                (told.severity.as_str(), told.sqlstate.as_str()),
                ("ERROR", "XX001")
            );
            assert_eq!(
                (told.message.as_str(), told.detail.as_str()),
                ("bad page", "where")
            );
        }
        other => unreachable!("{other:?}"),
    }
    // Before the first byte, the connection can go on.
    let identity = [
        columns(),
        row(&[Some("7"), Some("3"), Some("0/1"), None]),
        complete(),
        ready(),
    ];
    let bytes = [error, ready(), identity.concat()].concat();
    let mut connection = open(&bytes);
    assert_eq!(take(&mut connection).unwrap_err().sqlstate(), Some("XX001"));
    assert_eq!(connection.identify_system().unwrap().system, 7);
}

#[test]
fn a_length_is_believed_only_as_far_as_it_goes() {
    for length in [0_u32, 3, 1 << 20, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
        let mut bytes = vec![b'd'];
        bytes.extend(length.to_le_bytes().into_iter().rev());
        let bytes = [begin_of_backup(), bytes, vec![0; 100_000]].concat();
        let result = take(&mut open(&bytes));
        assert!(
            matches!(result, Err(Error::Protocol(_))),
            "{length}: {result:?}"
        );
    }
    // The longest that is taken passes, through a buffer that has to grow for it.
    let long = vec![7; (1 << 20) - 6];
    let mut connection = open(
        &[
            begin_of_backup(),
            archives().concat(),
            copy(b'd', &long),
            manifest(),
            end_of_backup(),
        ]
        .concat(),
    );
    let (held, _) = take(&mut connection).unwrap();
    assert!(held.windows(long.len()).any(|part| part == long));
}

#[test]
fn a_connection_can_be_given_to_a_thread() {
    const fn goes<T: Send>() {}
    goes::<Connection>();
    goes::<Config>();
    goes::<Error>();
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[test]
fn changed_bytes_never_make_it_panic_or_wait() {
    let begun = Instant::now();
    let mut random = Random(20_251_122);
    let stream = stream_of_log();
    let (mut ended, mut failed) = (0, 0);
    for round in 0..3000 {
        let mut bytes = [
            startup(),
            if round % 2 == 0 {
                backup()
            } else {
                stream.clone()
            },
        ]
        .concat();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let result = if round % 2 == 0 {
            whole_run(bytes).map(drop)
        } else {
            whole_log(bytes).map(drop)
        };
        match result {
            Ok(()) => ended += 1,
            Err(_) => failed += 1,
        }
    }
    // Some changes are of a payload only.
    assert!(
        ended > 50 && failed > 1000,
        "{ended} ended, {failed} failed"
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn noise_is_refused() {
    let mut random = Random(7);
    for _ in 0..500 {
        let length = random.below(2000);
        let noise: Vec<u8> = (0..length)
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect();
        Connection::on_socket(server(noise.clone()), &config()).unwrap_err();
        take(&mut open(&noise)).unwrap_err();
    }
}

/// The log up to the end of its timeline.
fn whole_log(bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut connection = Connection::on_socket(server(bytes), &config())?;
    follow(&mut connection)
}

fn follow(connection: &mut Connection) -> Result<Vec<u8>, Error> {
    let mut held = Vec::new();
    let Started::Streaming(mut stream) = connection.start_replication(None, Lsn(0x100), 1)? else {
        return Ok(held);
    };
    loop {
        match stream.next(Duration::from_secs(10))? {
            WalEvent::Data { bytes, .. } => held.extend(bytes),
            WalEvent::Keepalive { .. } => {}
            WalEvent::Idle => unreachable!("the server has hung up"),
            WalEvent::TimelineEnd(_) | WalEvent::ServerShutDown => return Ok(held),
        }
    }
}

#[test]
fn the_log_has_no_gaps_and_ends_in_its_own_way() {
    let mut connection = open(&stream_of_log());
    assert_eq!(follow(&mut connection).unwrap(), b"abcde");
    assert!(connection.is_ready());
    let whole = [startup(), stream_of_log()].concat();
    for length in 0..whole.len() {
        let cut = whole[..length].to_vec();
        let result = whole_log(cut);
        assert!(
            matches!(result, Err(Error::EndedEarly(_))),
            "{length}: {result:?}"
        );
    }
    for wrong in [
        log(0x104, b"x"),
        log(0x102, b"x"),
        log(0, b""),
        copy(b'w', b"short"),
    ] {
        let bytes = [message(b'W', &[0, 0, 0]), log(0x100, b"abc"), wrong];
        let result = follow(&mut open(&bytes.concat()));
        assert!(matches!(result, Err(Error::Protocol(_))), "{result:?}");
    }
}

#[test]
fn a_timeline_that_ends_where_the_log_was_asked_for_has_no_stream() {
    let bytes = [
        columns(),
        row(&[Some("2"), Some("0/100")]),
        complete(),
        complete(),
        ready(),
    ];
    let mut connection = open(&bytes.concat());
    match connection.start_replication(None, Lsn(0x100), 1).unwrap() {
        Started::TimelineEnded(next) => assert_eq!((next.timeline, next.start), (2, Lsn(0x100))),
        Started::Streaming(_) => unreachable!("there is nothing to stream"),
    }
    assert!(connection.is_ready());
}

#[test]
fn only_what_was_received_can_be_confirmed() {
    use strongroom_postgres_replication::Positions;
    let (client, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&[startup(), message(b'W', &[0, 0, 0]), log(0x100, b"abc")].concat())
        .unwrap();
    let mut connection = Connection::on_socket(client, &config()).unwrap();
    let Started::Streaming(mut stream) = connection.start_replication(None, Lsn(0x100), 1).unwrap()
    else {
        unreachable!("a stream")
    };
    assert!(matches!(
        stream.next(Duration::from_secs(5)),
        Ok(WalEvent::Data { .. })
    ));
    let at = |write, flush| Positions {
        write: Lsn(write),
        flush: Lsn(flush),
        apply: Lsn(0),
    };
    stream.confirm(at(0x103, 0x102)).unwrap();
    for wrong in [at(0x104, 0x102), at(0x103, 0x101), at(0x102, 0x102)] {
        assert!(
            matches!(stream.confirm(wrong), Err(Error::Misuse(_))),
            "{wrong:?}"
        );
    }
    assert_eq!(stream.confirmed(), at(0x103, 0x102));
    // Half a message is not the end of waiting, and not lost.
    let rest = log(0x103, b"defg");
    peer.write_all(&rest[..9]).unwrap();
    assert_eq!(
        stream.next(Duration::from_millis(50)).unwrap(),
        WalEvent::Idle
    );
    peer.write_all(&rest[9..]).unwrap();
    match stream.next(Duration::from_secs(5)).unwrap() {
        WalEvent::Data { start, bytes, .. } => {
            assert_eq!((start, bytes), (Lsn(0x103), &b"defg"[..]));
        }
        other => unreachable!("{other:?}"),
    }
    peer.write_all(&keepalive(1)).unwrap();
    assert!(matches!(
        stream.next(Duration::from_secs(5)),
        Ok(WalEvent::Keepalive { .. })
    ));
    // What the server heard: the startup, the command, and twice the same positions.
    drop(connection);
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    let status = [vec![b'r'], big(0x103), big(0x102), big(0)].concat();
    let times = heard.windows(status.len()).filter(|part| *part == status);
    assert_eq!(times.count(), 2);
}

/// What comes from a server that has said these bytes and is gone, so that nothing can be sent to
/// it any more, and the error that it ends in; none is a shutdown.
fn left_behind(after_startup: &[u8]) -> (Vec<u8>, Option<Error>) {
    let (client, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&[&startup(), after_startup].concat())
        .unwrap();
    let mut connection = Connection::on_socket(client, &config()).unwrap();
    let Started::Streaming(mut stream) = connection.start_replication(None, Lsn(0x100), 1).unwrap()
    else {
        unreachable!("a stream")
    };
    drop(peer);
    let mut held = Vec::new();
    loop {
        match stream.next(Duration::from_secs(10)) {
            Ok(WalEvent::Data { bytes, .. }) => held.extend(bytes),
            Ok(WalEvent::Keepalive { .. }) => {}
            Ok(WalEvent::ServerShutDown) => break,
            Ok(other) => unreachable!("{other:?}"),
            Err(error) => return (held, Some(error)),
        }
    }
    // Nothing is sent any more, and it stays what it was.
    stream.keep_alive().unwrap();
    let again = stream.next(Duration::ZERO).unwrap();
    assert_eq!(again, WalEvent::ServerShutDown);
    (held, None)
}

#[test]
fn a_server_that_shut_down_before_its_last_request_was_answered_has_shut_down() {
    let begun = [message(b'W', &[0, 0, 0]), log(0x100, b"abc"), keepalive(1)].concat();
    let told = |rest: &[Vec<u8>]| left_behind(&[begun.clone(), rest.concat()].concat());
    for rest in [vec![complete()], vec![keepalive(1), complete()]] {
        let (held, error) = told(&rest);
        assert!(held == b"abc" && error.is_none(), "{error:?}");
    }
    // Log that is behind the request was not received: that is no good end.
    for rest in [vec![log(0x103, b"de"), complete()], vec![]] {
        let (_, error) = told(&rest);
        assert!(matches!(error, Some(Error::EndedEarly(_))), "{error:?}");
    }
    let fatal = message(b'E', b"SFATAL\0C57P01\0Mterminated\0\0");
    let (_, error) = told(&[fatal, complete()]);
    assert_eq!(error.unwrap().sqlstate(), Some("57P01"));
}

#[test]
fn a_stream_that_is_ended_while_the_server_shuts_down_has_no_next_timeline() {
    // The end is said to a server that has gone, and to one that has not.
    for stays in [false, true] {
        let (client, mut peer) = UnixStream::pair().unwrap();
        let says = [
            startup(),
            message(b'W', &[0, 0, 0]),
            keepalive(0),
            complete(),
        ];
        peer.write_all(&says.concat()).unwrap();
        let mut connection = Connection::on_socket(client, &config()).unwrap();
        let Started::Streaming(stream) = connection.start_replication(None, Lsn(0x100), 1).unwrap()
        else {
            unreachable!("a stream")
        };
        let kept = stays.then_some(peer);
        assert_eq!(stream.stop(Duration::from_secs(10)).unwrap(), None);
        assert!(!connection.is_ready());
        drop(kept);
    }
}

#[test]
fn a_silent_server_is_given_up_where_that_was_asked_for() {
    let (client, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&startup()).unwrap();
    let mut connection = Connection::on_socket(client, &config()).unwrap();
    connection.set_silence_limit(Some(Duration::from_millis(50)));
    assert!(matches!(
        connection.identify_system(),
        Err(Error::TimedOut(_))
    ));
    assert!(matches!(connection.identify_system(), Err(Error::GivenUp)));

    // A byte now and then does not outlast the time for connecting.
    let (client, mut peer) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        for byte in message(b'N', &[b'x'; 1000]) {
            thread::sleep(Duration::from_millis(20));
            if peer.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    let config = Config::parse("user=u host=/nowhere connect_timeout=1", &|_| None).unwrap();
    let begun = Instant::now();
    let result = Connection::on_socket(client, &config);
    assert!(matches!(result, Err(Error::TimedOut(_))), "{result:?}");
    // All of them would take 20 seconds.
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn another_thread_can_end_the_wait() {
    let (client, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(&startup()).unwrap();
    let mut connection = Connection::on_socket(client, &config()).unwrap();
    let interrupter = connection.interrupter().unwrap();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        interrupter.interrupt().unwrap();
        interrupter.interrupt().unwrap();
    });
    assert!(matches!(
        connection.identify_system(),
        Err(Error::EndedEarly(_))
    ));
    other.join().unwrap();
}

#[test]
fn what_was_dropped_in_the_middle_is_never_an_answer() {
    let mut connection = open(&backup());
    drop(connection.base_backup(&BackupOptions::default()).unwrap());
    assert!(matches!(connection.identify_system(), Err(Error::GivenUp)));
    let mut connection = open(&stream_of_log());
    let started = connection.start_replication(None, Lsn(0x100), 1).unwrap();
    assert!(matches!(started, Started::Streaming(_)));
    assert!(matches!(connection.identify_system(), Err(Error::GivenUp)));
}

/// A server that never stops talking, of this.
fn talking(first: Vec<u8>, of: Vec<u8>) -> UnixStream {
    let (client, mut peer) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut reader = peer.try_clone().unwrap();
        thread::spawn(move || while matches!(reader.read(&mut [0; 4096]), Ok(1..)) {});
        let many = of.repeat(1000);
        if peer.write_all(&first).is_ok() {
            while peer.write_all(&many).is_ok() {}
        }
    });
    client
}

#[test]
fn a_server_that_never_stops_talking_does_not_outlast_a_deadline() {
    let begun = Instant::now();
    let notice = message(b'N', b"SWARNING\0C01000\0Mcareful\0\0");
    let hurried = Config::parse("user=u host=/x connect_timeout=1", &|_| None).unwrap();
    let result = Connection::on_socket(talking(Vec::new(), notice.clone()), &hurried);
    assert!(matches!(result, Err(Error::TimedOut(_))), "{result:?}");

    let begin = [startup(), message(b'W', &[0, 0, 0])].concat();
    let mut connection = Connection::on_socket(talking(begin.clone(), notice), &config()).unwrap();
    let Started::Streaming(mut stream) = connection.start_replication(None, Lsn(0x100), 1).unwrap()
    else {
        unreachable!("a stream")
    };
    assert_eq!(
        stream.next(Duration::from_millis(100)).unwrap(),
        WalEvent::Idle
    );

    let mut connection = Connection::on_socket(talking(begin, keepalive(0)), &config()).unwrap();
    let Started::Streaming(stream) = connection.start_replication(None, Lsn(0x100), 1).unwrap()
    else {
        unreachable!("a stream")
    };
    let stopped = stream.stop(Duration::from_millis(100));
    assert!(matches!(stopped, Err(Error::TimedOut(_))), "{stopped:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
