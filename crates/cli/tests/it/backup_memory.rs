//! Goal: making and restoring a backup takes at most 64 MiB and 8 MiB for each thread, however
//! large the source is. Method: the real binary on a source many times that size; the kernel says
//! what its processes had at most.
//!
//! `STRONGROOM_BACKUP_MEMORY_MB` says how large the source is; a hundredth of it is noise that does
//! not compress.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::fs::FileExt as _;

use common::{Place, noise};
use nix::sys::resource::{UsageWho, getrusage};

const MIB: u64 = 1 << 20;
/// Without the variable.
const SOURCE_MB: u64 = 320;

/// The most that any process had that this one has waited for, in bytes. There is one test in this
/// file, so it is the command.
fn peak() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    u64::try_from(usage.max_rss()).unwrap() * 1024
}

#[test]
fn memory_is_bounded_whatever_the_size() {
    let place = Place::new();
    place.write("key", "7b".repeat(32));
    fs::create_dir(place.path("tree")).unwrap();
    let named = std::env::var("STRONGROOM_BACKUP_MEMORY_MB");
    let size = named.map_or(SOURCE_MB, |named| named.parse().unwrap()) * 1_000_000;
    let file = fs::File::create(place.path("tree/large")).unwrap();
    file.set_len(size).unwrap();
    let block = noise(1 << 20, 3);
    for at in (0..size - MIB).step_by(100 << 20) {
        file.write_all_at(&block, at).unwrap();
    }
    for index in 0..500 {
        place.write(&format!("tree/{index:04}"), format!("{index}"));
    }
    for (threads, compression) in [(1, "zstd:3"), (4, "none"), (4, "zstd:3")] {
        let count = threads.to_string();
        let wanted = ["--compression", compression, "--threads", &count];
        let create = [
            &[
                "backup",
                "create",
                "tree",
                "--to",
                "medium",
                "--key-file",
                "key",
            ][..],
            &wanted,
        ];
        place.run(&create.concat()).succeeded();
        let restore = ["backup", "restore", "medium", "--to", "out", "--key-file"];
        let restore = [&restore[..], &["key", "--threads", &count]].concat();
        place.run(&restore).succeeded();
        let restored = fs::metadata(place.path("out/large")).unwrap();
        assert_eq!(restored.len(), size);
        fs::remove_dir_all(place.path("out")).unwrap();
        fs::remove_dir_all(place.path("medium")).unwrap();
        let most = 64 * MIB + threads * 8 * MIB;
        let found = peak();
        assert!(
            found <= most,
            "{compression}, {threads} threads: {found} bytes of {most}"
        );
        // A figure that says nothing would be of another process.
        assert!(found > 8 * MIB, "{found}");
    }
}
