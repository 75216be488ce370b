//! Goal: a backend that writes what it likes into the shared memory harms nobody but itself (R3).
//! Method: the backend's end is driven by hand, word by word, against a zone in the same process.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Instant;

use crate::doorbell::Doorbell;
use crate::memory::Mapping;
use crate::ring::{ENTRIES, FIRST, Ring};
use crate::socket;
use crate::{Answer, Area, Descriptor, Fault, Handler, Host, Interrupted, Op, Peer, Server};

/// Counts; answers a test with the exclusive or of its arguments.
struct Counter<'a> {
    last: u16,
    open: &'a AtomicU32,
    carried: &'a AtomicU64,
}

impl Handler for Counter<'_> {
    /// Accepts every backend, under the next number, and counts it.
    fn ring_opened(&mut self, _: &Peer) -> Option<u16> {
        self.last += 1;
        self.open.fetch_add(1, SeqCst);
        Some(self.last)
    }

    /// Counts one open ring less.
    fn ring_closed(&mut self, _: u16) {
        self.open.fetch_sub(1, SeqCst);
    }

    /// Counts the descriptor. Answers a test with the exclusive or of its arguments, an unknown
    /// operation with `Fault::BadRequest`.
    fn execute(&mut self, _: u16, descriptor: &Descriptor, _: &Area) -> Answer {
        self.carried.fetch_add(1, SeqCst);
        match Op::from_number(descriptor.op) {
            Some(Op::Test) => Answer::of(descriptor.a ^ descriptor.b),
            Some(_) => Answer::default(),
            None => Answer::fault(Fault::BadRequest),
        }
    }
}

struct Scene<'a> {
    path: &'a PathBuf,
    open: &'a AtomicU32,
    carried: &'a AtomicU64,
}

/// What a hostile backend holds.
struct Raw {
    ring: Mapping<Ring>,
    bell: Mapping<Doorbell>,
    _socket: std::os::fd::OwnedFd,
}

