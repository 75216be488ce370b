//! One of the mediums that a set is written to, from the first look to the last: what is allowed there, locks, the head.
//!
//! Invariants: B9 and B17; the rules of every medium are checked before anything is read; heads are created when the families are
//! durable everywhere; nothing is cleared away unless all mediums have the set.
//!
//! Must not: write a family.

use std::time::{Duration, Instant, SystemTime};

use strongroom_format::code;

use crate::chain;
use crate::create::{
    CreateOptions, Created, Mode, allowed, medium_head, present_head, remove_families, taken_alone,
    unchanged,
};
use crate::head::Description;
use crate::medium::{self, HEAD, MediumHead, Superseded};
use crate::set::Guard;
use crate::source::Source;
use crate::store::{Store, Version};
use crate::{Error, Result};

/// A medium on which the set is allowed.
pub(crate) struct Found<'a> {
    store: &'a dyn Store,
    present: Option<(MediumHead, Version)>,
    superseded: Vec<Superseded>,
    /// Of a medium that is begun anew: the lock that no other writer has.
    alone: Option<Box<dyn Send>>,
}

/// A medium that waits for the set.
pub(crate) struct Berth<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) medium: MediumHead,
    superseded: Vec<Superseded>,
    alone: Option<Box<dyn Send>>,
    at_work: Option<Box<dyn Send>>,
    /// Of a medium that is begun anew: its id until then, and what is to be replaced.
    replaced: Option<(String, Version)>,
}

impl<'a> Found<'a> {
    /// Looks at the medium, and at what the options may do there.
    pub(crate) fn new(
        store: &'a dyn Store,
        options: &CreateOptions<'_>,
        now_unix_s: u64,
    ) -> Result<Self> {
        let mut present = present_head(store)?;
        let mut alone = None;
        if options.mode == Mode::Format && present.is_some() {
            alone = Some(taken_alone(store)?);
            present = present_head(store)?;
        }
        let head = present.as_ref().map(|(head, _)| head);
        let superseded = allowed(store, head, options, now_unix_s)?;
        Ok(Self {
            store,
            present,
            superseded,
            alone,
        })
    }

    /// Makes the medium if it is not there, and keeps others from taking families without a head for orphans.
    pub(crate) fn taken(
        self,
        options: &CreateOptions<'_>,
        stripes: u16,
        now_unix_s: u64,
    ) -> Result<Berth<'a>> {
        let store = self.store;
        let (present, version) = self.present.unzip();
        let replaced = present.as_ref().zip(version);
        let replaced = replaced.filter(|_| self.alone.is_some());
        let replaced = replaced.map(|(head, version)| (head.medium_id.clone(), version));
        let medium = medium_head(store, present, options, stripes, now_unix_s)?;
        // Waits for whoever begins the medium anew.
        let at_work = match self.alone {
            Some(_) => None,
            None => store
                .at_work(false)
                .map_err(|error| Error::io(store.shown(), error))?,
        };
        let berth = Berth {
            store,
            medium,
            superseded: self.superseded,
            alone: self.alone,
            at_work,
            replaced,
        };
        unchanged(store, berth.until_then())?;
        Ok(berth)
    }
}

/// The families that a new medium gets, and all that are there must have.
pub(crate) fn wanted_stripes(found: &[Found<'_>], options: &CreateOptions<'_>) -> Result<u16> {
    let anew = options.mode == Mode::Format;
    let there = found.iter().filter(|_| !anew);
    let mut there = there.filter_map(|found| {
        let (head, _) = found.present.as_ref()?;
        Some((found.store, head.stripes))
    });
    let first = there.next();
    let wanted = options.stripes.or(first.map(|(_, stripes)| stripes));
    let wanted = wanted.unwrap_or(1);
    match there.chain(first).find(|(_, stripes)| *stripes != wanted) {
        None => Ok(wanted),
        Some((store, stripes)) => Err(Error::new(
            &code::STRIPES,
            format!("{}: {stripes} instead of {wanted}", store.shown()),
        )),
    }
}

/// Refuses a mirror that is the medium itself, or another mirror.
pub(crate) fn all_different(found: &[Found<'_>]) -> Result<()> {
    let known = found.iter().filter_map(|found| {
        let (head, _) = found.present.as_ref()?;
        Some((found.store, head))
    });
    different(known)
}

/// The same once the mediums are made; the families of all.
pub(crate) fn agreed(berths: &[Berth<'_>]) -> Result<u16> {
    different(berths.iter().map(|berth| (berth.store, &berth.medium)))?;
    let mut stripes = berths.iter().map(|berth| berth.medium.stripes);
    let first = stripes.next().unwrap_or(1);
    match stripes.find(|stripes| *stripes != first) {
        None => Ok(first),
        Some(other) => Err(Error::new(
            &code::STRIPES,
            format!("{first} and {other} of a mirror"),
        )),
    }
}

fn different<'a>(mediums: impl Iterator<Item = (&'a dyn Store, &'a MediumHead)>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for (store, medium) in mediums {
        if !seen.insert(medium.medium_id.as_str()) {
            let detail = format!("{}: named twice, or a copy of another one", store.shown());
            return Err(Error::new(&code::USAGE, detail));
        }
    }
    Ok(())
}

/// When a writer began.
pub(crate) struct Began {
    wall: SystemTime,
    /// Goes on when someone sets the clock back.
    steady: Instant,
}

impl Began {
    pub(crate) fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// Whether the writer may still create the head.
    fn is_within(&self, limit: Option<Duration>) -> bool {
        // The steady clock stands while the machine sleeps.
        let wall = self.wall.elapsed().unwrap_or_default();
        limit.is_none_or(|limit| wall.max(self.steady.elapsed()) < limit)
    }
}

/// What the heads are made from.
pub(crate) struct Sealing<'a> {
    pub(crate) guard: &'a Guard,
    pub(crate) options: &'a CreateOptions<'a>,
    pub(crate) source: &'a dyn Source,
    pub(crate) began: &'a Began,
}

