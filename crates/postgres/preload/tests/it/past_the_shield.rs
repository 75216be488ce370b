//! Goal: no function of the C library writes into a sealed directory in clear.
//!
//! Method: a program under the shield calls what once did, and the files are searched without it.
//! And every function that the C library of this machine exports is looked up in lists: what the
//! shield has instead of it, what it leaves alone for a reason that is stated, and what opens,
//! names and writes nothing. A name on none of them fails the test, so that somebody thinks about
//! it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use strongroom_format::header::Cipher;
use support::{Place, check, holding, library, program};

const SCRIPT: &str = include_str!("past_the_shield.py");

#[test]
fn calls_that_wrote_in_clear_are_sealed_or_refused() {
    let place = Place::new();
    let (sealed, outside) = (
        place.sealed("sealed", Cipher::Aes256Xts),
        place.plain("outside"),
    );
    let script = place.path().join("past_the_shield.py");
    std::fs::File::create(&script)
        .and_then(|mut file| std::io::Write::write_all(&mut file, SCRIPT.as_bytes()))
        .unwrap();
    let mut command = program("env");
    command
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg("STRONGROOM_SHIELD_ALL=1")
        .arg(format!("STRONGROOM_PG_ROOTS={}", sealed.display()))
        .arg("/usr/bin/python3")
        .arg(&script)
        .args([&sealed, &outside]);
    let said = check(command.current_dir(place.path()).output().unwrap());
    assert_eq!(said.lines().count(), 6, "{said}");
    let in_clear = holding(&sealed, "MARKER-IN-CLEAR");
    assert!(in_clear.is_empty(), "{in_clear:?}");
    assert_eq!(
        holding(&outside, "MARKER-IN-CLEAR").len(),
        2,
        "what is outside is as before"
    );
}

/// Names that a library exports, without those that the C library keeps for its own parts.
fn exported(file: &str) -> BTreeSet<String> {
    let listed = Command::new("nm")
        .args(["-D", "--defined-only", file])
        .output()
        .unwrap();
    check(listed)
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !name.contains("@@GLIBC_PRIVATE") && !name.starts_with("GLIBC_"))
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect()
}

#[test]
fn every_function_of_the_c_library_has_been_thought_about() {
    let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = libc
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let libc = libc
        .into_iter()
        .find(|file| file.ends_with("/libc.so.6"))
        .unwrap()
        .to_owned();
    let ours = exported(library().to_str().unwrap());
    let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with('#'));
    let passed: BTreeMap<&str, &str> = lines(include_str!("coverage/passed.txt"))
        .chain(lines(include_str!("coverage/libc_passed.txt")))
        .map(|line| line.split_once(": ").expect("name: reason"))
        .collect();
    let other: BTreeSet<&str> = lines(include_str!("coverage/other.txt"))
        .chain(lines(include_str!("coverage/libc_other.txt")))
        .flat_map(str::split_whitespace)
        .collect();
    for name in passed.keys() {
        assert!(
            !ours.contains(*name),
            "{name} is on the list and interposed"
        );
        assert!(!other.contains(name), "{name} is on two lists");
    }
    let all = exported(&libc);
    assert!(all.contains("pwrite") && all.len() > 2000, "{libc}");
    let unknown: Vec<&String> = all
        .iter()
        .filter(|name| !ours.contains(*name))
        .filter(|name| !passed.contains_key(name.as_str()) && !other.contains(name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "on no list: {unknown:?}");
    let both: Vec<&&str> = other.iter().filter(|name| ours.contains(**name)).collect();
    assert!(
        both.is_empty(),
        "interposed, and on the list of what is not: {both:?}"
    );
}
