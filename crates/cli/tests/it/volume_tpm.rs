//! Goal: a volume opens with what the machine's TPM sealed, in the state that it was sealed to and
//! in no other, and every wait ends.
//! Method: the real command and a simulated TPM (swtpm), whose registers and seed are changed;
//! volumes in plain files, tokens read and written by cryptsetup(8).
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{Place, Run, members};
use serde_json::Value;
use strongroom_testing_support::swtpm::Swtpm;

/// A volume `v` with a key of the keyring and a recovery key.
fn made() -> Place {
    let place = Place::new();
    place.with_key();
    let create = ["volume", "create", "v", "--key-id", "app", "--size", "18M"];
    let recovery = ["--recovery-out", "recovery"];
    place.run(&[&create[..], &recovery].concat()).succeeded();
    place
}

fn enroll(place: &Place, tpm: &str, more: &[&str]) -> Run {
    let usual = ["volume", "enroll", "v", "tpm", "--tcti", tpm];
    place.run(&[&usual[..], more].concat())
}

fn open(place: &Place, tpm: &str) -> Run {
    place.run(&["volume", "open", "v", "--test", "--tpm", "--tcti", tpm])
}

/// Kinds and registers of the slots.
fn slots(place: &Place) -> Vec<(String, Value)> {
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    let slots = status["slots"].as_array().unwrap().iter();
    slots
        .map(|slot| {
            (
                slot["kind"].as_str().unwrap().to_owned(),
                slot["pcrs"].clone(),
            )
        })
        .collect()
}

fn cryptsetup(place: &Place, arguments: &[&str]) -> String {
    let ran = Command::new("cryptsetup")
        .args(arguments)
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{arguments:?}: {err}");
    String::from_utf8(ran.stdout).unwrap()
}

fn token(place: &Place, number: &str) -> Value {
    let text = cryptsetup(place, &["token", "export", "--token-id", number, "v"]);
    serde_json::from_str(&text).unwrap()
}

fn set_token(place: &Place, number: &str, token: &Value) {
    place.write("token", token.to_string());
    cryptsetup(place, &["token", "remove", "--token-id", number, "v"]);
    let import = [
        "token",
        "import",
        "--token-id",
        number,
        "--json-file",
        "token",
    ];
    cryptsetup(place, &[&import[..], &["v"]].concat());
}

#[test]
fn a_volume_opens_while_the_registers_are_as_they_were() {
    let (place, tpm) = (made(), Swtpm::start());
    let at = tpm.place();
    enroll(&place, &at, &["--pcrs", "7,16"]).succeeded();
    open(&place, &at).succeeded();
    let (kind, registers) = slots(&place).pop().unwrap();
    assert_eq!(
        (kind.as_str(), registers),
        ("tpm", serde_json::json!([7, 16]))
    );
    let text = place.run(&["volume", "status", "v"]).succeeded();
    assert!(text.contains("tpm (registers 7,16), pbkdf2"), "{text}");
    let inspected = place.run(&["inspect", "v", "--json"]).json();
    let tokens = inspected["luks"]["tokens"].as_array().unwrap();
    let ours = tokens
        .iter()
        .find(|token| token["kind"] == "strongroom-tpm");
    assert_eq!(ours.unwrap()["pcrs"], serde_json::json!([7, 16]));

    // Its form is that of docs/spec/volume.md.
    let token = token(&place, "2");
    let stated = ["keyslots", "salt", "sealed", "type", "version"];
    assert_eq!(members(&token), stated);
    assert_eq!(
        (&token["keyslots"], &token["version"]),
        (&serde_json::json!(["2"]), &1.into())
    );
    assert!(token["sealed"].as_str().unwrap().starts_with("80000100"));
    assert_eq!(token["salt"].as_str().unwrap().len(), 32);

    tpm.extend(16, 1);
    let told = open(&place, &at).failed(3, "SR-8350");
    assert!(told.contains("registers"), "{told}");
    place.run(&["volume", "open", "v", "--test"]).succeeded();
    tpm.tool("tpm2_pcrreset", &["16"]);
    open(&place, &at).succeeded();

    // Nothing is left in the TPM, however often it was asked.
    let left = tpm.tool("tpm2_getcap", &["handles-transient"]);
    assert!(left.trim().is_empty(), "{left}");

    place.run(&["volume", "unenroll", "v", "tpm"]).succeeded();
    open(&place, &at).failed(2, "SR-8330");
    let dump = cryptsetup(&place, &["luksDump", "v"]);
    assert!(!dump.contains("strongroom-tpm"), "{dump}");
    assert_eq!(slots(&place).len(), 2);
}

