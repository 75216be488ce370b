//! Goal: key material that came in a variable stays in the memory of the server: neither its
//! children nor /proc get it, whoever named the variable; nor do children get the library.
//!
//! Method: a server for each way in which a variable can hold a key. What its archive command and
//! COPY TO PROGRAM print of their environment is searched, and what the kernel shows of the
//! postmaster. Then a backend is killed: the postmaster starts its children again from the keys in
//! its memory.
#![expect(unsafe_code, reason = "sets a variable, while the test has one thread")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "it/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use strongroom_format::header::Cipher;
use strongroom_keyring::{Keyring, NewObject, Object, Provider};
use strongroom_testing_support::account::give_unchanged;
use strongroom_testing_support::process::until;
use support::{Place, Server, check};

const SECRET: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

fn put(path: &Path, bytes: &[u8]) {
    std::fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .unwrap();
}

/// Runs a server whose key is in `variable`, and searches all that could show it.
fn keeps_it(place: &Place, server: &Server, variable: &str) {
    let seen = place.path().join("seen");
    let printed = place.path().join("printed");
    for path in [&seen, &printed] {
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let archive = format!(
        "-c archive_mode=on -c archive_command='env>{}'",
        seen.display()
    );
    let server = Server::of(place, server.data.clone(), &archive);
    let postmaster = server.start_with(&[(variable, SECRET)]);
    let kernel = std::fs::read(format!("/proc/{postmaster}/environ")).unwrap();
    let shown = kernel.windows(64).any(|window| window == SECRET.as_bytes());
    assert!(!shown, "{variable}: the key is in /proc");
    server.sql(&format!(
        "create table t as select 1 as a; select pg_switch_wal(); copy t to program 'env > {}; cat > /dev/null'",
        printed.display()
    ));
    until("nothing is archived", || {
        std::fs::read(&seen).is_ok_and(|text| !text.is_empty())
    });
    // The postmaster goes on with the keys that it has.
    let which = "select pid from pg_stat_activity where backend_type = 'checkpointer'";
    let killed = server.sql(which);
    check(Command::new("kill").args(["-9", &killed]).output().unwrap());
    until("it does not come back", || {
        let asked = server.psql().args(["-c", which]).output().unwrap();
        let now = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
        // Until the postmaster has noticed, it is the former one that is named.
        asked.status.success() && !now.is_empty() && now != killed
    });
    assert_eq!(server.sql("select count(*) from t"), "1");
    server.sql("drop table t");
    server.stop();
    for path in [seen, printed] {
        let environment = std::fs::read_to_string(&path).unwrap();
        // Where this test finds the library is in another variable, and no secret.
        let forbidden = [
            SECRET,
            variable,
            "LD_PRELOAD",
            "STRONGROOM_PG",
            "STRONGROOM_KEYRING",
        ];
        for forbidden in forbidden {
            assert!(
                !environment.contains(forbidden),
                "{forbidden}: {environment}"
            );
        }
    }
}

#[test]
fn children_of_the_server_get_neither_the_library_nor_a_key() {
    let place = Place::new();
    let server = Server::create(&place, place.sealed("data", Cipher::Aes128Xts), "");
    let configuration = server.data.join("strongroom.conf");
    std::fs::remove_file(&configuration).unwrap();
    // The key from the environment, as CYBERTEC's users give it.
    keeps_it(&place, &server, "PGENCRYPTIONKEY");
    // The same, while the configuration names another source.
    put(&configuration, b"key_env = UNUSED\n");
    keeps_it(&place, &server, "PGENCRYPTIONKEY");
    // From a variable that the configuration names.
    put(&configuration, b"key_env = MY_KEY\n");
    keeps_it(&place, &server, "MY_KEY");

    // From a keyring whose root key is in a variable.
    // SAFETY: the only test of this program has started no thread.
    unsafe { std::env::set_var("MY_ROOT", SECRET) };
    let path = place.path().join("keyring");
    let mut keyring = Keyring::init(&path, &Provider::parse("env:MY_ROOT").unwrap()).unwrap();
    keyring.create_key("app").unwrap();
    let opener = keyring.opener("app", true).unwrap();
    // SAFETY: as above.
    unsafe { std::env::remove_var("MY_ROOT") };
    let other = place.plain("other");
    let object = Object::create(
        &NewObject::instance(Cipher::Aes256Xts),
        &opener.recipient().unwrap(),
    )
    .unwrap();
    put(&other.join("strongroom.header"), &object.initial_bytes());
    let text = format!("key_id = app\nkeyring = {}\n", path.display());
    put(&other.join("strongroom.conf"), text.as_bytes());
    give_unchanged(&path);
    for file in ["strongroom.header", "strongroom.conf"] {
        give_unchanged(&other.join(file));
    }
    let server = Server::create_with(&place, other, &[("MY_ROOT", SECRET)]);
    keeps_it(&place, &server, "MY_ROOT");
}
