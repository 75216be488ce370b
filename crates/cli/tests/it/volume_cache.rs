//! Goal: what a key server delivered opens a volume for the hours that the table says, while no
//! server answers, on this machine in this state; and not after a server has refused. Method: the
//! real server and a simulated TPM (swtpm), whose register and clock are changed; a volume in a
//! plain file. There is no device-mapper here: what opens it ends with SR-8327, which comes after
//! the passphrase was tried.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;
use crate::common::server;

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use server::Server;
use strongroom_testing_support::swtpm::Swtpm;

/// A volume whose key is at a server, and the table that says for how long what it delivers is
/// kept.
struct Node {
    server: Server,
    tpm: Swtpm,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            server: Server::new(),
            tpm: Swtpm::start(),
        };
        node.server.join("db-7");
        let create = ["create", "v", "--key-id", "vol-7", "--size", "18M"];
        let recovery = ["--recovery-out", "recovery"];
        let made = node
            .server
            .volume("db-7", &[&create[..], &recovery].concat());
        made.succeeded();
        node.table("cache_hours = 2\n");
        node
    }

    fn table(&self, more: &str) {
        let table = format!(
            "[[volume]]\nname = \"x\"\ndevice = \"v\"\nopeners = [\"keyserver\"]\ntimeout_seconds = 2\ntcti = \"{}\"\n{more}",
            self.tpm.place()
        );
        self.server.place.write("table", table);
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.server.place.command();
        command.arg("volume").args(arguments);
        command.args(["--node", "db-7/node.toml"]);
        command.env("STRONGROOM_CACHE", self.server.place.path("cache"));
        command.output().unwrap()
    }

    /// A start of the system: what became of the volume, and all that was said.
    fn start(&self) -> (String, String) {
        let unlock = ["unlock", "--at-boot", "--no-prompt", "--table", "table"];
        let output = self.run(&[&unlock[..], &["--json"]].concat());
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let failure = json["entries"][0]["failures"][0].as_str().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (failure.to_owned(), said)
    }

    fn kept(&self) -> Option<PathBuf> {
        let directory = std::fs::read_dir(self.server.place.path("cache")).ok()?;
        directory.map(|entry| entry.unwrap().path()).next()
    }

    fn status(&self) -> Value {
        let mut command = self.server.place.command();
        command.args(["volume", "status", "v", "--json"]);
        command.env("STRONGROOM_CACHE", self.server.place.path("cache"));
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    }

    fn opens(&self) {
        let (failure, said) = self.start();
        assert!(failure.contains("SR-8327"), "{failure}\n{said}");
    }

    fn stays_locked(&self, code: &str) -> String {
        let (failure, said) = self.start();
        assert!(failure.contains(code), "{failure}\n{said}");
        said
    }
}

#[test]
fn what_was_delivered_opens_while_no_server_answers_and_a_refusal_ends_it() {
    if common::has_device_mapper() {
        eprintln!("this host has device-mapper; what is mapped is tested in the virtual machine");
        return;
    }
    let mut node = Node::new();
    // Nothing is kept that nobody asked for.
    node.table("");
    node.opens();
    assert!(node.kept().is_none());
    assert!(node.status()["kept_until"].is_null());
    node.server.stop();
    node.stays_locked("SR-8402");

    node.server.start();
    node.table("cache_hours = 2\n");
    node.opens();
    let kept = node.kept().unwrap();
    let about = std::fs::metadata(&kept).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777,
        0o600
    );
    assert_eq!(
        kept.file_name().unwrap().to_str(),
        node.status()["object_id"].as_str()
    );
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let until = node.status()["kept_until"].as_u64().unwrap();
    assert!((now + 7000..now + 7300).contains(&until));

    node.server.stop();
    node.opens();
    a_changed_file_or_machine_opens_nothing(&node, &kept);
    node.opens();

    // The server comes back and refuses.
    node.server.start();
    let disable = [
        "keyserver",
        "disable",
        "vol-7",
        "--node",
        "server/admin.toml",
    ];
    node.server.place.run(&disable).succeeded();
    node.stays_locked("SR-8426");
    assert!(node.kept().is_none(), "what a server decided stands");
    node.server.stop();
    node.stays_locked("SR-8402");
}

