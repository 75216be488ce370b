//! Goal: a set that goes to several media is the same and whole on each, or the error says where
//! it is. Method: directories, one of which is full or refuses the head.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::io::{self, Read, Write};
use std::path::Path;

use common::{Place, key, made, options, picture, restored, verified};
use strongroom_backup::{
    CreateOptions, Created, DirectorySource, Error, LocalStore, Mode, Store, Upload, Version,
    create_on, list,
};
use strongroom_format::code;

fn mirrored(
    stores: &[&dyn Store],
    tree: &Path,
    options: &CreateOptions<'_>,
) -> Result<Vec<Created>, Error> {
    let mut source = DirectorySource::new(tree);
    create_on(stores, &mut source, options, &mut |_| {})
}

fn stores(place: &Place) -> [LocalStore; 3] {
    ["one", "two", "three"].map(|name| LocalStore::new(&place.at(name)))
}

/// Names below a directory of a medium.
fn names(store: &LocalStore, directory: &str) -> Vec<String> {
    let listed = store.list(directory).unwrap().into_iter();
    listed.map(|(name, _)| name).collect()
}

#[test]
fn the_same_set_is_on_all() {
    let (place, opener) = (Place::new(), key());
    let tree = place.tree(3_000_000);
    let [one, two, three] = &stores(&place);
    // One has a set already, and its stripes are those of the others.
    let mut options = options(Some(&opener));
    options.stripes = Some(2);
    made(two, &tree, &options).unwrap();
    options.stripes = None;
    let all: [&dyn Store; 3] = [one, two, three];
    let created = mirrored(&all, &tree, &options).unwrap();
    let positions: Vec<u32> = created.iter().map(|made| made.position).collect();
    assert_eq!(positions, [1, 2, 1]);
    let set = &created[0].description.set_id;
    for (store, made) in [one, two, three].into_iter().zip(&created) {
        assert_eq!(&made.description.set_id, set);
        let head = list(store).unwrap().head.unwrap();
        assert_eq!(head.medium_id, made.description.medium_id);
        assert_eq!(head.stripes, 2);
        verified(store, None, Some(&opener)).unwrap();
        let to = place.at(&format!("restored-{}", head.medium_id));
        restored(store, None, Some(&opener), &to).unwrap();
        assert_eq!(picture(&to), picture(&tree));
        for family in 0..2 {
            let name = format!("data/{set}.{family}");
            let here = store.read(&name, 1 << 30).unwrap();
            assert_eq!(here, one.read(&name, 1 << 30).unwrap());
        }
    }
    options.mode = Mode::Init;
    let created = mirrored(&all, &tree, &options).unwrap();
    assert!(created.iter().all(|made| made.not_cleared.is_none()));
    for store in [one, two, three] {
        assert_eq!(names(store, "sets").len(), 1);
        assert_eq!(names(store, "data").len(), 2);
    }
    options.mode = Mode::Format;
    options.stripes = Some(1);
    mirrored(&all, &tree, &options).unwrap();
    for store in [one, two, three] {
        assert_eq!(list(store).unwrap().sets.len(), 1);
        verified(store, None, Some(&opener)).unwrap();
    }
}

#[test]
fn each_media_rules_hold_before_anything_is_read() {
    let (place, opener) = (Place::new(), key());
    let tree = place.tree(10);
    let absent = place.at("no-such-tree");
    let [one, two, three] = &stores(&place);
    made(one, &tree, &options(Some(&opener))).unwrap();
    made(two, &tree, &options(None)).unwrap();
    let mut striped = options(Some(&opener));
    striped.stripes = Some(3);
    made(three, &tree, &striped).unwrap();
    let refused = |stores: &[&dyn Store], code| {
        // What is not there cannot be read: the rule comes first.
        let refused = mirrored(stores, &absent, &options(Some(&opener))).unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    };
    refused(&[one, two], &code::MEDIUM_PLAIN);
    refused(&[one, three], &code::STRIPES);
    refused(&[one, one], &code::USAGE);
    let fresh = LocalStore::new(&place.at("fresh"));
    let twice = mirrored(&[&fresh, &fresh], &tree, &options(Some(&opener))).unwrap_err();
    assert_eq!(twice.code(), &code::USAGE);
    for store in [one, two, three] {
        assert_eq!(list(store).unwrap().sets.len(), 1);
    }
}

