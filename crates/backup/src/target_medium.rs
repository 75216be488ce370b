//! A medium during one backup: checks its rules, holds its locks, and publishes the head of the
//! set.
//!
//! Invariants: B9 and B17; the rules of every medium are checked before the source is read; heads
//! are created when the families are durable on all media; older sets are removed only when all
//! media have the new one.
//!
//! Must not: write a family.

use std::time::{Duration, Instant, SystemTime};

use strongroom_format::{code, hex};

use crate::head::{self, Description};
use crate::manifest;
use crate::medium;
use crate::medium_head::{MEDIUM_FILE, MediumHead};
use crate::medium_rules::{
    check_allowed, check_medium_id, lock_exclusively, medium_head, present_head,
};
use crate::options::{CreateOptions, Mode};
use crate::removal;
use crate::set::SetKeys;
use crate::set_heads::{Superseded, family_name};
use crate::signature::{signature_name, store_signature};
use crate::source::Source;
use crate::store::{Store, Version};
use crate::{Error, Result};

/// A set that was made.
#[derive(Debug)]
pub struct Created {
    /// Its position on the medium.
    pub position: u32,
    /// Its description.
    pub description: Description,
    /// What the source left out.
    pub left_out: Vec<String>,
    /// Why a replaced set could not be removed, if that failed. The new set is complete
    /// nevertheless.
    pub not_cleared: Option<Error>,
}

/// A medium whose rules allow the set.
pub(crate) struct ExaminedMedium<'a> {
    store: &'a dyn Store,
    present: Option<(MediumHead, Version)>,
    superseded: Vec<Superseded>,
    /// The exclusive lock of the writers, if the medium is to be initialised again.
    alone: Option<Box<dyn Send>>,
}

/// A medium that is ready for the set.
pub(crate) struct TargetMedium<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) medium: MediumHead,
    superseded: Vec<Superseded>,
    alone: Option<Box<dyn Send>>,
    at_work: Option<Box<dyn Send>>,
    /// If the medium is to be initialised again: its id until then, and the version of
    /// `medium.json` to replace.
    replaced: Option<(String, Version)>,
}

impl<'a> ExaminedMedium<'a> {
    /// Reads the medium's head, and checks the options against it; writes nothing. To begin a
    /// medium anew, takes the exclusive lock first (SR-7131 when another writer is active). Errors
    /// of [`check_allowed`]; SR-7103 when the place holds something else or there is no position
    /// left.
    pub(crate) fn new(
        store: &'a dyn Store,
        options: &CreateOptions<'_>,
        now_unix_s: u64,
    ) -> Result<Self> {
        let mut present = present_head(store)?;
        let mut alone = None;
        if options.mode == Mode::Format && present.is_some() {
            alone = Some(lock_exclusively(store)?);
            present = present_head(store)?;
        }
        let head = present.as_ref().map(|(head, _)| head);
        let superseded = check_allowed(store, head, options, now_unix_s)?;
        if present.is_some() {
            // Checked here, before families are written for which there would be no position.
            medium::next_position(store)?;
        }
        Ok(Self {
            store,
            present,
            superseded,
            alone,
        })
    }

    /// Makes the medium if it does not exist, and locks it, so that no other writer removes the new
    /// families as orphans. Waits for a writer that is beginning the medium anew. SR-7143 when an
    /// object store ignores conditions; SR-7131 when the medium was begun anew meanwhile.
    pub(crate) fn into_target(
        self,
        options: &CreateOptions<'_>,
        stripes: u16,
        now_unix_s: u64,
    ) -> Result<TargetMedium<'a>> {
        let store = self.store;
        let (present, version) = self.present.unzip();
        let replaced = present.as_ref().zip(version);
        let replaced = replaced.filter(|_| self.alone.is_some());
        let replaced = replaced.map(|(head, version)| (head.medium_id.clone(), version));
        let medium = medium_head(store, present, options, stripes, now_unix_s)?;
        // The mutual exclusion of writers depends on this.
        let refuses = store.check_exclusive_create(MEDIUM_FILE);
        refuses.map_err(|error| Error::io(format!("{}/{MEDIUM_FILE}", store.shown()), error))?;
        // Waits for a writer that is beginning the medium anew.
        let at_work = match self.alone {
            Some(_) => None,
            None => store
                .lock_writers(false)
                .map_err(|error| Error::io(store.shown(), error))?,
        };
        let target = TargetMedium {
            store,
            medium,
            superseded: self.superseded,
            alone: self.alone,
            at_work,
            replaced,
        };
        check_medium_id(store, target.expected_medium_id())?;
        Ok(target)
    }
}

