//! Goal: `strongroom pg service --install` adds what a Debian cluster needs and nothing else: what
//! an administrator wrote stays, files keep owner and mode, and a second run changes nothing.
//!
//! Method: the real command on an instance of the test, with clusters and units below the test's
//! own directory. That a cluster starts with these lines is in `pg.rs`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::instance;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use instance::{Place, Run, give_unchanged, run};

/// An instance that a cluster of postgresql-common has, and that cluster's directory.
fn clustered(environment: Option<&str>) -> (Place, PathBuf) {
    let place = Place::with_instance();
    let cluster = place.path("etc/15/main");
    fs::create_dir_all(&cluster).unwrap();
    for path in ["etc", "etc/15", "etc/15/main"] {
        give_unchanged(&place.path(path));
    }
    let data = place.path("data").canonicalize().unwrap();
    place.write(
        "etc/15/main/included.conf",
        &format!("data_directory '{}' # here\n", data.display()),
    );
    place.write(
        "etc/15/main/postgresql.conf",
        "data_directory = '/nowhere'\ninclude 'included.conf'\n",
    );
    if let Some(text) = environment {
        place.write("etc/15/main/environment", text);
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(cluster.join("environment"), mode).unwrap();
    }
    (place, cluster)
}

/// `strongroom pg service`, by whoever runs the test: in earnest that is root.
fn service(place: &Place, more: &[&str]) -> Run {
    let (data, units) = (place.path("data"), place.path("units"));
    let (data, units) = (data.to_str().unwrap(), units.to_str().unwrap());
    let arguments = ["pg", "service", "-D", data, "--unit-dir", units];
    let mut command = place.as_is(&[&arguments[..], more].concat());
    run(command.env("PG_CLUSTER_CONF_ROOT", place.path("etc")))
}

#[test]
fn installing_keeps_what_is_there_and_twice_is_once() {
    let written = "# mine\nTZ = 'UTC'";
    let (place, cluster) = clustered(Some(written));
    let environment = cluster.join("environment");
    let before = fs::metadata(&environment).unwrap();
    let printed = service(&place, &[]).succeeded();
    assert_eq!(
        fs::read_to_string(&environment).unwrap(),
        written,
        "only printed"
    );
    assert!(!place.path("units").exists(), "only printed");

    let installed = service(&place, &["--install"]).succeeded();
    let drop_in = place.path("units/postgresql@15-main.service.d/strongroom.conf");
    for path in [&environment, &drop_in] {
        assert!(
            installed.contains(&format!("installed {}\n", path.display())),
            "{installed}"
        );
    }
    let text = fs::read_to_string(&environment).unwrap();
    assert!(text.starts_with(&format!("{written}\n")), "{text}");
    let line = text.lines().last().unwrap();
    assert!(
        line.starts_with("LD_PRELOAD = '/") && printed.contains(line),
        "{text}"
    );
    let after = fs::metadata(&environment).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid()),
        "mode, owner and group"
    );
    let limits = fs::read_to_string(&drop_in).unwrap();
    assert!(
        limits.contains("[Service]\n") && limits.contains("\nLimitMEMLOCK="),
        "{limits}"
    );
    assert!(!limits.contains("LD_PRELOAD"), "{limits}");

    let files = |place: &Place| (place.everything("etc"), place.everything("units"));
    let once = files(&place);
    service(&place, &["--install"]).succeeded();
    assert!(once == files(&place), "the second run changed something");
}

#[test]
fn an_environment_is_made_where_there_is_none() {
    let (place, cluster) = clustered(None);
    // What the server's user runs for its key is not run by whoever installs the service.
    let line = format!("key_command = touch {}\n", place.path("ran").display());
    place.write("data/strongroom.conf", &line);
    service(&place, &["--install"]).succeeded();
    assert!(!place.path("ran").exists());
    let about = fs::metadata(cluster.join("environment")).unwrap();
    assert_eq!(about.mode() & 0o7777, 0o644);
}

#[test]
fn another_preload_is_kept_and_nothing_is_installed() {
    let other = "LD_PRELOAD = '/usr/lib/libother.so'\n";
    let (place, cluster) = clustered(Some(other));
    let told = service(&place, &["--install"]).ended_with(6, "SR-1002");
    assert!(told.contains("put this library first"), "{told}");
    let environment = cluster.join("environment");
    assert_eq!(fs::read_to_string(&environment).unwrap(), other);
    assert!(!place.path("units").exists());

    // Joined by hand, as told: nothing is added.
    let joined = "LD_PRELOAD = '/opt/libstrongroom_shield.so:/usr/lib/libother.so'\n";
    place.write("etc/15/main/environment", joined);
    service(&place, &["--install"]).succeeded();
    assert_eq!(fs::read_to_string(&environment).unwrap(), joined);
    assert!(
        place
            .path("units/postgresql@15-main.service.d/strongroom.conf")
            .exists()
    );
}

#[test]
fn a_drop_in_that_an_administrator_wrote_is_kept() {
    let (place, cluster) = clustered(None);
    fs::create_dir_all(place.path("units/postgresql@15-main.service.d")).unwrap();
    let name = "units/postgresql@15-main.service.d/strongroom.conf";
    let written = "[Service]\nLimitCORE=infinity\nNice=5\n";
    place.write(name, written);
    let told = service(&place, &["--install"]).ended_with(6, "SR-1002");
    assert!(told.contains("strongroom.conf: has another text"), "{told}");
    assert_eq!(fs::read_to_string(place.path(name)).unwrap(), written);
    assert!(!cluster.join("environment").exists());

    // Joined by hand, as told: nothing is changed.
    let joined = "[Service]\nNice=5\nLimitMEMLOCK=64M\nLimitCORE=1\n";
    place.write(name, joined);
    service(&place, &["--install"]).succeeded();
    assert_eq!(fs::read_to_string(place.path(name)).unwrap(), joined);
    assert!(cluster.join("environment").exists());
}

/// A file of more than 1 MiB cannot be an environment; what was written to its end would be lost.
#[test]
fn an_environment_that_is_too_long_is_kept_whole() {
    let long = format!("{}TZ = 'UTC'\n", "# a comment\n".repeat(100_000));
    let (place, cluster) = clustered(Some(&long));
    service(&place, &["--install"]).ended_with(5, "SR-5001");
    let environment = cluster.join("environment");
    assert_eq!(fs::read_to_string(environment).unwrap(), long);
}

#[test]
fn an_instance_without_a_cluster_is_told_so() {
    let place = Place::with_instance();
    let told = service(&place, &["--install"]).ended_with(2, "SR-7028");
    let looked = format!("looked in {}", place.path("etc").display());
    assert!(told.contains(&looked), "{told}");
    assert!(!place.path("units").exists());
}
