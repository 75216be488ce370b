//! `strongroom volume` where it needs a kernel: a volume made on this host is opened in the
//! machine, holds PostgreSQL, survives a power cut; swap is encrypted; and whoever takes the disks
//! finds noise.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_testing_vm::disk::Disk;
use strongroom_testing_vm::guest::engines;
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyring::{KEYRING_IN_GUEST, RECOVERY_IN_GUEST, WithVolume};
use strongroom_testing_vm::machine::{Machine, Setup};
use strongroom_testing_vm::nbd::Served;
use strongroom_testing_vm::random::{Random, seed};
use strongroom_testing_vm::{postgres, scan};

const OPEN: &str = "strongroom volume open /dev/disk/by-id/virtio-data data";

/// What is put on the disks, and looked for on them.
const IN_TABLE: &str = "canary-in-a-table-5b1d";
const IN_FILE: &str = "canary-in-a-file-99e0";
const IN_MEMORY: &str = "canary-in-memory-c27a";

fn blank(room: &Path, name: &str, mib: u64) -> PathBuf {
    let path = room.join(name);
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    path
}

#[test]
#[ignore = "three boots of emulated hardware: make test-volume"]
fn a_volume_holds_a_database_through_a_power_cut_and_a_thief_finds_noise() {
    let seed = seed();
    eprintln!("STRONGROOM_SEED={seed}");
    let room = tempfile::tempdir().unwrap();
    let host = WithVolume::new(room.path(), "160M");
    let image = host.at("data.img");
    let disk = Arc::new(Disk::open(&image).unwrap());
    let served = Served::start(Arc::clone(&disk), &host.at("data.sock")).unwrap();
    let mut setup = Setup::new(Kernel::fetch(), host.at("initramfs"));
    host.guest().write(&setup.kernel, &setup.initramfs);
    setup.file("usr", &engines(), true);
    setup.served("data", &served);
    for (name, mib) in [("swap", 64), ("plain", 64), ("plaindata", 96)] {
        setup.file(
            name,
            &blank(room.path(), &format!("{name}.img"), mib),
            false,
        );
    }

    let mut machine = Machine::boot(&setup);
    machine.must(&format!(
        "set -e; {OPEN}; mkfs.ext4 -q /dev/mapper/data; mount -t ext4 /dev/mapper/data /mnt"
    ));
    fill(&mut machine);
    assert!(machine.must("cat /proc/swaps").contains("/dev/mapper/swap"));
    println!("{}", postgres::bench(&mut machine, 5, 4));
    postgres::load(&mut machine, 1);
    machine.wait_console("committed:20.");
    let called = postgres::called_out(&machine);
    disk.cut();
    machine.power_cut();
    eprintln!(
        "{} committed, {:?}",
        called.len(),
        disk.settle(&mut Random::new(seed)).unwrap()
    );

    thief(&host);
    again(&setup, &called);
}

