//! Goal: TPC-C runs on confidential columns as on plain ones, and what it leaves is consistent,
//! also when zone and server are killed.
//!
//! Method: the same transactions from the same seed, one after the other, against a plain server
//! and through the proxy must leave the same rows in every table. Then several connections at once
//! with kills in between: the conditions of clause 3.3.2 hold, and every order that was
//! acknowledged is there. `STRONGROOM_TPCC_SECONDS` is how long the second one lasts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strongroom_benches_oltp::Schema;
use strongroom_benches_oltp::tpcc::transactions::{Kind, Outcome, User};
use strongroom_benches_oltp::tpcc::{Scale, consistency, load, schema};
use strongroom_benches_oltp::wire::{Client, Field};
use strongroom_columns_testing::owner::Owner;
use strongroom_columns_testing::{Server, must, print_line, seconds, seed};

/// SQLSTATE of SR-8006: until the proxy has opened a session with a zone that was started again.
const NO_SESSION: &str = "42501";
/// How long that may take.
const SESSION_PATIENCE: Duration = Duration::from_secs(10);
const NOW: &str = "2024-05-02 08:30:00";

fn begin(settings: &str) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone();
    let server = Server::start(&owner.zone_socket(), settings);
    let _made = server.rows("create extension strongroom_columns");
    owner.start_proxy(server.socket());
    (owner, server)
}

/// Runs transactions one after the other; how many were rolled back by their own will.
fn transact(client: &mut Client, scale: Scale, seed: u64, count: u32) -> u32 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rolled_back = 0;
    for at in 0..count {
        let kind = Kind::draw(&mut random);
        let warehouse = at % scale.warehouses + 1;
        let mut user = User {
            client,
            random: &mut random,
            scale,
            warehouse,
            now: NOW,
        };
        let outcome = user.transact(kind);
        let outcome = must(outcome, &format!("{kind:?}"));
        rolled_back += u32::from(outcome == Outcome::RolledBack);
    }
    rolled_back
}

fn contents(client: &mut Client, table: &str) -> Vec<Vec<Field>> {
    let mut rows = client
        .rows(&format!("select * from {table}"))
        .expect("the table is read");
    rows.sort();
    rows
}

#[test]
fn transactions_leave_what_they_leave_on_plain_columns() {
    let (scale, seed) = (Scale::SMALL, seed());
    let (owner, _server) = begin("");
    let plain = Server::start(Path::new("/nowhere"), "");
    let connections = [
        (Client::connect(plain.socket()), Schema::Plain),
        (owner.connect(), Schema::Confidential),
    ];
    let mut clients = connections.map(|(client, schema)| {
        let mut client = client.expect("a connection");
        load::load(&mut client, schema, scale, seed).expect("the tables are filled");
        client
    });
    let rolled_back = clients
        .each_mut()
        .map(|client| transact(client, scale, seed, 150));
    assert_eq!(rolled_back.first(), rolled_back.last());
    for table in schema::tables() {
        let [plain, confidential] = clients.each_mut().map(|client| contents(client, table));
        assert_eq!(plain.len(), confidential.len(), "{table}");
        for (one, two) in plain.iter().zip(&confidential) {
            assert_eq!(one, two, "{table}");
        }
    }
    for client in &mut clients {
        assert_eq!(
            consistency::broken(client).expect("the tables are read"),
            [""; 0]
        );
    }
    // The conditions are worth something: a cent that goes astray is found.
    let [_, confidential] = &mut clients;
    let _changed = confidential
        .query("update district set d_ytd = d_ytd + 0.01 where d_id = 2 and d_w_id = 1");
    let broken = consistency::broken(confidential).expect("the tables are read");
    assert!(broken.len() == 2, "{broken:?}");
}

struct Load<'a> {
    proxy: &'a Path,
    scale: Scale,
    stop: &'a AtomicBool,
    ordered: &'a Mutex<Vec<(u32, u32, u32)>>,
    others: &'a Mutex<Vec<String>>,
}

