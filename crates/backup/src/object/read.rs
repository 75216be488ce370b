//! Reads a family from an object store, range by range; one range is requested ahead of the reader.
//!
//! Invariant B20: all families that are being read share a fixed amount of memory.
//!
//! Must not: mix two versions of an object.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use tokio::task::JoinHandle;

use super::client::Client;
use super::fault::to_io_error;

/// The memory, in bytes, of all families that are being read.
const MEMORY: u64 = 64 << 20;
const RANGE_MAX: u64 = 8 << 20;
const RANGE_MIN: u64 = 512 << 10;

/// A reader of one object, from its start to its end.
pub(super) struct Ranges {
    client: Arc<Client>,
    path: Path,
    tag: Option<String>,
    length: u64,
    /// Where the next request begins.
    next: u64,
    current: Bytes,
    ahead: Option<JoinHandle<object_store::Result<Bytes>>>,
    /// The clone that counts this reader; present from the first read.
    counted: Option<Arc<()>>,
}

impl Ranges {
    /// A reader of the object that `meta` names, from its start. Nothing is requested before the
    /// first read.
    pub(super) fn new(client: Arc<Client>, meta: ObjectMeta) -> Self {
        Self {
            client,
            path: meta.location,
            tag: meta.e_tag,
            length: meta.size,
            next: 0,
            current: Bytes::new(),
            ahead: None,
            counted: None,
        }
    }

    /// Starts the request of the next range, if there is one; does not wait for it.
    fn request_next(&mut self) {
        let readers = self
            .counted
            .get_or_insert_with(|| Arc::clone(&self.client.readers));
        // The client itself has one of them.
        let readers = Arc::strong_count(readers).saturating_sub(1) as u64;
        let left = self.length - self.next;
        // Until each reader has requested two ranges, not all readers are counted.
        let early = self.next < 2 * RANGE_MIN;
        let length = left.min(if early {
            RANGE_MIN
        } else {
            range_bytes(readers)
        });
        if length == 0 {
            return;
        }
        let range = self.next..self.next + length;
        self.next += length;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.tag.clone(),
            ..GetOptions::default()
        };
        let (store, path) = (Arc::clone(&self.client.store), self.path.clone());
        self.ahead = Some(
            self.client
                .runtime
                .spawn(request_range(store, path, options)),
        );
    }
}

/// Requests one range, and returns its bytes; an error unless the response has exactly its length.
async fn request_range(
    store: Arc<dyn ObjectStore>,
    path: Path,
    options: GetOptions,
) -> object_store::Result<Bytes> {
    let Some(GetRange::Bounded(range)) = options.range.clone() else {
        return Err(not_requested_error());
    };
    let found = store.get_opts(&path, options).await?;
    let length = range.end - range.start;
    let bytes = collect_ranges(found, length)
        .await?
        .ok_or_else(not_requested_error)?;
    if bytes.len() as u64 == length {
        Ok(bytes.into())
    } else {
        Err(not_requested_error())
    }
}

/// Makes the error for a response of another length than the requested one.
fn not_requested_error() -> object_store::Error {
    object_store::Error::Generic {
        store: "object store",
        source: "another length than was asked for".into(),
    }
}

/// Reads a response's body. `None` as soon as it has more than `limit` bytes, whatever length its
/// head states.
pub(super) async fn collect_ranges(
    found: GetResult,
    limit: u64,
) -> object_store::Result<Option<Vec<u8>>> {
    let mut pieces = found.into_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.try_next().await? {
        if (bytes.len() + piece.len()) as u64 > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}

/// The length in bytes of a range with so many readers, each of which has two ranges in memory: the
/// one that is being read, and the next one.
fn range_bytes(readers: u64) -> u64 {
    (MEMORY / 2 / readers.max(1)).clamp(RANGE_MIN, RANGE_MAX)
}

impl Read for Ranges {
    /// Returns bytes of the current range, or waits for the next one, and then starts the request
    /// after it. 0 at the end of the object; SR-7141 to SR-7143 as errors, also when the object has
    /// changed.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() {
            if self.ahead.is_none() {
                self.request_next();
            }
            let Some(asked) = self.ahead.take() else {
                return Ok(0);
            };
            let got = self.client.runtime.block_on(asked);
            let got = got.map_err(io::Error::other)?;
            self.client.note_outcome(&got);
            self.current = got.map_err(|error| to_io_error(&error))?;
            self.request_next();
        }
        let length = bytes.len().min(self.current.len());
        let (to, _) = bytes.split_at_mut(length);
        self.current.copy_to_slice(to);
        Ok(length)
    }
}

impl Drop for Ranges {
    /// Aborts the request that is ahead of the reader.
    fn drop(&mut self) {
        if let Some(asked) = &self.ahead {
            asked.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_readers_together_stay_within_the_memory() {
        for readers in 0..=64 {
            let range = range_bytes(readers);
            assert!(readers * range * 2 <= MEMORY, "{readers}");
            assert!((RANGE_MIN..=RANGE_MAX).contains(&range));
        }
    }
}
