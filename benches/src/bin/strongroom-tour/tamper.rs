//! One bit flipped, two pages exchanged: what is refused, and that nothing else is.
//!
//! Must not: work on the database itself; a copy is damaged and mended.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_benches::Failure;
use strongroom_format::sqlite::page_offset;

use crate::checks::found;
use crate::tour::{KEY, Tour};

const PAGE_SIZE: u32 = 4096;
/// Where in the page a bit is flipped, in bytes.
const WITHIN: u64 = 1000;

/// The experiments, on a copy.
pub(crate) fn run(tour: &mut Tour) -> Result<(), Failure> {
    tour.checks.heading("Damage, on a copy")?;
    let (sealed, copy) = (tour.sealed(), tour.path("damaged.db"));
    let [first, second] = two_leaves(tour)?;
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

/// Two pages that hold rows of lineitem.
fn two_leaves(tour: &Tour) -> Result<[u64; 2], Failure> {
    let connection = tour.open_sealed(&tour.sealed(), KEY)?;
    let sql =
        "SELECT pageno FROM dbstat WHERE name = 'lineitem' AND pagetype = 'leaf' LIMIT 1 OFFSET ?1";
    let leaf = |skip: i64| connection.query_row(sql, [skip], |row| row.get::<_, i64>(0));
    Ok([u64::try_from(leaf(5000)?)?, u64::try_from(leaf(9000)?)?])
}

fn flip(path: &Path, page: u64) -> Result<(), Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    let at = page_offset(page, PAGE_SIZE) + WITHIN;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1;
    Ok(file.write_all_at(&byte, at)?)
}

fn exchange(path: &Path, one: u64, other: u64) -> Result<(), Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    let read = |number| -> Result<Vec<u8>, Failure> {
        let mut page = vec![0; PAGE_SIZE as usize];
        file.read_exact_at(&mut page, page_offset(number, PAGE_SIZE))?;
        Ok(page)
    };
    let (first, second) = (read(one)?, read(other)?);
    file.write_all_at(&second, page_offset(one, PAGE_SIZE))?;
    Ok(file.write_all_at(&first, page_offset(other, PAGE_SIZE))?)
}
