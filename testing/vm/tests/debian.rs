//! Units, hook and plugin where they are installed: a whole Debian with systemd as its first
//! process boots, and its disks open with keys from the real key server. Data disks by
//! `strongroom-volumes.service`, by crypttab through cryptsetup's plugin, swap by its unit; the
//! root disk by the hook of initramfs-tools. With the server down a person is asked, in bounded
//! time, and the boot goes on.

use std::fs::{self, File};
use std::path::Path;

use strongroom_testing_vm::debian::{Debian, Finished};
use strongroom_testing_vm::guest::Guest;
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyserver::{KeyServer, Node};
use strongroom_testing_vm::machine::{Machine, Setup};

/// The table of volumes, of one.
fn table(name: &str, label: &str) -> String {
    format!(
        "[[volume]]\nname = \"{name}\"\ndevice = \"LABEL={label}\"\nopeners = [\"keyserver\", \"passphrase\"]\ntimeout_seconds = 45\n\
         prompt_timeout_seconds = 600\ntries = 2\n"
    )
}

fn debian(node: &Node, room: &Path, table: &str) -> Debian {
    let debian = Debian::new(room);
    for (name, contents) in node.identity() {
        debian.file(&format!("etc/strongroom/{name}"), 0o600, &contents);
    }
    debian.file("etc/strongroom/volumes.toml", 0o600, table);
    debian.enable("strongroom-volumes.service");
    debian
}

fn setup(finished: &Finished, server: &KeyServer, append: &str) -> Setup {
    let mut setup = Setup::new(finished.kernel(), finished.initramfs.clone());
    setup.memory_mib = 1024;
    setup.append = format!("console=ttyS0 net.ifnames=0 panic=-1 systemd.show_status=yes {append}");
    setup.forward(100, server.port());
    setup
}

/// Within three minutes.
fn is_active(machine: &mut Machine, unit: &str) {
    let state = machine.run(&format!(
        "for i in $(seq 90); do systemctl is-active -q '{unit}' && break; sleep 2; done; systemctl is-active '{unit}'"
    ));
    let about = machine.run(&format!(
        "systemctl status --no-pager '{unit}'; journalctl -b --no-pager -u '{unit}'"
    ));
    assert_eq!(state.text.trim(), "active", "{unit}: {}", about.text);
}

/// Opens a new volume in the small guest and fills it: the host need not have device-mapper.
/// `$SEALED` is the opened one, `$PLAIN` the other disk.
fn fill(node: &Node, room: &Path, server: &KeyServer, plain: &Path, sealed: &Path, script: &str) {
    let kernel = Kernel::fetch();
    let mut guest = Guest::new().with_strongroom();
    for (name, contents) in node.identity() {
        guest.private(&format!("etc/strongroom/{name}"), contents.as_bytes());
    }
    let initramfs = room.join("small");
    guest.write(&kernel, &initramfs);
    let mut setup = Setup::new(kernel, initramfs);
    setup.file("plain", plain, true);
    setup.file("sealed", sealed, false);
    setup.forward(100, server.port());
    let mut machine = Machine::boot(&setup);
    machine.must("strongroom volume open /dev/disk/by-id/virtio-sealed sealed");
    machine.must(&format!("PLAIN=/dev/disk/by-id/virtio-plain SEALED=/dev/mapper/sealed; {script} && sync && strongroom volume close sealed"));
    machine.power_off();
}

