//! The volume key is changed while PostgreSQL works on the volume, and the power goes in the
//! middle: at each header that re-encryption writes, before and after the disk was told to keep it,
//! and between them. Nothing that was committed is lost, and the work is finished.
//!
//! Once by cryptsetup itself, which shows what the product rests on and what its repair is for;
//! once by `strongroom volume rotate --online`. The volume has one opener; that a second one stays
//! is shown by `commands.rs`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(
    clippy::print_stderr,
    clippy::use_debug,
    reason = "seeds and counts are for whoever runs it"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_testing_vm::disk::{Account, Cut, Disk};
use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyring::WithVolume;
use strongroom_testing_vm::machine::{LONG, Machine, Setup};
use strongroom_testing_vm::nbd::Served;
use strongroom_testing_vm::postgres;
use strongroom_testing_vm::random::{Random, seed};

const DISK: &str = "/dev/disk/by-id/virtio-data";
const FAST: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
const MIB: u64 = 144;

/// Who rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Cryptsetup,
    Strongroom,
}

impl Tool {
    fn open(self) -> String {
        match self {
            Self::Cryptsetup => format!("printf old | cryptsetup open --key-file - {DISK} data"),
            Self::Strongroom => format!("strongroom volume open {DISK} data"),
        }
    }

    fn begin(self) -> String {
        match self {
            Self::Cryptsetup => {
                format!(
                    "printf old | cryptsetup reencrypt -q {FAST} --hotzone-size 32M --key-file - --active-name data"
                )
            }
            Self::Strongroom => self.go_on(),
        }
    }

    fn go_on(self) -> String {
        match self {
            Self::Cryptsetup => {
                "printf old | cryptsetup reencrypt -q --resume-only --key-file - --active-name data"
                    .to_owned()
            }
            Self::Strongroom => format!("strongroom volume rotate {DISK} --online"),
        }
    }

    /// What opens a volume that was left with one of two keys.
    fn repair(self) -> Option<String> {
        (self == Self::Strongroom).then(|| format!("strongroom volume repair {DISK}"))
    }
}

struct Laboratory {
    tool: Tool,
    room: tempfile::TempDir,
    kernel: Kernel,
    base: PathBuf,
}

