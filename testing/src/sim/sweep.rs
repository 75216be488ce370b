//! Many cases of one scene: every call that can fail, in every way; moments of power cuts with many
//! survivals.
//!
//! Must not: stop at the first case that fails: what they have in common is half of the
//! explanation.

use std::fmt::Write as _;

use super::config::{Config, Promise, Stack};
use super::disk::Survival;
use super::machine::{Class, Fault, Kind, Plan};
use super::run::{Case, Scene};
use super::session::Outcome;
use crate::random::Random;

/// Failures that are told of one scene.
const TOLD: usize = 6;

/// What was tried, and what failed.
#[derive(Debug, Default)]
pub struct Tally {
    /// Cases.
    pub cases: u64,
    /// Texts of the failures, each with the command that repeats it.
    pub failures: Vec<String>,
}

impl Tally {
    fn case(&mut self, scene: &Scene, transactions: u64, case: Case, result: Outcome<()>) {
        self.cases += 1;
        if let Err(wrong) = result {
            let text = format!("{}/{}/{transactions}/{case}", scene.config, scene.seed);
            self.failures.push(format!(
                "{wrong}\n    STRONGROOM_CASE='{text}' cargo test -p strongroom-testing --test simulation repeat -- --ignored"
            ));
        }
    }

    /// Takes the other one's.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.failures.extend(other.failures);
    }

    /// The failures as one text; empty when there are none.
    #[must_use]
    pub fn told(&self) -> String {
        let mut out = String::new();
        for failure in self.failures.iter().take(TOLD) {
            let _infallible = writeln!(out, "{failure}");
        }
        if !out.is_empty() {
            let _infallible = writeln!(out, "{} of {}", self.failures.len(), self.cases);
        }
        out
    }
}

/// How much of a scene is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Transactions of the workload.
    pub transactions: u64,
    /// Cases, about.
    pub cases: u64,
}

/// Cuts the power at moments of the scene.
///
/// # Errors
/// When the scene itself fails, without a cut.
pub fn cuts(scene: &Scene, effort: Effort, random: &mut Random) -> Outcome<Tally> {
    let moments = scene.moments()?;
    let mut tally = Tally::default();
    let promise = scene.config.promise();
    for _ in 0..effort.cases {
        let at = usize::try_from(random.below(moments.len() as u64)).unwrap_or(0);
        let survival = match promise {
            Promise::Process | Promise::Nothing => Survival::Everything,
            _ => random.one_of(&[
                Survival::Some,
                Survival::Some,
                Survival::Some,
                Survival::Some,
                Survival::Nothing,
                Survival::Everything,
            ]),
        };
        let (draw, again) = (random.next() >> 1, random.once_in(8));
        let case = Case::Cut {
            moment: at,
            survival,
            draw,
            again,
        };
        let result = scene.cut(&moments[at], survival, draw, again);
        tally.case(scene, effort.transactions, case, result);
    }
    Ok(tally)
}

/// Makes calls of the scene fail.
///
/// # Errors
/// When the scene itself fails, without a fault.
pub fn faults(scene: &Scene, effort: Effort, random: &mut Random) -> Outcome<Tally> {
    let trace = scene.trace()?;
    let mut plans = Vec::new();
    for (at, (class, kind)) in (1..).zip(&trace) {
        for fault in class.faults(*kind) {
            // SQLite takes a page that reads short for one of zeros: only the VFS promises more.
            if scene.config.stack == Stack::Control && *fault == Fault::Short && !class.changes() {
                continue;
            }
            for lasting in [false, true] {
                if !leaves_a_stale_name(scene, (*class, *kind), *fault, lasting) {
                    plans.push((at, *fault, lasting));
                }
            }
        }
    }
    // A rollback from memory that fails leaves nothing to go by.
    if scene.config.promise() == Promise::Nothing {
        plans.retain(|(_, fault, lasting)| !lasting && *fault != Fault::Lost);
    }
    let all = plans.len() as u64;
    let mut tally = Tally::default();
    for (at, fault, lasting) in plans {
        if random.below(all.max(1)) >= effort.cases {
            continue;
        }
        let plan = Plan {
            at,
            fault,
            lasting,
            seed: random.next() >> 1,
        };
        let result = scene.fault(plan);
        tally.case(scene, effort.transactions, Case::Fault(plan), result);
    }
    Ok(tally)
}

/// A defect of SQLite's (3.54.1), which the VFS does not share: when the journals of a transaction
/// over two databases are not cut after its end, which SQLite does not look at, the name of the
/// super-journal stays at their end. The next transaction's journal does not reach that far, its
/// rollback finds the name of a super-journal that is gone, and does nothing.
fn leaves_a_stale_name(scene: &Scene, call: (Class, Kind), fault: Fault, lasting: bool) -> bool {
    let config = &scene.config;
    let overwritten = ["truncate", "persist"].contains(&config.journal.as_str());
    // A full disk is still cut.
    let lasts = lasting && !matches!(fault, Fault::Full | Fault::ShortFull);
    config.stack == Stack::Control
        && config.two
        && overwritten
        && (lasts || call == (Class::Truncate, Kind::Journal))
}

/// The one case of a text that a failure printed.
///
/// # Errors
/// What is wrong, with the text or with the database.
pub fn repeat(text: &str) -> Outcome<()> {
    let parts: Vec<&str> = text.split('/').collect();
    let [config, seed, transactions, case] = parts[..] else {
        return Err(format!("no case: {text}"));
    };
    let config: Config = config.parse()?;
    let seed = seed.parse().map_err(|_| format!("no seed: {seed}"))?;
    let transactions = transactions
        .parse()
        .map_err(|_| format!("no number: {transactions}"))?;
    let scene = Scene::new(config, seed, transactions)?;
    match case.parse()? {
        Case::Fault(plan) => scene.fault(plan),
        Case::Cut {
            moment,
            survival,
            draw,
            again,
        } => {
            let moments = scene.moments()?;
            let at = moments
                .get(moment)
                .ok_or_else(|| format!("no moment: {moment}"))?;
            scene.cut(at, survival, draw, again)
        }
    }
}
