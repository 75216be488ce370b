//! A family on its way to an object store: in parts, or in one put while it is short.
//!
//! Invariants: B1; B20, one part is being filled, and no more than a fixed number of bytes of all
//! families is under way.
//!
//! Must not: complete an upload that was not finished; leave one behind without trying to abort it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use strongroom_format::code;
use strongroom_keyring::Fault;
use tokio::task::JoinHandle;

use super::client::Client;
use super::fault::told;
use super::parts::part_bytes;
use crate::store::Upload;

/// MiB under way of all families together; a longer part is under way alone.
pub(super) const IN_FLIGHT_MIB: u32 = 32;
const CHUNK: usize = 1 << 20;
/// For aborting what has failed.
const ABORT: Duration = Duration::from_secs(15);

/// One object that is being uploaded.
pub(super) struct ObjectUpload {
    client: Arc<Client>,
    path: Path,
    /// Whole chunks of the part that is being filled, and the one that is not whole.
    chunks: Vec<Bytes>,
    chunk: Vec<u8>,
    /// Bytes of both.
    held: u64,
    length: u64,
    /// Parts that were begun.
    parts: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: VecDeque<JoinHandle<object_store::Result<()>>>,
    failed: bool,
}

impl ObjectUpload {
    pub(super) fn new(client: Arc<Client>, path: Path) -> Self {
        Self {
            client,
            path,
            chunks: Vec::new(),
            chunk: Vec::new(),
            held: 0,
            length: 0,
            parts: 0,
            upload: None,
            under_way: VecDeque::new(),
            failed: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = part_bytes(self.parts).ok_or_else(too_long)?;
        if self.chunk.capacity() == 0 {
            self.chunk.reserve_exact(CHUNK);
        }
        // A part is a multiple of a chunk.
        let room = CHUNK - self.chunk.len();
        let (now, _) = bytes.split_at(room.min(bytes.len()));
        self.chunk.extend_from_slice(now);
        self.held += now.len() as u64;
        self.length += now.len() as u64;
        if self.chunk.len() == CHUNK {
            self.chunks.push(std::mem::take(&mut self.chunk).into());
        }
        if self.held == part {
            self.send_part()?;
        }
        Ok(now.len())
    }

    fn payload(&mut self) -> PutPayload {
        let last = std::mem::take(&mut self.chunk);
        let chunks = std::mem::take(&mut self.chunks);
        let last = (!last.is_empty()).then(|| Bytes::from(last));
        chunks.into_iter().chain(last).collect()
    }

    fn send_part(&mut self) -> io::Result<()> {
        let mib = u32::try_from(self.held.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let payload = self.payload();
        self.held = 0;
        self.parts += 1;
        let room = Arc::clone(&self.client.in_flight);
        let room = room.acquire_many_owned(mib.min(IN_FLIGHT_MIB));
        let room = self.client.runtime.block_on(room);
        let room = room.map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.reap(false)?;
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => {
                let begun = self.client.store.put_multipart(&self.path);
                self.client.send(begun).map_err(|error| told(&error))?
            }
        };
        let upload = self.upload.insert(upload);
        let part = upload.put_part(payload);
        self.under_way
            .push_back(self.client.runtime.spawn(async move {
                let done = part.await;
                drop(room);
                done
            }));
        Ok(())
    }

    /// Looks at parts that are done; with `all` it waits for the others.
    fn reap(&mut self, all: bool) -> io::Result<()> {
        while let Some(part) = self.under_way.pop_front() {
            if !all && !part.is_finished() {
                self.under_way.push_front(part);
                break;
            }
            let done = self.client.runtime.block_on(part);
            let done = done.map_err(io::Error::other)?;
            self.client.note_outcome(&done);
            done.map_err(|error| told(&error))?;
        }
        Ok(())
    }

    fn whole(&mut self) -> io::Result<()> {
        if self.parts == 0 {
            let payload = self.payload();
            // The name is nobody else's: repeating it puts the same bytes.
            let put = self.client.store.put(&self.path, payload);
            return self
                .client
                .send(put)
                .map(drop)
                .map_err(|error| told(&error));
        }
        if self.held > 0 {
            self.send_part()?;
        }
        self.reap(true)?;
        let Some(upload) = &mut self.upload else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let Err(error) = self.client.send(upload.complete()) else {
            return Ok(());
        };
        // Its answer may have been lost (B17): the object appears only whole, and under a name of
        // its own.
        match self.client.send(self.client.store.head(&self.path)) {
            Ok(there) if there.size == self.length => Ok(()),
            _ => Err(told(&error)),
        }
    }
}

fn too_long() -> io::Error {
    let text = "longer than an upload can be: use more stripes";
    Fault::io(io::ErrorKind::FileTooLarge, &code::STORE_FAILED, text)
}

impl Write for ObjectUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            // The buffer before this tries once more when it is dropped.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = self.take(bytes);
        self.failed = taken.is_err();
        taken
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for ObjectUpload {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.whole()?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        for part in &self.under_way {
            part.abort();
        }
        if let Some(mut upload) = self.upload.take() {
            let under_way = std::mem::take(&mut self.under_way);
            // What cannot be aborted is left to the bucket's rule.
            let limit = self.client.clearing(ABORT);
            let aborted = self.client.runtime.block_on(async {
                for part in under_way {
                    drop(part.await);
                }
                tokio::time::timeout(limit, upload.abort()).await
            });
            drop(aborted);
        }
    }
}
