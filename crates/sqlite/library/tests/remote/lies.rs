//! Goal: whatever a server answers, the reader gets what was published, or a stable error within
//! its time.

use std::time::{Duration, Instant};

use strongroom_crypto::sha256;
use strongroom_format::header::{CHECKSUM_COVERS, FIXED_LEN, Header};
use strongroom_format::slot::{Argon2Cost, SlotKind};

use crate::liar::{Answer, Asked, Liar, Way};
use crate::support::{ROWS, Scratch, code_of, point, remote, scan, with_ctr};

/// Lies from the request `from` on; the codes of opening and scanning, and the longest time of
/// both.
fn told(from: usize, lie: impl Fn(&Asked, &mut Answer) + Send + 'static) -> (u16, Duration) {
    told_within(1, from, lie)
}

fn told_within(
    within: u64,
    from: usize,
    lie: impl Fn(&Asked, &mut Answer) + Send + 'static,
) -> (u16, Duration) {
    let scratch = Scratch::new();
    let path = scratch.publish("x.db", 1);
    let server = Liar::new(std::fs::read(path).unwrap());
    server.lie(move |asked, answer| {
        if asked.number >= from {
            lie(asked, answer);
        }
    });
    let mut options = remote(&server.url);
    // Where nothing is to be waited for, a busy machine gets its time.
    options.timeout = Duration::from_secs(within);
    let began = Instant::now();
    let code = code_of(
        scratch
            .open(&options)
            .and_then(|connection| scan(&connection, 1)),
    );
    (code, began.elapsed())
}

