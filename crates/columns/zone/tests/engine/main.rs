//! Goal: what a backend asks over a ring is carried out on a real store, by real operators, and by
//! nobody without the right.
//! Method: a zone in a thread of the test, a backend's end and a data owner's end of the channel;
//! no PostgreSQL.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::big_endian_bytes,
    reason = "a test that panics has failed, which is what it is for; PostgreSQL's binary forms are big-endian"
)]

mod attesting;
mod batches;
mod closed;
mod equality;
mod faults;
mod ledgers;
mod lineages;
mod operations;
mod owner;
mod program_charges;
mod programs;
mod refused;
mod results;
mod retired;
mod rights;
mod timelines;

use std::path::PathBuf;
use std::time::Duration;

use lineages::{lineage, ordered_partition};
use owner::{Owner, intake};
use strongroom_columns_ring::function::{Arg, by_name};
use strongroom_columns_ring::op::MORE;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Interrupted, Op};
use strongroom_columns_zone::engine::{WorkCount, Zone};
use strongroom_columns_zone::sandbox::Sandbox;
use strongroom_columns_zone::serve::Serving;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::session::attest::{Attester, ProcessAttester};
use strongroom_columns_zone::store::{self, ANCHOR_NAME, FileAnchor, Options, Store};
use strongroom_format::columns::channel::Ticket;
use strongroom_format::columns::channel::right::ORDINARY;
use strongroom_format::columns::{Kind, Lineage};
use strongroom_keyring::Opener;

/// Ids of the column keys of 32 bytes 0x0a and 0x0b.
const A: [u8; 16] = [
    0x1c, 0x58, 0x9d, 0x41, 0xa2, 0xd1, 0x44, 0xb7, 0x00, 0x6f, 0xee, 0x45, 0xe8, 0xfa, 0xa1, 0x90,
];
const B: [u8; 16] = [
    0x6c, 0x38, 0x71, 0x2d, 0x08, 0x5b, 0xa1, 0x22, 0x2a, 0x48, 0xad, 0xf2, 0x3f, 0x3a, 0x90, 0xd1,
];

fn go_on() -> Result<(), Interrupted> {
    Ok(())
}

fn ticket(rights: u32, keys: &[[u8; 16]]) -> Ticket {
    Ticket {
        rights,
        ticket_id: [1; 16],
        not_before: 0,
        not_after: u64::MAX,
        truths: u64::MAX,
        outputs: u64::MAX,
        keys: keys.to_vec(),
    }
}

struct Scene {
    path: PathBuf,
    owner: Owner,
    computed: WorkCount,
}

impl Scene {
    fn host(&self) -> Host {
        Host::connect(&self.path, Duration::from_secs(20), go_on).unwrap()
    }

    /// A backend whose client has opened a session.
    fn client(&self, rights: u32, keys: &[[u8; 16]]) -> Host {
        let mut host = self.host();
        self.owner.open(&mut host, &ticket(rights, keys)).unwrap();
        host
    }

    fn int8(&self, host: &mut Host, key: [u8; 16], value: i64) -> u64 {
        self.int8_for(Lineage::CLIENT, host, key, value)
    }

    /// A constant for the column of this lineage.
    fn int8_for(&self, lineage: Lineage, host: &mut Host, key: [u8; 16], value: i64) -> u64 {
        let value = value.to_be_bytes();
        let sealed = self.owner.seal_for(lineage, key, Kind::Int8, &value);
        intake(host, Kind::Int8, &sealed, 0).unwrap()
    }

    fn float8(&self, host: &mut Host, key: [u8; 16], value: f64) -> u64 {
        let sealed = self.owner.seal(key, Kind::Float8, &value.to_be_bytes());
        intake(host, Kind::Float8, &sealed, 0).unwrap()
    }

    fn text(&self, host: &mut Host, key: [u8; 16], value: &str) -> u64 {
        let sealed = self.owner.seal(key, Kind::Text, value.as_bytes());
        intake(host, Kind::Text, &sealed, 0).unwrap()
    }

    fn opened(&self, host: &mut Host, kind: Kind, fid: u64) -> Result<([u8; 16], Vec<u8>), Broken> {
        output(host, kind, &[fid]).map(|sealed| self.owner.open_envelope(&sealed[0]))
    }

    fn opened_int8(&self, host: &mut Host, fid: u64) -> Result<i64, Broken> {
        let (_, bytes) = self.opened(host, Kind::Int8, fid)?;
        Ok(i64::from_be_bytes(bytes.try_into().unwrap()))
    }
}

/// Runs a zone on a new store, on which the (empty) log was replayed.
fn with_zone(name: &str, act: impl FnOnce(&Scene)) {
    with_store(name, |_| (), act);
}

/// The same, on a store that `prepare` has changed before.
fn with_store(name: &str, prepare: impl FnOnce(&mut Store), act: impl FnOnce(&Scene)) {
    let attester = Box::new(ProcessAttester::new().unwrap());
    with_attester(name, attester, prepare, act);
}

