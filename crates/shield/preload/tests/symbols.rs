//! Goal: to a program, a file in a sealed directory answers every call as a plain file does.
//!
//! Method: the same script of calls, made through the C library by a Python that knows nothing of the shield, runs on a
//! sealed directory under the preload library and on a plain one without it. What the calls answer must be equal.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod support;

use std::path::Path;

use strongroom_format::header::Cipher;
use support::{Place, check, holding, library, program};

const SCRIPT: &str = include_str!("symbols.py");

fn run(place: &Place, directory: &Path, shield: bool) -> String {
    let script = place.path().join("symbols.py");
    std::fs::File::create(&script)
        .and_then(|mut file| std::io::Write::write_all(&mut file, SCRIPT.as_bytes()))
        .unwrap();
    let mut command = program("env");
    if shield {
        command
            .arg(format!("LD_PRELOAD={}", library().display()))
            .arg("STRONGROOM_SHIELD_ALL=1")
            .arg(format!("STRONGROOM_PG_ROOTS={}", directory.display()));
    }
    command.arg("/usr/bin/python3").arg(&script).arg(directory);
    if shield {
        command.arg("shield");
    }
    check(command.current_dir(place.path()).output().unwrap())
}

#[test]
fn a_sealed_file_answers_as_a_plain_one() {
    let place = Place::new();
    let plain = place.plain("plain");
    let expected = run(&place, &plain, false);
    assert!(expected.lines().count() > 100);
    assert_eq!(holding(&plain, "canary that stays").len(), 3);
    for (name, cipher) in [("a", Cipher::Aes128Xts), ("b", Cipher::Aes256Xts)] {
        let sealed = place.sealed(name, cipher);
        let answers = run(&place, &sealed, true);
        let (answers, own) = answers.split_once("refused:").unwrap();
        for (number, (found, expected)) in answers.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "line {number}");
        }
        assert_eq!(answers.lines().count(), expected.lines().count());
        let refused =
            " None ENOTSUP\nrefused: None ENOTSUP\nhidden: None ENOENT []\nhidden\nhidden\n";
        assert_eq!(own, refused);
        // What is left: files that the script emptied, and one that is plain.
        let kept = holding(&sealed, "canary");
        assert!(kept.is_empty(), "{kept:?}");
    }
}
