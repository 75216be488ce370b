//! Goal: whatever is killed under load - the zone, PostgreSQL, both, one backend, the proxy - every
//! transaction that was acknowledged is there afterwards with the right values, and of every other
//! one all or nothing.
//!
//! Method: writers through the proxy, each with a log of its own of what was acknowledged; a kill
//! at a random moment; when everything is back, the rows are compared with the logs, by scan and by
//! an index on a confidential column, and the sum of the accounts with what it was. With
//! `synchronous_commit = off` the acknowledged ones that are there must be the first ones of each
//! writer. `STRONGROOM_KILL_SECONDS` is how long each test lasts, `STRONGROOM_SEED` repeats its
//! choices.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_benches_oltp::wire::{Client, Failure};
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, print_line, seconds, seed};
use strongroom_testing_support::process::signal;

/// SQLSTATE of SR-8006: a connection whose zone was started again has no session until the proxy
/// has opened one, which it tries once a second.
const NO_SESSION: &str = "42501";
/// So it may take that and what the zone takes to begin, on a loaded machine, and no longer.
const SESSION_PATIENCE: Duration = Duration::from_secs(10);
const WRITERS: u32 = 4;
const ACCOUNTS: u32 = 8;
/// How long everything may take to be back.
const PATIENCE: Duration = Duration::from_secs(30);

const SCHEMA: &str = "create table entry (writer int, number int, half int, amount enc_int8, note enc_text(ordered), primary key (writer, number, half))
    using strongroom;
    create index on entry (note);
    create table account (id int primary key, balance enc_numeric) using strongroom";

/// What was tried and what was acknowledged: `true`.
type Tried = BTreeMap<u32, bool>;

fn amount(writer: u32, number: u32) -> i64 {
    i64::from(writer) * 1_000_000_007 + i64::from(number) * 3 - 5
}

fn note(writer: u32, number: u32, half: u32) -> String {
    format!("entry-{writer}-{number}-{half}")
}

/// One transaction: two rows, and between them an amount from one account to another.
fn transact(
    client: &mut Client,
    writer: u32,
    number: u32,
    random: &mut fastrand::Rng,
) -> Result<(), Failure> {
    let (low, high) = (random.u32(0..ACCOUNTS - 1), random.u32(0..ACCOUNTS));
    let high = high.max(low + 1);
    let moved = random.i64(-500..=500).to_string();
    let (w, n) = (writer.to_string(), number.to_string());
    let half = |client: &mut Client, half: u32| {
        let (h, a, text) = (
            half.to_string(),
            amount(writer, number).to_string(),
            note(writer, number, half),
        );
        let sql = "insert into entry values ($1, $2, $3, $4, $5)";
        client.execute(sql, &[Some(&w), Some(&n), Some(&h), Some(&a), Some(&text)])
    };
    let _begun = client.query("begin")?;
    let _first = half(client, 1)?;
    for (id, sql) in [
        (
            low,
            "update account set balance = balance - $2 where id = $1",
        ),
        (
            high,
            "update account set balance = balance + $2 where id = $1",
        ),
    ] {
        let _moved = client.execute(sql, &[Some(&id.to_string()), Some(&moved)])?;
    }
    let _second = half(client, 2)?;
    client.query("commit").map(drop)
}

/// A writer, until it is told to stop: it connects anew whenever it has lost its connection.
struct Writer<'a> {
    number: u32,
    proxy: &'a Path,
    log: PathBuf,
    stop: &'a AtomicBool,
    /// Whether it ends with its first connection: what is acknowledged by the server's next life is
    /// not after what the last one lost.
    once: bool,
    /// Whether its first connection has to last.
    lasting: bool,
    states: &'a Mutex<BTreeSet<String>>,
}

