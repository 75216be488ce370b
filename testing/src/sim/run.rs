//! Cases of the simulation: a workload whose power is cut at one moment, or one of whose calls
//! fails; and what must hold afterwards.
//!
//! Invariants:
//! F1. A case is determined by its text, which a failure prints (but for the random bytes of salts
//! and nonces).
//! F2. What may be there afterwards is known before it is looked at, from what was acknowledged.
//!
//! Must not: try again what failed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::config::{Config, Promise};
use super::disk::{Disk, Survival};
use super::machine::{Class, Fault, Kind, Lie, Machine, Moment, Plan};
use super::model::{Step, workload};
use super::session::{Outcome, Session};
use crate::random::Random;

/// A database and what is done to it.
pub struct Scene {
    /// Its settings.
    pub config: Config,
    /// What the steps are made from.
    pub seed: u64,
    /// What the database goes through.
    pub steps: Vec<Step>,
    /// What is on the disk before. Empty: the database is made in the course of it.
    pub before: Disk,
    machine: Arc<Machine>,
}

/// Which case of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The power is cut before that call, with these choices; `again`: and once more while the
    /// database is recovered.
    Cut {
        /// The moment's number.
        moment: usize,
        /// What survives.
        survival: Survival,
        /// Chooses which of it.
        draw: u64,
        /// A second cut during recovery.
        again: bool,
    },
    /// A call fails.
    Fault(Plan),
}

impl Scene {
    /// The scene of these settings and this seed. An odd seed begins with a database that is there.
    ///
    /// # Errors
    /// When the database cannot even be made.
    pub fn new(config: Config, seed: u64, transactions: u64) -> Outcome<Self> {
        super::vfs::install();
        let mut random = Random::new(seed);
        let steps = workload(&mut random, transactions, config.page_size, config.wal());
        let machine = Machine::new();
        let mut scene = Self {
            config,
            seed,
            steps,
            before: Disk::default(),
            machine,
        };
        if !seed.is_multiple_of(2) {
            let mut session = scene.session();
            session.create()?;
            session.close()?;
            let everything = scene.machine.disk().snapshot();
            scene.before = everything.image(Survival::Everything, &mut random);
        }
        Ok(scene)
    }

    /// What the disk lies about, from now on.
    pub fn lie(&self, lie: Lie) {
        self.machine.lie(Some(lie));
    }

    fn session(&self) -> Session {
        Session::new(Arc::clone(&self.machine), self.config.clone())
    }

    fn begin(&self, session: &mut Session) -> Outcome<()> {
        if self.seed.is_multiple_of(2) {
            session.create()?;
        }
        session.open().map(|_| ())
    }

    /// Runs it without a fault and gives the moments at which the power could be cut.
    ///
    /// # Errors
    /// A step that fails although nothing was planned.
    pub fn moments(&self) -> Outcome<Vec<Moment>> {
        self.machine.boot(self.before.clone());
        self.machine.note(0);
        self.machine.keep_moments();
        let mut session = self.session();
        self.begin(&mut session)?;
        let (mut acknowledged, mut durable) = (0, 0);
        let created = 1_u64 << 40;
        self.machine.note(created);
        for step in &self.steps {
            session.step(step)?;
            match step {
                Step::Run(transaction) if !transaction.undone => acknowledged += 1,
                Step::Checkpoint(_) => durable = acknowledged,
                _ => {}
            }
            self.machine.note(created | durable << 20 | acknowledged);
            session.fresh(false)?;
        }
        session.close()?;
        Ok(self.machine.take_moments())
    }

