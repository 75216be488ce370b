//! The machine itself: it boots, runs scripts, reaches nothing outside, forgets what was not
//! flushed, and dm-crypt works in it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use strongroom_testing_vm::disk::Disk;
use strongroom_testing_vm::guest::Guest;
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::machine::{Machine, Setup};
use strongroom_testing_vm::nbd::Served;
use strongroom_testing_vm::random::{Random, seed};

fn served(room: &Path, name: &str, mib: u64) -> Served {
    let path = room.join(format!("{name}.img"));
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let disk = Arc::new(Disk::open(&path).unwrap());
    Served::start(disk, &room.join(format!("{name}.sock"))).unwrap()
}

#[test]
fn a_guest_keeps_what_it_flushed_and_opens_an_encrypted_volume_after_a_power_cut() {
    let seed = seed();
    eprintln!("STRONGROOM_SEED={seed}");
    let room = tempfile::tempdir().unwrap();
    let kernel = Kernel::fetch();
    let initramfs = room.path().join("initramfs");
    Guest::new().write(&kernel, &initramfs);
    let data = served(room.path(), "data", 64);
    let mut setup = Setup::new(kernel, initramfs);
    setup.served("data", &data);

    let mut machine = Machine::boot(&setup);
    let disk = "/dev/disk/by-id/virtio-data";
    assert_eq!(machine.run("echo out; echo err >&2; exit 7").code, 7);
    machine.must(&format!(
        "set -e; printf secret | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file - {disk}
         printf secret | cryptsetup open --key-file - {disk} data
         mkfs.ext4 -q /dev/mapper/data; mount -t ext4 /dev/mapper/data /mnt
         seq 1 20000 >/mnt/kept; sync"
    ));
    assert!(machine.must("ls /sys/class/net").contains("lo"));
    machine.must(
        "seq 1 200000 >/mnt/lost; dd if=/dev/zero of=/mnt/more bs=1M count=8 2>/dev/null; sleep 7",
    );
    data.disk().cut();
    machine.power_cut();
    let (kept, lost) = data.disk().settle(&mut Random::new(seed)).unwrap();
    eprintln!(
        "{kept} unflushed sectors kept, {lost} lost; {:?}",
        data.disk().account()
    );

    let mut machine = Machine::boot(&setup);
    machine.must(&format!(
        "set -e; printf secret | cryptsetup open --key-file - {disk} data
         e2fsck -p /dev/mapper/data >/run/fsck || [ $? -eq 1 ]
         mount -t ext4 /dev/mapper/data /mnt
         seq 1 20000 | cmp - /mnt/kept"
    ));
    machine.power_off();
}
