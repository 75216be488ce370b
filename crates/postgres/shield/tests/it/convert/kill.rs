//! Conversions that are killed, and completed by the next.

use super::*;

/// Started again by [`killed`]; by itself it does nothing.
#[test]
fn child() {
    let Some(action) = std::env::var_os("SR_TEST_ACTION") else {
        return;
    };
    let data = PathBuf::from(std::env::var_os("SR_TEST_DATA").unwrap());
    let outcome = match action.to_str().unwrap() {
        "encrypt" => encrypt(&data, Cipher::Aes128Xts, &opener(1), &options()),
        "decrypt" => decrypt(&data, &opener(1), &options()),
        "rotate" => rotate(&data, &opener(1), &[], &options()),
        other => panic!("{other}"),
    };
    outcome.unwrap();
}

/// Runs an action in a process of its own and kills it after a while. Whether it had ended by then.
pub(super) fn killed(action: &str, data: &Path, after: Option<Duration>) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "convert::kill::child", "--nocapture"])
        .env("SR_TEST_ACTION", action)
        .env("SR_TEST_DATA", data)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let Some(after) = after else {
        assert!(
            child.wait().unwrap().success(),
            "{action} does not complete what was killed"
        );
        return true;
    };
    let end = Instant::now() + after;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(
                status.success(),
                "{action} does not go on from where it was killed"
            );
            return true;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    child.kill().unwrap();
    child.wait().unwrap().success()
}

#[test]
fn a_conversion_killed_anywhere_is_completed_by_the_next() {
    let instance = furnished("killed");
    let data = instance.data();
    let before = snapshot(&instance);
    let start = Instant::now();
    assert!(killed("encrypt", &data, None) && killed("decrypt", &data, None));
    let step = start.elapsed() / 24;
    let mut kills = 0_u32;
    let mut later = BTreeMap::<&str, u32>::new();
    for action in ["encrypt", "rotate", "decrypt", "encrypt", "decrypt"] {
        // Each time a little later, and each action from another point on.
        let mut after = step * (kills % 7) / 7;
        while !killed(action, &data, Some(after)) {
            kills += 1;
            if let Some(state) = unfinished(&data).unwrap() {
                *later.entry(action).or_default() += 1;
                assert_eq!(state.name(), action);
                // Until the control file is sealed, and when it is open again, all of it is plain.
                let control = known(&data.join("global/pg_control"));
                if control.digest != before["global/pg_control"].digest {
                    assert!(
                        instance.try_start().is_err(),
                        "half converted, it must not start"
                    );
                }
            } else if action != "rotate"
                && data.join("strongroom.header").exists() == (action == "encrypt")
            {
                // Killed when all was done: there is nothing left that it could go on with.
                break;
            }
            after += step;
        }
        assert_eq!(unfinished(&data).unwrap(), None);
        let left: Vec<String> = files_of(&data);
        let litter = left
            .iter()
            .filter(|path| path.ends_with(".tmp") || path.ends_with("-tmp"));
        assert_eq!(litter.count(), 0, "{left:?}");
        if action == "decrypt" {
            assert_eq!(snapshot(&instance), before);
        } else {
            assert_eq!(with_canary(&instance), Vec::<String>::new());
        }
    }
    assert!(
        kills > 15 && later.len() == 3,
        "{kills} kills, of which in the middle: {later:?}"
    );
}
