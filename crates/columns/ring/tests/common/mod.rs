//! What tests and benchmarks of the ring share: a zone that computes something simple, and
//! processes in roles.
//!
//! The zone's real operators are elsewhere; here only the transport is of interest, so the handler
//! adds, waits and transforms arrays, and knows when a ring was opened or closed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_columns_ring::{
    Answer, Area, Descriptor, Fault, Handler, Host, Interrupted, Op, Peer, Server,
};

/// State of one ring: the sum of what was posted, and the first fault.
#[derive(Default)]
struct Sums {
    sum: u64,
    fault: Option<Fault>,
}

/// Adds.
#[derive(Default)]
pub(crate) struct Adder {
    rings: BTreeMap<u16, Sums>,
    last: u16,
}

impl Handler for Adder {
    fn ring_opened(&mut self, peer: &Peer) -> Option<u16> {
        assert_ne!(peer.uid, u32::MAX);
        self.last += 1;
        self.rings.insert(self.last, Sums::default());
        Some(self.last)
    }

    fn ring_closed(&mut self, arena: u16) {
        assert!(self.rings.remove(&arena).is_some(), "closed twice");
    }

    fn execute(&mut self, arena: u16, descriptor: &Descriptor, area: &Area) -> Answer {
        let open = self.rings.len();
        let ring = self.rings.get_mut(&arena).expect("an open ring");
        match Op::from_number(descriptor.op) {
            Some(Op::Compute) if descriptor.n == 0 => {
                ring.sum = ring.sum.wrapping_mul(3).wrapping_add(descriptor.a);
            }
            Some(Op::Compute) => {
                ring.fault.get_or_insert(Fault::DivisionByZero);
            }
            Some(Op::StatementEnd) => *ring = Sums::default(),
            Some(Op::Sync) => {
                return ring
                    .fault
                    .take()
                    .map_or_else(|| Answer::of(ring.sum), Answer::earlier);
            }
            Some(Op::Test) => return Answer::of(descriptor.a ^ descriptor.b),
            Some(Op::TokenMany) => {
                let offset = usize::try_from(descriptor.b).expect("64 bits");
                let mut words = vec![0; descriptor.n as usize];
                if area.read_words(offset, &mut words).is_none() {
                    return Answer::fault(Fault::BadRequest);
                }
                for word in &mut words {
                    *word = word.wrapping_mul(3) + 1;
                }
                area.write_words(offset, &words).expect("as above");
                return Answer::of(words.len() as u64);
            }
            // "Position": how many rings are open. "Status": works for `a` milliseconds.
            Some(Op::Position) => return Answer::of(open as u64),
            Some(Op::Status) => {
                std::thread::sleep(Duration::from_millis(descriptor.a));
                return Answer::of(descriptor.a);
            }
            _ => return Answer::fault(Fault::BadRequest),
        }
        Answer::default()
    }
}

/// The role of a zone: serves at the path until it is killed.
pub(crate) fn zone(path: &Path) {
    let mut incarnation = [0; 16];
    incarnation[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let server = Server::bind(path, 0o600, incarnation).unwrap();
    println!("ready");
    server.run(&mut Adder::default()).unwrap();
}

/// A child of this program in another role; killed when dropped.
pub(crate) struct Role {
    pub(crate) child: Child,
}

impl Role {
    pub(crate) fn start(role: &str, path: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program)
            .arg(format!("role={role}"))
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut role = Self { child };
        let mut line = String::new();
        let output = role.child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        role
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A directory with a path for a socket in it; removed when dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("sr-ring-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("zone")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn go_on() -> Result<(), Interrupted> {
    Ok(())
}

pub(crate) fn connect(path: &Path) -> Host {
    Host::connect(path, Duration::from_secs(10), go_on).unwrap()
}

/// A role: its name, and what is run with the socket's path.
pub(crate) type Part = (&'static str, fn(&Path));

/// Runs the role that the arguments name, if they do.
pub(crate) fn took_role(roles: &[Part]) -> bool {
    let mut args = std::env::args().skip(1);
    let Some(name) = args
        .next()
        .and_then(|arg| arg.strip_prefix("role=").map(str::to_owned))
    else {
        return false;
    };
    let (_, run) = roles
        .iter()
        .find(|(role, _)| *role == name)
        .expect("a role");
    run(Path::new(&args.next().expect("a path")));
    true
}
