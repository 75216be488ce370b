//! The zone's end of all rings: one thread executes their descriptors.
//!
//! The engine's thread polls the rings that had work recently. A ring without work is *parked*: it
//! is not polled until its backend rings the doorbell, so that idle connections cost nothing. When
//! all rings are parked the thread sleeps on the doorbell. A second thread waits for connections,
//! and for the ends of sockets and processes; it touches no ring.
//!
//! - R1: one thread, each ring's descriptors in their order; rings take turns after
//!   [`TURN_DESCRIPTORS`] descriptors.
//! - R3: a descriptor is copied once, before it is checked. A ring whose `tail` is impossible is
//!   closed.
//! - A descriptor that is in flight when its backend dies may or may not be executed.
//!
//! Must not: know what an operation means.

use core::fmt;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, fence};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, epoll};

use crate::Op;
use crate::doorbell::{self, AdaptiveWait, Doorbell, SLEEP_MAX};
use crate::memory::Mapping;
use crate::ring::{Answer, Area, Descriptor, ENTRIES, FIRST, Ring};
use crate::socket::{self, Peer, Welcome};

/// Descriptors of one ring that are executed before it is the next ring's turn.
const TURN_DESCRIPTORS: u32 = 256;
/// Posted descriptors after which the zone publishes its progress.
const REPORT_INTERVAL: u32 = 64;
/// Rounds without work after which a ring is parked while others work.
const QUIET_ROUNDS: u32 = 4096;

/// Executes descriptors. One thread calls it.
pub trait Handler {
    /// Called when a backend has connected. Returns the number of its arena (the zone's memory for
    /// the values of its statements), which no other open ring may have; `None` refuses the
    /// backend, and its connection is closed.
    fn ring_opened(&mut self, peer: &Peer) -> Option<u16>;

    /// Called when the ring whose arena has this number is closed, or could not be set up: nothing
    /// more is executed for it.
    fn ring_closed(&mut self, arena: u16);

    /// Executes a descriptor and returns its answer; that to a posted operation is dropped.
    /// Arguments in `area` may change at any time: copy them once, then check the copy.
    fn execute(&mut self, arena: u16, descriptor: &Descriptor, area: &Area) -> Answer;

    /// Called when there is nothing to do: before the thread sleeps, and at least every 100 ms
    /// while rings are open and it is idle. Does nothing by default.
    fn idle(&mut self) {}
}

/// Stops a [`Server`] from another thread.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    bell: Arc<Mapping<Doorbell>>,
}

impl Stopper {
    /// Has [`Server::run`] close all rings and return. Does not wait for that.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.bell.ring_always();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").finish_non_exhaustive()
    }
}

/// The zone's end of all rings.
pub struct Server {
    path: PathBuf,
    incarnation: [u8; 16],
    epoll: Arc<OwnedFd>,
    quit: Arc<OwnedFd>,
    listener: Option<OwnedFd>,
    bell: Arc<Mapping<Doorbell>>,
    bell_file: OwnedFd,
    stop: Arc<AtomicBool>,
    rings: BTreeMap<u64, ServedRing>,
    active: Vec<u64>,
    next_id: u64,
    /// The count of the doorbell that was last handled.
    rings_seen: u32,
}

/// The zone's state of one ring.
struct ServedRing {
    ring: Mapping<Ring>,
    /// Closing it tells the backend that the ring has ended.
    _socket: OwnedFd,
    /// Keeps the process's end watched.
    _process: Option<OwnedFd>,
    arena: u16,
    /// Descriptors executed: the zone's own count, because the shared memory is never read back.
    done: u32,
    quiet_rounds: u32,
}

/// An event that the watching thread reports.
enum Event {
    Connected(OwnedFd),
    Gone(u64),
}

const LISTENER: u64 = u64::MAX;
const QUIT: u64 = u64::MAX - 1;

