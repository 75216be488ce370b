//! The keyring, the databases sealed under its keys, wrong keys, a new data key, a new root key.
//!
//! Must not: show a key.

use strongroom_benches::Failure;
use strongroom_benches::key_files::new_key_file;
use strongroom_benches::stats::timed;

use crate::tour::{KEY, NEXT_KEY, OTHER_KEY, Tour};
use strongroom_tour::checks::found;

/// A keyring with a root key in a file, and three keys in it.
pub(crate) fn make(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("Keys")?;
    let (root, strongroom) = (tour.path("root.key"), &tour.strongroom);
    tour.checks
        .check("keyring init, root key from a file", || {
            new_key_file(&root)?;
            strongroom.succeed(&[
                "keyring",
                "init",
                "--provider",
                &format!("file:{}", root.display()),
            ])?;
            let again = strongroom.run(&["keyring", "init", "--provider", "env:NEVER"])?;
            found(
                again.refused(6, "SR-2015"),
                format!("made; a second init: {}", again.shown()),
            )
        })?;
    tour.checks.check("key create, three keys", || {
        for name in [KEY, NEXT_KEY, OTHER_KEY] {
            strongroom.succeed(&["key", "create", name])?;
        }
        let listed = strongroom.succeed(&["key", "list"])?;
        let all = [KEY, NEXT_KEY, OTHER_KEY]
            .iter()
            .all(|name| listed.stdout.contains(name));
        found(all, [KEY, NEXT_KEY, OTHER_KEY].join(", "))
    })
}

/// A sealed copy of the plain database, and the sealed database from its key file to a key of the
/// keyring.
pub(crate) fn adopt(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks
        .heading("Databases under a key of the keyring")?;
    let (plain, copy) = (tour.place.plain(), tour.path("encrypted.db"));
    let (sealed, key, strongroom) = (tour.place.sealed(), tour.place.key_file(), &tour.strongroom);
    tour.checks.check("sqlite encrypt of the plain one", || {
        let paths = [plain.display().to_string(), copy.display().to_string()];
        let arguments = ["sqlite", "encrypt", &paths[0], &paths[1], "--key-id", KEY];
        let (duration, _) = timed(|| strongroom.succeed(&arguments))?;
        let verified = strongroom.verify(&copy, KEY)?;
        std::fs::remove_file(&copy)?;
        found(
            verified.clean(),
            format!("{:.1} s; {}", duration.as_secs_f64(), verified.shown()),
        )
    })?;
    let (path, key_text) = (sealed.display().to_string(), key.display().to_string());
    tour.checks.check("sqlite rekey: key file to keyring", || {
        let arguments = [
            "sqlite",
            "rekey",
            &path,
            "--key-file",
            &key_text,
            "--new-key-id",
            KEY,
        ];
        let (duration, _) = timed(|| strongroom.succeed(&arguments))?;
        std::fs::remove_file(&key)?;
        let verified = strongroom.verify(&sealed, KEY)?;
        found(
            verified.clean(),
            format!("{:.1} s; {}", duration.as_secs_f64(), verified.shown()),
        )
    })
}

/// What a wrong key and no key get from the command.
pub(crate) fn wrong(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks
        .heading("With the command: the right key, another one, none")?;
    let (sealed, strongroom) = (tour.place.sealed(), &tour.strongroom);
    let shell = |options: &[&str]| {
        let path = sealed.display().to_string();
        let mut arguments = vec![
            "sqlite",
            "shell",
            &path,
            "-c",
            "SELECT count(*) FROM lineitem",
        ];
        arguments.extend_from_slice(options);
        strongroom.run(&arguments)
    };
    tour.checks.check("the right key", || {
        let ran = shell(&["--key-id", KEY, "--mode", "csv"])?;
        found(
            ran.code == Some(0) && ran.stdout.contains("600572"),
            "600572 line items",
        )
    })?;
    tour.checks.check("another key of the same keyring", || {
        let ran = shell(&["--key-id", OTHER_KEY])?;
        found(
            ran.refused(3, "SR-2002") && ran.stdout.is_empty(),
            ran.shown(),
        )
    })?;
    tour.checks.check("no key", || {
        let ran = shell(&[])?;
        found(
            ran.refused(3, "SR-2001") && ran.stdout.is_empty(),
            ran.shown(),
        )
    })
}

