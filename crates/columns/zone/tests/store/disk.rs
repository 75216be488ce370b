//! A disk that remembers every call in order, and can be had as a crash after any of them would
//! leave it.
//!
//! What was synced is there. Of what was not, each sector of 512 bytes of each write is there or
//! not, as the dice fall. A replacement (manifest, anchor, log) is there whole once its call has
//! returned. A publication makes one of its calls each time that it is asked about, so that calls
//! of the engine come in between; its sync is of what was written before the publication began.

use std::io;
use std::sync::{Arc, Mutex};

use strongroom_columns_zone::store::{Anchor, Files, LogStorage, Publication, Unpublished};
use strongroom_format::code;
use strongroom_keyring::Error;

/// One call.
#[derive(Clone)]
pub(crate) enum Call {
    Write(u64, Vec<u8>),
    /// What the first so many calls have written is durable.
    Sync(usize),
    Cut(u64),
    Manifest(Vec<u8>),
    Anchor(u64),
    LogWrite(u64, Vec<u8>),
    LogSync,
    LogCut(u64),
    LogReplace(Vec<u8>),
}

#[derive(Default, Clone)]
pub(crate) struct State {
    pub(crate) blocks: Vec<u8>,
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) anchor: u64,
    pub(crate) log: Vec<u8>,
}

#[derive(Default)]
struct Inner {
    begin: State,
    now: State,
    calls: Vec<Call>,
    /// Calls that still succeed; then all fail.
    allowed: Option<usize>,
    /// The publication that goes on, how many calls were made when it began, and how many it has
    /// made itself.
    publication: Option<(Publication, usize, u32)>,
    /// How often the engine has waited for the end of one.
    waits: usize,
}

/// A disk; clones are the same one.
#[derive(Default, Clone)]
pub(crate) struct Disk(Arc<Mutex<Inner>>);

/// What survives of the writes that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsynced {
    All,
    None,
    Some(u64),
}

/// A generator of numbers that look random (`SplitMix64`), so that a failure can be repeated.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.roll(count as u64)).unwrap()
    }
}

