//! Goal: a tablespace that is reached by its own directory belongs to the instance whose version
//! directory it is, and what else lies beside that directory to none.
//!
//! Method: two instances of two versions with keys of their own and one tablespace, as while
//! `pg_upgrade` runs.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_crypto::SecretKey;
use strongroom_format::header::Cipher;
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::open_instances;
use strongroom_postgres_shield::resolve::{Resolved, resolve, resolve_followed};

fn opener() -> Opener {
    Opener::raw(SecretKey::take(&mut [7; 32]).unwrap())
}

fn data_directory(place: &Path, name: &str, version: &str) -> PathBuf {
    let directory = place.join(name);
    fs::create_dir_all(directory.join("pg_tblspc")).unwrap();
    let object = Object::create(
        &NewObject::instance(Cipher::Aes128Xts),
        &opener().recipient().unwrap(),
    )
    .unwrap();
    put(
        &directory.join("strongroom.header"),
        &object.initial_bytes(),
    );
    put(&directory.join("PG_VERSION"), version.as_bytes());
    directory
}

fn put(path: &Path, bytes: &[u8]) {
    fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .unwrap();
}

fn root_of(path: &Path) -> Option<u8> {
    let resolved = resolve(b"/", path.as_os_str().as_bytes()).unwrap();
    if let Resolved::Sealed(seal) = resolved {
        return Some(seal.root);
    }
    assert_eq!(resolved, Resolved::Outside);
    None
}

#[test]
fn each_version_directory_is_of_its_own_instance() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let space = place.join("space");
    fs::create_dir(&space).unwrap();
    for (name, version) in [("old", "15\n"), ("new", "17\n")] {
        let directory = data_directory(&place, name, version);
        // The new instance has no tablespace yet when pg_upgrade begins.
        if name == "old" {
            std::os::unix::fs::symlink(&space, directory.join("pg_tblspc/16400")).unwrap();
        }
        assert!(open_instances::add(Instance::open(&directory, &[], &opener()).unwrap()).is_ok());
    }
    assert_eq!(root_of(&space.join("PG_15_202209061/5/16384")), Some(0));
    assert_eq!(root_of(&space.join("PG_17_202406281/5/16384")), Some(1));
    assert_eq!(
        root_of(&place.join("old/pg_tblspc/16400/PG_15_202209061/5/16384")),
        Some(0)
    );
    assert_eq!(
        root_of(&place.join("new/pg_tblspc/16400/PG_17_202406281/5/16384")),
        Some(1)
    );
    for beside in ["export.csv", "log/server.txt", "PG_16_202307071/5/16384"] {
        assert_eq!(root_of(&space.join(beside)), None, "{beside}");
    }
    // A tablespace's target that no instance's link told of belongs to the instance of its version
    // when a program names it, and to none when a link of some other data directory led there: that
    // may be a plain instance's.
    let unknown = place.join("elsewhere/PG_15_202209061/5/16384");
    assert_eq!(root_of(&unknown), Some(0));
    let followed = resolve_followed(b"/", unknown.as_os_str().as_bytes());
    assert_eq!(followed, Ok(Resolved::Outside));
}