impl Laboratory {
    /// A volume with a cluster on it, cleanly closed.
    fn new(tool: Tool) -> Self {
        let room = tempfile::tempdir().unwrap();
        let kernel = Kernel::fetch();
        let initramfs = room.path().join("initramfs");
        let base = room.path().join("data.img");
        if tool == Tool::Strongroom {
            WithVolume::without_recovery(room.path(), &format!("{MIB}M"))
                .guest()
                .write(&kernel, &initramfs);
        } else {
            Guest::new().write(&kernel, &initramfs);
            fs::File::create(&base).unwrap().set_len(MIB << 20).unwrap();
        }
        let laboratory = Self {
            tool,
            room,
            kernel,
            base,
        };
        let mut setup = laboratory.setup();
        setup.file("data", &laboratory.base, false);
        let mut machine = Machine::boot(&setup);
        if tool == Tool::Cryptsetup {
            machine.must(&format!(
                "printf old | cryptsetup luksFormat -q --type luks2 {FAST} --key-file - {DISK}"
            ));
        }
        machine.must(&format!(
            "{} && mkfs.ext4 -q /dev/mapper/data && mount -t ext4 /dev/mapper/data /mnt",
            tool.open()
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

    /// Rotates under load until the cut, or to the end without one. What was called out, and the
    /// disk's account.
    fn rotate(&self, image: &Path, cut: Option<Cut>, random: &mut Random) -> (Vec<u64>, Account) {
        let disk = Arc::new(Disk::open(image).unwrap());
        let served = Served::start(Arc::clone(&disk), &self.room.path().join("data.sock")).unwrap();
        let mut setup = self.setup();
        setup.served("data", &served);
        let mut machine = Machine::boot(&setup);
        machine.must(&format!(
            "{} && mount -t ext4 /dev/mapper/data /mnt",
            self.tool.open()
        ));
        postgres::start(&mut machine);
        postgres::load(&mut machine, 1);
        machine.wait_console("committed:3.");
        if let Some(cut) = cut {
            disk.plan(cut);
        }
        let number = machine.send(&self.tool.begin());
        let until = Instant::now() + LONG;
        let mut ended = None;
        while !(disk.wait_cut(Duration::from_secs(1)) || cut.is_none() && ended.is_some()) {
            ended = ended.or_else(|| machine.answer(number, Duration::ZERO));
            // A cut some writes after the last header comes when it is done.
            assert!(
                ended.as_ref().is_none_or(|output| output.code == 0),
                "{ended:?}"
            );
            assert!(
                Instant::now() < until,
                "{cut:?} never came: {:?}",
                disk.account()
            );
        }
        disk.cut();
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

    /// Boots again: opens, with what a repair needs where a repair is needed, finishes the
    /// rotation, and checks.
    fn recover(&self, image: &Path, called: &[u64]) -> bool {
        let mut setup = self.setup();
        setup.file("data", image, false);
        let mut machine = Machine::boot(&setup);
        let opened = machine.run(&self.tool.open());
        if opened.code != 0 {
            // docs/internals/testing-volumes.md, "The window": what `strongroom volume repair` is
            // for.
            let Some(repair) = self.tool.repair() else {
                assert!(opened.text.contains("No usable keyslot"), "{}", opened.text);
                machine.power_cut();
                return false;
            };
            machine.must(&format!("{repair} && {}", self.tool.open()));
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
            machine.must(&self.tool.go_on());
        }
        let called = postgres::called_out(&machine);
        machine.run("killall psql pgbench; sleep 2");
        postgres::check(&mut machine, &called);
        postgres::stop(&mut machine);
        machine.must(&format!(
            "umount /mnt; cryptsetup close data; {} && e2fsck -fn /dev/mapper/data >/dev/null",
            self.tool.open()
        ));
        machine.power_off();
        opened.code == 0
    }
}

#[test]
#[ignore = "many boots of emulated hardware: make test-volume"]
fn power_cuts_in_a_rotation_by_cryptsetup_lose_nothing() {
    everywhere(Tool::Cryptsetup);
}

#[test]
#[ignore = "many boots of emulated hardware: make test-volume"]
fn power_cuts_in_a_rotation_lose_nothing_and_leave_nothing_that_cannot_be_opened() {
    everywhere(Tool::Strongroom);
}

fn everywhere(tool: Tool) {
    let seed = seed();
    eprintln!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    let laboratory = Laboratory::new(tool);
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
    eprintln!("not to be opened without a repair: {closed:?}");
    if tool == Tool::Strongroom {
        // `open` ends what was stopped at its end by itself.
        assert!(closed.is_empty(), "{closed:?}");
        return;
    }
    // Only where all data are done and the last headers are being written: the old slot is gone,
    // the requirement is not.
    let late = sequences[sequences.len().saturating_sub(4)];
    let is_late = |cut: &Cut| match cut {
        Cut::AtHeader(at) | Cut::AfterHeader(at) | Cut::WritesAfterHeader(at, _) => *at >= late,
    };
    assert!(closed.iter().all(is_late), "{closed:?}");
}

/// Three cuts for each of the first and last headers, and for two between them; with a limit, so
/// many of them, chosen by the seed.
fn plans(sequences: &[u64], random: &mut Random, limit: Option<usize>) -> Vec<Cut> {
    let (ends, middle): (Vec<_>, Vec<_>) =
        (0..sequences.len()).partition(|at| *at < 3 || *at + 4 >= sequences.len());
    let mut chosen = ends;
    for _ in 0..middle.len().min(2) {
        chosen.push(random.one_of(&middle));
    }
    let mut plans = Vec::new();
    for sequence in chosen.into_iter().map(|at| sequences[at]) {
        plans.push(Cut::AtHeader(sequence));
        plans.push(Cut::AfterHeader(sequence));
        plans.push(Cut::WritesAfterHeader(sequence, 1 + random.below(200)));
    }
    while limit.is_some_and(|limit| plans.len() > limit) {
        let at = usize::try_from(random.below(plans.len() as u64)).unwrap();
        plans.remove(at);
    }
    plans
}
