//! Goal: to a program, a file in a sealed directory answers every call as a plain file does.
//!
//! Method: the same script of calls, made through the C library by a Python that knows nothing of
//! the shield, runs on a sealed directory under the preload library and on a plain one without it.
//! What the calls answer must be equal.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

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
        let refused = " None ENOTSUP\n".to_owned()
            + &"refused: None ENOTSUP\n".repeat(4)
            + "hidden: None ENOENT []\nhidden\nhidden\n";
        assert_eq!(own, refused);
        let kept = holding(&sealed, "canary");
        assert!(kept.is_empty(), "{kept:?}");
    }
}

/// What somebody put into a data directory as it is cannot be read, and the reason is said; so is
/// damage.
#[test]
fn what_cannot_be_read_is_told_apart() {
    let place = Place::new();
    let sealed = place.sealed("a", Cipher::Aes128Xts);
    let run = |code: &str| {
        let mut command = program("env");
        command
            .arg(format!("LD_PRELOAD={}", library().display()))
            .arg("STRONGROOM_SHIELD_ALL=1")
            .arg(format!("STRONGROOM_PG_ROOTS={}", sealed.display()))
            .args(["/usr/bin/python3", "-c", code])
            .arg(&sealed);
        command.current_dir(place.path()).output().unwrap()
    };
    check(run(
        "import sys; open(sys.argv[1] + '/own', 'w').write('x' * 10000)",
    ));
    let own = sealed.join("own");
    let mut bytes = std::fs::read(&own).unwrap();
    for (change, code) in [
        ("nothing", None),
        ("a bit", Some("SR-7001")),
        ("all", Some("SR-7022")),
        ("more", Some("SR-7022")),
    ] {
        match change {
            "a bit" => bytes[5000] ^= 1,
            "all" => bytes = b"a certificate".to_vec(),
            "more" => bytes = vec![b'c'; 10_220],
            _ => {}
        }
        std::fs::File::create(&own)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes))
            .unwrap();
        let output = run("import sys; print(len(open(sys.argv[1] + '/own', 'rb').read()))");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told: Vec<&str> = said.lines().filter(|line| line.contains("SR-70")).collect();
        match code {
            None => assert_eq!(
                (output.stdout.as_slice(), said.as_str()),
                (&b"10000\n"[..], "")
            ),
            Some(code) => {
                assert!(said.contains("Input/output error"), "{said}");
                assert_eq!(told.len(), 1, "{said}");
                assert!(
                    told[0].contains(code) && told[0].contains("/own"),
                    "{change}: {said}"
                );
            }
        }
    }
}
