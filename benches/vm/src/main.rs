//! The same loads on disks of one machine, in turns: fio sequentially and at random, pgbench, and
//! sysbench against MariaDB. Plain; under dm-crypt; a loop device on a plain disk; and a loop
//! device on what `strongroom volume attach` shows of an encrypted one, through FUSE.
//!
//! The machine is emulated: its AES instructions cost what their emulation costs, some tens of
//! times what they cost a processor, so encryption looks far dearer than it is. What the figures
//! are good for: that everything runs, and that nothing but the ciphering is in the way.
//!
//! Must not: be quoted as the price of encryption on hardware.
#![expect(clippy::print_stdout, reason = "a benchmark's results")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::machine::{Machine, Setup};
use strongroom_testing_vm::{mariadb, postgres};

const ROUNDS: usize = 3;
const SECONDS: u32 = 8;
const DISK: &str = "/dev/disk/by-id/virtio";
const PASS: &str = "/run/pass";

/// The peers: name, disk, what makes the device of it, the device that is measured, and the peer
/// that it stands beside.
const PEERS: [(&str, &str, &str, &str, &str); 4] = [
    ("plain", "clear", "true", "/dev/disk/by-id/virtio-clear", ""),
    (
        "dm-crypt",
        "sealed",
        "cryptsetup open --key-file /run/pass /dev/disk/by-id/virtio-sealed sealed",
        "/dev/mapper/sealed",
        "plain",
    ),
    (
        "loop",
        "loop",
        "losetup /dev/loop0 /dev/disk/by-id/virtio-loop",
        "/dev/loop0",
        "",
    ),
    (
        "FUSE, loop",
        "fuse",
        "mkdir /run/fuse; strongroom volume attach --passphrase-file /run/pass /dev/disk/by-id/virtio-fuse /run/fuse && losetup /dev/loop1 /run/fuse/volume",
        "/dev/loop1",
        "loop",
    ),
];

/// fio's loads: name, direction, size of a request.
const LOADS: [(&str, &str, &str); 4] = [
    ("sequential read, 1 MiB", "read", "1M"),
    ("sequential write, 1 MiB", "write", "1M"),
    ("random read, 8 KiB", "randread", "8k"),
    ("random write, 8 KiB", "randwrite", "8k"),
];

type Results = BTreeMap<String, Vec<f64>>;

fn main() {
    let room = tempfile::tempdir().expect("a directory");
    let rounds = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(ROUNDS);
    let mut machine = Machine::boot(&setup(room.path()));
    // Its key slot is of a cheap kind; what is measured is what comes after.
    machine.must(&format!(
        "set -e; head -c 32 /dev/urandom | base64 -w 0 >{PASS}"
    ));
    for (_, disk, open, device, _) in PEERS {
        if open.contains(PASS) {
            machine.must(&format!(
                "cryptsetup luksFormat -q --type luks2 --key-size 512 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file {PASS} {DISK}-{disk}"
            ));
        }
        machine.must(open);
        machine.must(&format!(
            "mkfs.ext4 -q {device}; mount -t ext4 {device} /mnt"
        ));
        postgres::unpack(&mut machine);
        postgres::start(&mut machine);
        postgres::prepare(&mut machine);
        postgres::stop(&mut machine);
        mariadb::unpack(&mut machine);
        mariadb::start(&mut machine);
        mariadb::prepare(&mut machine);
        mariadb::stop(&mut machine);
        machine.must("dd if=/dev/zero of=/mnt/fio bs=1M count=64 2>/dev/null; sync; umount /mnt");
    }
    let mut all: BTreeMap<&str, Results> = BTreeMap::new();
    for round in 0..rounds {
        // The one that begins changes from round to round.
        for place in 0..PEERS.len() {
            let (name, _, _, device, _) = PEERS[(round + place) % PEERS.len()];
            measure(&mut machine, device, all.entry(name).or_default());
        }
    }
    machine.power_off();
    print(&all, rounds);
}

fn setup(room: &Path) -> Setup {
    let kernel = Kernel::fetch();
    let initramfs = room.join("initramfs");
    Guest::new().with_strongroom().write(&kernel, &initramfs);
    let mut setup = Setup::new(kernel, initramfs);
    setup.file("usr", &engines(), true);
    for (_, name, ..) in PEERS {
        let path = room.join(name);
        let file = File::create(&path).expect("a file");
        file.set_len(384 << 20).expect("room for a disk");
        setup.file(name, &path, false);
    }
    setup
}

fn measure(machine: &mut Machine, device: &str, results: &mut Results) {
    machine.must(&format!("mount -t ext4 {device} /mnt"));
    for (name, direction, size) in LOADS {
        machine.must("sync; echo 3 >/proc/sys/vm/drop_caches");
        let said = machine.must(&format!(
            "fio --name=x --filename=/mnt/fio --size=64M --rw={direction} --bs={size} --ioengine=psync --thread --direct=1 --time_based --runtime={SECONDS} --minimal"
        ));
        // Terse output, version 3: KiB/s of reading are field 7, of writing field 48.
        let line = said
            .lines()
            .find(|line| line.starts_with("3;"))
            .unwrap_or_default();
        let fields: Vec<&str> = line.split(';').collect();
        let at = if direction.ends_with("read") { 6 } else { 47 };
        let rate: f64 = fields
            .get(at)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0.0);
        results
            .entry(format!("{name} (MiB/s)"))
            .or_default()
            .push(rate / 1024.0);
    }
    machine.must("sync; echo 3 >/proc/sys/vm/drop_caches");
    postgres::start(machine);
    let said = postgres::bench(machine, SECONDS * 2, 4);
    let tps = said
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    results
        .entry("pgbench, 4 clients (tps)".to_owned())
        .or_default()
        .push(tps.unwrap_or(0.0));
    postgres::stop(machine);
    machine.must("sync; echo 3 >/proc/sys/vm/drop_caches");
    mariadb::start(machine);
    let tps = mariadb::bench(machine, SECONDS * 2, 4);
    results
        .entry("sysbench oltp_read_write, 4 threads (tps)".to_owned())
        .or_default()
        .push(tps);
    mariadb::stop(machine);
    machine.must("umount /mnt");
}

fn print(all: &BTreeMap<&str, Results>, rounds: usize) {
    println!("Medians of {rounds} rounds in turns, on emulated hardware:\n");
    println!("| load | plain | dm-crypt | of plain | loop | FUSE, loop | of loop |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let Some(loads) = all.get("plain") else {
        return;
    };
    for load in loads.keys() {
        let mut row = format!("| {load} |");
        for (name, _, _, _, beside) in PEERS {
            let value = |name: &str| {
                let values = all.get(name).and_then(|results| results.get(load));
                values.map_or(0.0, |values| median(values))
            };
            row += &format!(" {:.1} |", value(name));
            if !beside.is_empty() {
                row += &format!(" {:.0} % |", value(name) / value(beside) * 100.0);
            }
        }
        println!("{row}");
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
