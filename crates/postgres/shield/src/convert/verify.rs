//! Reads converted files back from the disk, and compares their contents with the originals'.
//!
//! The originals of files that an earlier, interrupted run converted are gone. For these,
//! containers are authenticated, every file must be readable to its end, and most pages of all
//! relations together must look like pages. A single relation may have been damaged before, or have
//! the pages of an extension with another layout.
//!
//! Must not: compute page checksums; damage that was there before the conversion is no failure of
//! the conversion.

use std::sync::PoisonError;

use strongroom_format::code;
use strongroom_keyring::Error;

use super::logical_file::LogicalFile;
use super::page_counts::PageCounts;
use super::plan::PlannedFile;
use super::worker::{ContentDigest, Worker, file_error, open_for_reading};
use crate::classify::Class;
use crate::scratch::LEN;

impl Worker<'_> {
    /// Reads a batch of converted files back and compares their contents with the originals'. Files
    /// that an earlier run converted are only read, and the pages of relations among them counted.
    ///
    /// # Errors
    /// SR-7001 with the name of a file that reads back differently or is damaged; SR-7029 for a
    /// damaged transaction status file; SR-5001 when the system reports an error.
    pub(super) fn verify(&self, batch: &[&PlannedFile]) -> Result<(), Error> {
        for item in batch {
            self.verify_one(item)?;
        }
        Ok(())
    }

    /// Reads one converted file back and compares its contents with the original's. SR-7001 when it
    /// differs or is damaged; SR-7029 for a damaged transaction status file; SR-5001 when the
    /// system reports an error.
    fn verify_one(&self, item: &PlannedFile) -> Result<(), Error> {
        let differs = |why: &str| {
            let detail = format!(
                "{}, read back after its conversion: {why}",
                item.path.display()
            );
            Error::new(&code::PG_FILE, detail)
        };
        let file = open_for_reading(&item.path).map_err(|error| file_error(item, error))?;
        let source = LogicalFile::new(&file, self.to, &item.seal);
        let size = source.size().map_err(|error| file_error(item, error))?;
        let mut contents = ContentDigest::EMPTY;
        let mut pages = PageCounts::default();
        let mut buffer = vec![0_u8; LEN];
        loop {
            let count = source
                .read(&mut buffer, contents.len)
                .map_err(|error| file_error(item, error))?;
            let piece = buffer.get(..count).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            contents.add(piece);
            pages.count(piece);
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

    /// Judges the relations that [`Worker::verify`] could not compare, by the pages that it
    /// counted.
    ///
    /// # Errors
    /// SR-7001 when most pages of relations that an earlier run converted do not look like pages.
    pub(super) fn check_page_counts(&self) -> Result<(), Error> {
        if self
            .pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_noise()
        {
            let detail = "most of what an interrupted run converted are not pages of relations";
            return Err(Error::new(&code::PG_FILE, detail));
        }
        Ok(())
    }
}