impl Server {
    /// Makes the socket at `path`, whose file gets the permissions `mode`, and listens; accepts
    /// nothing until [`Self::run`]. A socket there on which no process listens is replaced. Every
    /// backend gets `incarnation`, the random number of this start.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a zone listens there, or something other than a socket is there; otherwise
    /// the kernel's errors.
    pub fn bind(path: &Path, mode: u32, incarnation: [u8; 16]) -> io::Result<Self> {
        let (bell, bell_file) = Mapping::create("strongroom-bell")?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let quit = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let listener = socket::listen(path, mode)?;
        let input = epoll::EventFlags::IN;
        epoll::add(
            &epoll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            input,
        )?;
        epoll::add(&epoll, &quit, epoll::EventData::new_u64(QUIT), input)?;
        Ok(Self {
            path: path.to_path_buf(),
            incarnation,
            epoll: Arc::new(epoll),
            quit: Arc::new(quit),
            listener: Some(listener),
            bell: Arc::new(bell),
            bell_file,
            stop: Arc::new(AtomicBool::new(false)),
            rings: BTreeMap::new(),
            active: Vec::new(),
            next_id: 0,
            rings_seen: 0,
        })
    }

    /// A handle that stops the server from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            stop: Arc::clone(&self.stop),
            bell: Arc::clone(&self.bell),
        }
    }

    /// Serves until a [`Stopper`] stops it: the calling thread executes the descriptors, another
    /// accepts connections. Then closes all rings and removes the socket's file.
    ///
    /// # Errors
    ///
    /// If the second thread cannot be started, or has panicked.
    pub fn run(mut self, handler: &mut impl Handler) -> io::Result<()> {
        let (sender, events) = mpsc::channel();
        let watcher = self.start_watcher(sender)?;
        self.serve(handler, &events);
        for (_, served) in core::mem::take(&mut self.rings) {
            close(&served);
            handler.ring_closed(served.arena);
        }
        // It fails when the counter is full: then the thread is being woken already.
        let _ = rustix::io::write(&*self.quit, &1_u64.to_le_bytes());
        let ended = watcher.join();
        // Without a listener the socket has to go; if it cannot be removed, the next start replaces
        // it.
        drop(std::fs::remove_file(&self.path));
        ended.map_err(|_| io::Error::other("the zone's watching thread has panicked"))
    }

    /// Executes the descriptors of all rings in turn until it is to stop; calls the handler's
    /// `idle` and sleeps if there is nothing to do.
    fn serve(&mut self, handler: &mut impl Handler, events: &Receiver<Event>) {
        let mut quiet = 0;
        let mut wait = AdaptiveWait::new();
        while !self.stop.load(SeqCst) {
            let count = self.bell.count();
            if count != self.rings_seen {
                self.rings_seen = count;
                self.handle_events(handler, events);
                self.find_work();
            }
            if self.round(handler) {
                quiet = 0;
                continue;
            }
            if wait.pause(quiet) {
                quiet += 1;
            } else {
                quiet = 0;
                handler.idle();
                self.sleep(&mut wait);
            }
        }
    }

    /// Gives each active ring one turn: parks rings that are quiet, and closes those whose index is
    /// impossible. Returns whether anything was executed.
    fn round(&mut self, handler: &mut impl Handler) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(id) = self.active.get(at).copied() {
            let outcome = match self.rings.get_mut(&id) {
                Some(served) => served.turn(handler),
                None => Turn::Park,
            };
            match outcome {
                Turn::Worked => worked = true,
                Turn::Quiet => {}
                Turn::Park => {
                    self.active.swap_remove(at);
                    continue;
                }
                Turn::Impossible => {
                    self.close(id, handler);
                    continue;
                }
            }
            at += 1;
        }
        worked
    }

    /// Parks all rings and sleeps on the doorbell, for 100 ms at most if there are rings, unless
    /// there is work after all. Then activates the rings that have work.
    fn sleep(&mut self, wait: &mut AdaptiveWait) {
        for served in self.rings.values_mut() {
            served.park();
        }
        self.active.clear();
        fence(SeqCst);
        if self.rings.values().any(ServedRing::has_work) {
            self.find_work();
            return;
        }
        let limit = (!self.rings.is_empty()).then_some(SLEEP_MAX);
        wait.sleep(|| self.bell.sleep(self.rings_seen, limit));
        // After the longest sleep too: a ring is served even if a hostile backend has overwritten
        // the doorbell.
        self.find_work();
    }

    /// Makes active exactly those rings that have work, and those that are not marked as parked,
    /// whose backends would not ring the doorbell.
    fn find_work(&mut self) {
        self.active.clear();
        for (id, served) in &mut self.rings {
            // The backend clears the mark before it rings. Its work may have been done before the
            // ring was handled: then the mark has to be set again, which happens after some
            // quiet rounds.
            let unmarked = served.ring.header.parked.0.load(SeqCst) == 0;
            if unmarked || served.has_work() {
                served.unpark();
                self.active.push(*id);
            }
        }
    }

    /// Opens and closes rings as the watching thread has reported. A ring that cannot be opened is
    /// given up without a message.
    fn handle_events(&mut self, handler: &mut impl Handler, events: &Receiver<Event>) {
        while let Ok(event) = events.try_recv() {
            match event {
                Event::Gone(id) => self.close(id, handler),
                // A connection that fails - no memory, no descriptors, the backend gone - ends with
                // the socket, which is all that the backend needs to know.
                Event::Connected(socket) => drop(self.open(socket, handler)),
            }
        }
    }

    /// Opens a ring for a backend that has connected, and sends it the welcome. If the handler
    /// refuses it, its credentials are not known, or the kernel has no memory or descriptors,
    /// returns the error, and the connection is closed.
    fn open(&mut self, socket: OwnedFd, handler: &mut impl Handler) -> io::Result<()> {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let peer = socket::peer::credentials(socket.as_fd()).ok_or_else(denied)?;
        let (ring, file) = Mapping::<Ring>::create("strongroom-ring")?;
        ring.publish_tail(FIRST);
        ring.publish_done(FIRST);
        let process = socket::peer::process(socket.as_fd(), peer);
        let arena = handler.ring_opened(&peer).ok_or_else(denied)?;
        let id = self.next_id;
        self.next_id += 1;
        let welcome = Welcome {
            incarnation: self.incarnation,
            arena,
        };
        let watched = self.watch(id, &socket, process.as_ref()).and_then(|()| {
            let files = [file.as_fd(), self.bell_file.as_fd()];
            socket::send_welcome(&socket, welcome, files)
        });
        if let Err(error) = watched {
            handler.ring_closed(arena);
            return Err(error);
        }
        let mut served = ServedRing {
            ring,
            _socket: socket,
            _process: process,
            arena,
            done: FIRST,
            quiet_rounds: 0,
        };
        served.park();
        self.rings.insert(id, served);
        Ok(())
    }

    /// Has the watching thread report, once, the end of the connection, and that of the backend's
    /// process if it is known. Fails if the kernel has no room for it.
    fn watch(&self, id: u64, socket: &OwnedFd, process: Option<&OwnedFd>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(id);
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        epoll::add(&*self.epoll, socket, data, end)?;
        if let Some(process) = process {
            let end = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            epoll::add(&*self.epoll, process, data, end)?;
        }
        Ok(())
    }

    /// Closes a ring, wakes its backend and tells the handler. Does nothing if it is closed
    /// already: its end may be reported twice.
    fn close(&mut self, id: u64, handler: &mut impl Handler) {
        if let Some(served) = self.rings.remove(&id) {
            close(&served);
            handler.ring_closed(served.arena);
        }
        self.active.retain(|active| *active != id);
    }

    /// Starts the thread that accepts connections and waits for their ends. Fails if it was started
    /// before, or the system gives no thread.
    fn start_watcher(&mut self, events: Sender<Event>) -> io::Result<JoinHandle<()>> {
        let listener = self.listener.take().ok_or(io::ErrorKind::NotConnected)?;
        let watcher = Watcher {
            listener,
            epoll: Arc::clone(&self.epoll),
            events,
            bell: Arc::clone(&self.bell),
        };
        let thread = std::thread::Builder::new().name("zone-watch".into());
        thread.spawn(move || watcher.run())
    }
}