impl Load<'_> {
    fn run(&self, number: u32, seed: u64) -> u32 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut client, mut done, mut refused) = (None, 0, None::<Instant>);
        while !self.stop.load(Ordering::Relaxed) {
            if client.is_none() {
                client = Client::connect(self.proxy).ok();
            }
            let Some(open) = client.as_mut() else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let kind = Kind::draw(&mut random);
            let warehouse = number % self.scale.warehouses + 1;
            let mut user = User {
                client: open,
                random: &mut random,
                scale: self.scale,
                warehouse,
                now: NOW,
            };
            match user.transact(kind) {
                Ok(outcome) => {
                    done += 1;
                    refused = None;
                    if let Outcome::Ordered(w, d, o) = outcome {
                        self.ordered
                            .lock()
                            .expect("nobody panics with it")
                            .push((w, d, o));
                    }
                }
                Err(failure) => {
                    let expected = failure.state().is_none_or(|state| {
                        ["08", "57", "40", NO_SESSION]
                            .iter()
                            .any(|class| state.starts_with(class))
                    });
                    if !expected {
                        self.others
                            .lock()
                            .expect("nobody panics with it")
                            .push(format!("{kind:?}: {failure}"));
                    }
                    // The proxy opens the session anew, on the same connection.
                    if failure.state() == Some(NO_SESSION) {
                        let since = refused.get_or_insert_with(Instant::now);
                        assert!(since.elapsed() < SESSION_PATIENCE, "no session: {failure}");
                    } else {
                        refused = None;
                    }
                    if failure.state().is_none() || open.query("rollback").is_err() {
                        client = None;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        done
    }
}

#[test]
fn tables_are_consistent_after_kills() {
    let (scale, seed) = (Scale::SMALL, seed());
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut owner, server) = begin("max_connections = 40");
    let mut client = owner.connect().expect("a connection");
    load::load(&mut client, Schema::Confidential, scale, seed).expect("the tables are filled");
    drop(client);
    let (stop, ordered, others) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
    let (proxy, time) = (
        owner.proxy_directory(),
        seconds("STRONGROOM_TPCC_SECONDS", 15),
    );
    let load = Load {
        proxy: &proxy,
        scale,
        stop: &stop,
        ordered: &ordered,
        others: &others,
    };
    let load = &load;
    let done: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u32)
            .map(|number| {
                let seed = random.u64(..);
                scope.spawn(move || load.run(number, seed))
            })
            .collect();
        let _stopper = Stopper(&stop);
        let begun = Instant::now();
        let mut round = 0;
        while begun.elapsed() < time || round < 3 {
            std::thread::sleep(Duration::from_millis(random.u64(1000..4000)));
            strike(&mut owner, &server, round);
            round += 1;
        }
        std::thread::sleep(Duration::from_secs(8));
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    let others = others.into_inner().expect("nobody panics with it");
    assert!(others.is_empty(), "{others:#?}");
    let mut client = owner.connect().expect("a connection");
    assert_eq!(
        consistency::broken(&mut client).expect("the tables are read"),
        [""; 0],
        "seed {seed}"
    );
    let ordered = ordered.into_inner().expect("nobody panics with it");
    check_orders(&mut client, &ordered);
    print_line(&format!("{done} transactions, {} orders", ordered.len()));
    assert!(ordered.len() > 20, "hardly anything was ordered");
}

/// Ends the zone, the server, or both.
fn strike(owner: &mut Owner, server: &Server, round: u32) {
    let (zone, server_too) = (round % 3 != 1, !round.is_multiple_of(3));
    if zone {
        owner.kill_zone();
    }
    if server_too {
        server.kill();
        server.start_again();
    }
    if zone {
        owner.start_zone();
    }
}

/// Every order that was acknowledged is there.
fn check_orders(client: &mut Client, ordered: &[(u32, u32, u32)]) {
    let there = client.rows("select o_w_id, o_d_id, o_id from orders");
    let number = |field: &Field| -> u32 {
        let number = field.as_deref().and_then(|field| field.parse().ok());
        number.unwrap_or_default()
    };
    let there: BTreeSet<Vec<u32>> = there
        .expect("the table is read")
        .iter()
        .map(|row| row.iter().map(number).collect())
        .collect();
    let lost = ordered
        .iter()
        .filter(|(w, d, o)| !there.contains(&vec![*w, *d, *o]));
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Stops the load, also when the test fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
