//! A machine's life with the real key server: its disk is opened as it boots, with a key that comes
//! over mutual TLS; by a person while the server is down; and not at all, but by a person, when the
//! node was revoked. Every wait ends. And a disk whose header was forged, so that the right key
//! would open it in clear, is mapped by nobody.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyserver::{KeyServer, Node};
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

/// One disk as it was made, and two copies of it whose headers were forged.
const TABLE_OF_FORGED: &str = r#"
[[volume]]
name = "clear"
device = "/dev/disk/by-id/virtio-clear"
openers = ["keyserver"]

[[volume]]
name = "weak"
device = "/dev/disk/by-id/virtio-weak"
openers = ["keyserver"]

[[volume]]
name = "honest"
device = "/dev/disk/by-id/virtio-honest"
openers = ["keyserver"]
"#;

const DISK: &str = "/dev/disk/by-id/virtio";
/// Bytes of one copy of a LUKS2 header, of its binary part, and where the checksum is in that.
const HEADER: usize = 16 << 10;
const BINARY: usize = 4096;
const CHECKSUM: usize = 448;

/// What the unit and the initramfs script run.
const BOOT: &str = "strongroom volume unlock --at-boot </dev/console >/dev/console 2>&1\necho \"unlock ended with $?.\" >/dev/console\n";

/// The guest of this node, which knows the server by its name.
fn guest(node: &Node, room: &Path, kernel: &Kernel, table: &str) -> PathBuf {
    let mut guest = Guest::new().with_strongroom();
    for (name, contents) in node.identity() {
        guest.private(&format!("etc/strongroom/{name}"), contents.as_bytes());
    }
    guest.private("etc/strongroom/volumes.toml", table.as_bytes());
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
    node.create_volume("db-7", &image, &recovery, "128M");
    File::create(at("swap.img"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let kernel = Kernel::fetch();
    let initramfs = guest(&node, room.path(), &kernel, TABLE);
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

/// The node is revoked: refused at once, and whoever types does not know: the boot goes on without
/// the disk.
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

/// Writes another cipher into both copies of a LUKS2 header, as whoever can write to a disk does:
/// nothing but a checksum guards it.
fn forge(image: &Path, cipher: &str) {
    use std::os::unix::fs::FileExt as _;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    for offset in [0, HEADER as u64] {
        let mut header = vec![0; HEADER];
        file.read_exact_at(&mut header, offset).unwrap();
        let json = String::from_utf8(header[BINARY..].to_vec()).unwrap();
        let (before, segments) = json
            .trim_end_matches('\0')
            .split_once("\"segments\":{")
            .unwrap();
        let named = "\"encryption\":\"aes-xts-plain64\"";
        assert!(segments.contains(named), "{segments}");
        let segments = segments.replacen(named, &format!("\"encryption\":\"{cipher}\""), 1);
        let forged = format!("{before}\"segments\":{{{segments}");
        header[BINARY..].fill(0);
        header[BINARY..BINARY + forged.len()].copy_from_slice(forged.as_bytes());
        header[CHECKSUM..CHECKSUM + 64].fill(0);
        let sum = sha256(&header);
        header[CHECKSUM..CHECKSUM + sum.len()].copy_from_slice(&sum);
        file.write_all_at(&header, offset).unwrap();
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let digits = |at: usize| u8::from_str_radix(&said[2 * at..2 * at + 2], 16).unwrap();
    (0..32).map(digits).collect()
}

#[test]
#[ignore = "a boot of emulated hardware: make test-volume"]
fn a_disk_whose_header_was_forged_is_mapped_by_nobody() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let server = KeyServer::start(&at("server"));
    let node = server.enrol("db-7");
    node.create_volume("db-7", &at("honest.img"), &at("recovery"), "32M");
    let kernel = Kernel::fetch();
    let initramfs = guest(&node, room.path(), &kernel, TABLE_OF_FORGED);
    let mut setup = Setup::new(kernel, initramfs);
    for (name, cipher) in [("clear", "cipher_null-ecb"), ("weak", "aes-ecb")] {
        let image = at(&format!("{name}.img"));
        fs::copy(at("honest.img"), &image).unwrap();
        forge(&image, cipher);
        setup.file(name, &image, false);
    }
    setup.file("honest", &at("honest.img"), false);
    setup.forward(100, server.port());

    let mut machine = Machine::boot(&setup);
    let console = machine.console();
    assert!(
        console.contains("honest: unlocked by keyserver"),
        "{console}"
    );
    for name in ["clear", "weak"] {
        assert!(console.contains(&format!("{name}: locked")), "{console}");
        assert!(
            console.contains(&format!("{name} by keyserver: SR-8340")),
            "{console}"
        );
    }
    // That it is the header's cipher which is refused, and that nothing below us would: with the
    // recovery key cryptsetup maps the disk in clear.
    let key = fs::read_to_string(at("recovery")).unwrap();
    machine.must(&format!(
        "printf %s '{}' | cryptsetup open --key-file - {DISK}-clear control",
        key.trim()
    ));
    let control = machine.must("cryptsetup status control");
    assert!(control.contains("cipher_null"), "{control}");
    machine.must("cryptsetup close control; strongroom volume close honest");
    refused(&mut machine);
    machine.power_off();
}

/// Neither the command nor cryptsetup, which asks our plugin, maps what was forged; both map what
/// was not.
fn refused(machine: &mut Machine) {
    for name in ["clear", "weak"] {
        let disk = format!("{DISK}-{name}");
        for how in [
            format!("strongroom volume open {disk} {name}"),
            format!("strongroom volume open --read-only {disk} {name}"),
            format!("strongroom volume open --test {disk}"),
        ] {
            let said = machine.run(&how);
            assert!(
                said.code == 6 && said.text.contains("SR-8340"),
                "{how}: {said:?}"
            );
        }
        let said = machine.run(&format!(
            "cryptsetup open --token-only {disk} {name} </dev/null"
        ));
        assert_ne!(said.code, 0, "{said:?}");
        assert_ne!(machine.run(&format!("[ -e /dev/mapper/{name} ]")).code, 0);
    }
    for how in ["strongroom volume open", "cryptsetup open --token-only"] {
        machine.must(&format!(
            "{how} {DISK}-honest honest </dev/null && cryptsetup close honest"
        ));
    }
}
