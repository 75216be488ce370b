//! `strongroom volume` as an administrator types it, where it needs device-mapper: open, close,
//! status, list, swap, rotate of an open volume; and volumes whose sectors are authenticated. What
//! each refuses is tried too.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::path::Path;

use serde_json::Value;
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyring::{RECOVERY_IN_GUEST, WithVolume};
use strongroom_testing_vm::machine::{Machine, Setup};

const DISK: &str = "/dev/disk/by-id/virtio-data";
const SWAP: &str = "/dev/disk/by-id/virtio-swap";
const OTHER: &str = "/dev/disk/by-id/virtio-other";

/// A machine with a volume on one disk, and two blank disks.
fn machine(room: &Path) -> Machine {
    let host = WithVolume::new(room, "48M");
    let mut setup = Setup::new(Kernel::fetch(), host.at("initramfs"));
    host.guest().write(&setup.kernel, &setup.initramfs);
    setup.file("data", &host.at("data.img"), false);
    for name in ["swap", "other"] {
        let path = room.join(name);
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        setup.file(name, &path, false);
    }
    Machine::boot(&setup)
}

fn refused(machine: &mut Machine, script: &str, exit: i32, code: &str) {
    let said = machine.run(script);
    assert!(
        said.code == exit && said.text.contains(code),
        "{script}: {said:?}"
    );
}

fn json(machine: &mut Machine, script: &str) -> Value {
    let said = machine.must(script);
    serde_json::from_str(&said).unwrap_or(Value::String(said))
}

#[test]
#[ignore = "a boot of emulated hardware: make test-volume"]
fn a_volume_is_opened_seen_rotated_and_closed_and_swap_is_encrypted() {
    let room = tempfile::tempdir().unwrap();
    let mut machine = machine(room.path());
    opened_seen_and_closed(&mut machine);
    rotated(&mut machine);
    swapped(&mut machine);
    machine.power_off();
}

