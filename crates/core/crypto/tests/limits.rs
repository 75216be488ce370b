//! Goal: a host that refuses `mlock` still gets working keys and is told the truth; a command that
//! forbids core dumps has none. Method: each changes its whole process, so each runs in a process
//! of its own: the test starts this same binary again, for the one test, with a variable set.
#![expect(unsafe_code, reason = "setrlimit, getrlimit, setresuid and prctl")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::env;
use std::process::Command;

use strongroom_crypto::{
    GcmKey, SecretBytes, SecretKey, forbid_core_dumps, memory_is_locked, nonce12,
};

const CHILD: &str = "STRONGROOM_LIMITS_CHILD";

/// True in the child. In the parent, runs the test `name` in a child, which must pass.
fn in_own_process(name: &str) -> bool {
    if env::var_os(CHILD).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("1 passed"), "the child ran no test: {text}");
    false
}

#[test]
fn without_mlock_keys_work_and_the_caller_is_told() {
    if !in_own_process("without_mlock_keys_work_and_the_caller_is_told") {
        return;
    }
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `none` is a valid rlimit.
    let rc = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) };
    assert_eq!(rc, 0);
    // The limit does not bind a privileged process (CAP_IPC_LOCK).
    // SAFETY: changes the identity of this process, which runs nothing but this test.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
    }
    assert!(!memory_is_locked());
    let key = SecretKey::generate().unwrap();
    let secret = SecretBytes::take(&mut [1; 100]).unwrap();
    assert_eq!(secret.as_slice(), [1; 100]);
    let gcm = GcmKey::new(&key).unwrap();
    let nonce = nonce12().unwrap();
    let mut bytes = [3; 40];
    let tag = gcm.seal(&nonce, b"", &mut bytes).unwrap();
    gcm.open(&nonce, b"", &mut bytes, &tag).unwrap();
    assert_eq!(bytes, [3; 40]);
    assert!(!memory_is_locked());
}

#[test]
fn forbidding_core_dumps_holds() {
    if !in_own_process("forbidding_core_dumps_holds") {
        return;
    }
    // SAFETY: PR_GET_DUMPABLE reads an attribute of this process.
    let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    assert_eq!(
        dumpable(),
        1,
        "the process starts dumpable, or this test shows nothing"
    );
    forbid_core_dumps();
    assert_eq!(dumpable(), 0);
    let mut limit = libc::rlimit {
        rlim_cur: 1,
        rlim_max: 1,
    };
    // SAFETY: `limit` is writable.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) };
    assert_eq!(rc, 0);
    assert_eq!((limit.rlim_cur, limit.rlim_max), (0, 0));
}