    /// Looks at what a power cut leaves.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn cut(&self, moment: &Moment, survival: Survival, draw: u64, again: bool) -> Outcome<()> {
        let mut random = Random::new(draw);
        let mut image = moment.snapshot.image(survival, &mut random);
        if again {
            // The recovery is cut short at one of its own moments.
            self.machine.boot(image.clone());
            self.machine.keep_moments();
            let mut session = self.session();
            let looked = session.applied();
            let moments = self.machine.take_moments();
            drop(session.close());
            let at = usize::try_from(random.below(moments.len().max(1) as u64)).unwrap_or(0);
            if let (Ok(_), Some(second)) = (looked, moments.get(at)) {
                image = second.snapshot.image(survival, &mut random);
            }
        }
        self.look(image, moment.note, survival)
    }

    /// Opens what is on the disk, and compares.
    fn look(&self, image: Disk, note: u64, survival: Survival) -> Outcome<()> {
        let created = note >> 40 != 0;
        let durable = (note >> 20) & 0xf_ffff;
        let acknowledged = note & 0xf_ffff;
        self.machine.boot(image);
        let mut session = self.session();
        let floor = match self.config.promise() {
            _ if survival == Survival::Everything => acknowledged,
            Promise::All => acknowledged,
            Promise::AllButOne => acknowledged.saturating_sub(1),
            Promise::Checkpointed => durable,
            Promise::Process | Promise::Nothing => 0,
        };
        // The transaction that makes the tables is one as well, for a database that was made here.
        let may_be_missing = self.seed.is_multiple_of(2) && floor == 0 && {
            let strict = survival == Survival::Everything || self.config.promise() == Promise::All;
            !(created && strict)
        };
        let result = self.expect(&mut session, floor, acknowledged + 1, may_be_missing);
        let result = result.and_then(|()| session.fresh(true));
        let closed = session.close();
        result.and(closed).and_then(|()| session.fresh(true))
    }

    fn expect(
        &self,
        session: &mut Session,
        floor: u64,
        ceiling: u64,
        may_be_missing: bool,
    ) -> Outcome<()> {
        if may_be_missing && !has_tables(session)? {
            return session.create();
        }
        let found = session.check(&self.steps)?;
        let numbers: Vec<u64> = (1..=found.len() as u64).collect();
        if found != numbers {
            return Err(format!("not the first transactions: {found:?}"));
        }
        let count = found.len() as u64;
        if count < floor || count > ceiling {
            return Err(format!("{count} transactions, not {floor} to {ceiling}"));
        }
        // It can be written to.
        let next = self.steps.iter().find(
            |step| matches!(step, Step::Run(next) if next.number == count + 1 && !next.undone),
        );
        if let Some(next) = next {
            session.step(next)?;
            let after = session.check(&self.steps)?;
            if after.len() as u64 != count + 1 {
                return Err("the next transaction is not there".to_owned());
            }
        }
        Ok(())
    }

    /// The calls of a run without a fault.
    ///
    /// # Errors
    /// A step that fails although nothing was planned.
    pub fn trace(&self) -> Outcome<Vec<(Class, Kind)>> {
        self.machine.boot(self.before.clone());
        let mut session = self.session();
        self.machine.plan(None);
        self.machine.trace();
        self.begin(&mut session)?;
        for step in &self.steps {
            session.step(step)?;
        }
        session.close()?;
        Ok(self.machine.take_trace())
    }

    /// Runs it with one call that fails, or all from one on until somebody has seen it; then
    /// everything must work again, and hold what was acknowledged.
    ///
    /// # Errors
    /// What is wrong.
    pub fn fault(&self, plan: Plan) -> Outcome<()> {
        self.machine.boot(self.before.clone());
        let mut session = self.session();
        self.machine.plan(Some(plan));
        let result = self.run_with_fault(&mut session, plan);
        drop(session.close());
        let last = result?;
        // What is left, for the next process.
        self.machine.heal();
        self.machine.boot(self.machine.disk());
        let mut session = self.session();
        let found = session
            .check(&self.steps)
            .map_err(|wrong| format!("opened again: {wrong}"));
        let closed = session.close();
        let found = found?;
        closed?;
        session.fresh(true)?;
        if found == last {
            Ok(())
        } else {
            Err(format!("opened again: {found:?}, not {last:?}"))
        }
    }

    fn run_with_fault(&self, session: &mut Session, plan: Plan) -> Outcome<Vec<u64>> {
        let mut trouble = Trouble {
            machine: &self.machine,
            failures: 0,
            patience: if plan.lasting { 1 + plan.seed % 3 } else { 1 },
        };
        loop {
            let over = trouble.over();
            match self.begin(session) {
                Ok(()) => break,
                // The tables were made by an attempt that was said to have failed.
                Err(said) if said.contains("already exists") => break,
                Err(said) => trouble.had(session, over, said)?,
            }
        }
        let mut possible: Vec<Vec<u64>> = vec![Vec::new()];
        for step in &self.steps {
            let over = trouble.over();
            let result = session.step(step);
            let number = match step {
                Step::Run(transaction) if !transaction.undone => Some(transaction.number),
                _ => None,
            };
            match (&result, number) {
                (Ok(()), Some(number)) => possible.iter_mut().for_each(|list| list.push(number)),
                (Err(_), Some(number)) => {
                    let with = |list: &Vec<u64>| [list.as_slice(), &[number]].concat();
                    let more: Vec<Vec<u64>> = possible.iter().map(with).collect();
                    possible.extend(more);
                }
                _ => {}
            }
            if let Err(said) = result {
                trouble.had(session, over, said)?;
                if trouble.over() {
                    possible = vec![one_of(&possible, session.applied())?];
                }
            }
        }
        self.machine.heal();
        one_of(&possible, session.check(&self.steps))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for name in ["a.db", "b.db"] {
            let _known = strongroom_sqlite_vfs::forget_key(&self.machine.at(name));
        }
        self.machine.scrap();
    }
}