fn write(to: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = usize::try_from(at).unwrap();
    if to.len() < at + bytes.len() {
        to.resize(at + bytes.len(), 0);
    }
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

fn write_some(to: &mut Vec<u8>, at: u64, bytes: &[u8], unsynced: Unsynced, dice: &mut Dice) {
    let mut from = 0;
    while from < bytes.len() {
        let sector_end =
            (usize::try_from(at).unwrap() + from) / 512 * 512 + 512 - usize::try_from(at).unwrap();
        let end = sector_end.min(bytes.len());
        let survives = match unsynced {
            Unsynced::All => true,
            Unsynced::None => false,
            Unsynced::Some(_) => dice.roll(2) == 0,
        };
        if survives {
            write(to, at + from as u64, &bytes[from..end]);
        }
        from = end;
    }
}

impl Disk {
    pub(crate) fn of(state: State) -> Self {
        let inner = Inner {
            begin: state.clone(),
            now: state,
            ..Inner::default()
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    pub(crate) fn state(&self) -> State {
        self.0.lock().unwrap().now.clone()
    }

    /// Whether a publication goes on.
    pub(crate) fn is_publishing(&self) -> bool {
        self.0.lock().unwrap().publication.is_some()
    }

    /// How often a publication's end was waited for.
    pub(crate) fn waits(&self) -> usize {
        self.0.lock().unwrap().waits
    }

    /// From now on only so many calls succeed.
    pub(crate) fn allow(&self, calls: Option<usize>) {
        self.0.lock().unwrap().allowed = calls;
    }

    /// The disk after a crash behind the first `calls` calls.
    pub(crate) fn crashed(&self, calls: usize, unsynced: Unsynced) -> State {
        let inner = self.0.lock().unwrap();
        let mut state = inner.begin.clone();
        let mut dice = Dice(match unsynced {
            Unsynced::Some(seed) => seed,
            _ => 0,
        });
        let (mut blocks, mut log): (Vec<&Call>, Vec<&Call>) = (Vec::new(), Vec::new());
        let mut numbers = Vec::new();
        for (number, call) in inner.calls[..calls].iter().enumerate() {
            match call {
                Call::Write(..) | Call::Cut(_) => {
                    blocks.push(call);
                    numbers.push(number);
                }
                Call::LogWrite(..) | Call::LogCut(_) => log.push(call),
                Call::Sync(before) => {
                    let synced = numbers.partition_point(|number| number < before);
                    numbers.drain(..synced);
                    let mut synced = blocks.drain(..synced).collect();
                    apply(&mut state.blocks, &mut synced, Unsynced::All, &mut dice);
                }
                Call::LogSync => apply(&mut state.log, &mut log, Unsynced::All, &mut dice),
                Call::Manifest(bytes) => state.manifest = Some(bytes.clone()),
                Call::Anchor(to) => state.anchor = *to,
                Call::LogReplace(bytes) => {
                    log.clear();
                    state.log = bytes.clone();
                }
            }
        }
        apply(&mut state.blocks, &mut blocks, unsynced, &mut dice);
        apply(&mut state.log, &mut log, unsynced, &mut dice);
        state
    }

    fn call(&self, call: Call) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        match &mut inner.allowed {
            Some(0) => return Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some(left) => *left -= 1,
            None => {}
        }
        match &call {
            Call::Write(at, bytes) => write(&mut inner.now.blocks, *at, bytes),
            Call::LogWrite(at, bytes) => write(&mut inner.now.log, *at, bytes),
            Call::Cut(len) => inner.now.blocks.resize(usize::try_from(*len).unwrap(), 0),
            Call::LogCut(len) => inner.now.log.resize(usize::try_from(*len).unwrap(), 0),
            Call::Sync(_) | Call::LogSync => {}
            Call::Manifest(bytes) => inner.now.manifest = Some(bytes.clone()),
            Call::Anchor(to) => inner.now.anchor = *to,
            Call::LogReplace(bytes) => inner.now.log = bytes.clone(),
        }
        inner.calls.push(call);
        Ok(())
    }
}

fn apply(to: &mut Vec<u8>, calls: &mut Vec<&Call>, unsynced: Unsynced, dice: &mut Dice) {
    for call in calls.drain(..) {
        match call {
            Call::Write(at, bytes) | Call::LogWrite(at, bytes) => {
                write_some(to, *at, bytes, unsynced, dice);
            }
            Call::Cut(len) | Call::LogCut(len) if unsynced != Unsynced::None => {
                to.resize(usize::try_from(*len).unwrap(), 0);
            }
            _ => {}
        }
    }
}

impl Files for Disk {
    fn read_block(&mut self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let inner = self.0.lock().unwrap();
        let at = usize::try_from(at).unwrap();
        let end = at.checked_add(out.len()).unwrap();
        let found = inner
            .now
            .blocks
            .get(at..end)
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write_block(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(Call::Write(at, bytes.to_vec()))
    }

    fn cut_blocks(&mut self, len: u64) -> io::Result<()> {
        self.call(Call::Cut(len))
    }

    /// What another process has begun to publish ended with it.
    fn read_manifest(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut inner = self.0.lock().unwrap();
        inner.publication = None;
        Ok(inner.now.manifest.clone())
    }

    fn publish(&mut self, publication: Publication) {
        let mut inner = self.0.lock().unwrap();
        assert!(inner.publication.is_none(), "one goes on");
        let before = inner.calls.len();
        inner.publication = Some((publication, before, 0));
    }

    fn published(&mut self, wait: bool) -> Option<Result<(), Unpublished>> {
        self.0.lock().unwrap().waits += usize::from(wait);
        loop {
            let (publication, before, step) = self.0.lock().unwrap().publication.take()?;
            let done = match step {
                0 => self.call(Call::Sync(before)).map_err(Unpublished::Blocks),
                1 => self
                    .call(Call::Manifest(publication.manifest.clone()))
                    .map_err(Unpublished::Manifest),
                _ => {
                    let anchored = publication.anchor.advance(publication.counter);
                    return Some(anchored.map_err(Unpublished::Anchor));
                }
            };
            if let Err(error) = done {
                return Some(Err(error));
            }
            self.0.lock().unwrap().publication = Some((publication, before, step + 1));
            if !wait {
                return None;
            }
        }
    }
}

impl Anchor for Disk {
    fn read(&self) -> Result<u64, Error> {
        Ok(self.0.lock().unwrap().now.anchor)
    }

    fn advance(&self, to: u64) -> Result<(), Error> {
        assert!(
            to >= self.0.lock().unwrap().now.anchor,
            "an anchor only rises"
        );
        self.call(Call::Anchor(to))
            .map_err(|error| Error::caused(&code::ZONE_DISK, "anchor", error))
    }
}

impl LogStorage for Disk {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().unwrap().now.log.clone())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(Call::LogWrite(at, bytes.to_vec()))
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.call(Call::LogCut(len))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.call(Call::LogSync)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.call(Call::LogReplace(bytes.to_vec()))
    }
}
