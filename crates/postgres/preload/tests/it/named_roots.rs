//! Goal: a directory that the environment calls an instance is one, or nothing runs on it.
//!
//! Method: programs of every kind are told of directories without a header. They end at once, with
//! the code, and what they would have written is not there.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::path::Path;
use std::process::Output;

use strongroom_format::header::Cipher;
use support::{Place, bindir, library, program};

fn run(place: &Place, roots: &str, words: &[&Path]) -> Output {
    let mut command = program("env");
    command
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg("STRONGROOM_SHIELD_ALL=1")
        .arg(format!("STRONGROOM_PG_ROOTS={roots}"))
        .args(words);
    command.current_dir(place.path()).output().unwrap()
}

#[test]
fn a_directory_without_a_header_is_not_written_in_clear() {
    let place = Place::new();
    let sealed = place.sealed("sealed", Cipher::Aes128Xts);
    let plain = place.plain("plain");
    let both = format!("{}:{}", sealed.display(), plain.display());
    let programs = [
        vec![bindir().join("initdb"), "-D".into(), plain.clone()],
        vec![bindir().join("postgres"), "-D".into(), sealed],
        vec!["/bin/cp".into(), "/etc/hostname".into(), plain.join("copy")],
    ];
    for roots in [plain.to_str().unwrap(), "plain", "missing", &both] {
        for words in &programs {
            let words: Vec<&Path> = words.iter().map(std::path::PathBuf::as_path).collect();
            let output = run(&place, roots, &words);
            assert_eq!(output.status.code(), Some(1), "{roots} {words:?}");
            let complaint = String::from_utf8(output.stderr).unwrap();
            assert!(
                complaint.starts_with("strongroom: SR-7004: "),
                "{complaint}"
            );
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
        }
    }
    assert_eq!(std::fs::read_dir(&plain).unwrap().count(), 0);
}