fn one_of(possible: &[Vec<u64>], found: Outcome<Vec<u64>>) -> Outcome<Vec<u64>> {
    let found = found.map_err(|said| format!("after the fault: {said}"))?;
    if possible.contains(&found) {
        Ok(found)
    } else {
        Err(format!("{found:?} is not one of {possible:?}"))
    }
}

/// Failures that a run has seen.
struct Trouble<'a> {
    machine: &'a Machine,
    failures: u64,
    patience: u64,
}

impl Trouble<'_> {
    /// Whether nothing can fail any more.
    fn over(&self) -> bool {
        self.failures >= self.patience
    }

    /// Something failed. An error, when nothing should have.
    fn had(&mut self, session: &mut Session, over: bool, said: String) -> Outcome<()> {
        if over || !self.machine.hit() {
            return Err(format!("although nothing failed: {said}"));
        }
        session.roll_back();
        self.failures += 1;
        if self.over() {
            self.machine.heal();
        }
        Ok(())
    }
}

/// Whether the tables are there.
fn has_tables(session: &mut Session) -> Outcome<bool> {
    let connection = session.open()?;
    let count: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| format!("looking for tables: {error}"))?;
    Ok(count > 0)
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut {
                moment,
                survival,
                draw,
                again,
            } => {
                let survival = match survival {
                    Survival::Everything => "everything",
                    Survival::Nothing => "nothing",
                    Survival::Some => "some",
                };
                write!(out, "cut:{moment}:{survival}:{draw}:{again}")
            }
            Self::Fault(plan) => {
                let fault = FAULTS.iter().find(|(fault, _)| *fault == plan.fault);
                let fault = fault.map_or("error", |(_, name)| name);
                let Plan {
                    at, lasting, seed, ..
                } = plan;
                write!(out, "fault:{at}:{fault}:{lasting}:{seed}")
            }
        }
    }
}

const FAULTS: [(Fault, &str); 6] = [
    (Fault::Error, "error"),
    (Fault::Full, "full"),
    (Fault::Short, "short"),
    (Fault::ShortFull, "shortfull"),
    (Fault::Lost, "lost"),
    (Fault::Busy, "busy"),
];

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("no case: {text}");
        let parts: Vec<&str> = text.split(':').collect();
        let [what, first, second, third, fourth] = parts[..] else {
            return Err(wrong());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let truth = |text: &str| text.parse::<bool>().map_err(|_| wrong());
        match what {
            "cut" => Ok(Self::Cut {
                moment: usize::try_from(number(first)?).map_err(|_| wrong())?,
                survival: match second {
                    "everything" => Survival::Everything,
                    "nothing" => Survival::Nothing,
                    "some" => Survival::Some,
                    _ => return Err(wrong()),
                },
                draw: number(third)?,
                again: truth(fourth)?,
            }),
            "fault" => {
                let fault = FAULTS.iter().find(|(_, name)| *name == second);
                Ok(Self::Fault(Plan {
                    at: number(first)?,
                    fault: fault.ok_or_else(wrong)?.0,
                    lasting: truth(third)?,
                    seed: number(fourth)?,
                }))
            }
            _ => Err(wrong()),
        }
    }
}
