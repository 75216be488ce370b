//! Clients that keep a record of what was acknowledged to them, and the check that it is all there.
//!
//! A client moves money between accounts and writes the transaction's number into `ledger`, in one
//! transaction. It counts a number as acknowledged when COMMIT has returned.
//!
//! Invariants that must hold after any crash: of each client, all acknowledged numbers are in
//! `ledger`, and none that it has not sent; the sum of all balances is what it was; each moved
//! amount is in the ledger exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_testing::random::Random;

use crate::instance::Instance;
use crate::session::Session;

/// Accounts in the bank.
const ACCOUNTS: u64 = 2000;

/// Makes the tables; `instance` runs.
pub fn prepare(instance: &Instance<'_>) {
    instance.sql(&format!(
        "create table account (id int primary key, balance bigint not null default 0, filler text);
         insert into account select i, 0, repeat('x', 200) from generate_series(0, {}) i;
         create index on account (balance);
         create table ledger (client int, number bigint, giver int, taker int, amount bigint, note text,
             primary key (client, number));
         create unlogged table scratch (x text);",
        ACCOUNTS - 1
    ));
}

/// One client's record, kept outside of the server.
#[derive(Debug, Default)]
pub struct Record {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

/// Clients at work.
#[derive(Debug)]
pub struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts one client for each record. Each ends when the server or [`Self::stop`] ends it.
    #[must_use]
    pub fn start(instance: &Instance<'_>, records: &[Arc<Record>], random: &mut Random) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = records.iter().enumerate().map(|(client, record)| {
            let (stop, record) = (Arc::clone(&stop), Arc::clone(record));
            let (session, random) = (instance.session(), Random::new(random.next()));
            std::thread::spawn(move || work(session, client, &record, &stop, random))
        });
        Self {
            threads: threads.collect(),
            stop,
        }
    }

    /// Ends the clients and waits for them.
    ///
    /// # Panics
    /// When one panicked.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client");
        }
    }
}

fn work(
    mut session: Session,
    client: usize,
    record: &Record,
    stop: &AtomicBool,
    mut random: Random,
) {
    while !stop.load(Ordering::Relaxed) {
        let number = record.sent.load(Ordering::Relaxed) + 1;
        record.sent.store(number, Ordering::Relaxed);
        let (giver, taker) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let amount = random.below(1000);
        // In one order, so that clients do not deadlock.
        let (low, high) = (giver.min(taker), giver.max(taker));
        let (of_low, of_high) = if low == giver { ("-", "+") } else { ("+", "-") };
        let note = random.text(40);
        let mut statements = format!(
            "begin; update account set balance = balance {of_low} {amount} where id = {low};
             update account set balance = balance {of_high} {amount} where id = {high};
             insert into ledger values ({client}, {number}, {giver}, {taker}, {amount}, '{note}');"
        );
        if random.once_in(50) {
            statements.push_str(
                "insert into scratch select repeat('s', 500) from generate_series(1, 20);",
            );
        }
        if session.try_ask(&format!("{statements} commit;")).is_none() {
            return;
        }
        record.acknowledged.store(number, Ordering::Relaxed);
    }
}

/// Checks the invariants, with the clients ended and the server running. Makes the records match
/// what is there, for clients that go on.
///
/// # Panics
/// When one does not hold.
pub fn check(instance: &Instance<'_>, records: &[Arc<Record>]) -> u64 {
    let mut total = 0;
    for (client, record) in records.iter().enumerate() {
        let told = instance.sql(&format!(
            "select count(*), coalesce(max(number), 0) from ledger where client = {client}"
        ));
        let (count, last) = told.split_once('|').expect("two columns");
        let (count, last): (u64, u64) = (
            count.parse().expect("a number"),
            last.parse().expect("a number"),
        );
        let (acknowledged, sent) = (
            record.acknowledged.load(Ordering::Relaxed),
            record.sent.load(Ordering::Relaxed),
        );
        assert_eq!(
            count, last,
            "client {client}: a number is missing in between"
        );
        assert!(
            last >= acknowledged,
            "client {client}: {acknowledged} was acknowledged, {last} is there"
        );
        assert!(last <= sent, "client {client}: {last} was never sent");
        record.acknowledged.store(last, Ordering::Relaxed);
        record.sent.store(last, Ordering::Relaxed);
        total += last;
    }
    let wrong = instance.sql(
        "select sum(balance) from account having sum(balance) <> 0;
         with moved as (select id, sum(amount) as amount from (
                 select giver as id, -amount as amount from ledger union all select taker, amount from ledger) m
             group by id)
         select a.id from account a left join moved m using (id) where a.balance <> coalesce(m.amount, 0) limit 5;",
    );
    assert_eq!(wrong, "", "balances that the ledger does not explain");
    total
}

/// Pauses for a random time of at most `most`.
pub fn pause(random: &mut Random, most: Duration) {
    let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    std::thread::sleep(Duration::from_micros(random.below(most)));
}