fn opened_seen_and_closed(machine: &mut Machine) {
    let before = json(machine, &format!("strongroom volume status {DISK} --json"));
    assert!(before["mapping"].is_null(), "{before}");
    assert_eq!(before["key_id"], "db-7");
    let listed = json(machine, "strongroom volume list --json");
    assert_eq!(listed["volumes"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["volumes"][0]["uuid"], before["uuid"]);

    let opened = json(
        machine,
        &format!("strongroom volume open {DISK} data --json"),
    );
    assert_eq!(opened["mapping"], "/dev/mapper/data");
    // Under each of its names.
    for name in [DISK, "data", "/dev/mapper/data"] {
        let state = json(machine, &format!("strongroom volume status {name} --json"));
        assert_eq!(state["mapping"], "/dev/mapper/data", "{name}: {state}");
        assert_eq!(state["read_only"], false);
        assert_eq!(state["uuid"], before["uuid"]);
    }
    let listed = machine.must("strongroom volume list");
    assert!(
        listed.contains("/dev/mapper/data") && listed.contains("db-7 v1"),
        "{listed}"
    );
    let listed = json(machine, "strongroom volume list --json");
    assert_eq!(listed["volumes"].as_array().unwrap().len(), 1, "{listed}");
    refused(
        machine,
        &format!("strongroom volume open {DISK} data"),
        2,
        "SR-8337",
    );
    refused(
        machine,
        &format!("strongroom volume create {DISK} --overwrite --no-recovery --key-id other"),
        6,
        "SR-8320",
    );

    machine.must("mkfs.ext4 -q /dev/mapper/data && mount -t ext4 /dev/mapper/data /mnt && seq 1 300000 >/mnt/kept && sync");
    refused(machine, "strongroom volume close data", 6, "SR-8320");
    machine.must("umount /mnt; strongroom volume close data && [ ! -e /dev/mapper/data ]");
    refused(machine, "strongroom volume close data", 2, "SR-1006");

    machine.must(&format!("strongroom volume open --read-only {DISK} data"));
    let state = json(machine, "strongroom volume status data --json");
    assert_eq!(state["read_only"], true, "{state}");
    let written =
        machine.run("dd if=/dev/zero of=/dev/mapper/data bs=4096 count=1 conv=fsync 2>&1");
    assert_ne!(written.code, 0, "{written:?}");
    machine.must("mount -t ext4 -o ro /dev/mapper/data /mnt && seq 1 300000 | cmp - /mnt/kept && umount /mnt && strongroom volume close data");
}

/// The volume key is changed while a file system is mounted and written to.
fn rotated(machine: &mut Machine) {
    let rotate =
        format!("strongroom volume rotate {DISK} --online --recovery-file {RECOVERY_IN_GUEST}");
    let digest = |machine: &mut Machine| {
        machine.must(&format!(
            "cryptsetup luksDump {DISK} | sed -n '/^Digests:/,$p'"
        ))
    };
    let before = digest(machine);
    machine.must(&format!(
        "strongroom volume open {DISK} data && mount -t ext4 /dev/mapper/data /mnt"
    ));
    machine.must("(while [ ! -e /run/enough ]; do seq 1 20000 >/mnt/new && sync; mv /mnt/new /mnt/old; sleep 1; done; echo ended >/run/ended) >/dev/null 2>&1 &");
    machine.must(&rotate);
    machine.must("touch /run/enough; while [ ! -e /run/ended ]; do sleep 1; done");
    assert_ne!(before, digest(machine), "the volume key is the old one");
    let state = json(machine, &format!("strongroom volume status {DISK} --json"));
    assert_eq!(state["reencrypting"], false, "{state}");
    assert_eq!(state["slots"].as_array().unwrap().len(), 2, "{state}");
    machine.must("umount /mnt; strongroom volume close data");
    for how in ["", &format!("--recovery-file {RECOVERY_IN_GUEST}")] {
        machine.must(&format!(
            "set -e; strongroom volume open {how} {DISK} data; e2fsck -fn /dev/mapper/data; mount -t ext4 -o ro /dev/mapper/data /mnt
             seq 1 300000 | cmp - /mnt/kept; seq 1 20000 | cmp - /mnt/old; umount /mnt; strongroom volume close data"
        ));
    }
}

fn swapped(machine: &mut Machine) {
    machine.must(&format!(
        "mkfs.ext4 -q {OTHER}; sha256sum <{OTHER} >/run/other"
    ));
    refused(
        machine,
        &format!("strongroom volume swap {OTHER} wrong"),
        6,
        "SR-8321",
    );
    machine.must(&format!(
        "sha256sum <{OTHER} | cmp - /run/other && [ ! -e /dev/mapper/wrong ]"
    ));
    let said = machine.must(&format!("strongroom volume swap {SWAP}"));
    assert_eq!(said.trim(), "/dev/mapper/swap");
    assert!(machine.must("cat /proc/swaps").contains("/dev/mapper/swap"));
    refused(machine, "strongroom volume close swap", 6, "SR-8320");
    refused(
        machine,
        &format!("strongroom volume swap {SWAP} again"),
        6,
        "SR-8320",
    );
    machine.must("swapoff /dev/mapper/swap && strongroom volume close swap");
    // Another key each time, and none is kept: the swap area that was there is noise.
    machine.must(&format!(
        "strongroom volume swap --no-swapon {SWAP} && [ -e /dev/mapper/swap ]"
    ));
    assert!(!machine.must("cat /proc/swaps").contains("/dev/mapper/swap"));
    assert_ne!(machine.run("swapon /dev/mapper/swap").code, 0);
    machine.must("strongroom volume close swap");
}

#[test]
#[ignore = "a boot of emulated hardware: make test-volume"]
fn sectors_of_an_authenticated_volume_cannot_be_changed_unseen() {
    let room = tempfile::tempdir().unwrap();
    let mut machine = machine(room.path());
    let whole = "dd if=/dev/mapper/auth of=/dev/null bs=1M 2>&1";
    let create = format!(
        "strongroom volume create {OTHER} --integrity hmac-sha256 --key-id auth --no-recovery"
    );
    machine.must(&create);
    let state = json(
        &mut machine,
        &format!("strongroom volume status {OTHER} --json"),
    );
    assert_eq!(state["integrity"], "hmac(sha256)", "{state}");
    machine.must(&format!("strongroom volume open {OTHER} auth && {whole}"));
    machine.must("mkfs.ext4 -q /dev/mapper/auth && mount -t ext4 /dev/mapper/auth /mnt && seq 1 300000 >/mnt/kept");
    machine.must("umount /mnt; strongroom volume close auth");
    machine.must(&format!(
        "set -e; strongroom volume open {OTHER} auth; mount -t ext4 -o ro /dev/mapper/auth /mnt
         seq 1 300000 | cmp - /mnt/kept; umount /mnt; strongroom volume close auth"
    ));
    // One MiB in the middle of what holds data and tags in turns.
    machine.must(&format!(
        "dd if=/dev/urandom of={OTHER} bs=1M seek=40 count=1 conv=notrunc,fsync 2>/dev/null"
    ));
    machine.must(&format!("strongroom volume open {OTHER} auth"));
    let read = machine.run(whole);
    assert!(
        read.code != 0 && read.text.contains("Input/output error"),
        "{read:?}"
    );
    machine.must("strongroom volume close auth");
    // Made over what was there: every sector can be read.
    refused(&mut machine, &create, 6, "SR-8321");
    machine.must(&format!("{create} --overwrite"));
    machine.must(&format!(
        "strongroom volume open {OTHER} auth && {whole} && strongroom volume close auth"
    ));
    machine.power_off();
}