impl Writer<'_> {
    fn run(&self, first: u32, seed: u64) -> Tried {
        let mut random = fastrand::Rng::with_seed(seed);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log);
        let mut log = log.expect("a log of our own");
        let (mut tried, mut client, mut refused) = (Tried::new(), None, None::<Instant>);
        for at in first.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(open) = self.connected(&mut client) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let _unknown = tried.insert(at, false);
            match transact(open, self.number, at, &mut random) {
                Ok(()) => {
                    writeln!(log, "{at}").expect("the log is written");
                    log.sync_data().expect("the log is durable");
                    let _known = tried.insert(at, true);
                    refused = None;
                }
                Err(failure) => {
                    self.note(&failure);
                    // A failed transaction is left; a connection that cannot do that is given up.
                    if failure.state().is_none() || open.query("rollback").is_err() {
                        assert!(!self.lasting, "the connection is lost: {failure}");
                        client = None;
                        // A server that goes down may say so in its last words.
                        if self.once {
                            break;
                        }
                    }
                    // The proxy opens the session anew, on the same connection.
                    if failure.state() == Some(NO_SESSION) {
                        let since = refused.get_or_insert_with(Instant::now);
                        assert!(since.elapsed() < SESSION_PATIENCE, "no session: {failure}");
                    } else {
                        refused = None;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        tried
    }

    fn connected<'c>(&self, client: &'c mut Option<Client>) -> Option<&'c mut Client> {
        if client.is_none() {
            match Client::connect(self.proxy) {
                Ok(new) => *client = Some(new),
                Err(failure) => self.note(&failure),
            }
        }
        client.as_mut()
    }

    fn note(&self, failure: &Failure) {
        let mut states = self.states.lock().expect("nobody panics with it");
        let _new = states.insert(match failure {
            Failure::Server { .. } => failure.to_string(),
            Failure::Lost(error) => format!("lost: {:?}", error.kind()),
        });
    }
}

/// Stops the writers, also when the test fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Zone,
    Server,
    ZoneThenServer,
    ServerThenZone,
    Backend,
    Proxy,
}

const VICTIMS: [Victim; 6] = [
    Victim::Zone,
    Victim::Server,
    Victim::ZoneThenServer,
    Victim::ServerThenZone,
    Victim::Backend,
    Victim::Proxy,
];

impl Victim {
    fn loses_the_log(self) -> bool {
        !matches!(self, Self::Zone | Self::Proxy)
    }
}

struct Campaign {
    owner: Owner,
    server: Server,
    /// Every transaction so far that has to be there, per writer.
    there: Vec<BTreeSet<u32>>,
    next: u32,
    states: Mutex<BTreeSet<String>>,
    asynchronous: bool,
}

