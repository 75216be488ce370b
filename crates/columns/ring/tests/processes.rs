//! Goal: the ring between processes keeps its promises (R1, R3 to R5) when either side waits,
//! idles, is stopped or is killed.
//! Method: this program starts itself as a zone or as a backend, and kills what it started with
//! SIGKILL.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program with a main function of its own"
)]

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Place, Role, connect, go_on, zone};
use strongroom_columns_ring::{
    AREA_SIZE, Broken, ConnectError, Descriptor, ENTRIES, Fault, Host, Interrupted, Op,
};

fn main() {
    if common::took_role(&[("zone", zone), ("caller", caller), ("poster", poster)]) {
        return;
    }
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        if wanted
            .as_ref()
            .is_some_and(|wanted| !name.contains(wanted.as_str()))
        {
            continue;
        }
        let start = Instant::now();
        let passed = catch_unwind(test).is_ok();
        let word = if passed { "ok" } else { "FAILED" };
        println!(
            "test {name} ... {word} ({} ms)",
            start.elapsed().as_millis()
        );
        if !passed {
            failed.push(*name);
        }
    }
    println!("{} failed", failed.len());
    if !failed.is_empty() {
        std::process::exit(101);
    }
}

const TESTS: &[(&str, fn())] = &[
    ("posted operations arrive in order, all of them", posted),
    (
        "a fault of a posted operation is told by the next call",
        faults,
    ),
    ("batches go through the data area", batches),
    ("many backends at once are each answered", crowd),
    (
        "the zone is killed during a call",
        zone_killed_during_a_call,
    ),
    ("the zone is killed under load", zone_killed_under_load),
    ("backends are killed under load", backends_killed),
    (
        "a wait can be interrupted, and the ring used on",
        interrupted,
    ),
    ("a stopped zone does not stop the backend", stopped_zone),
    ("idle rings cost nothing", idle),
    ("a sleeping zone wakes for each of many rings", wakes),
    ("nobody there", nobody),
];

fn kill(role: &mut Role) {
    role.child.kill().unwrap();
    role.child.wait().unwrap();
}

fn call(host: &mut Host, op: Op, a: u64, b: u64) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        a,
        b,
        ..Descriptor::of(op)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

fn post(host: &mut Host, n: u32, a: u64) -> Result<(), Broken> {
    let descriptor = Descriptor {
        n,
        a,
        ..Descriptor::of(Op::Compute)
    };
    host.post(descriptor, go_on)
}

/// A backend that calls until it is killed.
fn caller(path: &Path) {
    let mut host = connect(path);
    println!("ready");
    for round in 0_u64.. {
        assert_eq!(call(&mut host, Op::Test, round, 7), Ok(round ^ 7));
    }
}

/// A backend that fills its ring until it is killed.
fn poster(path: &Path) {
    let mut host = connect(path);
    println!("ready");
    for round in 0.. {
        post(&mut host, 0, round).unwrap();
    }
}

fn posted() {
    let place = Place::new("posted");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    let mut sum = 0_u64;
    // Several times round the ring, and through the wrap-around of the numbers.
    for number in 0..50_000_u64 {
        post(&mut host, 0, number).unwrap();
        sum = sum.wrapping_mul(3).wrapping_add(number);
        if number % 7919 == 0 {
            assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(sum));
        }
    }
    assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(sum));
    let other = connect(&place.socket());
    assert_ne!(other.arena(), host.arena());
    assert_eq!(other.incarnation(), host.incarnation());
}

fn faults() {
    let place = Place::new("faults");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    post(&mut host, 0, 5).unwrap();
    post(&mut host, 1, 0).unwrap();
    post(&mut host, 0, 5).unwrap();
    let fault = Err(Broken::Earlier(Fault::DivisionByZero));
    assert_eq!(call(&mut host, Op::Sync, 0, 0), fault);
    assert!(call(&mut host, Op::Sync, 0, 0).is_ok(), "told once");
    let first = host.fresh().unwrap();
    assert_eq!((first.generation(), first.slot()), (0, 0));
    host.end_statement(go_on).unwrap();
    assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(0));
    let second = host.fresh().unwrap();
    assert_eq!((second.generation(), second.slot()), (1, 1));
    assert_eq!(second.partition(), host.arena());
    let unknown = Descriptor {
        op: 0xffff,
        ..Descriptor::default()
    };
    let refused = host.call(unknown, go_on);
    assert_eq!(refused, Err(Broken::Fault(Fault::BadRequest)));
}

