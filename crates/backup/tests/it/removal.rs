//! Goal: where there are no locks, no set that was told as made loses what it builds on, in
//! whatever order writers, removers and sweepers come, and wherever one of them is killed (B12).
//! Method: a directory whose locks exclude nobody and whose families are all old, and which lets
//! another command run, or ends the command, at each of its steps.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Place, options, verified};
use strongroom_backup::{
    Created, Description, Error, Expired, Kind, LocalStore, PostgresFacts, Result, Source, Store,
    StreamWriter, Upload, Version, create, expire, list,
};
use strongroom_format::code;

/// Beyond every step.
const NEVER: usize = usize::MAX;

/// How a command ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Before,
    /// What it asked for is done; it does not hear of it.
    After,
}

struct Unlocked<'a> {
    inner: LocalStore,
    steps: AtomicUsize,
    /// At which step another command runs.
    at: usize,
    other: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
    /// From which step on nothing works.
    dies: (usize, Death),
}

impl<'a> Unlocked<'a> {
    fn new(place: &Place) -> Self {
        Self {
            inner: place.medium(),
            steps: AtomicUsize::new(0),
            at: NEVER,
            other: Mutex::new(None),
            dies: (NEVER, Death::Before),
        }
    }

    fn with(place: &Place, at: usize, other: impl FnOnce() + Send + 'a) -> Self {
        Self {
            at,
            other: Mutex::new(Some(Box::new(other))),
            ..Self::new(place)
        }
    }

    fn done<T>(&self, name: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !name.starts_with("sets") {
            return work();
        }
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if step == self.at {
            let other = self.other.lock().map(|mut other| other.take());
            if let Ok(Some(other)) = other {
                other();
            }
        }
        let (last, death) = self.dies;
        let killed = || io::Error::from(io::ErrorKind::BrokenPipe);
        if step > last || (step == last && death == Death::Before) {
            return Err(killed());
        }
        let result = work();
        if step == last {
            return Err(killed());
        }
        result
    }

    /// Whether the other command had its turn.
    fn met(&self) -> bool {
        self.other.lock().unwrap().is_none()
    }
}