/// The number of families: that of the options, or of the existing media, or 1. SR-7117 when they
/// do not agree. Media that are begun anew do not count.
pub(crate) fn choose_stripes(
    found: &[ExaminedMedium<'_>],
    options: &CreateOptions<'_>,
) -> Result<u16> {
    let anew = options.mode == Mode::Format;
    let there = found.iter().filter(|_| !anew);
    let mut there = there.filter_map(|found| {
        let (head, _) = found.present.as_ref()?;
        Some((found.store, head.stripes))
    });
    let first = there.next();
    let wanted = options
        .stripes
        .or_else(|| first.map(|(_, stripes)| stripes));
    let wanted = wanted.unwrap_or(1);
    match there.chain(first).find(|(_, stripes)| *stripes != wanted) {
        None => Ok(wanted),
        Some((store, stripes)) => Err(Error::new(
            &code::STRIPES,
            format!("{}: {stripes} instead of {wanted}", store.shown()),
        )),
    }
}

/// Checks that no two of the existing media have the same id: SR-1001 when one is named twice.
pub(crate) fn check_all_different(found: &[ExaminedMedium<'_>]) -> Result<()> {
    let known = found.iter().filter_map(|found| {
        let (head, _) = found.present.as_ref()?;
        Some((found.store, head))
    });
    check_ids_differ(known)
}

/// Checks, after all media were made, that no two have the same id (SR-1001), and returns their
/// number of families. SR-7117 when the media have different ones.
pub(crate) fn common_stripes(targets: &[TargetMedium<'_>]) -> Result<u16> {
    check_ids_differ(targets.iter().map(|target| (target.store, &target.medium)))?;
    let mut stripes = targets.iter().map(|target| target.medium.stripes);
    let first = stripes.next().unwrap_or(1);
    match stripes.find(|stripes| *stripes != first) {
        None => Ok(first),
        Some(other) => Err(Error::new(
            &code::STRIPES,
            format!("{first} and {other} of a mirror"),
        )),
    }
}

/// Checks that no two media have the same id. SR-1001 when two do, because one is named twice or is
/// a copy.
fn check_ids_differ<'a>(
    media: impl Iterator<Item = (&'a dyn Store, &'a MediumHead)>,
) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for (store, medium) in media {
        if !seen.insert(medium.medium_id.as_str()) {
            let detail = format!("{}: named twice, or a copy of another one", store.shown());
            return Err(Error::new(&code::USAGE, detail));
        }
    }
    Ok(())
}

/// The time at which a writer began.
pub(crate) struct StartTime {
    wall: SystemTime,
    /// The monotonic clock, which nobody can set back.
    steady: Instant,
}

impl StartTime {
    /// Returns the present time, by the calendar's clock and by the one that only runs forward.
    pub(crate) fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// Whether less time than `limit` has passed, by both clocks; always without a limit.
    fn is_within(&self, limit: Option<Duration>) -> bool {
        // The monotonic clock stands still while the machine sleeps.
        let wall = self.wall.elapsed().unwrap_or_default();
        limit.is_none_or(|limit| wall.max(self.steady.elapsed()) < limit)
    }
}

/// The data from which the heads are made.
pub(crate) struct HeadInputs<'a> {
    pub(crate) set_keys: &'a SetKeys,
    pub(crate) options: &'a CreateOptions<'a>,
    pub(crate) source: &'a dyn Source,
    pub(crate) began: &'a StartTime,
}

/// Creates the heads, replaces `medium.json` of media that are begun anew, then removes the sets
/// that the new one replaces. That a removal failed is no error; it is noted in the result.
///
/// # Errors
/// SR-7145 when some media have the set and others do not; when none has it, SR-7147 if it is not
/// known of one whether it has the set, else the error of the first one.
pub(crate) fn publish_to_all(
    targets: Vec<TargetMedium<'_>>,
    sealing: &HeadInputs<'_>,
    description: &Description,
) -> Result<Vec<Created>> {
    let (mut there, mut failed) = (Vec::new(), Vec::new());
    for target in &targets {
        match target.publish(sealing, description.clone()) {
            Ok(created) => there.push((target, created)),
            Err(error) => failed.push((target.store.shown(), error)),
        }
    }
    let anew = targets.iter().any(|target| target.replaced.is_some());
    if anew && !failed.is_empty() {
        let error = error_to_report(failed);
        return Err(withdraw_everywhere(there, sealing.set_keys, error));
    }
    let mut made = Vec::new();
    for (target, created) in there {
        match target.replace_medium_file(sealing.set_keys, created.position) {
            Ok(()) => made.push((target.store.shown(), created)),
            Err(error) => failed.push((target.store.shown(), error)),
        }
    }
    if made.is_empty() {
        return Err(error_to_report(failed));
    }
    if !failed.is_empty() {
        return Err(Error::new(&code::MIRRORS, describe_outcome(&made, &failed)));
    }
    let mut created = Vec::new();
    for (target, (_, mut one)) in targets.into_iter().zip(made) {
        drop(target.at_work);
        let cleared = medium::remove_sets(target.store, &target.superseded, target.alone);
        one.not_cleared = cleared.err();
        created.push(one);
    }
    Ok(created)
}