#[test]
#[ignore = "three boots of a whole Debian on emulated hardware, as root: make test-volume"]
fn systemd_opens_disks_of_data_and_swap() {
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let mut server = KeyServer::start(&at("server"));
    let node = server.enrol("db-7");
    node.create_volume("db-7", &at("data.img"), &at("recovery"), "96M");
    node.create_volume("other", &at("other.img"), &at("other.recovery"), "32M");
    File::create(at("swap.img"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    // systemd takes an encrypted device without anything on it for one that somebody is still
    // writing.
    let (swap, data) = (at("swap.img"), at("data.img"));
    fill(
        &node,
        room.path(),
        &server,
        &swap,
        &data,
        "mkfs.ext4 -q $SEALED",
    );
    let debian = debian(&node, room.path(), &table("data", "db-7"));
    debian.file(
        "etc/fstab",
        0o644,
        "/dev/mapper/data /srv ext4 _netdev,x-systemd.requires=strongroom-volumes.service 0 2\n",
    );
    debian.file(
        "etc/crypttab",
        0o600,
        "other /dev/disk/by-id/virtio-other none luks,_netdev,nofail,headless=true\n",
    );
    debian.enable("remote-cryptsetup.target");
    debian.enable(r"strongroom-swap@dev-disk-by\x2did-virtio\x2dswap.service");
    let finished = debian.finish(room.path(), "900M");
    let mut setup = setup(&finished, &server, "root=/dev/disk/by-id/virtio-debian rw");
    for (name, image) in [
        ("debian", finished.image),
        ("data", at("data.img")),
        ("other", at("other.img")),
        ("swap", at("swap.img")),
    ] {
        setup.file(name, &image, false);
    }

    delivered(&setup);
    server.stop();
    typed(&setup, fs::read_to_string(at("recovery")).unwrap().trim());
}

/// The keys come from the server.
fn delivered(setup: &Setup) {
    let mut machine = Machine::boot(setup);
    for unit in [
        "strongroom-volumes.service",
        "srv.mount",
        "systemd-cryptsetup@other.service",
        r"strongroom-swap@dev-disk-by\x2did-virtio\x2dswap.service",
        "remote-fs.target",
    ] {
        is_active(&mut machine, unit);
    }
    machine.must("findmnt -n -o SOURCE /srv | grep -x /dev/mapper/data; grep -q /dev/dm- /proc/swaps; cat /proc/1/comm | grep -x systemd");
    machine.must("cryptsetup status other | grep -q 'type: *LUKS2'; echo kept >/srv/kept");
    let said = machine.must("journalctl -b --no-pager -u strongroom-volumes.service");
    assert!(said.contains("data: unlocked by keyserver"), "{said}");
    machine.power_off_by("systemctl poweroff");
}

/// The server is down: somebody is asked, mistypes, and the machine comes up with the disk that was
/// typed for; the other's unit has failed.
fn typed(setup: &Setup, key: &str) {
    let mut machine = Machine::power_on(setup);
    machine.wait_console("of data");
    machine.type_line("not the passphrase");
    // The unit's words go into the journal.
    machine.wait_console_times("of data", 2);
    machine.type_line(key);
    machine.wait_ready();
    is_active(&mut machine, "srv.mount");
    assert_eq!(machine.must("cat /srv/kept"), "kept\n");
    assert_ne!(
        machine
            .run("systemctl is-active systemd-cryptsetup@other.service")
            .code,
        0
    );
    assert!(
        !machine.console().contains(key),
        "the recovery key was shown"
    );
    let journal = machine.must("journalctl -b --no-pager");
    assert!(!journal.contains(key), "the recovery key is in the journal");
    machine.power_off_by("systemctl poweroff");
}

#[test]
#[ignore = "three boots of emulated hardware, as root: make test-volume"]
fn initramfs_tools_open_the_root_disk() {
    use std::os::unix::fs::PermissionsExt as _;
    let room = tempfile::tempdir().unwrap();
    let at = |name: &str| room.path().join(name);
    let mut server = KeyServer::start(&at("server"));
    let node = server.enrol("root-7");
    node.create_volume("root-7", &at("sealed.img"), &at("recovery"), "1000M");
    let debian = debian(&node, room.path(), &table("root", "root-7"));
    debian.hook();
    debian.file("etc/fstab", 0o644, "/dev/mapper/root / ext4 defaults 0 1\n");
    let finished = debian.finish(room.path(), "900M");
    // It holds the node's private key.
    let mode = fs::metadata(&finished.initramfs)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "the initramfs");
    fill(
        &node,
        room.path(),
        &server,
        &finished.image,
        &at("sealed.img"),
        "dd if=$PLAIN of=$SEALED bs=1M",
    );
    fs::remove_file(&finished.image).unwrap();
    let mut setup = setup(
        &finished,
        &server,
        "root=/dev/mapper/root ro ip=10.0.2.15:::255.255.255.0::eth0:off",
    );
    setup.file("root", &at("sealed.img"), false);

    let mut machine = Machine::boot(&setup);
    assert!(
        machine.console().contains("root: unlocked by keyserver"),
        "{}",
        machine.console()
    );
    machine.must(
        "findmnt -n -o SOURCE / | grep -x /dev/mapper/root; cat /proc/1/comm | grep -x systemd",
    );
    is_active(&mut machine, "strongroom-volumes.service");
    machine.must("echo kept >/root/kept");
    machine.power_off_by("systemctl poweroff");

    server.stop();
    let key = fs::read_to_string(at("recovery")).unwrap();
    let mut machine = Machine::power_on(&setup);
    machine.wait_console("of root");
    machine.type_line("not the passphrase");
    machine.wait_console("SR-2002");
    machine.type_line(key.trim());
    machine.wait_ready();
    assert_eq!(machine.must("cat /root/kept"), "kept\n");
    assert!(
        !machine.console().contains(key.trim()),
        "the recovery key was shown"
    );
    machine.power_off_by("systemctl poweroff");
}
