//! Verifies a set and its bases, and names the damaged segments.
//!
//! A set with one damaged segment cannot be restored. Every segment is checked nevertheless: which
//! ones are damaged tells whether a second copy of the medium can help, and whether a disk has one
//! bad place or is failing.
//!
//! Must not: write anything.

use std::fmt::Write as _;

use strongroom_format::code::{self, Class};

use crate::chain::Chain;
use crate::pipeline::read::Origin;
use crate::read::{SetReader, Verified, verified_set, verify};
use crate::{Error, Result};

/// The most damaged segments of a family that are named one by one.
const NAMED_MAX: usize = 20;

/// Verifies every set of a chain: the requested one, and those that it builds on. Returns the
/// result of the requested set, and those of the others, the full one first. `progress` gets the
/// bytes of files so far, of all of them.
///
/// # Errors
/// As [`verify`]: the code of the first thing that is wrong. All sets are read nevertheless, and
/// the detail names all damaged segments; only an error of the operating system ends it at once.
pub fn verify_chain(
    chain: &Chain<'_>,
    threads: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(Verified, Vec<Verified>)> {
    let mut all = Vec::new();
    let mut wrong: Option<Error> = None;
    let mut before = 0_u64;
    for set in chain.sets() {
        let verified = verify(set, threads, &mut |bytes| {
            progress(before.saturating_add(bytes));
        });
        match verified {
            Ok(verified) => all.push(verified),
            Err(error) if error.code().class == Class::Io => return Err(error),
            Err(error) => {
                let mut detail = error.detail().to_owned();
                if chain.is_incremental() {
                    detail = format!("set {}: {detail}", set.position());
                }
                if let Some(damage) = describe_damage(set) {
                    detail = format!("{detail}; {damage}");
                }
                wrong = Some(match wrong {
                    Some(first) => {
                        Error::new(first.code(), format!("{}; {detail}", first.detail()))
                    }
                    None => Error::new(error.code(), detail),
                });
            }
        }
        before = before.saturating_add(set.description().backup_size_bytes);
    }
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let newest = all.pop();
    let newest = newest.ok_or_else(|| Error::new(&code::BUG, "a chain without a set"))?;
    Ok((newest, all))
}

/// The results of [`verify_chain`] for a chain that was just restored. The restore has read every
/// set to its end, with the digest of every file, so that only the manifests are read here.
///
/// # Errors
/// SR-7108 when a set's manifest is missing, SR-7109 to SR-7111 when it is damaged.
pub fn verified_by_restore(chain: &Chain<'_>) -> Result<(Verified, Vec<Verified>)> {
    let all: Result<Vec<Verified>> = chain.sets().iter().map(verified_set).collect();
    let mut all = all?;
    let newest = all.pop();
    let newest = newest.ok_or_else(|| Error::new(&code::BUG, "a chain without a set"))?;
    Ok((newest, all))
}

/// The damage of one family.
struct FamilyDamage {
    /// Numbers of the segments that do not open.
    segments: Vec<u32>,
    /// The first segment that cannot be found, because the file is cut off or malformed before it,
    /// and the reason.
    lost_from: Option<(u32, String)>,
}

/// Reads and authenticates every segment of the set, and names the damaged and missing ones in one
/// line of text. A family that cannot be read, for whatever reason, counts as damaged; of each
/// family at most [`NAMED_MAX`] segments are named. `None` when every segment is authentic.
fn describe_damage(set: &SetReader<'_>) -> Option<String> {
    let families = &set.description().families;
    let count = u16::try_from(families.len()).ok()?;
    let mut text = String::new();
    let (mut damaged, mut all) = (0_u64, 0_u64);
    for (family, end) in (0..count).zip(families) {
        all = all.saturating_add(u64::from(end.segments));
        let found = match find_family_damage(set, family, count, end.segments) {
            Ok(found) => found,
            Err(error) => FamilyDamage {
                segments: Vec::new(),
                lost_from: Some((0, error.detail().to_owned())),
            },
        };
        damaged = damaged.saturating_add(found.count(end.segments));
        found.describe(family, end.segments, &mut text);
    }
    (damaged > 0).then(|| format!("{damaged} of {all} segments are damaged{text}"))
}

impl FamilyDamage {
    /// How many segments, of `all`, are damaged or lost.
    fn count(&self, all: u32) -> u64 {
        let lost = self.lost_from.as_ref();
        let lost = lost.map_or(0, |(from, _)| all.saturating_sub(*from));
        (self.segments.len() as u64).saturating_add(u64::from(lost))
    }

    /// Appends the damage to `text`, if there is any: the damaged segments by number, and from
    /// which one on they are lost.
    fn describe(&self, family: u16, all: u32, text: &mut String) {
        if self.segments.is_empty() && self.lost_from.is_none() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "; family {family}:");
        for number in self.segments.iter().take(NAMED_MAX) {
            let _ = write!(text, " {number}");
        }
        let more = self.segments.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            let _ = write!(text, " and {more} more");
        }
        if let Some((from, why)) = &self.lost_from {
            let last = all.saturating_sub(1);
            let _ = write!(text, " {from} to {last} ({why})");
        }
    }
}

/// Reads every segment of one family, and finds those that do not open and the first one that
/// cannot be read. An error when the family cannot be opened at all, or libcrypto fails.
fn find_family_damage(
    set: &SetReader<'_>,
    family: u16,
    count: u16,
    segments: u32,
) -> Result<FamilyDamage> {
    let Origin { key, mut reader } = set.open_origin(family, count, false)?;
    let mut found = FamilyDamage {
        segments: Vec::new(),
        lost_from: None,
    };
    let mut data = Vec::new();
    for number in 0..segments {
        match reader.segment(&mut data) {
            Ok((_, head, trailer)) => {
                if !key.open(number, head, &mut data, &trailer)? {
                    found.segments.push(number);
                }
            }
            Err(error) => {
                found.lost_from = Some((number, error.detail().to_owned()));
                break;
            }
        }
    }
    Ok(found)
}
