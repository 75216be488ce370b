//! Uploads a family to an object store: in parts, or in one put if it is short.
//!
//! Invariants: B1; B20: one part is being filled, and all families together have at most a fixed
//! number of bytes under way.
//!
//! Must not: complete an upload that was not finished; abandon one without trying to abort it.

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
use super::fault::to_io_error;
use super::parts::part_bytes;
use crate::store::Upload;

/// MiB that all families together may have under way. A part that is longer is sent alone.
pub(super) const IN_FLIGHT_MIB: u32 = 32;
const CHUNK: usize = 1 << 20;
/// Time limit for aborting a failed upload.
const ABORT: Duration = Duration::from_secs(15);

/// One object that is being uploaded.
pub(super) struct ObjectUpload {
    client: Arc<Client>,
    path: Path,
    /// Complete chunks of the part that is being filled.
    chunks: Vec<Bytes>,
    chunk: Vec<u8>,
    /// Bytes of the chunks and of the chunk that is being filled.
    held: u64,
    length: u64,
    /// Parts whose upload was started.
    parts: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: VecDeque<JoinHandle<object_store::Result<()>>>,
    failed: bool,
}

impl ObjectUpload {
    /// An upload of the object at `path`. Nothing is sent before a part is full.
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

    /// Takes as many bytes as fit into the current chunk, and sends the part once it is full.
    /// Returns how many were taken. SR-7143 when the object would have too many parts.
    fn buffer_bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

    /// Takes the bytes of the part that is being filled, which is then empty.
    fn payload(&mut self) -> PutPayload {
        let last = std::mem::take(&mut self.chunk);
        let chunks = std::mem::take(&mut self.chunks);
        let last = (!last.is_empty()).then(|| Bytes::from(last));
        chunks.into_iter().chain(last).collect()
    }

    /// Starts the upload of the current part, and waits first until few enough bytes are under way.
    /// The first part begins the multipart upload. SR-7141 to SR-7143 of that, and of parts that
    /// have ended meanwhile.
    fn send_part(&mut self) -> io::Result<()> {
        let mib = u32::try_from(self.held.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let payload = self.payload();
        self.held = 0;
        self.parts += 1;
        let room = Arc::clone(&self.client.in_flight);
        let room = room.acquire_many_owned(mib.min(IN_FLIGHT_MIB));
        let room = self.client.runtime.block_on(room);
        let room = room.map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.collect_finished(false)?;
        let upload = match self.upload.take() {
            Some(upload) => upload,
            None => {
                let begun = self.client.store.put_multipart(&self.path);
                self.client
                    .send(begun)
                    .map_err(|error| to_io_error(&error))?
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

    /// Takes parts off the list whose upload has ended, and returns the first error of one (SR-7141
    /// to SR-7143); with `all` it waits for the others.
    fn collect_finished(&mut self, all: bool) -> io::Result<()> {
        while let Some(part) = self.under_way.pop_front() {
            if !all && !part.is_finished() {
                self.under_way.push_front(part);
                break;
            }
            let done = self.client.runtime.block_on(part);
            let done = done.map_err(io::Error::other)?;
            self.client.note_outcome(&done);
            done.map_err(|error| to_io_error(&error))?;
        }
        Ok(())
    }

    /// Sends the rest and completes the object: a short one in a single put. After a lost response
    /// to the completion it asks for the object, and succeeds if that has the right length.
    /// Otherwise SR-7141 to SR-7143.
    fn complete(&mut self) -> io::Result<()> {
        if self.parts == 0 {
            let payload = self.payload();
            // Nobody else uses this name, so that a repeated request puts the same bytes.
            let put = self.client.store.put(&self.path, payload);
            return self
                .client
                .send(put)
                .map(drop)
                .map_err(|error| to_io_error(&error));
        }
        if self.held > 0 {
            self.send_part()?;
        }
        self.collect_finished(true)?;
        let Some(upload) = &mut self.upload else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let Err(error) = self.client.send(upload.complete()) else {
            return Ok(());
        };
        // The response may have been lost (B17). The object appears only when it is complete, and
        // nobody else uses its name.
        match self.client.send(self.client.store.head(&self.path)) {
            Ok(there) if there.size == self.length => Ok(()),
            _ => Err(to_io_error(&error)),
        }
    }
}

/// Makes SR-7143 for an object with more parts than a store allows.
fn too_long() -> io::Error {
    let text = "longer than an upload can be: use more stripes";
    Fault::io(io::ErrorKind::FileTooLarge, &code::STORE_FAILED, text)
}

impl Write for ObjectUpload {
    /// Takes at most 1 MiB of the bytes into the part that is being filled, and returns how many.
    /// Starts the upload of a full part; waits first while too many bytes are under way. SR-7141 to
    /// SR-7143 if the upload cannot begin, an earlier part failed, or there are too many parts.
    /// Each call after an error fails with `BrokenPipe`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            // The buffered writer in front of this tries once more when it is dropped.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let taken = self.buffer_bytes(bytes);
        self.failed = taken.is_err();
        taken
    }

    /// Does nothing: a part is sent when it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for ObjectUpload {
    /// Completes the object, after which it is durable. SR-7141 to SR-7143 if that fails; the
    /// upload is then aborted.
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.complete()?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for ObjectUpload {
    /// Aborts an upload that was not finished, and waits for that at most 15 seconds.
    fn drop(&mut self) {
        for part in &self.under_way {
            part.abort();
        }
        if let Some(mut upload) = self.upload.take() {
            let under_way = std::mem::take(&mut self.under_way);
            // An upload that cannot be aborted is removed by the bucket's lifecycle rule, if it has
            // one.
            let limit = self.client.clearing_limit(ABORT);
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