impl Store for Unlocked<'_> {
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.done(name, || self.inner.read(name, limit))
    }

    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.inner.open(name)
    }

    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.done(name, || self.inner.create_new(name, bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool> {
        self.done(name, || self.inner.replace(name, bytes, seen))
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.inner.begin(name)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.inner.sync(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.done(directory, || self.inner.list(directory))
    }

    /// All families are a week old but those of the set that is being made: its writer is within
    /// its time.
    fn orphan_candidates(&self) -> io::Result<Vec<String>> {
        let found = self.inner.list("data")?.into_iter();
        let newest = std::fs::read_dir(self.inner.shown() + "/data")?
            .flatten()
            .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
        let newest = newest.map(|entry| entry.file_name().into_string().unwrap());
        let all = found.map(|(name, _)| name);
        Ok(all.filter(|name| Some(name) != newest.as_ref()).collect())
    }

    fn writing_limit(&self) -> Option<Duration> {
        Some(Duration::from_secs(6 * 86_400))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.done(name, || self.inner.remove(name))
    }

    fn lock_writers(&self, _alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        Ok(Some(Box::new(())))
    }

    fn lock_changes(&self, _directory: &str) -> io::Result<Box<dyn Send>> {
        Ok(Box::new(()))
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.inner.is_empty()
    }

    fn prepare(&self) -> io::Result<()> {
        self.inner.prepare()
    }

    fn shown(&self) -> String {
        self.inner.shown()
    }
}

/// A cluster's set without a server.
struct Cluster {
    base: Option<String>,
    start: &'static str,
}

impl Source for Cluster {
    fn kind(&self) -> Kind {
        Kind::Postgres
    }

    fn shown(&self) -> String {
        String::from("cluster")
    }

    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, stream: &mut StreamWriter<'_>) -> Result<()> {
        let (member, _) = common::forged::directory(".");
        stream.member(&member)
    }

    fn describe(&self, description: &mut Description) {
        description.postgres = Some(PostgresFacts {
            base_set_id: self.base.clone(),
            start_lsn: self.start.to_owned(),
            segment_size_bytes: 16 << 20,
            ..PostgresFacts::default()
        });
    }
}

fn added(store: &dyn Store, base: Option<&str>, start: &'static str) -> Result<Created> {
    let base = base.map(str::to_owned);
    let mut source = Cluster { base, start };
    create(store, &mut source, &options(None), &mut |_| {})
}

const LOG: &str = "000000010000000000000002";

/// Two full sets, and log from the first one on: what expires is the first.
fn begun() -> (Place, String) {
    let place = Place::new();
    let base = added(&place.medium(), None, "0/2000028").unwrap();
    added(&place.medium(), None, "0/4000028").unwrap();
    common::put(&place.at("medium").join("wal").join(LOG), b"log");
    (place, base.description.set_id)
}

fn removed(store: &dyn Store) -> Result<Expired> {
    expire(store, 1, false)
}

/// What is seen when all have ended, and another writer has swept.
fn checked(
    place: &Place,
    base: &str,
    writer: Option<&Result<Created>>,
    remover: Option<&Result<Expired>>,
    what: &str,
) {
    added(&Unlocked::new(place), None, "0/6000028").unwrap();
    let listing = list(&place.medium()).unwrap();
    let position = |id: &str| {
        let mut sets = listing.sets.iter();
        let found = sets.find(|set| set.description.set_id == id);
        found.map(|set| set.position)
    };
    if let Some(Ok(created)) = writer {
        let base = position(base);
        assert!(base.is_some(), "{what}: the base is gone");
        verified(&place.medium(), base, None).unwrap();
        let own = position(&created.description.set_id);
        assert_eq!(own, Some(created.position), "{what}");
        verified(&place.medium(), own, None).unwrap();
    }
    if let Some(Ok(expired)) = remover {
        let gone = expired.sets.contains(&1);
        assert_eq!(position(base).is_none(), gone, "{what}");
        let log = place.at("medium").join("wal").join(LOG);
        assert_eq!(log.exists(), !gone, "{what}: log of a set that stays");
        assert_eq!(expired.log.is_empty(), !gone, "{what}");
    }
}

#[derive(Default)]
struct Seen {
    made: bool,
    refused: bool,
    kept: bool,
    removed: bool,
}

impl Seen {
    fn note(&mut self, writer: &Result<Created>, remover: &Result<Expired>) {
        match writer {
            Ok(_) => self.made = true,
            Err(error) => self.refused |= error.code() == &code::CHAIN,
        }
        if let Ok(expired) = remover {
            let gone = expired.sets.contains(&1);
            self.removed |= gone;
            self.kept |= !gone;
        }
    }

    fn all(&self) -> bool {
        self.made && self.refused && self.kept && self.removed
    }
}

#[test]
fn a_writer_at_any_step_of_a_remover_keeps_its_base_or_is_refused() {
    let mut seen = Seen::default();
    for at in 0.. {
        let (place, base) = begun();
        let writer: Mutex<Option<Result<Created>>> = Mutex::new(None);
        let store = Unlocked::with(&place, at, || {
            let made = added(&Unlocked::new(&place), Some(&base), "0/5000028");
            *writer.lock().unwrap() = Some(made);
        });
        let remover = removed(&store);
        if !store.met() {
            break;
        }
        let writer = writer.lock().unwrap().take().unwrap();
        seen.note(&writer, &remover);
        checked(
            &place,
            &base,
            Some(&writer),
            Some(&remover),
            &format!("step {at}"),
        );
    }
    assert!(seen.made && seen.refused && seen.kept && seen.removed);
}

#[test]
fn a_remover_at_any_step_of_a_writer_and_another_at_any_of_its_own() {
    let mut seen = Seen::default();
    for at in 0.. {
        let mut met = false;
        for inner in 0.. {
            let (place, base) = begun();
            let remover: Mutex<Option<Result<Expired>>> = Mutex::new(None);
            let second = Mutex::new(false);
            let store = Unlocked::with(&place, at, || {
                let nested = Unlocked::with(&place, inner, || {
                    drop(removed(&Unlocked::new(&place)));
                });
                *remover.lock().unwrap() = Some(removed(&nested));
                *second.lock().unwrap() = nested.met();
            });
            let writer = added(&store, Some(&base), "0/5000028");
            met = store.met();
            if !met {
                break;
            }
            let remover = remover.lock().unwrap().take().unwrap();
            seen.note(&writer, &remover);
            // Of two removers only one can tell the set as removed.
            checked(
                &place,
                &base,
                Some(&writer),
                None,
                &format!("steps {at}, {inner}"),
            );
            if !*second.lock().unwrap() {
                break;
            }
        }
        if !met {
            break;
        }
    }
    assert!(seen.all());
}

#[test]
fn a_remover_that_is_killed_at_any_step_takes_nothing_from_a_writer() {
    for death in [Death::Before, Death::After] {
        for last in 0.. {
            let (place, base) = begun();
            let mut store = Unlocked::new(&place);
            store.dies = (last, death);
            let remover = removed(&store);
            let ended = store.steps.load(Ordering::Relaxed) <= last;
            let what = format!("{death:?} {last}");
            // One that comes after the kill, and one that comes at each step before.
            let writer = added(&Unlocked::new(&place), Some(&base), "0/5000028");
            checked(&place, &base, Some(&writer), None, &what);
            for at in 0..=last.min(store.steps.load(Ordering::Relaxed)) {
                let (place, base) = begun();
                let writer: Mutex<Option<Result<Created>>> = Mutex::new(None);
                let mut store = Unlocked::with(&place, at, || {
                    let made = added(&Unlocked::new(&place), Some(&base), "0/5000028");
                    *writer.lock().unwrap() = Some(made);
                });
                store.dies = (last, death);
                drop(removed(&store));
                let writer = writer.lock().unwrap().take();
                checked(
                    &place,
                    &base,
                    writer.as_ref(),
                    None,
                    &format!("{what}, {at}"),
                );
            }
            if ended {
                remover.unwrap();
                break;
            }
        }
    }
}

#[test]
fn what_a_killed_remover_left_keeps_nobody_from_removing_and_is_swept() {
    let (place, base) = begun();
    let name = format!("sets/00000001.{base}.{base}.gone");
    assert!(place.medium().create_new(&name, b"").unwrap());
    let refused: Error = added(&Unlocked::new(&place), Some(&base), "0/5000028").unwrap_err();
    assert_eq!(refused.code(), &code::CHAIN);
    assert_eq!(list(&place.medium()).unwrap().sets.len(), 2);
    let remover = removed(&Unlocked::new(&place)).unwrap();
    assert_eq!(remover.sets, [1]);
    assert_eq!(remover.log, [LOG]);
    let names = place.medium().list("sets").unwrap();
    let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["00000002"]);
}