#[test]
fn another_tpm_a_damaged_token_and_a_wrong_secret_are_told_apart() {
    let (place, tpm, other) = (made(), Swtpm::start(), Swtpm::start());
    let at = tpm.place();
    enroll(&place, &at, &[]).succeeded();
    open(&place, &other.place()).failed(3, "SR-8351");
    // Of two tokens the one counts that is of this TPM.
    enroll(&place, &other.place(), &[]).succeeded();
    open(&place, &at).succeeded();
    open(&place, &other.place()).succeeded();

    let good = token(&place, "2");
    let sealed = good["sealed"].as_str().unwrap().to_owned();
    let last = if sealed.ends_with('0') { "1" } else { "0" };
    let damaged = format!("{}{last}", &sealed[..sealed.len() - 1]);
    let mut changed = good.clone();
    changed["sealed"] = damaged.into();
    set_token(&place, "2", &changed);
    open(&place, &at).failed(3, "SR-8351");
    // Another salt: it unseals, and opens nothing.
    let mut changed = good.clone();
    changed["salt"] = "00000000000000000000000000000000".into();
    set_token(&place, "2", &changed);
    cryptsetup(&place, &["token", "remove", "--token-id", "3", "v"]);
    open(&place, &at).failed(3, "SR-2002");
    set_token(&place, "2", &good);
    open(&place, &at).succeeded();

    // The owner's authorization is the administrator's: nothing is added without it.
    let before = slots(&place);
    other.tool("tpm2_changeauth", &["-c", "owner", "secret"]);
    enroll(&place, &other.place(), &[]).failed(3, "SR-8352");
    enroll(&place, &at, &["--pcrs", "24"]).failed(2, "SR-2019");
    enroll(&place, "keys.example.org:2321", &[]).failed(2, "SR-2019");
    assert_eq!(slots(&place), before);
    tpm.tool("tpm2_clear", &[]);
    open(&place, &at).failed(3, "SR-8351");
}

#[test]
fn a_tpm_that_is_away_or_silent_is_not_waited_for_for_ever() {
    let (place, tpm) = (made(), Swtpm::start());
    let at = tpm.place();
    enroll(&place, &at, &[]).succeeded();
    drop(tpm);
    open(&place, &at).failed(3, "SR-8352");
    open(&place, "/dev/no-such-tpm").failed(3, "SR-8352");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_at = silent.local_addr().unwrap().to_string();
    let began = Instant::now();
    let mut command = place.command();
    command
        .args([
            "volume", "open", "v", "--test", "--tpm", "--tcti", &silent_at,
        ])
        .env("STRONGROOM_PROVIDER_TIMEOUT", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("error[SR-8352]"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20), "{said}");

    // At the start the time is that of the table, and the next opener has its turn.
    let table = format!(
        "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [\"tpm\", \"keyring\"]\ntimeout_seconds = 1\ntcti = \"{silent_at}\"\n"
    );
    place.write("table", table);
    let began = Instant::now();
    let entry = unlock(&place);
    assert!(began.elapsed() < Duration::from_secs(20), "{entry}");
    let failures = entry["failures"].as_array().unwrap();
    assert!(
        failures[0]
            .as_str()
            .unwrap()
            .contains("no answer within 1 s"),
        "{entry}"
    );
}