/// Creates the heads, then clears away what the set takes the place of.
///
/// # Errors
/// SR-7145 when some mediums have the set and others have not; of the only medium, or the first one, when none has it.
pub(crate) fn published(
    berths: Vec<Berth<'_>>,
    sealing: &Sealing<'_>,
    description: &Description,
) -> Result<Vec<Created>> {
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    for berth in &berths {
        match berth.publish(sealing, description.clone()) {
            Ok(created) => made.push((berth.store.shown(), created)),
            Err(error) => failed.push((berth.store.shown(), error)),
        }
    }
    if made.is_empty() {
        let first = failed.into_iter().next();
        return Err(first.map_or_else(|| Error::new(&code::BUG, "no medium"), |(_, error)| error));
    }
    if !failed.is_empty() {
        return Err(Error::new(&code::MIRRORS, told(&made, &failed)));
    }
    let mut created = Vec::new();
    for (berth, (_, mut one)) in berths.into_iter().zip(made) {
        drop(berth.at_work);
        let cleared = medium::clear(berth.store, &berth.superseded, berth.alone);
        one.not_cleared = cleared.err();
        created.push(one);
    }
    Ok(created)
}

fn told(made: &[(String, Created)], failed: &[(String, Error)]) -> String {
    let have: Vec<String> = made
        .iter()
        .map(|(shown, created)| format!("{shown} (set {})", created.position))
        .collect();
    let have_not: Vec<String> = failed
        .iter()
        .map(|(shown, error)| format!("{shown} ({error})"))
        .collect();
    format!("on {}; not on {}", have.join(", "), have_not.join(", "))
}

impl Berth<'_> {
    /// What `medium.json` says until the set is there.
    fn until_then(&self) -> &str {
        let replaced = self.replaced.as_ref().map(|(id, _)| id.as_str());
        replaced.unwrap_or(&self.medium.medium_id)
    }

    fn publish(&self, sealing: &Sealing<'_>, mut description: Description) -> Result<Created> {
        let (store, guard) = (self.store, sealing.guard);
        description.medium_id.clone_from(&self.medium.medium_id);
        if !sealing.began.is_within(store.writing_limit()) {
            remove_families(store, guard, self.medium.stripes);
            return Err(Error::new(&code::SET_LATE, store.shown()));
        }
        let (options, source) = (sealing.options, sealing.source);
        let kept = chain::store_manifest(store, guard, options, source, &mut description);
        if let Err(error) = kept {
            remove_families(store, guard, self.medium.stripes);
            return Err(error);
        }
        let position = match chain::publish(store, guard, &description) {
            // An incremental set without its base would be of no use.
            Err(error) if error.code() == &code::CHAIN => {
                remove_families(store, guard, self.medium.stripes);
                return Err(error);
            }
            other => other?,
        };
        // A lock on a shared medium may hold on its own host only.
        if let Err(error) = unchanged(store, self.until_then()) {
            self.take_back(position, guard)?;
            return Err(error);
        }
        if let Some((_, seen)) = &self.replaced {
            let replaced = store.replace(HEAD, &self.medium.to_bytes()?, seen);
            if !replaced.map_err(|error| Error::io(store.shown(), error))? {
                self.take_back(position, guard)?;
                return Err(Error::new(&code::MEDIUM_CHANGED, store.shown()));
            }
        }
        Ok(Created {
            position,
            description,
            left_out: Vec::new(),
            not_cleared: None,
        })
    }

    /// Removes the set again. Its families stay while its head may be there.
    fn take_back(&self, position: u32, guard: &Guard) -> Result<()> {
        let store = self.store;
        let changing = store.changing("sets");
        let _changing = changing.map_err(|error| Error::io(store.shown(), error))?;
        if store.remove(&medium::head_name(position)).is_ok() {
            remove_families(store, guard, self.medium.stripes);
        }
        Ok(())
    }
}
