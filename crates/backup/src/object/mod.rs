//! Objects by name below a prefix of an object store: S3 and what speaks like it, Google Cloud
//! Storage, Azure Blob Storage.
//!
//! Invariants: B1, B2; B17: an unknown outcome is settled by reading; B18: an object is replaced
//! only if it is still the one that was read, by its entity tag; B19: there are no locks, and
//! orphans are recognized by their age; B21: no message of a store gets into an error.
//!
//! Must not: read the environment; take a credential from a URL.

mod client;
mod fault;
mod parts;
mod read;
mod upload;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use strongroom_format::code;
use strongroom_keyring::Fault;

use self::client::Client;
use self::fault::{Outcome, put_outcome, to_io_error};
use crate::Result;
use crate::store::{Store, Upload, Version};

/// An orphan may be removed when it is older than the newest object by this.
const ORPHAN_AGE: Duration = Duration::from_secs(7 * 86_400);
/// The longest time from a writer's first family to its head.
const WRITING_MAX: Duration = Duration::from_secs(6 * 86_400);
/// How often a put whose outcome is unknown is tried; after each, the object is read.
const TURNS: u32 = 3;

/// The most bytes of the object with which a store's support of conditions is tested.
const PROBE_MAX: u64 = 64 * 1024;
/// An entity tag that no object has.
const NO_TAG: &str = "\"00000000000000000000000000000000\"";

/// A medium below a prefix of an object store.
pub struct ObjectMedium {
    client: Arc<Client>,
}

impl std::fmt::Debug for ObjectMedium {
    /// Shows the URL, in which there are no credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectMedium({})", self.client.shown)
    }
}

impl ObjectMedium {
    /// Opens the medium that `url` names. `settings` are names and values of environment variables;
    /// those that the kind of store knows are used: `AWS_...`, `GOOGLE_...` or `AZURE_...`.
    /// Requests that fail because there is no connection are repeated for `patience`. Nothing is
    /// sent yet.
    ///
    /// # Errors
    /// SR-7140 when the URL or the settings cannot be used; SR-5001 when threads cannot be started.
    pub fn open(
        url: &str,
        settings: impl Iterator<Item = (String, String)>,
        patience: Duration,
    ) -> Result<Self> {
        let client = Arc::new(Client::new(url, settings, patience)?);
        Ok(Self { client })
    }

    /// Asks the store for the size, time and entity tag of an object; `None` when there is none.
    /// SR-7141 to SR-7143 otherwise.
    fn read_metadata(&self, path: &Path) -> io::Result<Option<ObjectMeta>> {
        match self.client.send(self.client.store.head(path)) {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(to_io_error(&error)),
        }
    }

    /// Puts an object under a condition. True when it has these bytes now; false when the condition
    /// did not hold and it has others. After an unknown outcome it reads the object, and tries up
    /// to three times; SR-7147 when it is still not known whether it was written. SR-7141 to
    /// SR-7143 when it was not.
    fn put_if(&self, name: &str, bytes: &[u8], mode: &PutMode) -> io::Result<bool> {
        let path = self.client.path(name)?;
        let payload = PutPayload::from(bytes.to_vec());
        let mut last = None;
        for _ in 0..TURNS {
            let options = PutOptions::from(mode.clone());
            let put = self
                .client
                .send(self.client.store.put_opts(&path, payload.clone(), options));
            let Err(error) = put else {
                return Ok(true);
            };
            match put_outcome(&error) {
                // The object may be ours, from a try whose response was lost.
                Outcome::Refused => return self.has_bytes(&path, bytes),
                Outcome::Failed => return Err(to_io_error(&error)),
                Outcome::Unknown => {}
            }
            // B17. If the store cannot be read either, the outcome stays unknown.
            match self.has_bytes(&path, bytes) {
                Ok(true) => return Ok(true),
                Ok(false) => last = Some(error),
                Err(unread) => return Err(unsettled_error(&unread)),
            }
        }
        Err(last.map_or_else(
            || io::ErrorKind::Other.into(),
            |error| unsettled_error(&to_io_error(&error)),
        ))
    }