impl Scene<'_> {
    /// Connects as a hostile backend: the shared memory, without the code that uses it rightly.
    fn raw(&self) -> Raw {
        let socket = socket::connect(self.path).unwrap().unwrap();
        let (_, ring, bell) = loop {
            if let Some(received) = socket::receive_welcome(&socket).unwrap() {
                break received;
            }
            socket::wait_readable(&socket, Duration::from_millis(50));
        };
        Raw {
            ring: Mapping::open(&ring).unwrap(),
            bell: Mapping::open(&bell).unwrap(),
            _socket: socket,
        }
    }

    /// Connects as an honest backend, within 5 seconds.
    fn honest(&self) -> Host {
        Host::connect(self.path, Duration::from_secs(5), go_on).unwrap()
    }

    /// Waits until so many rings are open. Panics after 5 seconds.
    fn open_becomes(&self, count: u32) {
        let start = Instant::now();
        while self.open.load(SeqCst) != count {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{}",
                self.open.load(SeqCst)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lets every wait go on.
fn go_on() -> Result<(), Interrupted> {
    Ok(())
}

/// Checks that the zone answers an honest backend rightly.
fn works(host: &mut Host) {
    let test = Descriptor {
        a: 5,
        b: 6,
        ..Descriptor::of(Op::Test)
    };
    assert_eq!(host.call(test, go_on).unwrap().value, 3);
}

/// Runs `act` beside a zone in a new directory; then stops the zone, and checks that all rings are
/// closed and the socket is gone.
fn with_zone(name: &str, act: impl FnOnce(&Scene<'_>)) {
    let dir = std::env::temp_dir().join(format!("sr-rpc-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("zone");
    let (open, carried) = (AtomicU32::new(0), AtomicU64::new(0));
    let server = Server::bind(&path, 0o600, [3; 16]).unwrap();
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        let mut counter = Counter {
            last: 0,
            open: &open,
            carried: &carried,
        };
        let running = scope.spawn(move || server.run(&mut counter));
        let scene = Scene {
            path: &path,
            open: &open,
            carried: &carried,
        };
        // Stopped also when the test fails: otherwise it would never end.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&scene)));
        stopper.stop();
        running.join().unwrap().unwrap();
        assert!(!path.exists(), "the socket stays behind");
        assert_eq!(open.load(SeqCst), 0, "rings stay open");
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_ring_with_an_impossible_index_is_closed_and_the_others_are_not() {
    with_zone("indexes", |scene| {
        let mut honest = scene.honest();
        for tail in [ENTRIES + 1, u32::MAX, 1 << 31, FIRST.wrapping_neg()] {
            let raw = scene.raw();
            scene.open_becomes(2);
            let before = scene.carried.load(SeqCst);
            raw.ring.publish_tail(FIRST.wrapping_add(tail));
            raw.bell.ring_always();
            scene.open_becomes(1);
            assert_eq!(
                scene.carried.load(SeqCst),
                before,
                "nothing was carried out"
            );
            assert_eq!(raw.ring.header.closed.0.load(SeqCst), 1);
            works(&mut honest);
        }
    });
}

#[test]
fn what_stands_in_the_zone_s_own_words_is_not_read_back() {
    with_zone("words", |scene| {
        let mut honest = scene.honest();
        let raw = scene.raw();
        for number in 0..3 {
            raw.ring
                .put(FIRST.wrapping_add(number), &Descriptor::of(Op::Test));
        }
        raw.ring.header.done.0.store(FIRST.wrapping_add(77), SeqCst);
        raw.ring.header.parked.0.store(0xffff, SeqCst);
        raw.ring.header.waiting.0.store(0xffff, SeqCst);
        raw.ring.header.closed.0.store(1, SeqCst);
        raw.ring.publish_tail(FIRST.wrapping_add(3));
        raw.bell.ring_always();
        let start = Instant::now();
        while raw.ring.done() != FIRST.wrapping_add(3) {
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(scene.carried.load(SeqCst), 3);
        works(&mut honest);
    });
}

#[test]
fn random_words_everywhere_are_answered_or_close_the_ring() {
    with_zone("random", |scene| {
        let mut honest = scene.honest();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..30 {
            let raw = scene.raw();
            for round in 0..200_u32 {
                let word = random();
                let descriptor = Descriptor {
                    op: u16::try_from(word & 0x7f).unwrap(),
                    flags: u16::try_from(word >> 48).unwrap(),
                    n: u32::try_from(random() >> 32).unwrap(),
                    a: random(),
                    b: random(),
                    r: random(),
                };
                raw.ring.put(FIRST.wrapping_add(round), &descriptor);
                let line = match word >> 7 & 7 {
                    0 => &raw.ring.header.parked,
                    1 => &raw.ring.header.waiting,
                    2 => &raw.ring.header.done,
                    _ => &raw.ring.header.closed,
                };
                line.0
                    .store(u32::try_from(random() >> 32).unwrap(), Relaxed);
                raw.ring.publish_tail(FIRST.wrapping_add(round));
                raw.bell.ring();
            }
            works(&mut honest);
        }
        drop(honest);
        scene.open_becomes(0);
    });
}

#[test]
fn scribbling_over_the_doorbell_delays_and_no_more() {
    with_zone("doorbell", |scene| {
        let mut honest = scene.honest();
        let raw = scene.raw();
        for _ in 0..20 {
            // The zone goes to sleep; its mark is taken away, so that an honest backend does not
            // wake it.
            std::thread::sleep(Duration::from_millis(3));
            raw.bell.scribble();
            let start = Instant::now();
            works(&mut honest);
            assert!(
                start.elapsed() < Duration::from_secs(1),
                "{:?}",
                start.elapsed()
            );
        }
        // New connections are heard all the same.
        std::thread::sleep(Duration::from_millis(3));
        raw.bell.scribble();
        works(&mut scene.honest());
    });
}

#[test]
fn stopping_ends_every_wait() {
    let dir = std::env::temp_dir().join(format!("sr-rpc-stop-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("zone");
    let (open, carried) = (AtomicU32::new(0), AtomicU64::new(0));
    let server = Server::bind(&path, 0o600, [3; 16]).unwrap();
    let stopper = server.stopper();
    let mut counter = Counter {
        last: 0,
        open: &open,
        carried: &carried,
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(move || server.run(&mut counter));
        let mut host = Host::connect(&path, Duration::from_secs(5), go_on).unwrap();
        works(&mut host);
        stopper.stop();
        running.join().unwrap().unwrap();
        let start = Instant::now();
        let sync = host.call(Descriptor::of(Op::Sync), go_on);
        assert_eq!(sync, Err(crate::Broken::Lost));
        // Far below the time limit of the connection.
        assert!(start.elapsed() < Duration::from_secs(4));
    });
    std::fs::remove_dir_all(&dir).unwrap();
}
