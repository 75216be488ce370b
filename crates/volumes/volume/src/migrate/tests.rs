//! Goal: a copy is whole or is not said to be one. Method: a tree with everything that a file
//! system can hold.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("from/sub/deeper")).unwrap();
    fs::create_dir(at("to")).unwrap();
    fs::create_dir(at("to/lost+found")).unwrap();
    put(&at("from/file"), b"contents");
    put(&at("from/empty"), b"");
    fs::set_permissions(at("from/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    rustix::fs::lsetxattr(
        at("from/file"),
        "user.note",
        b"value",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    fs::hard_link(at("from/file"), at("from/sub/again")).unwrap();
    symlink("../file", at("from/sub/link")).unwrap();
    symlink("/nowhere/at all", at("from/dangling")).unwrap();
    let sparse = File::create(at("from/sub/deeper/sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 4 << 20).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, at("from/pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("from/socket")).unwrap());
    fs::set_permissions(at("from/sub"), fs::Permissions::from_mode(0o2750)).unwrap();
    root
}

fn put(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn everything_that_is_kept_is_kept() {
    let root = tree();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let report = migrate(&from, &to, &mut |_, _| true).unwrap();
    assert_eq!((report.files, report.copied), (3, 3));
    assert_eq!(report.left_out.len(), 1, "{:?}", report.left_out);
    let copy = fs::metadata(to.join("sub/again")).unwrap();
    assert_eq!(copy.ino(), fs::metadata(to.join("file")).unwrap().ino());
    assert_eq!(copy.mode() & 0o7777, 0o4751);
    let sparse = fs::metadata(to.join("sub/deeper/sparse")).unwrap();
    assert!(
        sparse.blocks() * 512 < 1 << 20,
        "{} blocks",
        sparse.blocks()
    );
    assert_eq!(
        fs::read_link(to.join("dangling")).unwrap(),
        Path::new("/nowhere/at all")
    );
    // Again: nothing is copied, all is compared.
    let again = migrate(&from, &to, &mut |_, _| true).unwrap();
    assert_eq!((again.files, again.copied), (3, 0));
}

#[test]
fn every_difference_is_found() {
    let root = tree();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    migrate(&from, &to, &mut |_, _| true).unwrap();
    let file = to.join("file");
    let kept = attributes(&file).unwrap();
    let restore = || {
        put(&file, b"contents");
        put_attributes(&kept, &file).unwrap();
        compare(&from, &to).unwrap();
    };
    let found = |what: &str| {
        let error = compare(&from, &to).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_COPY, "{what}: {error}");
        restore();
    };
    // The same length and time, other bytes.
    put(&file, b"Contents");
    put_attributes(&kept, &file).unwrap();
    found("contents");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    found("mode");
    rustix::fs::lsetxattr(
        &file,
        "user.note",
        b"other",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    found("attribute");
    std::os::unix::fs::lchown(&file, Some(12345), None).unwrap();
    found("owner");
    let differs = |what: &str| {
        // The time of the directory itself is that of the source.
        put_attributes(&attributes(&from).unwrap(), &to).unwrap();
        let error = compare(&from, &to).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_COPY);
        assert!(error.detail().contains(what), "{error}");
    };
    put(&to.join("more"), b"");
    differs("in the copy only");
    fs::remove_file(to.join("more")).unwrap();
    fs::remove_file(to.join("dangling")).unwrap();
    differs("not in the copy");
    symlink("/elsewhere", to.join("dangling")).unwrap();
    differs("dangling: ");
    // Mended by the same command.
    migrate(&from, &to, &mut |_, _| true).unwrap();
}

#[test]
fn the_top_directories_are_copied_and_compared_too_also_through_links() {
    let root = tree();
    let at = |name: &str| root.path().join(name);
    let (from, to) = (at("from"), at("to"));
    fs::set_permissions(&from, fs::Permissions::from_mode(0o2751)).unwrap();
    symlink("from", at("from-link")).unwrap();
    symlink("to", at("to-link")).unwrap();
    migrate(&at("from-link"), &at("to-link"), &mut |_, _| true).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o2751);
    assert_eq!(attributes(&from).unwrap(), attributes(&to).unwrap());
    let same_time = fs::metadata(&to).unwrap().modified().unwrap();
    let changes: [&dyn Fn(); 3] = [
        &|| fs::set_permissions(&to, fs::Permissions::from_mode(0o777)).unwrap(),
        &|| std::os::unix::fs::chown(&to, Some(12345), None).unwrap(),
        &|| {
            let later = same_time + std::time::Duration::from_secs(1);
            File::open(&to).unwrap().set_modified(later).unwrap();
        },
    ];
    for change in changes {
        compare(&at("from-link"), &at("to-link")).unwrap();
        change();
        for (one, other) in [("from", "to"), ("from-link", "to-link")] {
            let error = compare(&at(one), &at(other)).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_COPY);
        }
        put_attributes(&attributes(&from).unwrap(), &to).unwrap();
    }
}

#[test]
fn what_was_stopped_goes_on() {
    let root = tree();
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let mut allowed = 1;
    let error = migrate(&from, &to, &mut |_, _| {
        allowed -= 1;
        allowed > 0
    });
    assert_eq!(error.unwrap_err().code(), &code::IO);
    put(&to.join(UNFINISHED), b"half of somethi");
    let report = migrate(&from, &to, &mut |_, _| true).unwrap();
    assert!(report.copied < 3, "{report:?}");
    for wrong in [
        (&from, &from.join("sub")),
        (&from.join("sub"), &from),
        (&from, &from),
    ] {
        let error = migrate(wrong.0, wrong.1, &mut |_, _| true).unwrap_err();
        assert_eq!(error.code(), &code::SAME_FILE);
    }
}

#[test]
fn a_link_that_takes_a_names_place_meanwhile_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    put(&at("victim"), b"");
    put(&at("kept"), b"");
    fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(at("kept"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::hard_link(at("kept"), at("name")).unwrap();
    let wanted = attributes(&at("kept")).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                symlink(at("victim"), at("new")).unwrap();
                rustix::fs::rename(at("new"), at("name")).unwrap();
                fs::hard_link(at("kept"), at("new")).unwrap();
                rustix::fs::rename(at("new"), at("name")).unwrap();
            }
        });
        for _ in 0..20_000 {
            // It may find the link, whose own attributes are then set, or fail.
            let _either = put_attributes(&wanted, &at("name"));
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::metadata(at("victim")).unwrap().mode() & 0o7777, 0o600);
}
