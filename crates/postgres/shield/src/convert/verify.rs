//! Converted files read back from the disk, through the treatment, and compared with what was converted.
//!
//! What an earlier, interrupted run converted has nothing to be compared with: containers authenticate themselves, every
//! file must be readable to its end, and the pages of all those relations together must look like pages, most of them:
//! one relation may have been damaged before, or be of an extension that lays out its pages in its own way.
//!
//! Must not: compute page checksums; damage that was there before the conversion is no failure of the conversion.

use std::sync::PoisonError;

use strongroom_format::code;
use strongroom_keyring::Error;

use super::codec::Open;
use super::plan::Item;
use super::worker::{Contents, Worker, open, told};
use crate::classify::Class;
use crate::scratch::LEN;

/// Where a page says its size and layout (`pd_pagesize_version`), and what it says.
const PAGE_VERSION: std::ops::Range<usize> = 18..20;
const PAGE_VERSION_VALUE: [u8; 2] = [4, 0x20];
/// PostgreSQL's block, in bytes.
const BLOCK: usize = 8192;

impl Worker<'_> {
    /// Reads a batch of converted files.
    ///
    /// # Errors
    /// SR-7001 naming the file that is not what was converted, SR-5001.
    pub(super) fn verify(&self, batch: &[&Item]) -> Result<(), Error> {
        for item in batch {
            self.verify_one(item)?;
        }
        Ok(())
    }

    fn verify_one(&self, item: &Item) -> Result<(), Error> {
        let differs = |why: &str| {
            let detail = format!(
                "{}, read back after its conversion: {why}",
                item.path.display()
            );
            Error::new(&code::PG_FILE, detail)
        };
        let file = open(&item.path).map_err(|error| told(item, error))?;
        let source = Open::new(&file, self.to, &item.seal);
        let size = source.size().map_err(|error| told(item, error))?;
        let mut contents = Contents::EMPTY;
        let mut pages = Pages::default();
        let mut buffer = vec![0_u8; LEN];
        loop {
            let count = source
                .read(&mut buffer, contents.len)
                .map_err(|error| told(item, error))?;
            let piece = buffer.get(..count).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            contents.add(piece);
            pages.look_at(piece);
            self.meter.add(count);
        }
        if contents.len != size {
            return Err(differs("it cannot be read to its end"));
        }
        let known = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&item.relative) {
            Some(converted) if *converted != contents => Err(differs("it differs")),
            None if item.seal.class == Class::Relation => {
                self.pages
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(&pages);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The verdict on what [`Worker::verify`] could not compare.
    ///
    /// # Errors
    /// SR-7001 when relations that an earlier run converted hold noise.
    pub(super) fn verdict(&self) -> Result<(), Error> {
        if self
            .pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .are_noise()
        {
            let detail = "most pages of the relations that an interrupted run converted are none";
            return Err(Error::new(&code::PG_FILE, detail));
        }
        Ok(())
    }
}

/// How many pages look like pages.
#[derive(Default)]
pub(super) struct Pages {
    sound: u64,
    odd: u64,
}

impl Pages {
    fn look_at(&mut self, piece: &[u8]) {
        for page in piece.chunks_exact(BLOCK) {
            if page.get(PAGE_VERSION) == Some(&PAGE_VERSION_VALUE) {
                self.sound = self.sound.saturating_add(1);
            } else if page.iter().any(|&byte| byte != 0) {
                self.odd = self.odd.saturating_add(1);
            }
        }
    }

    const fn add(&mut self, other: &Self) {
        self.sound = self.sound.saturating_add(other.sound);
        self.odd = self.odd.saturating_add(other.odd);
    }

    /// Some pages may be odd; under a wrong key nearly all are.
    const fn are_noise(&self) -> bool {
        self.odd > self.sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_told_from_pages() {
        let mut page = vec![0_u8; BLOCK];
        page[..8].fill(7);
        page[PAGE_VERSION].copy_from_slice(&PAGE_VERSION_VALUE);
        let mut pages = Pages::default();
        pages.look_at(&[page.clone(), vec![0; BLOCK], vec![0x55; BLOCK], page].concat());
        assert!(!pages.are_noise());
        pages.look_at(&[0xaa; 2 * BLOCK]);
        assert!(pages.are_noise());
        assert!(!Pages::default().are_noise());
    }
}
