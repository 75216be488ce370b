//! Goal: whatever happens to a cache, rows are right; what is missing or wrong in it is fetched; it
//! stays within its bounds, and nothing in it is in clear.

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use strongroom_sqlite::RemoteOptions;

use crate::liar::Liar;
use crate::support::{ROWS, Scratch, body, code_of, point, remote, scan};

struct Stage {
    scratch: Scratch,
    server: Liar,
    options: RemoteOptions,
}

impl Stage {
    fn new() -> Self {
        let scratch = Scratch::new();
        let server = Liar::new(std::fs::read(scratch.publish("x.db", 1)).unwrap());
        let mut options = remote(&server.url);
        options.cache = Some(scratch.path("cache"));
        Self {
            scratch,
            server,
            options,
        }
    }

    /// Reads everything; how many requests that took, with the one of the open.
    fn read(&self) -> usize {
        self.server.asked();
        let connection = self.scratch.open(&self.options).unwrap();
        assert_eq!(scan(&connection, 1).unwrap(), ROWS);
        assert_eq!(point(&connection, 77).unwrap(), body(77, 1));
        self.server.asked().len()
    }

    fn files(&self) -> Vec<PathBuf> {
        files(&self.scratch.path("cache"))
    }

    fn file(&self) -> PathBuf {
        let found = self.files();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn what_is_cached_is_sealed_and_private() {
    let stage = Stage::new();
    assert!(stage.read() > 5);
    assert_eq!(stage.read(), 1);
    let (file, directory) = (stage.file(), stage.scratch.path("cache"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&directory)), (0o600, 0o700));
    let bytes = std::fs::read(file).unwrap();
    assert!(bytes.len() > 8_000_000);
    for plain in [
        &b"edition 1 book"[..],
        b"title 0",
        b"SQLite format 3",
        b"CREATE TABLE",
        b"127.0.0.1",
    ] {
        let found = bytes.windows(plain.len()).any(|window| window == plain);
        assert!(!found, "{}", String::from_utf8_lossy(plain));
    }
}

#[test]
fn damage_is_fetched_again() {
    let stage = Stage::new();
    stage.read();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(stage.file())
        .unwrap();
    let size = file.metadata().unwrap().len();
    // A bit of every slot's head or block, in turn.
    for (step, at) in (0..size).step_by(16_448).enumerate() {
        let at = at + [0, 35, 50, 100, 16_000][step % 5];
        let mut byte = [0];
        if file.read_exact_at(&mut byte, at).is_ok() {
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        }
    }
    assert!(stage.read() > 5);
    assert_eq!(stage.read(), 1);
    // Cut, anywhere.
    for len in [0, 1, 40, 16_447, 16_448, size / 2, size - 1] {
        file.set_len(len).unwrap();
        stage.read();
        assert_eq!(stage.read(), 1);
    }
    // Grown, and full of something else.
    file.write_all_at(&vec![0xa5; 300_000], 0).unwrap();
    stage.read();
    // Slots in each other's place.
    let mut slots = vec![0; 2 * 16_448];
    file.read_exact_at(&mut slots, 16_448 * 10).unwrap();
    slots.rotate_left(16_448);
    file.write_all_at(&slots, 16_448 * 10).unwrap();
    assert!(stage.read() > 1);
    assert_eq!(stage.read(), 1);
}

#[test]
fn a_file_of_another_version_or_address_is_not_believed() {
    let stage = Stage::new();
    stage.read();
    let old = std::fs::read(stage.file()).unwrap();
    // Another version under the same address: the same key, so every old page would pass.
    let scratch = &stage.scratch;
    scratch.publish("x.db", 2);
    stage
        .server
        .replace(std::fs::read(scratch.path("x.db")).unwrap(), "\"two\"");
    let connection = scratch.open(&stage.options).unwrap();
    drop(connection);
    let mine = stage.files();
    for path in &mine {
        // The old version's bytes under every name.
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .write_all_at(&old, 0)
            .unwrap();
    }
    let connection = scratch.open(&stage.options).unwrap();
    assert_eq!(scan(&connection, 2).unwrap(), ROWS);
}

/// Somebody who can write the cache makes digests too. He gets no further than the page's tag.
#[test]
fn a_forged_cache_is_fetched_again() {
    let stage = Stage::new();
    // Damaged on the way into the cache: the digests are right, the pages are not.
    stage.server.lie(|asked, answer| {
        if asked.number > 0 && !asked.no_cache {
            for byte in answer.body.iter_mut().step_by(4096) {
                *byte ^= 1;
            }
        }
    });
    stage.read();
    stage.server.lie(|_, _| {});
    stage.read();
    assert_eq!(stage.read(), 1);
}

#[test]
fn planted_files_are_neither_followed_nor_written() {
    let stage = Stage::new();
    stage.read();
    let file = stage.file();
    let victim = stage.scratch.path("victim");
    let mine = b"not to be written".repeat(1000);
    std::fs::remove_file(&file).unwrap();
    crate::support::write(&victim, &mine);
    symlink(&victim, &file).unwrap();
    assert!(stage.read() > 5);
    assert_eq!(std::fs::read(&victim).unwrap(), mine);
    assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
    // A second name of another file.
    std::fs::remove_file(&file).unwrap();
    std::fs::hard_link(&victim, &file).unwrap();
    assert!(stage.read() > 5);
    assert_eq!(std::fs::read(&victim).unwrap(), mine);
    // A file that others can write.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    assert!(stage.read() > 5);
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // A pipe: nobody waits for its other end.
    std::fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg("-m")
        .arg("600")
        .arg(&file)
        .status()
        .unwrap();
    assert!(made.success());
    assert!(stage.read() > 5);
    // A directory cannot be removed as a file: no cache, but every row.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(stage.read() > 5);
    assert!(stage.read() > 5);
}

#[test]
fn a_directory_that_others_can_write_is_not_used() {
    let stage = Stage::new();
    let directory = stage.scratch.path("cache");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(stage.read() > 5);
    assert!(stage.read() > 5);
    assert_eq!(stage.files(), Vec::<PathBuf>::new());
    // Nor one through a link.
    std::fs::remove_dir(&directory).unwrap();
    let elsewhere = stage.scratch.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &directory).unwrap();
    assert!(stage.read() > 5);
    assert_eq!(files(&elsewhere), Vec::<PathBuf>::new());
}

