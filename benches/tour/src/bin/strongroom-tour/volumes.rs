//! Volumes: a machine of emulated hardware whose disk opens as it boots, with a key from a key
//! server of the tour's; a power cut; a thief; a revoked node.
//!
//! Where QEMU or the kernel's package cannot be had, this says so and checks nothing.
//!
//! Must not: install a kernel, or load a module on this host.

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use strongroom_benches::Failure;
use strongroom_testing_vm::disk::Disk;
use strongroom_testing_vm::guest::{Guest, engines};
use strongroom_testing_vm::kernel::Kernel;
use strongroom_testing_vm::keyserver::{KeyServer, NAME, Node, configuration};
use strongroom_testing_vm::machine::{Machine, Setup};
use strongroom_testing_vm::nbd::Served;
use strongroom_testing_vm::random::Random;
use strongroom_testing_vm::{place, postgres, scan};

use crate::tour::Tour;
use strongroom_tour::checks::found;

const KNOWN: &str = "furiously regular accounts";
const TABLE: &str = "[[volume]]\nname = \"data\"\ndevice = \"LABEL=orders\"\nopeners = [\"keyserver\"]\n\
    [[swap]]\nname = \"swap\"\ndevice = \"/dev/disk/by-id/virtio-swap\"\n";
const BOOT: &str = "strongroom volume unlock --at-boot >/dev/console 2>&1\n";
/// Where the data of a LUKS2 volume begin, as libcryptsetup makes it.
const DATA_AT: u64 = 16 << 20;

/// The whole part.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks
        .heading("Volumes: a machine of emulated hardware, its disk opened by a key server")?;
    if !Path::new("/usr/bin/qemu-system-x86_64").exists() {
        return tour
            .checks
            .heading("not shown: QEMU (qemu-system-x86) is not installed");
    }
    let Ok(kernel) = tried(|| Ok(Kernel::fetch())) else {
        return tour
            .checks
            .heading("not shown: the kernel's package cannot be downloaded");
    };
    place::use_command(tour.strongroom.program());
    let room = tempfile::tempdir()?;
    let at = |name: &str| room.path().join(name);
    let mut server = None;
    let mut node = None;
    tour.checks
        .check("keyserver init, run; a node enrolled", || {
            let made = tried(|| Ok(KeyServer::start(&at("server"))))?;
            node = Some(tried(|| Ok(made.enrol("orders")))?);
            server = Some(made);
            found(true, "mutual TLS; the node's token was good once")
        })?;
    let (Some(server), Some(node)) = (server, node) else {
        return Ok(());
    };
    tour.checks.check("volume create --key-id orders", || {
        create(&node, &at("data.img"), &at("recovery"))?;
        found(true, "LUKS2, 128 MiB; its key is at the server only")
    })?;
    File::create(at("swap.img"))?.set_len(64 << 20)?;
    let disk = Arc::new(Disk::open(&at("data.img"))?);
    let served = Served::start(Arc::clone(&disk), &at("data.sock"))?;
    let mut setup = Setup::new(kernel, at("initramfs"));
    guest(&node)?.write(&setup.kernel, &setup.initramfs);
    tried(|| {
        setup.file("usr", &engines(), true);
        Ok(())
    })?;
    setup.served("data", &served);
    setup.file("swap", &at("swap.img"), false);
    setup.forward(100, server.port());
    shown(tour, &setup, &disk, &server, room.path())
}