/// What became of the table's volume. There is no device-mapper here: what opens it ends with
/// SR-8327.
fn unlock(place: &Place) -> Value {
    let words = [
        "volume",
        "unlock",
        "--at-boot",
        "--no-prompt",
        "--table",
        "table",
        "--json",
    ];
    place.run(&words).json()["entries"][0].clone()
}

#[test]
fn at_the_start_the_tpm_opens_what_the_table_says() {
    if common::has_device_mapper() {
        eprintln!("this host has device-mapper; what is mapped is tested in the virtual machine");
        return;
    }
    let (place, tpm) = (made(), Swtpm::start());
    enroll(&place, &tpm.place(), &["--pcrs", "16"]).succeeded();
    let table = |openers: &str| {
        let text = format!(
            "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [{openers}]\ntcti = \"{}\"\n",
            tpm.place()
        );
        place.write("table", text);
        unlock(&place)["failures"].clone()
    };
    let failures = table("\"tpm\"");
    let told = failures[0].as_str().unwrap();
    assert!(
        told.starts_with("tpm: ") && told.contains("SR-8327"),
        "{failures}"
    );
    tpm.extend(16, 9);
    let failures = table("\"tpm\", \"keyring\"");
    assert!(
        failures[0].as_str().unwrap().contains("SR-8350"),
        "{failures}"
    );
    assert!(
        failures[1].as_str().unwrap().contains("SR-8327"),
        "{failures}"
    );
}

#[test]
fn a_volume_with_no_key_but_the_tpms_opens_without_being_told() {
    let (place, tpm) = (Place::new(), Swtpm::start());
    place.write("pass", "of a person");
    std::fs::File::create(place.path("v"))
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    let format = ["luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2"];
    let cheap = [
        "--pbkdf-force-iterations",
        "1000",
        "--key-file",
        "pass",
        "v",
    ];
    cryptsetup(&place, &[&format[..], &cheap].concat());
    let at = tpm.place();
    enroll(&place, &at, &["--passphrase-file", "pass"]).succeeded();
    place
        .run(&["volume", "open", "v", "--test", "--tcti", &at])
        .succeeded();
    std::fs::create_dir(place.path("mnt")).unwrap();
    let attached = place.run(&["volume", "attach", "v", "mnt", "--tcti", &at]);
    drop(place.run(&["volume", "detach", "mnt"]));
    attached.succeeded();
}

#[test]
fn a_new_volume_key_takes_the_tpm_along_or_names_it() {
    let (place, tpm) = (made(), Swtpm::start());
    let at = tpm.place();
    enroll(&place, &at, &[]).succeeded();
    let rotate = ["volume", "rotate", "v", "--recovery-file", "recovery"];
    let told = place.run(&rotate).failed(2, "SR-8338");
    assert!(told.contains("slot 2 (tpm)"), "{told}");
    let more = ["--tpm", "--tcti", &at];
    place.run(&[&rotate[..], &more].concat()).succeeded();
    open(&place, &at).succeeded();
    place.run(&["volume", "open", "v", "--test"]).succeeded();
    assert_eq!(slots(&place).len(), 3);
    let named = token(&place, "2")["keyslots"].as_array().unwrap().len();
    assert_eq!(named, 1, "its slot of the old key is forgotten");
    place
        .run(&["volume", "rotate", "v", "--slots-only"])
        .succeeded();
    open(&place, &at).succeeded();
    // Given up: slot and token go.
    let status = place.run(&["volume", "status", "v", "--json"]).json();
    let slots = status["slots"].as_array().unwrap().iter();
    let mut of_tpm = slots.filter(|slot| slot["kind"] == "tpm");
    let slot = of_tpm.next().unwrap()["slot"].to_string();
    place
        .run(&[&rotate[..], &["--drop", &slot]].concat())
        .succeeded();
    open(&place, &at).failed(2, "SR-8330");
    assert!(!cryptsetup(&place, &["luksDump", "v"]).contains("strongroom-tpm"));
}
