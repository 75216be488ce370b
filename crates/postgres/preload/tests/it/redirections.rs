//! Goal: a sealed file is never a standard stream: those of the C library, and of programs that are
//! run, are not the shield's, and would write in clear.
//!
//! Method: shells redirect into a sealed directory and out of it; what they cannot seal, they do
//! not write.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use strongroom_format::header::Cipher;
use support::{Place, holding, library, program};

#[test]
fn redirections_are_refused() {
    let place = Place::new();
    let sealed = place.sealed("data", Cipher::Aes128Xts);
    for shell in ["/bin/sh", "/bin/bash"] {
        for command in [
            "echo canary > data/one",
            "/bin/echo canary >> data/two",
            "exec > data/four && echo canary",
            "/bin/cp /etc/hostname data/five && cat < data/five",
        ] {
            let mut shielded = program("env");
            shielded
                .arg(format!("LD_PRELOAD={}", library().display()))
                .arg("STRONGROOM_SHIELD_ALL=1")
                .arg(format!("STRONGROOM_PG_ROOTS={}", sealed.display()))
                .args([shell, "-c", command]);
            let output = shielded.current_dir(place.path()).output().unwrap();
            assert!(!output.status.success(), "{shell} {command}");
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                complaint.contains("strongroom: SR-7002: "),
                "{shell} {command}: {complaint}"
            );
            assert!(holding(&sealed, "canary").is_empty(), "{shell} {command}");
        }
        // What is stored in clear can be redirected to, and so can what lies outside.
        let mut shielded = program("env");
        shielded
            .arg(format!("LD_PRELOAD={}", library().display()))
            .arg("STRONGROOM_SHIELD_ALL=1")
            .arg(format!("STRONGROOM_PG_ROOTS={}", sealed.display()))
            .args([shell, "-c", "echo a > data/start.log; echo b > outside"]);
        assert!(
            shielded
                .current_dir(place.path())
                .status()
                .unwrap()
                .success()
        );
    }
}