fn batches() {
    let place = Place::new("batches");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    for (count, offset) in [(1, 0), (1000, 64), (AREA_SIZE / 8, 0), (1, AREA_SIZE - 8)] {
        let words: Vec<u64> = (0..count as u64).map(|at| at * 0x0101_0101_0101).collect();
        host.area(go_on)
            .unwrap()
            .write_words(offset, &words)
            .unwrap();
        let descriptor = Descriptor {
            n: u32::try_from(count).unwrap(),
            b: offset as u64,
            ..Descriptor::of(Op::TokenMany)
        };
        assert_eq!(host.call(descriptor, go_on).unwrap().value, count as u64);
        let mut back = vec![0; count];
        host.area(go_on)
            .unwrap()
            .read_words(offset, &mut back)
            .unwrap();
        let expected = words.iter().map(|word| word.wrapping_mul(3) + 1);
        assert!(back.iter().copied().eq(expected), "{count} at {offset}");
    }
    let beyond = Descriptor {
        n: 2,
        b: AREA_SIZE as u64 - 8,
        ..Descriptor::of(Op::TokenMany)
    };
    let refused = host.call(beyond, go_on);
    assert_eq!(refused, Err(Broken::Fault(Fault::BadRequest)));
}

fn crowd() {
    let place = Place::new("crowd");
    let _zone = Role::start("zone", &place.socket());
    let path = place.socket();
    std::thread::scope(|scope| {
        for thread in 0..24_u64 {
            let path = &path;
            scope.spawn(move || {
                let mut host = connect(path);
                let mut sum = 0_u64;
                for round in 0..1000 {
                    post(&mut host, 0, thread).unwrap();
                    sum = sum.wrapping_mul(3).wrapping_add(thread);
                    let answer = call(&mut host, Op::Test, round, thread);
                    assert_eq!(answer, Ok(round ^ thread));
                }
                assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(sum));
            });
        }
    });
}

fn zone_killed_during_a_call() {
    let place = Place::new("killed-call");
    let mut zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    let incarnation = *host.incarnation();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            kill(&mut zone);
        });
        let start = Instant::now();
        assert_eq!(call(&mut host, Op::Status, 20_000, 0), Err(Broken::Lost));
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
    });
    assert!(host.is_lost());
    assert_eq!(call(&mut host, Op::Sync, 0, 0), Err(Broken::Lost));
    assert_eq!(post(&mut host, 0, 0), Err(Broken::Lost));
    assert_eq!(host.end_statement(go_on), Err(Broken::Lost));
    assert_eq!(host.area(go_on).err(), Some(Broken::Lost));
    // The next zone takes the socket over, as another incarnation (R5).
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    assert_ne!(*host.incarnation(), incarnation);
    assert_eq!(call(&mut host, Op::Test, 1, 2), Ok(3));
}

fn zone_killed_under_load() {
    for round in 0..10_u64 {
        let place = Place::new("killed-load");
        let mut zone = Role::start("zone", &place.socket());
        let path = place.socket();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let path = &path;
                scope.spawn(move || {
                    let mut host = connect(path);
                    let start = Instant::now();
                    let broken = loop {
                        let step = match thread {
                            0 => {
                                call(&mut host, Op::Test, 3, 5).map(|answer| assert_eq!(answer, 6))
                            }
                            1 => post(&mut host, 0, 1),
                            _ => call(&mut host, Op::Status, 1, 0).map(drop),
                        };
                        if let Err(broken) = step {
                            break broken;
                        }
                        assert!(start.elapsed() < Duration::from_secs(10), "never noticed");
                    };
                    assert_eq!(broken, Broken::Lost);
                });
            }
            std::thread::sleep(Duration::from_millis(20 + 13 * round));
            kill(&mut zone);
        });
    }
}

fn backends_killed() {
    let place = Place::new("backends");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    for round in 0..10 {
        let roles = ["caller", "poster", "caller"];
        let mut backends: Vec<Role> = roles
            .iter()
            .map(|role| Role::start(role, &place.socket()))
            .collect();
        assert_eq!(call(&mut host, Op::Position, 0, 0), Ok(4));
        std::thread::sleep(Duration::from_millis(10 + 7 * round));
        for backend in &mut backends {
            kill(backend);
        }
        let start = Instant::now();
        while call(&mut host, Op::Position, 0, 0) != Ok(1) {
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "rings of dead backends stay"
            );
        }
    }
}

fn interrupted() {
    let place = Place::new("interrupted");
    let _zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    let start = Instant::now();
    let long = Descriptor {
        a: 700,
        ..Descriptor::of(Op::Status)
    };
    let check = || {
        if start.elapsed() < Duration::from_millis(50) {
            Ok(())
        } else {
            Err(Interrupted)
        }
    };
    assert_eq!(host.call(long, check), Err(Broken::Interrupted));
    assert!(
        start.elapsed() < Duration::from_millis(400),
        "{:?}",
        start.elapsed()
    );
    // The next operation waits for the abandoned one, and gets its own answer.
    assert_eq!(call(&mut host, Op::Test, 12, 10), Ok(6));
    assert!(start.elapsed() >= Duration::from_millis(700));

    // A caller whose check unwinds, as PostgreSQL's errors do through Rust.
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        host.call(long, || std::panic::resume_unwind(Box::new("cancelled")))
    }));
    assert!(unwound.is_err());
    let start = Instant::now();
    host.area(go_on).unwrap().set_word(0, 41).unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(300),
        "the area was still in use"
    );
    let one = Descriptor {
        n: 1,
        ..Descriptor::of(Op::TokenMany)
    };
    assert_eq!(host.call(one, go_on).unwrap().value, 1);
    assert_eq!(host.area(go_on).unwrap().word(0), Some(124));
}