/// Tells the backend that the ring is closed: no further descriptor will be executed. Wakes it.
fn close(served: &ServedRing) {
    served.ring.header.closed.0.store(1, SeqCst);
    doorbell::wake(&served.ring.header.done.0);
}

enum Turn {
    Worked,
    Quiet,
    Park,
    Impossible,
}

impl ServedRing {
    /// Whether the backend has published descriptors that are not executed yet.
    fn has_work(&self) -> bool {
        self.ring.tail() != self.done
    }

    /// Executes up to 256 of the ring's descriptors, so that other rings have their turn. Parks the
    /// ring after 4096 rounds without work. `Turn::Impossible`, and nothing is executed, if the
    /// backend claims to have published more than the ring holds.
    fn turn(&mut self, handler: &mut impl Handler) -> Turn {
        let tail = self.ring.tail();
        let count = tail.wrapping_sub(self.done);
        if count > ENTRIES {
            return Turn::Impossible;
        }
        if count == 0 {
            self.quiet_rounds += 1;
            if self.quiet_rounds < QUIET_ROUNDS {
                return Turn::Quiet;
            }
            self.park();
            fence(SeqCst);
            if !self.has_work() {
                return Turn::Park;
            }
            self.unpark();
            return Turn::Quiet;
        }
        self.quiet_rounds = 0;
        self.execute_batch(count.min(TURN_DESCRIPTORS), handler);
        Turn::Worked
    }

