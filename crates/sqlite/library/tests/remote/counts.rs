//! Goal: the requests and bytes that reading costs stay what docs/benchmarks.md says. `cargo test
//! -p strongroom-sqlite --test remote counts -- --nocapture` prints them.

use crate::nginx::{Logged, Nginx};
use crate::support::{ROWS, Scratch, body, point, scan};

fn told(what: &str, logged: &[Logged]) -> (usize, u64) {
    assert!(logged.iter().all(|one| one.status == 206), "{logged:?}");
    let bytes = logged.iter().map(|one| one.bytes).sum();
    println!("{what}: {} requests, {bytes} bytes", logged.len());
    (logged.len(), bytes)
}

#[test]
fn requests_and_bytes() {
    let scratch = Scratch::new();
    let nginx = Nginx::new(scratch.directory.path());
    let path = scratch.publish("x.db", 1);
    let size = std::fs::metadata(path).unwrap().len();
    println!("the file: {size} bytes");
    let mut remote = nginx.remote("x.db");
    remote.cache = Some(scratch.path("cache"));

    let connection = scratch.open(&remote).unwrap();
    let (requests, bytes) = told("open", &nginx.logged());
    assert!(requests == 1 && bytes <= 64 * 1024, "{requests} {bytes}");
    assert_eq!(point(&connection, 2000).unwrap(), body(2000, 1));
    let (requests, bytes) = told("point read, cold", &nginx.logged());
    assert!(
        (1..=6).contains(&requests) && bytes <= 6 * 2 * 16 * 1024,
        "{requests} {bytes}"
    );
    drop(connection);

    let connection = scratch.open(&remote).unwrap();
    assert_eq!(point(&connection, 2000).unwrap(), body(2000, 1));
    let (requests, _) = told("open and the same point read, warm", &nginx.logged());
    assert_eq!(requests, 1);
    drop(connection);

    let mut cold = remote;
    cold.cache = None;
    let connection = scratch.open(&cold).unwrap();
    nginx.logged();
    for id in (1..=100).map(|step| step * 7919 % ROWS + 1) {
        assert_eq!(point(&connection, id).unwrap(), body(id, 1));
    }
    let (requests, bytes) = told("100 point reads, no cache", &nginx.logged());
    assert!(requests <= 300 && bytes <= 2 * size, "{requests} {bytes}");
    drop(connection);

    let connection = scratch.open(&cold).unwrap();
    nginx.logged();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    let (requests, bytes) = told("scan, no cache", &nginx.logged());
    assert!(
        requests <= 40 && bytes <= size + size / 4,
        "{requests} {bytes}"
    );
    drop(connection);

    cold.cache = Some(scratch.path("other"));
    let connection = scratch.open(&cold).unwrap();
    nginx.logged();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    let (requests, bytes) = told("scan, cold cache", &nginx.logged());
    assert!(requests <= 40 && bytes <= size, "{requests} {bytes}");
    drop(connection);

    let connection = scratch.open(&cold).unwrap();
    nginx.logged();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    let (requests, bytes) = told("scan, warm cache", &nginx.logged());
    assert_eq!((requests, bytes), (0, 0));
}