    /// Reads the object, and returns whether it has exactly these bytes. False when there is none.
    /// Errors of the store.
    fn has_bytes(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let limit = bytes.len() as u64;
        match self.read_object(path, limit) {
            Ok(found) => Ok(found.is_some_and(|(found, _)| found == bytes)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads an object, with the version that replacing it requires. `None` when there is none;
    /// `FileTooLarge` when it is longer than `limit` bytes.
    fn read_object(&self, path: &Path, limit: u64) -> io::Result<Option<(Vec<u8>, Version)>> {
        // The head and the body are waited for separately: the first request of a command has a
        // short limit, which must not cover a long object.
        let options = GetOptions::default();
        let found = match self.client.send(self.client.store.get_opts(path, options)) {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            other => other.map_err(|error| to_io_error(&error))?,
        };
        if found.meta.size > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let seen = Version {
            tag: found.meta.e_tag.clone(),
            generation: found.meta.version.clone(),
        };
        // The length that the store states need not be true.
        let bytes = self.client.send(read::collect_ranges(found, limit));
        let bytes = bytes.map_err(|error| to_io_error(&error))?;
        let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(Some((bytes, seen)))
    }

    /// Checks that the store refuses a put: puts the bytes that an object has again, under a
    /// condition that does not hold. SR-7143 when the store accepts it: it ignores the condition.
    fn must_refuse(&self, path: &Path, bytes: &[u8], mode: PutMode, what: &str) -> io::Result<()> {
        let payload = PutPayload::from(bytes.to_vec());
        let put = self.client.store.put_opts(path, payload, mode.into());
        match self.client.send(put) {
            Err(error) if put_outcome(&error) == Outcome::Refused => Ok(()),
            Err(error) => Err(to_io_error(&error)),
            Ok(_) => {
                let text = format!("it ignores the condition of a put ({what})");
                Err(Fault::io(
                    io::ErrorKind::Unsupported,
                    &code::STORE_FAILED,
                    text,
                ))
            }
        }
    }

    /// Lists the objects directly below `directory`, sorted by name. SR-7143 when there are too
    /// many.
    fn list_metadata(&self, directory: &str) -> io::Result<Vec<(String, ObjectMeta)>> {
        let below = self.client.path(directory)?;
        let found = self.client.all_below(&below)?;
        let mut named = Vec::new();
        for meta in found {
            if let Some(name) = name_in(&meta.location, &below) {
                named.push((name, meta));
            }
        }
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(named)
    }
}

/// Makes SR-7147, for when it is not known whether an object was written.
fn unsettled_error(why: &io::Error) -> io::Error {
    Fault::io(why.kind(), &code::UNSETTLED, why.to_string())
}

/// The last name in `path`, if that is directly below `directory`; otherwise `None`.
fn name_in(path: &Path, directory: &Path) -> Option<String> {
    let mut parts = path.prefix_match(directory)?;
    let name = parts.next()?;
    parts.next().is_none().then(|| name.as_ref().to_owned())
}

/// The names of those of `families` that are older than the newest object of both lists by at least
/// [`ORPHAN_AGE`]. Both times come from the store's clock.
fn orphan_candidates(
    families: Vec<(String, ObjectMeta)>,
    heads: &[(String, ObjectMeta)],
) -> Vec<String> {
    let all = families.iter().chain(heads);
    let newest = all.map(|(_, meta)| meta.last_modified).max();
    let is_old = |meta: &ObjectMeta| {
        let age = newest.map(|newest| newest.signed_duration_since(meta.last_modified));
        let age = age.and_then(|age| age.to_std().ok());
        age.is_some_and(|age| age >= ORPHAN_AGE)
    };
    let old = families.into_iter().filter(|(_, meta)| is_old(meta));
    old.map(|(name, _)| name).collect()
}

impl Store for ObjectMedium {
    /// Reads an object; `None` when there is none, `FileTooLarge` when it is longer than `limit`
    /// bytes.
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.read_version(name, limit)?.map(|(bytes, _)| bytes))
    }

    /// Reads an object as `read` does, and returns with it the entity tag and generation that
    /// replacing it requires; `None` when there is none.
    fn read_version(&self, name: &str, limit: u64) -> io::Result<Option<(Vec<u8>, Version)>> {
        self.read_object(&self.client.path(name)?, limit)
    }

    /// Asks for an object's length, and returns a reader that requests its ranges, with the length
    /// in bytes. `NotFound` when there is none.
    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let path = self.client.path(name)?;
        let meta = self.read_metadata(&path)?.ok_or(io::ErrorKind::NotFound)?;
        let length = meta.size;
        let reader = read::Ranges::new(Arc::clone(&self.client), meta);
        Ok((Box::new(reader), length))
    }

