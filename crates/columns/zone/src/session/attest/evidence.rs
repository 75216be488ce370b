//! The thread that gets evidence while the engine goes on: a TPM takes up to half a second for a
//! quote.
//!
//! Invariant: one piece of evidence at a time, and one request of each ring: no ring can have
//! others wait for more than one. Must not: know a channel, or hold a secret.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use strongroom_format::columns::channel::AttestationProvider;

use super::Attester;

const ENDED: &str = "the thread for evidence has ended";

/// What a ring has asked for: what the evidence has to bind.
type Request = (u16, [u8; 32]);
/// The evidence, or why there is none.
type Evidence = io::Result<Vec<u8>>;

/// The ends of a thread's channels: for requests, and for what it has made of them.
type Thread = (Sender<Request>, Receiver<(Request, Evidence)>);

/// Where evidence comes from.
pub struct EvidenceSource {
    provider: AttestationProvider,
    /// `None` once the thread has it.
    attester: Option<Box<dyn Attester>>,
    thread: Option<Thread>,
    /// By ring, what it has asked for last, and the evidence when it is there.
    asked: BTreeMap<u16, ([u8; 32], Option<Evidence>)>,
}

impl EvidenceSource {
    /// Evidence by this attester. Starts nothing.
    #[must_use]
    pub fn new(attester: Box<dyn Attester>) -> Self {
        Self {
            provider: attester.provider(),
            attester: Some(attester),
            thread: None,
            asked: BTreeMap::new(),
        }
    }

    /// The kind of evidence.
    #[must_use]
    pub const fn provider(&self) -> AttestationProvider {
        self.provider
    }

    /// Whether evidence is being made that this ring, or an earlier one of its number, has asked
    /// for.
    pub fn is_busy_for(&mut self, ring: u16) -> bool {
        self.collect();
        let asked = self.asked.get(&ring);
        asked.is_some_and(|(_, evidence)| evidence.is_none())
    }

    /// Asks for evidence that binds these 32 bytes. To be called when nothing is being made for the
    /// ring. The first request starts the thread, which is as closed as the one that calls.
    ///
    /// # Errors
    /// If the system gives no thread, or it has ended.
    pub fn ask(&mut self, ring: u16, binding: [u8; 32]) -> io::Result<()> {
        if let Some(attester) = self.attester.take() {
            self.thread = Some(start(attester)?);
        }
        let sent = self
            .thread
            .as_ref()
            .is_some_and(|(requests, _)| requests.send((ring, binding)).is_ok());
        if !sent {
            return Err(io::Error::other(ENDED));
        }
        self.asked.insert(ring, (binding, None));
        Ok(())
    }

    /// The evidence that the ring has asked for, once, if it binds these bytes and is there.
    pub fn take(&mut self, ring: u16, binding: &[u8; 32]) -> Option<Evidence> {
        self.collect();
        let (of, evidence) = self.asked.get_mut(&ring)?;
        let taken = if of == binding { evidence.take() } else { None };
        if taken.is_some() {
            self.asked.remove(&ring);
        }
        taken
    }

    /// Forgets evidence of a ring that has closed. What is being made for it is made.
    pub fn forget(&mut self, ring: u16) {
        self.collect();
        self.asked
            .retain(|of, (_, evidence)| *of != ring || evidence.is_none());
    }

    /// Takes what the thread has made. What a thread that has ended has not made fails.
    fn collect(&mut self) {
        let Some((_, made)) = &self.thread else {
            return;
        };
        loop {
            match made.try_recv() {
                Ok(((ring, binding), evidence)) => {
                    let place = self.asked.get_mut(&ring);
                    if let Some((_, place)) = place.filter(|(of, _)| *of == binding) {
                        *place = Some(evidence);
                    }
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => break,
            }
        }
        for (_, evidence) in self.asked.values_mut() {
            evidence.get_or_insert_with(|| Err(io::Error::other(ENDED)));
        }
    }
}

/// Starts the thread, which ends with the source. Fails if the system gives none.
fn start(attester: Box<dyn Attester>) -> io::Result<Thread> {
    let (requests, asked) = channel::<Request>();
    let (answers, made) = channel();
    let thread = std::thread::Builder::new().name("zone-attest".into());
    thread.spawn(move || {
        for request in asked {
            let evidence = attester.evidence(&request.1);
            if answers.send((request, evidence)).is_err() {
                return;
            }
        }
    })?;
    Ok((requests, made))
}
