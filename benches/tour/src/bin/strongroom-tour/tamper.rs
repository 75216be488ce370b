//! One bit flipped, two pages exchanged: what is refused, and that nothing else is.
//!
//! Must not: work on the database itself; a copy is damaged and mended.

use strongroom_benches::Failure;
use strongroom_benches::variant;
use strongroom_sqlite::{Cipher, KeySource};
use strongroom_tour::damage::{exchange, flip, two_leaves};

use crate::tour::{KEY, Tour};
use strongroom_tour::checks::found;

/// The experiments, on a copy.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("Damage, on a copy")?;
    let (sealed, copy) = (tour.place.sealed(), tour.path("damaged.db"));
    let source = KeySource::KeyId { id: KEY.to_owned() };
    let keyring = tour.path("keyring");
    let [first, second] = two_leaves(&variant::sealed(
        &sealed,
        source,
        Some(&keyring),
        Cipher::Aes256Gcm,
    )?)?;
    std::fs::copy(&sealed, &copy)?;
    let strongroom = &tour.strongroom;
    tour.checks.check("before", || {
        let verified = strongroom.verify(&copy, KEY)?;
        found(verified.clean(), verified.shown())
    })?;
    tour.checks.check("one bit flipped: verify", || {
        flip(&copy, first)?;
        let verified = strongroom.verify(&copy, KEY)?;
        found(verified.names(&[first]), verified.shown())
    })?;
    tour.checks
        .check("one bit flipped: a query over the table", || {
            let path = copy.display().to_string();
            let sql = "SELECT sum(l_tax) FROM lineitem NOT INDEXED";
            let ran = strongroom.run(&["sqlite", "shell", &path, "--key-id", KEY, "-c", sql])?;
            let named = ran.stderr.contains(&format!("page {first},"));
            let holds = ran.refused(4, "SR-4001") && named && ran.stdout.is_empty();
            found(holds, format!("{}, page {first} named", ran.shown()))
        })?;
    tour.checks.check("the bit flipped back", || {
        flip(&copy, first)?;
        let verified = strongroom.verify(&copy, KEY)?;
        found(verified.clean(), verified.shown())
    })?;
    tour.checks.check("two pages exchanged: verify", || {
        exchange(&copy, first, second)?;
        let verified = strongroom.verify(&copy, KEY)?;
        found(
            verified.names(&[first.min(second), first.max(second)]),
            verified.shown(),
        )
    })?;
    tour.checks.check("exchanged back", || {
        exchange(&copy, first, second)?;
        let same = std::fs::read(&copy)? == std::fs::read(&sealed)?;
        let verified = strongroom.verify(&copy, KEY)?;
        found(same && verified.clean(), verified.shown())
    })?;
    std::fs::remove_file(&copy)?;
    Ok(())
}
