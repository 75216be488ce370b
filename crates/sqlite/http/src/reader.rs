//! A remote file as the VFS reads it: from the last response, from the cache, or from the server,
//! in that order.
//!
//! Invariants:
//! E1. Bytes of a response are used only after the client has found that they are of this version.
//! E3. At most `RUN_MAX` blocks of the last long response and `SHORT` blocks of another are in
//!     memory.
//!
//! Must not: return a byte beyond the file's length.

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_sqlite_vfs::RemoteFile;

use crate::cache::Cache;
use crate::client::{Client, Range, Version};
use crate::options::Options;
use crate::read_ahead::ReadAhead;
use crate::sizes::{BLOCK, FIRST};

/// Most blocks of a short response.
const SHORT: u64 = 8;

/// Consecutive bytes of the file.
#[derive(Default)]
struct Extent {
    start: u64,
    bytes: Vec<u8>,
}

impl Extent {
    /// Returns the bytes from offset `at` of the file to the end of the extent. `None` when the
    /// extent does not contain `at`.
    fn from(&self, at: u64) -> Option<&[u8]> {
        let within = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(within..).filter(|rest| !rest.is_empty())
    }
}

/// One version of a remote file.
pub(crate) struct Reader {
    client: Client,
    version: Version,
    name: String,
    cache: Option<Cache>,
    /// The last long response.
    long: Extent,
    /// A block of the cache, or a response so short that it does not replace the last long one.
    short: Extent,
    read_ahead: ReadAhead,
}

impl Reader {
    /// Requests the first 64 KiB from the server, whose response gives the version of the file, and
    /// opens the cache of that version. SR-2246 when `options` expect another version; SR-2240 or
    /// SR-2253 for the address; SR-3001 for an empty file; otherwise SR-2241 to SR-2247, if the
    /// server cannot be reached or trusted, refuses, redirects, or does not answer as a file with
    /// ranges and a strong ETag needs. A cache that cannot be used is only a warning.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let client = Client::new(options)?;
        // The cache cannot be used before the version is known. The header is always fetched.
        let (bytes, version) = client.first(FIRST)?;
        let name = format!("{}, ETag {}", client.shown(), version.etag);
        if let Some(expected) = &options.etag
            && *expected != version.etag
        {
            return Err(Error::new(
                &code::REMOTE_CHANGED,
                format!("{name}, in place of {expected}"),
            ));
        }
        let cache = options
            .cache
            .as_deref()
            .and_then(|path| Cache::open(path, options, &version));
        let mut remote = Self {
            client,
            version,
            name,
            cache,
            long: Extent { start: 0, bytes },
            short: Extent::default(),
            read_ahead: ReadAhead::default(),
        };
        Self::store(&mut remote.cache, &remote.long);
        Ok(remote)
    }

    /// Returns the number of blocks of the file, the last of which may be short.
    fn blocks(&self) -> u64 {
        self.version.total.div_ceil(BLOCK)
    }

    /// Brings the block `wanted` into memory, from the cache or with a request. `last` is the last
    /// block that the caller's read needs. May request more blocks than that, if the read continues
    /// a sequential one. SR-2241 to SR-2247 if the server does not deliver them unchanged.
    fn load(&mut self, wanted: u64, last: u64) -> Result<(), Error> {
        if let Some(bytes) = self.cache.as_mut().and_then(|cache| cache.get(wanted)) {
            let start = wanted * BLOCK;
            self.short = Extent { start, bytes };
            return Ok(());
        }
        let planned = self.read_ahead.plan(wanted);
        let end = wanted.saturating_add(planned).min(self.blocks());
        // Blocks of the cache are not fetched again, unless this read needs them in one response.
        let cached = |block: &u64| self.cache.as_ref().is_some_and(|cache| cache.has(*block));
        let needed = last.saturating_add(1);
        let end = (needed..end).find(cached).unwrap_or(end).max(needed);
        self.fetch(wanted, needed, end, false)
    }

    /// Requests the blocks from `first` up to, not including, `end`, and keeps them in memory and
    /// in the cache. After a failed attempt only the blocks up to `needed` are requested.
    /// `past_caches`: caches on the way must not answer. SR-2241 to SR-2247 if the server does not
    /// deliver them unchanged.
    fn fetch(&mut self, first: u64, needed: u64, end: u64, past_caches: bool) -> Result<(), Error> {
        let total = self.version.total;
        let start = first * BLOCK;
        let range = |end: u64| Range {
            start,
            len: end.saturating_mul(BLOCK).min(total).saturating_sub(start),
        };
        // Frees the memory first. A short read in the middle of a scan keeps what the scan fetched.
        self.short = Extent::default();
        if end.saturating_sub(first) > SHORT {
            self.long = Extent::default();
        }
        let mut tries = 0;
        let mut range_of_attempt = |attempt| {
            tries = attempt;
            range(if attempt == 1 { end } else { needed })
        };
        let part = self
            .client
            .part(&mut range_of_attempt, &self.version, past_caches);
        if tries > 1 {
            self.read_ahead.note_failed();
        }
        let (range, bytes) = part?;
        self.read_ahead
            .note_fetched(range.start.saturating_add(range.len).div_ceil(BLOCK));
        let held = Extent { start, bytes };
        Self::store(&mut self.cache, &held);
        match end.saturating_sub(first) > SHORT {
            true => self.long = held,
            false => self.short = held,
        }
        Ok(())
    }

    /// Writes the blocks of `held` into the cache, if there is one.
    fn store(cache: &mut Option<Cache>, held: &Extent) {
        let Some(cache) = cache else { return };
        let size = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        let first = held.start / BLOCK;
        for (block, bytes) in (first..).zip(held.bytes.chunks(size)) {
            cache.put(block, bytes);
        }
    }
}

impl RemoteFile for Reader {
    /// Returns address and ETag of the file, for messages.
    fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file's length in bytes.
    fn size(&self) -> u64 {
        self.version.total
    }

    /// Reads `out.len()` bytes at `at`, from memory, the cache or the server, in this order.
    /// SR-9001 beyond the file's end; otherwise SR-2241 to SR-2247, if the server cannot be reached
    /// or does not deliver the bytes of the version that was opened.
    fn read(&mut self, out: &mut [u8], at: u64) -> Result<(), Error> {
        let end = at.saturating_add(out.len() as u64);
        if end > self.version.total {
            return Err(Error::new(&code::BUG, "a read beyond a remote file's end"));
        }
        let last = end.saturating_sub(1) / BLOCK;
        let mut at = at;
        let mut out = out;
        while !out.is_empty() {
            let held = [&self.long, &self.short];
            let Some(bytes) = held.into_iter().find_map(|held| held.from(at)) else {
                self.load(at / BLOCK, last)?;
                continue;
            };
            let take = bytes.len().min(out.len());
            let (now, later) = out.split_at_mut(take);
            now.copy_from_slice(&bytes[..take]);
            at = at.saturating_add(take as u64);
            out = later;
        }
        Ok(())
    }

    /// Fetches the `len` bytes at `at` again from the server, past every cache, and replaces them
    /// in memory and in the cache. SR-2241 to SR-2247 if the server does not deliver them.
    fn distrust(&mut self, at: u64, len: usize) -> Result<(), Error> {
        let end = at.saturating_add(len as u64).min(self.version.total);
        let last = end.saturating_sub(1) / BLOCK;
        let needed = last.saturating_add(1);
        // It must not be read from memory either.
        self.long = Extent::default();
        self.fetch(at / BLOCK, needed, needed, true)
    }
}