    /// Executes `count` descriptors. Publishes answer and progress after each called one, otherwise
    /// after each 64 and at the end.
    fn execute_batch(&mut self, count: u32, handler: &mut impl Handler) {
        let mut unreported = 0;
        for _ in 0..count {
            let descriptor = self.ring.read_descriptor(self.done);
            let answer = handler.execute(self.arena, &descriptor, self.ring.area());
            let posted = Op::from_number(descriptor.op).is_some_and(Op::is_posted);
            if !posted {
                self.ring.put_answer(self.done, &answer);
            }
            self.done = self.done.wrapping_add(1);
            unreported += 1;
            if !posted || unreported == REPORT_INTERVAL {
                self.report();
                unreported = 0;
            }
        }
        if unreported != 0 {
            self.report();
        }
    }

    /// Publishes how many descriptors are executed, and wakes the backend if it sleeps.
    fn report(&self) {
        let header = &self.ring.header;
        self.ring.publish_done(self.done);
        fence(SeqCst);
        if header.waiting.0.load(SeqCst) != 0 && header.waiting.0.swap(0, SeqCst) != 0 {
            doorbell::wake(&header.done.0);
        }
    }

    /// Marks the ring as parked: from now on the backend must ring the doorbell when it has work.
    fn park(&mut self) {
        self.quiet_rounds = 0;
        self.ring.header.parked.0.store(1, SeqCst);
    }

    /// Removes the mark of [`Self::park`]: the zone polls this ring again.
    fn unpark(&mut self) {
        self.quiet_rounds = 0;
        self.ring.header.parked.0.store(0, SeqCst);
    }
}

/// Waits for what does not come through a ring.
struct Watcher {
    listener: OwnedFd,
    epoll: Arc<OwnedFd>,
    events: Sender<Event>,
    bell: Arc<Mapping<Doorbell>>,
}

impl Watcher {
    /// Passes connections, and ends of connections, on to the engine's thread, and rings the
    /// doorbell for it. Returns when the server is to stop, or that thread takes no more events.
    fn run(&self) {
        let mut found = Vec::with_capacity(64);
        loop {
            found.clear();
            let buffer = rustix::buffer::spare_capacity(&mut found);
            if epoll::wait(&*self.epoll, buffer, None).is_err() {
                continue;
            }
            for event in &found {
                let sent = match event.data.u64() {
                    QUIT => return,
                    LISTENER => self.accept(),
                    id => self.events.send(Event::Gone(id)).is_ok(),
                };
                if !sent {
                    return;
                }
            }
            self.bell.ring_always();
        }
    }

    /// Takes a connection, if there is one, and passes it on. False if the engine's thread takes
    /// none any more. Sleeps 50 ms if the kernel has no descriptors or memory.
    fn accept(&self) -> bool {
        match socket::accept(&self.listener) {
            Ok(Some(socket)) => self.events.send(Event::Connected(socket)).is_ok(),
            Ok(None) => true,
            Err(_) => {
                // No descriptors or no memory: connections stay in the queue. Without a pause this
                // would be a busy loop.
                std::thread::sleep(Duration::from_millis(50));
                true
            }
        }
    }
}