/// The same, with evidence from this attester.
fn with_attester(
    name: &str,
    attester: Box<dyn Attester>,
    prepare: impl FnOnce(&mut Store),
    act: impl FnOnce(&Scene),
) {
    let dir = std::env::temp_dir().join(format!("sr-engine-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let opener = Opener::raw(strongroom_crypto::SecretKey::take(&mut [7; 32]).unwrap());
    store::create(&dir, &opener.recipient().unwrap()).unwrap();
    let anchor = Box::new(FileAnchor::at(dir.join(ANCHOR_NAME)));
    let options = Options {
        memory_limit: 64 << 20,
        insist_on_locks: false,
        accept_restored: false,
    };
    let mut opened = store::open(&dir, &opener, anchor, options).unwrap();
    prepare(&mut opened);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&dir).unwrap());
    let zone = Zone::new(opened, ColumnKeys::default(), attester, vec![user]);
    let computed = zone.computed();
    let path = dir.join("zone");
    let serving = Serving::bind(zone, &path, 0o600).unwrap();
    // All of it happens behind the sandbox.
    let sandbox = Sandbox {
        directories: vec![dir.clone()],
        insist_on_locks: false,
        all_threads: false,
    };
    let stopper = serving.stopper();
    let scene = Scene {
        path,
        owner: Owner::new(&[(A, 0x0a), (B, 0x0b)]),
        computed,
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(move || serving.run(Some(&sandbox), |_| Ok(())).map(drop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut host = scene.host();
            // Who has read nothing cannot say that all was read, and no checkpoint passes over what
            // was not.
            for op in [Op::Replayed, Op::Checkpoint] {
                assert_eq!(call(&mut host, op, 9, 0), fault(Fault::Recovering));
            }
            let mut other = scene.host();
            call(&mut host, Op::Position, 0, 0).unwrap();
            call(&mut other, Op::Position, 0, 0).unwrap();
            assert_eq!(
                call(&mut other, Op::Replayed, 9, 0),
                fault(Fault::Recovering)
            );
            assert_eq!(
                call(&mut host, Op::Checkpoint, 9, 0),
                fault(Fault::Recovering)
            );
            call(&mut host, Op::Replayed, 0, 0).unwrap();
            assert_eq!(call(&mut host, Op::Replay, 0, 0), fault(Fault::BadRequest));
            drop(host);
            act(&scene);
        }));
        stopper.stop();
        running.join().unwrap().unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    std::fs::remove_dir_all(&dir).unwrap();
}

fn call(host: &mut Host, op: Op, a: u64, b: u64) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        a,
        b,
        ..Descriptor::of(op)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

/// A called operation whose argument and answer are bytes in the data area.
fn call_bytes(host: &mut Host, op: Op, bytes: &[u8]) -> Result<Vec<u8>, Broken> {
    host.area(go_on)?.write(0, bytes).unwrap();
    let descriptor = Descriptor {
        n: u32::try_from(bytes.len()).unwrap(),
        ..Descriptor::of(op)
    };
    // Evidence is made while others are served.
    let mut answer = host.call(descriptor, go_on)?;
    while op == Op::Attest && answer.aux & MORE != 0 {
        std::thread::sleep(Duration::from_millis(1));
        answer = host.call(descriptor, go_on)?;
    }
    let mut reply = vec![0; usize::try_from(answer.value).unwrap()];
    host.area(go_on)?.read(0, &mut reply).unwrap();
    Ok(reply)
}

fn of_kind(host: &mut Host, op: Op, kind: Kind, a: u64, b: u64) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        a,
        b,
        ..Descriptor::of(op)
    };
    host.call(descriptor, go_on).map(|answer| answer.value)
}

fn code(name: &str, args: &[Arg]) -> u32 {
    u32::from(by_name(name, args).unwrap().code)
}

fn compute(host: &mut Host, code: u32, a: u64, b: u64) -> u64 {
    let r = host.fresh().unwrap().bits();
    let descriptor = Descriptor {
        n: code,
        a,
        b,
        r,
        ..Descriptor::of(Op::Compute)
    };
    host.post(descriptor, go_on).unwrap();
    r
}

fn int8(host: &mut Host, name: &str, a: u64, b: u64) -> u64 {
    let kind = Arg::Of(Kind::Int8);
    compute(host, code(name, &[kind, kind]), a, b)
}

fn output(host: &mut Host, kind: Kind, fids: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
    sealed(host, u16::from(kind.number()), fids)
}

/// Envelopes of values, of any kinds where `flags` is 0.
fn sealed(host: &mut Host, flags: u16, fids: &[u64]) -> Result<Vec<Vec<u8>>, Broken> {
    host.area(go_on)?.write_words(0, fids).unwrap();
    let descriptor = Descriptor {
        flags,
        n: u32::try_from(fids.len()).unwrap(),
        ..Descriptor::of(Op::Output)
    };
    let len = host.call(descriptor, go_on)?.value;
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    host.area(go_on)?.read(0, &mut bytes).unwrap();
    let (mut sealed, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let (one, behind) = behind.split_at(usize::try_from(u32::from_le_bytes(*len)).unwrap());
        sealed.push(one.to_vec());
        rest = behind;
    }
    Ok(sealed)
}

/// Promotes into a column; the permanent identifiers, and the redo record.
fn promote(
    host: &mut Host,
    partition: u64,
    column: u16,
    kind: Kind,
    fids: &[u64],
) -> Result<(Vec<u64>, Vec<u8>), Broken> {
    let mut words = Vec::new();
    for fid in fids {
        words.extend([*fid, u64::from(column) | u64::from(kind.number()) << 16]);
    }
    host.area(go_on)?.write_words(0, &words).unwrap();
    let descriptor = Descriptor {
        n: u32::try_from(fids.len()).unwrap(),
        a: partition,
        ..Descriptor::of(Op::Promote)
    };
    let len = host.call(descriptor, go_on)?.value;
    host.area(go_on)?.read_words(0, &mut words).unwrap();
    let mut record = vec![0; usize::try_from(len).unwrap()];
    host.area(go_on)?
        .read(words.len() * 8, &mut record)
        .unwrap();
    Ok((words.iter().copied().step_by(2).collect(), record))
}

fn fault<T>(fault: Fault) -> Result<T, Broken> {
    Err(Broken::Fault(fault))
}

/// A fault of what was posted before.
fn earlier<T>(fault: Fault) -> Result<T, Broken> {
    Err(Broken::Earlier(fault))
}
