//! The volume key is changed while PostgreSQL works on the volume, and the power goes in the middle: at each header that re-encryption writes, before
//! and after the disk was told to keep it, and between them. Nothing that was committed is lost, and the work is finished.
//!
//! By cryptsetup itself: what the product's rotation rests on, and what its repair is for.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_testing_vm::disk::{Account, Cut, Disk};
use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::machine::{LONG, Machine, Setup};
use strongroom_testing_vm::nbd::Served;
use strongroom_testing_vm::postgres;
use strongroom_testing_vm::random::{Random, seed};

const DISK: &str = "/dev/disk/by-id/virtio-data";
const FAST: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
const MIB: u64 = 144;

struct Laboratory {
    room: tempfile::TempDir,
    kernel: Kernel,
    base: PathBuf,
}

impl Laboratory {
    /// A volume with a cluster on it, cleanly closed.
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        let kernel = Kernel::fetch();
        let initramfs = room.path().join("initramfs");
        Guest::new().write(&kernel, &initramfs);
        let base = room.path().join("base.img");
        fs::File::create(&base).unwrap().set_len(MIB << 20).unwrap();
        let laboratory = Self { room, kernel, base };
        let mut setup = laboratory.setup();
        setup.file("data", &laboratory.base, false);
        let mut machine = Machine::boot(&setup);
        machine.must(&format!(
            "set -e; printf old | cryptsetup luksFormat -q --type luks2 {FAST} --key-file - {DISK}
             printf old | cryptsetup open --key-file - {DISK} data
             mkfs.ext4 -q /dev/mapper/data; mount -t ext4 /dev/mapper/data /mnt"
        ));
        postgres::unpack(&mut machine);
        postgres::start(&mut machine);
        postgres::prepare(&mut machine);
        postgres::stop(&mut machine);
        machine.must("umount /mnt; cryptsetup close data");
        machine.power_off();
        laboratory
    }

    fn setup(&self) -> Setup {
        let mut setup = Setup::new(self.kernel.clone(), self.room.path().join("initramfs"));
        setup.file("usr", &engines(), true);
        setup
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.room.path().join(name);
        fs::copy(&self.base, &copy).unwrap();
        copy
    }

    /// Rotates under load until the cut, or to the end without one. What was called out, and the disk's account.
    fn rotate(&self, image: &Path, cut: Option<Cut>, random: &mut Random) -> (Vec<u64>, Account) {
        let disk = Arc::new(Disk::open(image).unwrap());
        let served = Served::start(Arc::clone(&disk), &self.room.path().join("data.sock")).unwrap();
        let mut setup = self.setup();
        setup.served("data", &served);
        let mut machine = Machine::boot(&setup);
        machine.must(&format!("printf old | cryptsetup open --key-file - {DISK} data && mount -t ext4 /dev/mapper/data /mnt"));
        postgres::start(&mut machine);
        postgres::load(&mut machine, 1);
        machine.wait_console("committed:3.");
        if let Some(cut) = cut {
            disk.plan(cut);
        }
        let number = machine.send(&format!("printf old | cryptsetup reencrypt -q {FAST} --hotzone-size 32M --key-file - --active-name data"));
        if cut.is_some() {
            assert!(
                disk.wait_cut(LONG),
                "{cut:?} never came: {:?}",
                disk.account()
            );
        } else {
            let output = machine.answer(number, LONG).unwrap();
            assert_eq!(output.code, 0, "{}", output.text);
            disk.cut();
        }
        let called = postgres::called_out(&machine);
        machine.power_cut();
        let account = disk.account();
        let settled = disk.settle(random).unwrap();
        eprintln!(
            "{cut:?}: {} committed, sectors kept and lost {settled:?}",
            called.len()
        );
        (called, account)
    }

    /// Boots again: opens, with what a repair needs where a repair is needed, finishes the rotation, and checks.
    fn recover(&self, image: &Path, called: &[u64]) -> bool {
        let mut setup = self.setup();
        setup.file("data", image, false);
        let mut machine = Machine::boot(&setup);
        let opened = machine.run(&format!(
            "printf old | cryptsetup open --key-file - {DISK} data"
        ));
        if opened.code != 0 {
            // docs/internals/testing-volumes.md, "The window": what `strongroom volume repair` is for.
            assert!(opened.text.contains("No usable keyslot"), "{}", opened.text);
            machine.power_cut();
            return false;
        }
        machine.must("e2fsck -p /dev/mapper/data >/run/fsck 2>&1 || [ $? -eq 1 ] || { cat /run/fsck; false; }");
        machine.must("mount -t ext4 /dev/mapper/data /mnt");
        postgres::start(&mut machine);
        let last = postgres::check(&mut machine, called);
        postgres::load(&mut machine, last + 1);
        if machine
            .must(&format!("cryptsetup luksDump {DISK}"))
            .contains("online-reencrypt")
        {
            machine.must("printf old | cryptsetup reencrypt -q --resume-only --key-file - --active-name data");
        }
        let called = postgres::called_out(&machine);
        machine.run("killall psql pgbench; sleep 2");
        postgres::check(&mut machine, &called);
        postgres::stop(&mut machine);
        machine.must(&format!(
            "set -e; umount /mnt; cryptsetup close data
             printf old | cryptsetup open --key-file - {DISK} data; e2fsck -fn /dev/mapper/data >/dev/null"
        ));
        machine.power_off();
        true
    }
}

#[test]
#[ignore = "some twenty boots of emulated hardware: make test-volume"]
fn power_cuts_at_every_header_of_a_rotation_lose_nothing() {
    let seed = seed();
    eprintln!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let laboratory = Laboratory::new();
    let image = laboratory.copy("whole.img");
    let (called, account) = laboratory.rotate(&image, None, &mut random);
    assert!(laboratory.recover(&image, &called));
    let mut sequences: Vec<u64> = account
        .headers
        .iter()
        .map(|(sequence, _)| *sequence)
        .collect();
    sequences.dedup();
    eprintln!("headers of a whole rotation: {:?}", account.headers);
    assert!(sequences.len() >= 4, "{account:?}");
    let only = std::env::var("STRONGROOM_VM_CUTS")
        .ok()
        .and_then(|count| count.parse().ok());
    let mut closed = Vec::new();
    for cut in plans(&sequences, &mut random, only) {
        let image = laboratory.copy("cut.img");
        let (called, _) = laboratory.rotate(&image, Some(cut), &mut random);
        if !laboratory.recover(&image, &called) {
            closed.push(cut);
        }
    }
    // Only where re-encryption is done and its last header is not written yet: the old slot is gone, the requirement is not.
    let late = sequences[sequences.len() - 2];
    eprintln!("not to be opened without a repair: {closed:?}");
    let is_late = |cut: &Cut| match cut {
        Cut::AtHeader(at) | Cut::AfterHeader(at) | Cut::WritesAfterHeader(at, _) => *at >= late,
    };
    assert!(closed.iter().all(is_late), "{closed:?}");
}

/// Three cuts for each header; with a limit, so many of them, chosen by the seed.
fn plans(sequences: &[u64], random: &mut Random, limit: Option<usize>) -> Vec<Cut> {
    let mut plans = Vec::new();
    for sequence in sequences {
        plans.push(Cut::AtHeader(*sequence));
        plans.push(Cut::AfterHeader(*sequence));
        plans.push(Cut::WritesAfterHeader(*sequence, 1 + random.below(200)));
    }
    while limit.is_some_and(|limit| plans.len() > limit) {
        let at = usize::try_from(random.below(plans.len() as u64)).unwrap();
        plans.remove(at);
    }
    plans
}
