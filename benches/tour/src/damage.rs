//! Damage to a copy of a sealed database, and how it is undone.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::Connection;
use strongroom_benches::Failure;
use strongroom_format::sqlite::page_offset;

const PAGE_SIZE: u32 = 4096;
/// Where in the page a bit is flipped, in bytes.
const WITHIN: u64 = 1000;

/// The numbers of two pages that hold rows of the largest table.
///
/// # Errors
/// SQLite's.
pub fn two_leaves(sealed: &Connection) -> Result<[u64; 2], Failure> {
    let sql =
        "SELECT pageno FROM dbstat WHERE name = 'lineitem' AND pagetype = 'leaf' LIMIT 1 OFFSET ?1";
    let leaf = |skip: i64| sealed.query_row(sql, [skip], |row| row.get::<_, i64>(0));
    Ok([u64::try_from(leaf(5000)?)?, u64::try_from(leaf(9000)?)?])
}

/// Flips one bit of a page; a second call flips it back.
///
/// # Errors
/// The operating system's.
pub fn flip(path: &Path, page: u64) -> Result<(), Failure> {
    let file = File::options().read(true).write(true).open(path)?;
    let at = page_offset(page, PAGE_SIZE) + WITHIN;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1;
    Ok(file.write_all_at(&byte, at)?)
}

/// Exchanges two pages; a second call exchanges them back.
///
/// # Errors
/// The operating system's.
pub fn exchange(path: &Path, one: u64, other: u64) -> Result<(), Failure> {
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