fn shown(
    tour: &mut Tour,
    setup: &Setup,
    disk: &Disk,
    server: &KeyServer,
    room: &Path,
) -> Result<(), Failure> {
    let mut called = Vec::new();
    tour.checks.check("boot; PostgreSQL; the power goes", || {
        let mut machine = tried(|| Ok(Machine::boot(setup)))?;
        tried(|| {
            machine.must("mkfs.ext4 -q /dev/mapper/data && mount -t ext4 /dev/mapper/data /mnt");
            postgres::unpack(&mut machine);
            postgres::start(&mut machine);
            postgres::prepare(&mut machine);
            postgres::query(
                &mut machine,
                &format!(
                    "create table orders as select '{KNOWN}'::text from generate_series(1, 9999)"
                ),
            );
            postgres::load(&mut machine, 1);
            machine.wait_console("committed:20.");
            Ok(())
        })?;
        let opened = machine.console().contains("data: unlocked by keyserver");
        called = postgres::called_out(&machine);
        disk.cut();
        machine.power_cut();
        let (kept, lost) = disk.settle(&mut Random::new(7))?;
        found(
            opened,
            format!(
                "{} commits; unflushed sectors: {kept} kept, {lost} lost",
                called.len()
            ),
        )
    })?;
    tour.checks.check("the disk and its swap, stolen", || {
        let data = scan::look(&room.join("data.img"), DATA_AT, &[KNOWN, "PostgreSQL"])?;
        let swap = scan::look(&room.join("swap.img"), 0, &[KNOWN, "PostgreSQL"])?;
        found(
            noise(&data) && noise(&swap),
            format!("disk: {}; swap: {}; no text", told(&data), told(&swap)),
        )
    })?;
    tour.checks.check("boot again", || {
        let mut machine = tried(|| Ok(Machine::boot(setup)))?;
        let last = tried(|| {
            machine.must("e2fsck -p /dev/mapper/data >/dev/null || [ $? -eq 1 ]");
            machine.must("mount -t ext4 /dev/mapper/data /mnt");
            postgres::start(&mut machine);
            let last = postgres::check(&mut machine, &called);
            postgres::stop(&mut machine);
            machine.must("umount /mnt");
            Ok(last)
        })?;
        machine.power_off();
        found(true, format!("{last} entries in the ledger, none lost"))
    })?;
    tour.checks.check("the node revoked; boot", || {
        drop(server.admin("DELETE", "/v1/nodes/orders", None));
        let mut machine = tried(|| Ok(Machine::boot(setup)))?;
        let there = tried(|| Ok(machine.run("[ -e /dev/mapper/data ]").code == 0))?;
        let said = machine.console().contains("data: locked");
        machine.power_cut();
        found(
            said && !there,
            "the server refuses; the disk stays locked; no hang",
        )
    })
}

fn noise(seen: &scan::Findings) -> bool {
    seen.texts.is_empty() && seen.patterned.is_empty() && seen.pieces > seen.blank
}

fn told(seen: &scan::Findings) -> String {
    let written = seen.pieces - seen.blank;
    match seen.patterned.first() {
        None => format!("{written} of 4 KiB, all noise"),
        Some(at) => format!("{written} of 4 KiB, no noise at {at}"),
    }
}

fn create(node: &Node, image: &Path, recovery: &Path) -> Result<(), Failure> {
    let output = std::process::Command::new(place::command())
        .args([
            "volume", "create", "--size", "128M", "--key-id", "orders", "--label", "orders",
        ])
        .arg("--recovery-out")
        .arg(recovery)
        .arg(image)
        .env("STRONGROOM_NODE", node.directory.join("node.toml"))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

fn guest(node: &Node) -> Result<Guest, Failure> {
    let mut guest = tried(|| Ok(Guest::new().with_strongroom()))?;
    for name in ["node.pem", "authority.pem", "node.key"] {
        guest.private(
            &format!("etc/strongroom/{name}"),
            &fs::read(node.directory.join(name))?,
        );
    }
    guest.private(
        "etc/strongroom/node.toml",
        configuration(&format!("{NAME}:8443"), 60).as_bytes(),
    );
    guest.private("etc/strongroom/volumes.toml", TABLE.as_bytes());
    guest.boot(BOOT);
    Ok(guest)
}

/// The machine's own tools panic when something fails, for tests; here that is an error.
fn tried<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|why| {
        let text = why.downcast_ref::<String>().cloned();
        Err(text
            .unwrap_or_else(|| "the machine failed".to_owned())
            .into())
    })
}