#[test]
fn a_full_mirror_leaves_the_set_nowhere() {
    let (place, opener) = (Place::new(), key());
    let tree = place.tree(5_000_000);
    let [one, two, _] = stores(&place);
    let full = Failing {
        store: two,
        room: Some(1 << 20),
        refuses_heads: false,
    };
    let failed = mirrored(&[&one, &full], &tree, &options(Some(&opener))).unwrap_err();
    assert_eq!(failed.code(), &code::IO);
    assert!(failed.detail().contains("two/data/"), "{failed}");
    for store in [&one, &full.store] {
        assert!(names(store, "sets").is_empty());
        assert!(names(store, "data").is_empty());
    }
}

#[test]
fn no_medium_is_begun_anew_if_one_cannot_be() {
    let (place, opener) = (Place::new(), key());
    let tree = place.tree(1000);
    let [one, two, three] = stores(&place);
    let mut options = options(Some(&opener));
    mirrored(&[&one, &two, &three], &tree, &options).unwrap();
    let ids = || [&one, &two, &three].map(|store| list(store).unwrap().head.unwrap().medium_id);
    let before = ids();
    let refusing = Failing {
        store: two.clone(),
        room: None,
        refuses_heads: true,
    };
    options.mode = Mode::Format;
    let failed = mirrored(&[&one, &refusing, &three], &tree, &options).unwrap_err();
    assert_eq!(failed.code(), &code::IO, "{failed}");
    assert_eq!(ids(), before);
    for store in [&one, &two, &three] {
        assert_eq!(names(store, "sets"), ["00000001"]);
        verified(store, None, Some(&opener)).unwrap();
    }
}

#[test]
fn a_mirror_without_a_head_is_named() {
    let (place, opener) = (Place::new(), key());
    let tree = place.tree(1000);
    let [one, two, three] = stores(&place);
    for store in [&one, &two, &three] {
        made(store, &tree, &options(Some(&opener))).unwrap();
    }
    let refusing = Failing {
        store: two,
        room: None,
        refuses_heads: true,
    };
    let mut init = options(Some(&opener));
    init.mode = Mode::Init;
    let failed = mirrored(&[&one, &refusing, &three], &tree, &init).unwrap_err();
    assert_eq!(failed.code(), &code::MIRRORS);
    let (have, have_not) = failed.detail().split_once("; not on ").unwrap();
    assert!(have.contains("one (set 2)") && have.contains("three (set 2)"));
    assert!(have_not.contains("two (SR-5001"), "{failed}");
    // Nothing was cleared away, and those that have the set have it whole.
    for store in [&one, &three] {
        assert_eq!(names(store, "sets").len(), 2);
        verified(store, Some(2), Some(&opener)).unwrap();
    }
    for store in [&one, &refusing.store, &three] {
        verified(store, Some(1), Some(&opener)).unwrap();
    }
}

/// A directory that is full after some bytes, or takes no heads.
struct Failing {
    store: LocalStore,
    room: Option<u64>,
    refuses_heads: bool,
}

struct Filling {
    upload: Box<dyn Upload>,
    room: Option<u64>,
}

impl Write for Filling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(room) = &mut self.room {
            let left = room.checked_sub(bytes.len() as u64);
            *room = left.ok_or(io::ErrorKind::StorageFull)?;
        }
        self.upload.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

impl Upload for Filling {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.upload.finish()
    }
}

impl Store for Failing {
    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(Filling {
            upload: self.store.begin(name)?,
            room: self.room,
        }))
    }

    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        if self.refuses_heads && name.starts_with("sets/") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.store.create_new(name, bytes)
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.store.read(name, limit)
    }

    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.store.open(name)
    }

    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool> {
        self.store.replace(name, bytes, seen)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.store.sync(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.store.list(directory)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.store.remove(name)
    }

    fn lock_writers(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        self.store.lock_writers(alone)
    }

    fn lock_changes(&self, directory: &str) -> io::Result<Box<dyn Send>> {
        self.store.lock_changes(directory)
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.store.is_empty()
    }

    fn prepare(&self) -> io::Result<()> {
        self.store.prepare()
    }

    fn shown(&self) -> String {
        self.store.shown()
    }
}
