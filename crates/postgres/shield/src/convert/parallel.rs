//! Distributes the files of a conversion to threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use strongroom_keyring::Error;

use super::plan::{BATCH_BYTES, PlannedFile};

/// The most files of one batch.
const BATCH_FILES: usize = 128;

/// Groups files for the threads, in descending order of size: a large file by itself, small ones in
/// batches of at most 4 MiB and 128 files.
pub(super) fn batches<'item>(
    items: impl Iterator<Item = &'item PlannedFile>,
) -> Vec<Vec<&'item PlannedFile>> {
    let mut items: Vec<&PlannedFile> = items.collect();
    items.sort_by(|a, b| {
        b.size
            .cmp(&a.size)
            .then_with(|| a.relative.cmp(&b.relative))
    });
    let mut batches: Vec<Vec<&PlannedFile>> = Vec::new();
    let mut bytes = u64::MAX;
    for item in items {
        let total = bytes.saturating_add(item.size);
        match batches.last_mut() {
            Some(batch) if total <= BATCH_BYTES && batch.len() < BATCH_FILES => {
                batch.push(item);
                bytes = total;
            }
            _ => {
                batches.push(vec![item]);
                bytes = item.size;
            }
        }
    }
    batches
}

/// Calls `work` for each batch, on `threads` threads, and waits for all. After the first failure no
/// further batch is begun.
///
/// # Errors
/// The first failure.
pub(super) fn in_parallel(
    threads: usize,
    batches: &[Vec<&PlannedFile>],
    work: impl Fn(&[&PlannedFile]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let queue = Mutex::new(batches.iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, batches.len().max(1)) {
            scope.spawn(|| {
                while let (false, Some(batch)) = (failed.load(Ordering::Relaxed), next()) {
                    if let Err(error) = work(batch) {
                        failed.store(true, Ordering::Relaxed);
                        let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                        if first.is_none() {
                            *first = Some(error);
                        }
                    }
                }
            });
        }
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}