impl Campaign {
    fn begin(asynchronous: bool) -> Self {
        let mut owner = Owner::new();
        owner.start_zone();
        let (commit, interval) = if asynchronous {
            ("off", "10ms")
        } else {
            ("on", "1s")
        };
        let settings = format!(
            "synchronous_commit = {commit}\nstrongroom.checkpoint_interval = {interval}\nwal_writer_delay = 500ms\nmax_connections = 40\ncheckpoint_timeout = 30s"
        );
        let server = Server::start(&owner.zone_socket(), &settings);
        let _made = server.rows("create extension strongroom_columns");
        owner.start_proxy(server.socket());
        let accounts: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, 1000.00)")).collect();
        let _made = owner.rows(&format!(
            "{SCHEMA}; insert into account values {}; checkpoint",
            accounts.join(",")
        ));
        let there = (0..WRITERS).map(|_| BTreeSet::new()).collect();
        Self {
            owner,
            server,
            there,
            next: 1,
            states: Mutex::default(),
            asynchronous,
        }
    }

    fn strike(&mut self, victim: Victim, random: &mut fastrand::Rng) {
        match victim {
            Victim::Zone => {
                self.owner.kill_zone();
                std::thread::sleep(Duration::from_millis(random.u64(0..300)));
                self.owner.start_zone();
            }
            Victim::Server => {
                self.server.kill();
                self.server.start_again();
            }
            Victim::ZoneThenServer => {
                self.owner.kill_zone();
                std::thread::sleep(Duration::from_millis(random.u64(0..20)));
                self.server.kill();
                self.server.start_again();
                self.owner.start_zone();
            }
            Victim::ServerThenZone => {
                self.server.kill();
                self.owner.kill_zone();
                self.owner.start_zone();
                self.server.start_again();
            }
            Victim::Backend => {
                let processes = self.server.processes();
                let backends: Vec<u32> = processes
                    .iter()
                    .filter(|(_, title)| {
                        title.contains("postgres postgres") || title.contains("strongroom columns")
                    })
                    .map(|(number, _)| *number)
                    .collect();
                if let Some(backend) = random.choice(&backends) {
                    signal("-KILL", &[*backend]);
                }
            }
            Victim::Proxy => {
                self.owner.kill_proxy();
                self.owner.start_proxy(self.server.socket());
            }
        }
    }

    /// Load, a kill, load again until all is over; then everything is checked.
    fn round(&mut self, victim: Victim, random: &mut fastrand::Rng) {
        let stop = AtomicBool::new(false);
        let proxy = self.owner.proxy_directory();
        let states = std::mem::take(&mut self.states);
        let tried: Vec<Tried> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let log = self.owner.path(&format!("acknowledged.{number}"));
                    let once = victim.loses_the_log();
                    let writer = Writer {
                        number,
                        proxy: &proxy,
                        log,
                        stop: &stop,
                        once,
                        lasting: victim == Victim::Zone,
                        states: &states,
                    };
                    let (first, seed) = (self.next, random.u64(..));
                    scope.spawn(move || writer.run(first, seed))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(random.u64(500..2000)));
            let stopper = Stopper(&stop);
            self.strike(victim, random);
            std::thread::sleep(Duration::from_millis(random.u64(0..1000)));
            drop(stopper);
            let joined = writers
                .into_iter()
                .map(|writer| writer.join().expect("a writer does not panic"));
            joined.collect()
        });
        self.states = states;
        self.recovered(victim);
        let last = tried.iter().filter_map(|tried| tried.keys().last()).max();
        self.next = last.map_or(self.next, |last| last + 1);
        for (writer, tried) in (0..).zip(&tried) {
            self.check(writer, tried, victim);
        }
        let sum = self
            .owner
            .rows("select sum(balance), count(*) from account");
        assert_eq!(
            sum,
            format!("{}.00|{ACCOUNTS}", 1000 * ACCOUNTS),
            "{victim:?}"
        );
    }

    /// Waits until values are read again.
    fn recovered(&self, victim: Victim) {
        let begun = Instant::now();
        loop {
            let said = self.owner.run("select count(balance + 0) from account");
            if said.rows == ACCOUNTS.to_string() {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "after {victim:?}: {}{}{}",
                said.rows,
                said.messages,
                self.server.log_tail()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn check(&mut self, writer: u32, tried: &Tried, victim: Victim) {
        let found = self.found(writer);
        let there = self.there.get(usize::try_from(writer).unwrap_or_default());
        let before = there.cloned().unwrap_or_default();
        let missing: Vec<&u32> = before.difference(&found).collect();
        assert!(
            missing.is_empty(),
            "{victim:?}: of earlier rounds of writer {writer} is gone: {missing:?}"
        );
        let new: BTreeSet<u32> = found.difference(&before).copied().collect();
        let unknown: Vec<&u32> = new
            .iter()
            .filter(|number| !tried.contains_key(number))
            .collect();
        assert!(unknown.is_empty(), "{victim:?}: nobody wrote {unknown:?}");
        // What has to be there: all that was acknowledged, or all of that before the last one that
        // is there.
        let last = new.last().copied().unwrap_or_default();
        let prefix = self.asynchronous && victim.loses_the_log();
        let lost: Vec<u32> = tried
            .iter()
            .filter(|(number, acknowledged)| {
                **acknowledged && (!prefix || **number <= last) && !found.contains(number)
            })
            .map(|(number, _)| *number)
            .collect();
        assert!(
            lost.is_empty(),
            "{victim:?}: writer {writer} lost {lost:?}, the last one there is {last}"
        );
        if let Some(there) = self
            .there
            .get_mut(usize::try_from(writer).unwrap_or_default())
        {
            *there = found;
        }
    }

    /// Transactions of a writer that are there, each whole and with its values.
    fn found(&self, writer: u32) -> BTreeSet<u32> {
        let mut client = self.owner.connect().expect("the proxy is there");
        let rows = client
            .rows(&format!("select number, half, amount, note from entry where writer = {writer} order by number, half"))
            .expect("values are read");
        let mut found = BTreeMap::<u32, u32>::new();
        for row in &rows {
            let field = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or("NULL");
            let number: u32 = field(0).parse().expect("a number");
            let half: u32 = field(1).parse().expect("a number");
            assert_eq!(
                field(2),
                amount(writer, number).to_string(),
                "writer {writer}, {number}"
            );
            assert_eq!(
                field(3),
                note(writer, number, half),
                "writer {writer}, {number}"
            );
            *found.entry(number).or_default() += half;
        }
        let halves: Vec<_> = found.iter().filter(|(_, sum)| **sum != 3).collect();
        assert!(halves.is_empty(), "halves of transactions: {halves:?}");
        self.check_index(&mut client, writer, &found);
        found.into_keys().collect()
    }

    /// The last ones, which were nearest to the kill, by the index on the confidential column.
    fn check_index(&self, client: &mut Client, writer: u32, found: &BTreeMap<u32, u32>) {
        let _set = client.query("set enable_seqscan = off; set enable_bitmapscan = off");
        for number in found.keys().rev().take(5) {
            let sql = format!(
                "select number from entry where note = '{}'",
                note(writer, *number, 2)
            );
            let rows = client.rows(&sql).expect("the index is read");
            assert_eq!(rows, [[Some(number.to_string())]], "{sql}");
        }
        let from = note(writer, 0, 0);
        let rows = client.rows(&format!(
            "select count(*) from entry where note > '{from}' and note < 'entry-{writer}-:'"
        ));
        let all = (found.len() * 2).to_string();
        assert_eq!(
            rows.expect("the index is read"),
            [[Some(all)]],
            "a range of the index"
        );
    }
}

/// SQLSTATEs that a kill may cause: connections (08), the absence of the server (57) or of the zone
/// (57, 28000 for a new connection), the statement under way (40).
fn check_states(states: &BTreeSet<String>) {
    let allowed = |said: &&String| {
        [
            "08",
            "57",
            "40",
            "28000: no session",
            "42501: the session has no ticket",
            "lost",
        ]
        .iter()
        .any(|class| said.starts_with(class))
    };
    let others: Vec<&String> = states.iter().filter(|said| !allowed(said)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

fn campaign(asynchronous: bool) {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut campaign = Campaign::begin(asynchronous);
    let (begun, time) = (Instant::now(), seconds("STRONGROOM_KILL_SECONDS", 20));
    let mut rounds = 0;
    while begun.elapsed() < time || rounds < VICTIMS.len() {
        // Every victim once, then any.
        let victim = VICTIMS.get(rounds).copied();
        let victim = victim.unwrap_or_else(|| random.choice(VICTIMS).unwrap_or(Victim::Zone));
        campaign.round(victim, &mut random);
        rounds += 1;
    }
    let all: usize = campaign.there.iter().map(BTreeSet::len).sum();
    print_line(&format!("{rounds} rounds, {all} transactions, seed {seed}"));
    assert!(all > rounds, "hardly anything was written");
    check_states(&campaign.states.into_inner().expect("nobody panics with it"));
}

#[test]
fn acknowledged_transactions_survive_kills() {
    campaign(false);
}

#[test]
fn asynchronous_commits_survive_as_a_prefix() {
    campaign(true);
}
