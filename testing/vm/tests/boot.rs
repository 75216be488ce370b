//! A machine's life with the real key server: its disk is opened as it boots, with a key that comes over mutual TLS; by a person while the server
//! is down; and not at all, but by a person, when the node was revoked. Every wait ends.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyserver::{KeyServer, NAME, Node, configuration};
use strongroom_testing_vm::machine::{Machine, Setup};
use strongroom_testing_vm::{place, postgres};

/// The table of volumes: as a platform would write it, but for times that suit emulated hardware.
const TABLE: &str = r#"
[[volume]]
name = "data"
device = "LABEL=db-7"
openers = ["keyserver", "passphrase"]
timeout_seconds = 45
prompt_timeout_seconds = 600
tries = 2

[[swap]]
name = "swap"
device = "/dev/disk/by-id/virtio-swap"
"#;

/// What the unit and the initramfs script run.
const BOOT: &str = "strongroom volume unlock --at-boot </dev/console >/dev/console 2>&1\necho \"unlock ended with $?.\" >/dev/console\n";

fn strongroom(node: &Node, arguments: &[&str]) {
    let mut command = Command::new(place::command());
    command
        .args(arguments)
        .env_clear()
        .env("HOME", &node.directory)
        .env("STRONGROOM_NODE", node.directory.join("node.toml"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
}

/// The guest of this node, which knows the server by its name.
fn guest(node: &Node, room: &Path, kernel: &Kernel) -> PathBuf {
    let mut guest = Guest::new().with_strongroom();
    for name in ["node.pem", "authority.pem", "node.key"] {
        guest.private(
            &format!("etc/strongroom/{name}"),
            &fs::read(node.directory.join(name)).unwrap(),
        );
    }
    guest.private(
        "etc/strongroom/node.toml",
        configuration(&format!("{NAME}:8443"), 60).as_bytes(),
    );
    guest.private("etc/strongroom/volumes.toml", TABLE.as_bytes());
    guest.library(
        &place::plugin(),
        "lib/x86_64-linux-gnu/cryptsetup/libcryptsetup-token-strongroom.so",
    );
    guest.boot(BOOT);
    let initramfs = room.join("initramfs");
    guest.write(kernel, &initramfs);
    initramfs
}

#[test]
#[ignore = "four boots of emulated hardware: make test-volume"]
fn a_disk_opens_at_boot_while_the_server_says_so() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let mut server = KeyServer::start(&at("server"));
    let node = server.enrol("db-7");
    let (image, recovery) = (at("data.img"), at("recovery"));
    let shown = |path: &Path| path.display().to_string();
    strongroom(
        &node,
        &[
            "volume",
            "create",
            &shown(&image),
            "--size",
            "128M",
            "--key-id",
            "db-7",
            "--label",
            "db-7",
            "--recovery-out",
            &shown(&recovery),
        ],
    );
    File::create(at("swap.img"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let kernel = Kernel::fetch();
    let initramfs = guest(&node, room.path(), &kernel);
    let mut setup = Setup::new(kernel, initramfs);
    setup.file("usr", &engines(), true);
    setup.file("data", &image, false);
    setup.file("swap", &at("swap.img"), false);
    setup.forward(100, server.port());

    delivered(&setup);
    server.stop();
    typed(&setup, fs::read_to_string(&recovery).unwrap().trim());
    server.run();
    drop(server.admin("DELETE", "/v1/nodes/db-7", None));
    revoked(&setup);
}

/// The key comes from the server.
fn delivered(setup: &Setup) {
    let mut machine = Machine::boot(setup);
    assert!(
        machine.console().contains("unlock ended with 0."),
        "{}",
        machine.console()
    );
    assert!(
        machine.console().contains("data: unlocked by keyserver"),
        "{}",
        machine.console()
    );
    assert!(machine.must("cat /proc/swaps").contains("/dev/mapper/swap"));
    machine.must("mkfs.ext4 -q /dev/mapper/data; mount -t ext4 /dev/mapper/data /mnt");
    postgres::unpack(&mut machine);
    postgres::start(&mut machine);
    postgres::prepare(&mut machine);
    assert!(postgres::bench(&mut machine, 5, 2).contains("tps = "));
    postgres::query(&mut machine, "insert into ledger values (1)");
    postgres::stop(&mut machine);
    // Nothing else of the host, or of the world, can be reached.
    for address in [
        "10.0.2.2:22",
        "10.0.2.3:53",
        "10.0.2.101:8443",
        "192.0.2.1:443",
    ] {
        let (host, port) = address.split_once(':').unwrap();
        assert_ne!(
            machine
                .run(&format!("timeout 20 nc -w 5 {host} {port} </dev/null"))
                .code,
            0,
            "{address}"
        );
    }
    machine.must("umount /mnt; strongroom volume close data");
    // cryptsetup itself opens it by its token, through the plugin, and shows what the token says.
    let disk = "/dev/disk/by-id/virtio-data";
    machine.must(&format!("cryptsetup open --token-only {disk} data </dev/null && e2fsck -fn /dev/mapper/data && cryptsetup close data"));
    let dump = machine.must(&format!("cryptsetup luksDump {disk}"));
    assert!(dump.contains("db-7 (version 1, keyserver)"), "{dump}");
    machine.power_off();
}

/// The server is down: in bounded time a person is asked, and mistypes first.
fn typed(setup: &Setup, key: &str) {
    let mut machine = Machine::power_on(setup);
    machine.wait_console("of data");
    machine.type_line("not the passphrase");
    machine.wait_console("SR-2002");
    machine.type_line(key);
    machine.wait_ready();
    assert!(
        machine.console().contains("data: unlocked by passphrase"),
        "{}",
        machine.console()
    );
    assert!(
        !machine.console().contains(key),
        "the recovery key was shown"
    );
    machine.must("e2fsck -p /dev/mapper/data >/dev/null; mount -t ext4 /dev/mapper/data /mnt");
    postgres::start(&mut machine);
    postgres::check(&mut machine, &[1]);
    postgres::stop(&mut machine);
    machine.must("umount /mnt; strongroom volume close data");
    machine.power_off();
}

/// The node is revoked: refused at once, and whoever types does not know: the boot goes on without the disk.
fn revoked(setup: &Setup) {
    let mut machine = Machine::power_on(setup);
    machine.wait_console("of data");
    machine.type_line("no");
    machine.wait_console("SR-2002");
    machine.type_line("no");
    machine.wait_ready();
    assert!(
        machine.console().contains("data: locked"),
        "{}",
        machine.console()
    );
    assert!(
        !machine.console().contains("unlock ended with 0."),
        "{}",
        machine.console()
    );
    assert_ne!(machine.run("[ -e /dev/mapper/data ]").code, 0);
    let refused = machine.run(
        "cryptsetup open --token-only --test-passphrase /dev/disk/by-id/virtio-data </dev/null",
    );
    assert!(
        refused.code != 0 && refused.text.contains("strongroom: "),
        "{}",
        refused.text
    );
    machine.power_off();
}