/// Puts what is looked for later on the volume and into swap; and on plain disks, where the search
/// has to find it.
fn fill(machine: &mut Machine) {
    postgres::unpack(machine);
    postgres::start(machine);
    postgres::prepare(machine);
    postgres::query(
        machine,
        &format!(
            "create table canary as select '{IN_TABLE}'::text from generate_series(1, 2000); checkpoint"
        ),
    );
    machine.must(&format!("yes {IN_FILE} | head -c 1000000 >/mnt/file; sync"));
    machine.must(&format!("mkfs.ext4 -q /dev/disk/by-id/virtio-plaindata; mkdir /run/p; mount -t ext4 /dev/disk/by-id/virtio-plaindata /run/p
        yes {IN_FILE} | head -c 1000000 >/run/p/file; cp -r /mnt/pg/base /run/p/; umount /run/p"));
    swap_out(
        machine,
        "mkswap /dev/disk/by-id/virtio-plain >/dev/null; swapon /dev/disk/by-id/virtio-plain",
    );
    machine.must("swapoff /dev/disk/by-id/virtio-plain");
    swap_out(
        machine,
        "strongroom volume swap /dev/disk/by-id/virtio-swap",
    );
}

/// Power again; and the drawer's key, without the keyring.
fn again(setup: &Setup, called: &[u64]) {
    let mut machine = Machine::boot(setup);
    machine.must(&format!(
        "{OPEN} && e2fsck -p /dev/mapper/data >/run/fsck 2>&1 || [ $? -eq 1 ]"
    ));
    machine.must("mount -t ext4 /dev/mapper/data /mnt");
    postgres::start(&mut machine);
    postgres::check(&mut machine, called);
    assert_eq!(
        postgres::query(&mut machine, "select count(*) from canary"),
        "2000"
    );
    postgres::stop(&mut machine);
    machine.must("umount /mnt; strongroom volume close data");
    let refused = machine.run(&format!("rm {KEYRING_IN_GUEST}; {OPEN}"));
    assert_eq!(refused.code, 3, "{}", refused.text);
    machine.must(&format!("{OPEN} --recovery-file {RECOVERY_IN_GUEST} && mount -o ro /dev/mapper/data /mnt && [ -e /mnt/pg/PG_VERSION ]"));
    machine.must("umount /mnt; strongroom volume close data");
    machine.power_off();
}

/// What whoever takes the disks sees, with nothing but the disks.
fn thief(host: &WithVolume) {
    let (image, swap) = (host.at("data.img"), host.at("swap.img"));
    let said = host.asked(&["inspect", &image.display().to_string()]);
    assert!(said.contains("LUKS2") && said.contains("db-7"), "{said}");
    let texts = [
        IN_TABLE,
        IN_FILE,
        IN_MEMORY,
        "pgbench",
        "PostgreSQL",
        "lost+found",
    ];
    let stolen = scan::look(&image, 16 << 20, &texts).unwrap();
    assert!(
        stolen.texts.is_empty() && stolen.patterned.is_empty(),
        "{stolen:?}"
    );
    assert!(stolen.pieces - stolen.blank > 5000, "{stolen:?}");
    assert!(scan::look(&image, 0, &texts).unwrap().texts.is_empty());
    let stolen = scan::look(&swap, 0, &texts).unwrap();
    assert!(
        stolen.texts.is_empty() && stolen.patterned.is_empty(),
        "{stolen:?}"
    );
    assert!(stolen.pieces - stolen.blank > 2000, "{stolen:?}");
    let seen = |image: &Path| -> Vec<String> {
        scan::look(image, 0, &texts)
            .unwrap()
            .texts
            .into_iter()
            .map(|(text, _)| text)
            .collect()
    };
    assert!(
        seen(&host.at("plain.img")).contains(&IN_MEMORY.to_owned()),
        "the search is blind"
    );
    for text in [IN_TABLE, IN_FILE, "lost+found"] {
        assert!(
            seen(&host.at("plaindata.img")).contains(&text.to_owned()),
            "the search is blind to {text}"
        );
    }
    let plain = scan::look(&host.at("plaindata.img"), 0, &texts).unwrap();
    assert!(
        !plain.patterned.is_empty(),
        "the search takes a plain disk for noise"
    );
}

/// Fills more memory than a process may keep, so that it is swapped out.
fn swap_out(machine: &mut Machine, on: &str) {
    machine.must(&format!(
        "set -e; {on}
         mkdir -p /run/cg; [ -e /run/cg/cgroup.procs ] || mount -t cgroup2 none /run/cg
         echo +memory >/run/cg/cgroup.subtree_control; mkdir -p /run/cg/small; echo 8M >/run/cg/small/memory.high
         (echo 0 >/run/cg/small/cgroup.procs; yes {IN_MEMORY} | head -c 32000000 >/dev/shm/memory)
         used=$(tail -n 1 /proc/swaps | awk '{{print $4}}'); [ \"$used\" -gt 8000 ] || {{ cat /proc/swaps; exit 1; }}
         rm /dev/shm/memory"
    ));
}