/// A new data key, sealed for another key; every page is sealed again.
pub(crate) fn rekey(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("New keys")?;
    let (sealed, before, strongroom) = (
        tour.place.sealed(),
        tour.path("before.db"),
        &tour.strongroom,
    );
    let path = sealed.display().to_string();
    tour.checks.check("sqlite rekey for another key", || {
        std::fs::copy(&sealed, &before)?;
        let (duration, ran) = timed(|| {
            strongroom.succeed(&[
                "sqlite",
                "rekey",
                &path,
                "--key-id",
                KEY,
                "--new-key-id",
                NEXT_KEY,
            ])
        })?;
        let said = ran.stdout.lines().next().unwrap_or_default();
        found(
            ran.code == Some(0),
            format!(
                "{:.1} s; {}",
                duration.as_secs_f64(),
                said.replace(&path, "sealed.db")
            ),
        )
    })?;
    tour.checks.check("no page is as it was", || {
        let (old, new) = (std::fs::read(&before)?, std::fs::read(&sealed)?);
        std::fs::remove_file(&before)?;
        let pages = old.chunks(4096).zip(new.chunks(4096)).skip(1);
        let (mut all, mut same) = (0, 0);
        for (old, new) in pages {
            all += 1;
            same += u32::from(old == new);
        }
        found(
            all > 1000 && same == 0,
            format!("{same} of {all} pages unchanged"),
        )
    })?;
    tour.checks.check("the old key no longer opens it", || {
        let ran = strongroom.run(&["sqlite", "shell", &path, "--key-id", KEY, "-c", "SELECT 1"])?;
        found(ran.refused(3, "SR-2002"), ran.shown())
    })?;
    tour.checks.check("the new key opens every page", || {
        let verified = strongroom.verify(&sealed, NEXT_KEY)?;
        found(verified.clean(), verified.shown())
    })
}

/// A new root key: the keyring is sealed again, the database is not touched.
pub(crate) fn rotate_root(tour: &mut Tour) -> Result<(), Failure> {
    let (sealed, keyring, strongroom) =
        (tour.place.sealed(), tour.path("keyring"), &tour.strongroom);
    let (root, next) = (tour.path("root.key"), tour.path("root-next.key"));
    tour.checks
        .check("keyring rotate-root to a new root key", || {
            let (database, ring) = (std::fs::read(&sealed)?, std::fs::read(&keyring)?);
            new_key_file(&next)?;
            let provider = format!("file:{}", next.display());
            let (duration, _) =
                timed(|| strongroom.succeed(&["keyring", "rotate-root", "--provider", &provider]))?;
            let kept = database == std::fs::read(&sealed)?;
            let changed = ring != std::fs::read(&keyring)?;
            let words = if kept { "unchanged" } else { "CHANGED" };
            found(
                kept && changed,
                format!(
                    "{:.0} ms; the database is {words}",
                    duration.as_secs_f64() * 1000.0
                ),
            )
        })?;
    tour.checks
        .check("it opens with the old root key gone", || {
            std::fs::remove_file(&root)?;
            let verified = strongroom.verify(&sealed, NEXT_KEY)?;
            found(verified.clean(), verified.shown())
        })?;
    tour.checks
        .check("and not with the new root key out of reach", || {
            let away = next.with_extension("away");
            rename(&next, &away)?;
            let ran = strongroom.run(&[
                "verify",
                &sealed.display().to_string(),
                "--key-id",
                NEXT_KEY,
            ])?;
            rename(&away, &next)?;
            found(ran.refused(3, "SR-2007"), ran.shown())
        })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a demonstration's file is put aside for a moment; nothing is to survive a crash"
)]
fn rename(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
    std::fs::rename(from, to)
}