fn stopped_zone() {
    let place = Place::new("stopped");
    let zone = Role::start("zone", &place.socket());
    let mut host = connect(&place.socket());
    let signal = |name: &str| {
        let status = std::process::Command::new("kill")
            .args([name, &zone.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    };
    signal("-STOP");
    let start = Instant::now();
    let checks = Cell::new(0);
    let mut longest = Duration::ZERO;
    let mut last = start;
    let check = || {
        checks.set(checks.get() + 1);
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if start.elapsed() < Duration::from_millis(1000) {
            Ok(())
        } else {
            Err(Interrupted)
        }
    };
    assert_eq!(
        host.call(Descriptor::of(Op::Sync), check),
        Err(Broken::Interrupted)
    );
    assert!(checks.get() >= 10, "{checks:?}");
    assert!(longest < Duration::from_millis(250), "{longest:?}");
    // A full ring blocks, but not without asking either.
    let mut posted = 0;
    let broken = loop {
        let start = Instant::now();
        let check = || {
            if start.elapsed() < Duration::from_millis(150) {
                Ok(())
            } else {
                Err(Interrupted)
            }
        };
        let add = Descriptor {
            a: 1,
            ..Descriptor::of(Op::Compute)
        };
        match host.post(add, check) {
            Ok(()) => posted += 1,
            Err(broken) => break broken,
        }
    };
    assert_eq!((broken, posted), (Broken::Interrupted, ENTRIES - 1));
    // Nobody is let in either.
    let limit = Duration::from_millis(300);
    let refused = Host::connect(&place.socket(), limit, go_on);
    assert!(matches!(refused, Err(ConnectError::TimedOut)));
    let refused = Host::connect(&place.socket(), limit, || Err(Interrupted));
    assert!(matches!(refused, Err(ConnectError::Interrupted)));
    signal("-CONT");
    let sum = (0..posted).fold(0_u64, |sum, _| sum.wrapping_mul(3).wrapping_add(1));
    assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(sum));
}

/// Processor time of a process in clock ticks (1/100 s), all threads: fields 14 and 15 of
/// `proc_pid_stat(5)`.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

fn idle() {
    let place = Place::new("idle");
    let zone = Role::start("zone", &place.socket());
    let mut hosts: Vec<Host> = (0..200).map(|_| connect(&place.socket())).collect();
    let mut arenas: Vec<u16> = hosts.iter().map(Host::arena).collect();
    arenas.sort_unstable();
    arenas.dedup();
    assert_eq!(arenas.len(), 200);
    for (host, number) in hosts.iter_mut().zip(0..) {
        assert_eq!(call(host, Op::Test, number, 1), Ok(number ^ 1));
    }
    std::thread::sleep(Duration::from_millis(200));
    let before = ticks(zone.child.id());
    std::thread::sleep(Duration::from_secs(3));
    let used = ticks(zone.child.id()) - before;
    println!("     200 idle rings: {used} ticks of 300");
    assert!(used <= 3, "{used} ticks");
    // They are all still there.
    for (host, number) in hosts.iter_mut().zip(0..) {
        assert_eq!(call(host, Op::Test, number, 1), Ok(number ^ 1));
    }
    drop(hosts);
    let mut host = connect(&place.socket());
    let start = Instant::now();
    while call(&mut host, Op::Position, 0, 0) != Ok(1) {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

fn wakes() {
    let place = Place::new("wakes");
    let _zone = Role::start("zone", &place.socket());
    let mut hosts: Vec<Host> = (0..20).map(|_| connect(&place.socket())).collect();
    let (mut slowest, mut slow) = (Duration::ZERO, 0);
    for round in 0..300_u64 {
        // Pauses around the moment at which the zone goes to sleep.
        let pause = Duration::from_micros(round * 7 % 200);
        let from = Instant::now();
        while from.elapsed() < pause {
            std::hint::spin_loop();
        }
        for host in &mut hosts {
            let from = Instant::now();
            assert_eq!(call(host, Op::Test, round, 2), Ok(round ^ 2));
            slowest = slowest.max(from.elapsed());
            slow += u32::from(from.elapsed() > Duration::from_millis(95));
        }
    }
    println!("     slowest of 6000: {} us", slowest.as_micros());
    // A lost wake-up costs 100 ms. A scheduler under load may cost as much now and then, not dozens
    // of times.
    assert!(slow <= 6, "{slow} wake-ups came late");
}

fn nobody() {
    let place = Place::new("nobody");
    let refused = Host::connect(&place.socket(), Duration::from_secs(1), go_on);
    assert!(matches!(refused, Err(ConnectError::Refused(_))));
    // Something else listens there, and says something else.
    let listener = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
    let refused = Host::connect(&place.socket(), Duration::from_secs(1), go_on);
    assert!(
        matches!(refused, Err(ConnectError::Refused(_))),
        "a stream socket"
    );
    drop(listener);
}