fn a_changed_file_or_machine_opens_nothing(node: &Node, kept: &std::path::Path) {
    let good = std::fs::read(kept).unwrap();
    let name = format!("cache/{}", kept.file_name().unwrap().display());
    for at in [8, 12, 16, 32, 40, 48, 56, 68, 80, good.len() - 1] {
        let mut changed = good.clone();
        changed[at] ^= 1;
        node.server.place.write(&name, changed);
        node.stays_locked("SR-8402");
    }
    node.server.place.write(&name, &good);
    // Another state of the machine: register 7 cannot be reset, so another TPM stands for it, too.
    let other = Swtpm::start();
    let table = std::fs::read_to_string(node.server.place.path("table")).unwrap();
    node.server
        .place
        .write("table", table.replace(&node.tpm.place(), &other.place()));
    let said = node.stays_locked("SR-8402");
    assert!(said.contains("SR-8351"), "{said}");
    node.server.place.write("table", table);
}

#[test]
fn it_ends_by_the_tpms_clock_and_with_the_state_of_the_machine() {
    if common::has_device_mapper() {
        eprintln!("this host has device-mapper; what is mapped is tested in the virtual machine");
        return;
    }
    let mut node = Node::new();
    node.opens();
    node.server.stop();
    node.opens();
    // Its owner can set the clock forward, never back.
    let clock: u64 = clock(&node.tpm);
    node.tpm
        .tool("tpm2_setclock", &[&(clock + 7_000_000).to_string()]);
    node.opens();
    node.tpm
        .tool("tpm2_setclock", &[&(clock + 7_300_000).to_string()]);
    let said = node.stays_locked("SR-8402");
    assert!(
        said.contains("the time that it was sealed for is over"),
        "{said}"
    );

    node.server.start();
    node.opens();
    node.server.stop();
    node.opens();
    node.tpm.extend(7, 1);
    let said = node.stays_locked("SR-8402");
    assert!(said.contains("SR-8350"), "{said}");
}

fn clock(tpm: &Swtpm) -> u64 {
    let said = tpm.tool("tpm2_readclock", &[]);
    let line = said.lines().find(|line| line.trim().starts_with("clock:"));
    let number = line.unwrap().split(':').nth(1).unwrap().trim();
    number.parse().unwrap()
}

#[test]
fn whatever_changes_the_openers_removes_it_and_no_tpm_is_no_obstacle() {
    if common::has_device_mapper() {
        eprintln!("this host has device-mapper; what is mapped is tested in the virtual machine");
        return;
    }
    let node = Node::new();
    let removes = |arguments: &[&str]| {
        node.opens();
        assert!(node.kept().is_some());
        let output = node.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(node.kept().is_none(), "{arguments:?}");
    };
    removes(&["rotate", "v", "--slots-only"]);
    removes(&["rotate", "v", "--recovery-file", "recovery"]);
    removes(&["unenroll", "v", "recovery", "--force"]);

    let at = node.tpm.place();
    let table = std::fs::read_to_string(node.server.place.path("table")).unwrap();
    let without = table.replace(&at, "/dev/no-such-tpm");
    node.server.place.write("table", without);
    let (failure, said) = node.start();
    assert!(failure.contains("SR-8327"), "{failure}");
    assert!(said.contains("SR-8356"), "{said}");
    assert!(node.kept().is_none());

    node.server.place.write("table", table);
    let uuid = node.status()["uuid"].as_str().unwrap().to_owned();
    removes(&["shred", "v", "--confirm", &uuid]);
}