/// The same lie told at the open, and later.
fn always(expected: u16, lie: impl Fn(&Asked, &mut Answer) + Clone + Send + 'static) {
    for from in [0, 3] {
        let (code, took) = told(from, lie.clone());
        assert_eq!(code, expected, "from request {from}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

#[test]
fn an_honest_server_is_read_whole() {
    let (code, _) = told_within(10, 0, |asked, answer| {
        assert_eq!(asked.accept_encoding.as_deref(), Some("identity"));
        let pinned = (asked.number > 0).then_some("\"one\"");
        assert_eq!(asked.if_match.as_deref(), pinned);
        assert_eq!(asked.if_range.as_deref(), pinned);
        if asked.number % 2 == 1 {
            answer.way = Way::Chunked;
        }
    });
    assert_eq!(code, 0);
}

#[test]
fn ranges_that_are_not_what_was_asked_for() {
    always(2244, |_, answer| {
        answer.status = 200;
        answer.remove("Content-Range");
    });
    always(2244, |_, answer| answer.remove("Content-Range"));
    always(2244, |_, answer| answer.set("Content-Range", "bytes */100"));
    always(2244, |asked, answer| {
        let (start, last) = (asked.start + 4096, asked.last + 4096);
        answer.set("Content-Range", &format!("bytes {start}-{last}/99999999"));
        if asked.number > 0 {
            answer.set("Content-Range", &format!("bytes {start}-{last}/{}", 1));
        }
    });
    always(2244, |_, answer| {
        answer
            .headers
            .push(("Content-Range".to_owned(), "bytes 0-1/2".to_owned()));
    });
    always(2244, |_, answer| answer.set("Content-Encoding", "gzip"));
    always(2244, |_, answer| {
        answer.set("Content-Type", "multipart/byteranges; boundary=x");
        answer.remove("Content-Range");
    });
}

#[test]
fn lengths_that_lie() {
    // Another length of the file, once one is pinned, is another file.
    let (code, _) = told(2, |asked, answer| {
        let range = format!(
            "bytes {}-{}/{}",
            asked.start,
            asked.start + answer.body.len() - 1,
            1_u64 << 40
        );
        answer.set("Content-Range", &range);
    });
    assert_eq!(code, 2246);
    // A file that is said to be longer than it is: pages that are not there are an error, not
    // zeros.
    let (code, _) = told(0, |asked, answer| {
        let last = asked.start + answer.body.len().saturating_sub(1);
        answer.set(
            "Content-Range",
            &format!("bytes {}-{last}/{}", asked.start, 1_u64 << 40),
        );
    });
    assert!(code == 0 || code == 2244, "{code}");
    // More than was asked for.
    always(2244, |_, answer| answer.way = Way::Endless);
    // Less, with a right header and a wrong body.
    always(2241, |_, answer| {
        answer.way = Way::Cut(answer.body.len() / 2);
    });
    always(2241, |_, answer| {
        answer.body.truncate(100);
    });
}

#[test]
fn versions_that_are_none() {
    for etag in ["W/\"one\"", "one", "", "\"a\"b\""] {
        always(2245, move |_, answer| answer.set("ETag", etag));
    }
    always(2245, |_, answer| answer.remove("ETag"));
    always(2245, |_, answer| {
        answer
            .headers
            .push(("ETag".to_owned(), "\"one\"".to_owned()));
    });
}

#[test]
fn refusals() {
    for status in [400, 401, 403, 404, 410, 451, 501] {
        let (code, took) = told(0, move |_, answer| {
            answer.status = status;
        });
        assert_eq!(code, 2243, "{status}");
        assert!(
            took < Duration::from_secs(2),
            "{status} is not tried again: {took:?}"
        );
    }
    for status in [408, 429, 500, 502, 503, 504] {
        let (code, _) = told(3, move |_, answer| answer.status = status);
        assert_eq!(code, 2243, "{status}");
    }
    // Told to come back in an hour: the time is over at once.
    let (code, took) = told(1, |_, answer| {
        answer.status = 503;
        answer.set("Retry-After", "3600");
    });
    assert_eq!(code, 2243);
    assert!(took < Duration::from_secs(2), "{took:?}");
    for status in [301, 302, 303, 307, 308] {
        always(2247, move |_, answer| {
            answer.status = status;
            answer.set("Location", "http://127.0.0.1:1/elsewhere?token=secret");
        });
    }
}

#[test]
fn a_redirection_names_its_target_without_the_query() {
    let scratch = Scratch::new();
    let server = Liar::new(vec![0; 100_000]);
    server.lie(|_, answer| {
        answer.status = 302;
        answer.set("Location", "https://elsewhere.example/y.db?token=secret");
    });
    let text = scratch.open(&remote(&server.url)).unwrap_err().to_string();
    assert!(text.contains("https://elsewhere.example/y.db"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn waits_are_bounded() {
    for way in [Way::Stall, Way::Drip, Way::Silent, Way::Close] {
        for from in [0, 3] {
            let (code, took) = told(from, move |_, answer| answer.way = way);
            assert_eq!(code, 2241, "{way:?}");
            // One read may take a second.
            assert!(took < Duration::from_secs(5), "{way:?} {took:?}");
        }
    }
}

#[test]
fn what_passes_is_tried_again() {
    let (code, _) = told_within(10, 0, |asked, answer| match asked.number % 11 {
        1 => answer.status = 503,
        2 => answer.way = Way::Close,
        4 => answer.way = Way::Cut(1000),
        5 => answer.status = 500,
        _ => {}
    });
    assert_eq!(code, 0);
}

#[test]
fn a_file_that_changes_is_an_error_and_never_a_mix() {
    let scratch = Scratch::new();
    let path = scratch.publish("x.db", 1);
    let one = std::fs::read(&path).unwrap();
    let server = Liar::new(one.clone());
    let connection = scratch.open(&remote(&server.url)).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    assert_eq!(point(&connection, 1).unwrap(), crate::support::body(1, 1));
    // The same database, the same key, the same length: every page of either would pass as
    // authentic.
    scratch.publish("x.db", 2);
    let two = std::fs::read(&path).unwrap();
    server.replace(two.clone(), "\"two\"");
    assert_eq!(code_of(scan(&connection, 1)), 2246);
    assert_eq!(code_of(scan(&connection, 1)), 2246);
    // A server that ignores the condition, and one that answers it as If-Range is answered.
    server.lie(|_, answer| {
        if answer.status == 412 {
            answer.status = 200;
            answer.body = vec![1; 5000];
        }
    });
    assert_eq!(code_of(scan(&connection, 1)), 2246);
    let whole = two;
    server.lie(move |asked, answer| {
        if answer.status == 412 {
            let last = asked.last.min(whole.len() - 1);
            answer.status = 206;
            answer.set(
                "Content-Range",
                &format!("bytes {}-{last}/{}", asked.start, whole.len()),
            );
            answer.body = whole[asked.start..=last].to_vec();
        }
    });
    assert_eq!(code_of(scan(&connection, 1)), 2246);
    server.lie(|_, answer| {
        if answer.status == 412 {
            answer.status = 416;
        }
    });
    assert_eq!(code_of(scan(&connection, 1)), 2246);
    // Whoever opens now sees the new one.
    server.lie(|_, _| {});
    let later = scratch.open(&remote(&server.url)).unwrap();
    assert_eq!(scan(&later, 2).unwrap(), ROWS);
    // And the old one goes on when its version is back.
    server.replace(one, "\"one\"");
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
}

#[test]
fn bytes_that_lie_are_fetched_again_and_then_an_error() {
    let scratch = Scratch::new();
    let path = scratch.publish("x.db", 1);
    let server = Liar::new(std::fs::read(path).unwrap());
    // Once damaged on the way: the second answer is asked for past every cache.
    server.lie(|asked, answer| {
        if asked.number > 0 && !asked.no_cache {
            for byte in answer.body.iter_mut().step_by(1000) {
                *byte ^= 1;
            }
        }
    });
    let connection = scratch.open(&remote(&server.url)).unwrap();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    assert!(server.asked().iter().any(|asked| asked.no_cache));
    // Always damaged, exchanged or zeroed.
    for lie in 0..3 {
        server.lie(move |asked, answer| match lie {
            _ if asked.number == 0 => {}
            0 => answer
                .body
                .iter_mut()
                .step_by(1000)
                .for_each(|byte| *byte ^= 1),
            1 => answer.body.rotate_left(4096),
            _ => answer.body.fill(0),
        });
        server.asked();
        let connection = scratch.open(&remote(&server.url)).unwrap();
        assert_eq!(code_of(scan(&connection, 1)), 4001, "{lie}");
    }
}

#[test]
fn headers_that_lie() {
    let (code, _) = told(0, |_, answer| answer.body[200] ^= 1);
    assert_eq!(code, 3003);
    let (code, _) = told(0, |_, answer| answer.body.fill(b'x'));
    assert_eq!(code, 3001);
    let scratch = Scratch::new();
    let short = Liar::new(std::fs::read(scratch.publish("x.db", 1)).unwrap()[..3000].to_vec());
    assert_eq!(code_of(scratch.open(&remote(&short.url))), 3006);
    let empty = Liar::new(Vec::new());
    assert_eq!(code_of(scratch.open(&remote(&empty.url))), 3001);
    // A plain database is not read over a network, whoever has a key.
    let plain = Liar::new(b"SQLite format 3\0".repeat(1000));
    assert_eq!(code_of(scratch.open(&remote(&plain.url))), 3001);
    // Nor one whose pages do not authenticate.
    let ctr = Liar::new(std::fs::read(scratch.publish_as("ctr.db", 1, with_ctr)).unwrap());
    assert_eq!(code_of(scratch.open(&remote(&ctr.url))), 2249);
    // Nor is Argon2id computed at whatever cost the server writes there.
    for (memory_kib, passes) in [(4 << 20, 1), (1 << 20, 5)] {
        let mut dear = std::fs::read(scratch.path("x.db")).unwrap();
        let mut header = Header::parse(&dear).unwrap();
        header.slots[0].kind = SlotKind::Passphrase(Argon2Cost {
            m_kib: memory_kib,
            t: passes,
            p: 1,
        });
        let unsummed = header.to_bytes().unwrap();
        header.checksum = sha256(&[&unsummed[..CHECKSUM_COVERS]]);
        dear[..FIXED_LEN].copy_from_slice(&header.to_bytes().unwrap());
        let dear = Liar::new(dear);
        assert_eq!(code_of(scratch.open(&remote(&dear.url))), 2254);
    }
    let cut = std::fs::read(scratch.path("x.db")).unwrap();
    let cut = Liar::new(cut[..cut.len() / 2 + 100].to_vec());
    let code = code_of(
        scratch
            .open(&remote(&cut.url))
            .and_then(|connection| scan(&connection, 1)),
    );
    assert!([4002, 4011].contains(&code), "{code}");
}