/// Withdraws the new set from the media that have it: removes its head and its families. Called
/// when another medium failed and any is begun anew, because going on would replace that one's
/// `medium.json`, after which its older sets are not listed. Returns the error to report: `first`,
/// or, when a head may still exist, SR-7147 with `first` in its detail; families stay there.
fn withdraw_everywhere(
    there: Vec<(&TargetMedium<'_>, Created)>,
    set_keys: &SetKeys,
    mut first: Error,
) -> Error {
    for (target, created) in there {
        let why = Error::new(first.code(), first.detail());
        let told = target.withdraw_set(created.position, set_keys, why);
        if told.code() == &code::UNSETTLED {
            first = told;
        }
    }
    first
}

/// Chooses the error to report when no medium is known to have the set: SR-7147 of whichever medium
/// may have it after all, else the first error. SR-9001 without an error.
fn error_to_report(mut failed: Vec<(String, Error)>) -> Error {
    let unsettled = failed
        .iter()
        .position(|(_, error)| error.code() == &code::UNSETTLED);
    match failed.is_empty() {
        true => Error::new(&code::BUG, "no medium"),
        false => failed.swap_remove(unsettled.unwrap_or(0)).1,
    }
}

/// Names the media that have the set, and those that do not, with their errors.
fn describe_outcome(made: &[(String, Created)], failed: &[(String, Error)]) -> String {
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

impl TargetMedium<'_> {
    /// The id that `medium.json` has until the set is published.
    fn expected_medium_id(&self) -> &str {
        let replaced = self.replaced.as_ref().map(|(id, _)| id.as_str());
        replaced.unwrap_or(&self.medium.medium_id)
    }

    /// Stores the manifest and publishes the head, unless the writer took too long (SR-7144) or the
    /// base is gone (SR-7161); withdraws it if the medium was begun anew meanwhile (SR-7131), or if
    /// that cannot be found out. SR-7147 when it could not be withdrawn: the set may exist, and its
    /// families stay. SR-7103 when no position is left; errors of the store. After an error without
    /// a head, the families are removed or become orphans.
    fn publish(&self, sealing: &HeadInputs<'_>, mut description: Description) -> Result<Created> {
        let (store, set_keys) = (self.store, sealing.set_keys);
        description.medium_id.clone_from(&self.medium.medium_id);
        if !sealing.began.is_within(store.writing_limit()) {
            remove_families(store, set_keys, self.medium.stripes);
            return Err(Error::new(&code::SET_LATE, store.shown()));
        }
        let (options, source) = (sealing.options, sealing.source);
        let kept = manifest::store_manifest(
            store,
            set_keys,
            options,
            source.manifest(),
            &mut description,
        );
        if let Err(error) = kept {
            remove_families(store, set_keys, self.medium.stripes);
            return Err(error);
        }
        let position = match publish_head(store, sealing, &mut description) {
            // An incremental set is of no use without its base.
            Err(error) if error.code() == &code::CHAIN => {
                remove_families(store, set_keys, self.medium.stripes);
                return Err(error);
            }
            other => other?,
        };
        // A lock on a shared medium may exclude processes of one host only.
        if let Err(error) = check_medium_id(store, self.expected_medium_id()) {
            return Err(self.withdraw_set(position, set_keys, error));
        }
        Ok(Created {
            position,
            description,
            left_out: Vec::new(),
            not_cleared: None,
        })
    }

    /// Ends beginning a medium anew: replaces `medium.json`, so that older sets belong to another
    /// medium. Does nothing for any other medium. The set is withdrawn when that fails: SR-7131
    /// when another writer changed the file, or the store's error; SR-7147 when the outcome is not
    /// known.
    fn replace_medium_file(&self, set_keys: &SetKeys, position: u32) -> Result<()> {
        let store = self.store;
        let Some((_, seen)) = &self.replaced else {
            return Ok(());
        };
        let replaced = store.replace(MEDIUM_FILE, &self.medium.to_bytes()?, seen);
        let replaced = replaced.map_err(|error| Error::io(store.shown(), error));
        let why = match replaced {
            Ok(true) => return Ok(()),
            Ok(false) => Error::new(&code::MEDIUM_CHANGED, store.shown()),
            Err(error) => self.replacement_error(position, error)?,
        };
        Err(self.withdraw_set(position, set_keys, why))
    }

    /// Returns `error` if the old `medium.json` is certainly still there. Otherwise it is not known
    /// to which medium the set belongs, and SR-7147 is returned as an error itself.
    fn replacement_error(&self, position: u32, error: Error) -> Result<Error> {
        let store = self.store;
        if error.code() != &code::UNSETTLED
            && check_medium_id(store, self.expected_medium_id()).is_ok()
        {
            return Ok(error);
        }
        let detail = format!(
            "{}: set {position}; nor is it known whether the medium was begun anew; {error}",
            store.shown()
        );
        Err(Error::new(&code::UNSETTLED, detail))
    }

    /// Removes the set's head and families again, and returns `why`. SR-7147 instead, and the
    /// families stay, if its head may still exist.
    fn withdraw_set(&self, position: u32, set_keys: &SetKeys, why: Error) -> Error {
        let (store, set_id) = (self.store, hex::hex(&set_keys.set_id()));
        let changing = store.lock_changes("sets");
        let changing = changing.map_err(|error| Error::io(store.shown(), error));
        match changing.and_then(|_changing| removal::withdraw(store, position, &set_id)) {
            Ok(true) => {
                remove_families(store, set_keys, self.medium.stripes);
                why
            }
            Ok(false) | Err(_) => {
                let detail = format!("{}: set {position}; {why}", store.shown());
                Error::new(&code::UNSETTLED, detail)
            }
        }
    }
}

/// Publishes a head, with a signature if the options have a key, and returns its position. An
/// incremental set is published only while its base exists; otherwise SR-7161, and no head is left.
/// SR-7147 when a head could not be withdrawn.
fn publish_head(
    store: &dyn Store,
    sealing: &HeadInputs<'_>,
    description: &mut Description,
) -> Result<u32> {
    let set_keys = sealing.set_keys;
    let base = description.base_set_id().map(str::to_owned);
    let mut head_at = |position| {
        description.set_position = Some(position);
        let bytes = head::to_bytes(set_keys, description)?;
        if let Some(key) = sealing.options.sign_key {
            let signed = head::signed_part(&bytes);
            store_signature(store, key, set_keys.set_id(), signed)?;
        }
        Ok(bytes)
    };
    let Some(base) = base else {
        return medium::publish(store, head_at);
    };
    let changing = store.lock_changes("sets");
    let _changing = changing.map_err(|error| Error::io(store.shown(), error))?;
    if removal::is_kept(store, &base)? {
        let position = medium::publish(store, &mut head_at)?;
        // Without locks, others may have removed the base meanwhile.
        if store.writing_limit().is_none() {
            return Ok(position);
        }
        let looked = removal::is_kept(store, &base);
        if matches!(looked, Ok(true)) {
            return Ok(position);
        }
        let withdrawn = removal::withdraw(store, position, &description.set_id);
        if !matches!(withdrawn, Ok(true)) {
            let detail = format!(
                "{}: set {position}; the set that it builds on may be gone",
                store.shown()
            );
            return Err(Error::new(&code::UNSETTLED, detail));
        }
        looked?;
    }
    let detail = format!(
        "set {base}, or one that it builds on, was removed meanwhile or is about to be; no set was added"
    );
    Err(Error::new(&code::CHAIN, detail))
}

/// Removes the families, the manifest and the signature of a set after a failure. Those that cannot
/// be removed are orphans, which the next writer removes.
pub(crate) fn remove_families(store: &dyn Store, set_keys: &SetKeys, stripes: u16) {
    let set_id = hex::hex(&set_keys.set_id());
    for family in 0..stripes {
        drop(store.remove(&family_name(&set_id, family)));
    }
    drop(store.remove(&manifest::manifest_name(&set_id)));
    drop(store.remove(&signature_name(&set_id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_that_may_have_the_set_is_reported_before_one_that_has_not() {
        let failed = |codes: &[&'static code::Code]| {
            let errors = codes
                .iter()
                .map(|code| (String::new(), Error::new(code, "")));
            error_to_report(errors.collect())
        };
        let io = &code::IO;
        assert_eq!(failed(&[io, &code::UNSETTLED]).code(), &code::UNSETTLED);
        assert_eq!(failed(&[io, &code::SET_LATE]).code(), io);
        assert_eq!(failed(&[]).code(), &code::BUG);
    }
}