    /// Puts an object on condition that there is none. False when there is another one; SR-7147
    /// when the outcome is unknown.
    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.put_if(name, bytes, &PutMode::Create)
    }

    /// Puts an object on condition that it is still the one that was read as `seen`. False when it
    /// was changed or removed; SR-7143 when the store gave no entity tag; SR-7147 when the outcome
    /// is unknown.
    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool> {
        if seen.tag.is_none() {
            let text = "the store gave no entity tag";
            return Err(Fault::io(
                io::ErrorKind::Unsupported,
                &code::STORE_FAILED,
                text,
            ));
        }
        let version = UpdateVersion {
            e_tag: seen.tag.clone(),
            version: seen.generation.clone(),
        };
        self.put_if(name, bytes, &PutMode::Update(version))
    }

    /// Begins an upload, which sends nothing yet. Whether the name is taken is not checked.
    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let path = self.client.path(name)?;
        let upload = upload::ObjectUpload::new(Arc::clone(&self.client), path);
        Ok(Box::new(upload))
    }

    /// Asks the store whether the object exists, and does nothing else: a store has made durable
    /// what it has confirmed. `NotFound` when there is none.
    fn sync(&self, name: &str) -> io::Result<()> {
        let there = self.read_metadata(&self.client.path(name)?)?;
        there
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Names and lengths in bytes of the objects directly below `directory`, sorted by name.
    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        let metas = self.list_metadata(directory)?.into_iter();
        Ok(metas.map(|(name, meta)| (name, meta.size)).collect())
    }

    /// The names of the objects of `data` that are a week older than the newest object of `data`
    /// and `sets`.
    fn orphan_candidates(&self) -> io::Result<Vec<String>> {
        let families = self.list_metadata("data")?;
        Ok(orphan_candidates(families, &self.list_metadata("sets")?))
    }

    /// Returns six days: less than the age at which an object may be removed as an orphan.
    fn writing_limit(&self) -> Option<Duration> {
        Some(WRITING_MAX)
    }

    /// Tests the store's conditions with the existing object `name`: puts its own bytes again, once
    /// as a new object and once with a wrong entity tag. SR-7143 when the store accepts one of the
    /// two; `NotFound` when there is no such object.
    fn check_exclusive_create(&self, name: &str) -> io::Result<()> {
        let path = self.client.path(name)?;
        let there = self.read_object(&path, PROBE_MAX)?;
        let (bytes, seen) = there.ok_or(io::ErrorKind::NotFound)?;
        self.must_refuse(&path, &bytes, PutMode::Create, "If-None-Match")?;
        let other = UpdateVersion {
            e_tag: Some(String::from(NO_TAG)),
            version: seen.generation.map(|_| String::from("1")),
        };
        self.must_refuse(&path, &bytes, PutMode::Update(other), "If-Match")
    }

    /// Deletes the object; no error when there is none.
    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.client.path(name)?;
        match self.client.send(self.client.store.delete(&path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(to_io_error(&error)),
        }
    }

    /// Takes no lock and always succeeds: orphans are recognized by their age instead.
    fn lock_writers(&self, _alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        Ok(Some(Box::new(())))
    }

    /// Takes no lock and always succeeds: conditions of each request protect the objects instead.
    fn lock_changes(&self, _directory: &str) -> io::Result<Box<dyn Send>> {
        Ok(Box::new(()))
    }

    /// Whether there is no object below the medium's prefix.
    fn is_empty(&self) -> io::Result<bool> {
        self.client.is_empty()
    }

    /// Does nothing: the bucket must exist, and names below a prefix need no directories.
    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }

    /// The URL, without credentials.
    fn shown(&self) -> String {
        self.client.shown.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(name: &str, seconds: u64) -> (String, ObjectMeta) {
        let meta = ObjectMeta {
            location: Path::from(name),
            last_modified: (UNIX_EPOCH + Duration::from_secs(seconds)).into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        (name.to_owned(), meta)
    }

    #[test]
    fn families_are_orphans_by_the_stores_own_times() {
        const WEEK: u64 = 7 * 86_400;
        let families = || vec![at("old", 5), at("young", 6), at("newer", WEEK)];
        let none: Vec<String> = Vec::new();
        assert_eq!(orphan_candidates(families(), &[]), none);
        assert_eq!(orphan_candidates(families(), &[at("1", WEEK + 4)]), none);
        assert_eq!(orphan_candidates(families(), &[at("1", WEEK + 5)]), ["old"]);
        assert_eq!(
            orphan_candidates(families(), &[at("1", 0), at("2", WEEK + 6)]),
            ["old", "young"]
        );
        assert_eq!(orphan_candidates(Vec::new(), &[]), none);
    }

    #[test]
    fn writers_give_up_before_their_families_can_be_orphans() {
        let margin = ORPHAN_AGE - WRITING_MAX;
        assert!(margin >= Duration::from_secs(86_400));
    }
}