#[test]
fn a_cache_stays_within_its_bounds() {
    let stage = Stage::new();
    let directory = stage.scratch.path("cache");
    let mut options = stage.options.clone();
    options.cache_size = 2 << 20;
    let used = || -> u64 {
        use std::os::unix::fs::MetadataExt;
        files(&directory)
            .iter()
            .map(|path| std::fs::metadata(path).unwrap().blocks() * 512)
            .sum()
    };
    for version in 0..5 {
        let bytes = std::fs::read(stage.scratch.path("x.db")).unwrap();
        stage.server.replace(bytes, &format!("\"{version}\""));
        let connection = stage.scratch.open(&options).unwrap();
        assert_eq!(scan(&connection, 1).unwrap(), ROWS);
        assert_eq!(point(&connection, 5).unwrap(), body(5, 1));
        assert!(used() <= (2 << 20) + 65_536, "{}", used());
    }
    assert_eq!(files(&directory).len(), 1);
    // What is not a cache of ours stays where it is.
    let other = directory.join("strongroom-notes.cache");
    crate::support::write(&other, &vec![1; 4 << 20]);
    stage.server.replace(
        std::fs::read(stage.scratch.path("x.db")).unwrap(),
        "\"last\"",
    );
    drop(stage.scratch.open(&options).unwrap());
    assert!(other.exists());
}

#[test]
fn a_cache_without_room_is_left_alone() {
    let stage = Stage::new();
    let mut options = stage.options.clone();
    options.cache = Some("/dev/full/cache".into());
    let connection = stage.scratch.open(&options).unwrap();
    assert_eq!(scan(&connection, 1).unwrap(), ROWS);
    options.cache = Some("/proc/nowhere".into());
    assert_eq!(code_of(stage.scratch.open(&options)), 0);
}
