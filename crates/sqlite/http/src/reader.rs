//! A remote file as the guard reads it: from the last answer, from the cache, or from the server, in that order.
//!
//! Invariants:
//! E1. Bytes of an answer are used only after the client has taken them for this version.
//! E3. At most `RUN_MAX` blocks of the last long answer and `SHORT` blocks of another are in memory.
//!
//! Must not: give out a byte beyond the file's length.

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_sqlite_vfs::RemoteFile;

use crate::cache::Cache;
use crate::client::{Client, Range, Version};
use crate::heads::Heads;
use crate::options::Options;
use crate::{BLOCK, FIRST};

/// Blocks of a short answer.
const SHORT: u64 = 8;

/// Bytes of the file, from a place on.
#[derive(Default)]
struct Held {
    start: u64,
    bytes: Vec<u8>,
}

impl Held {
    /// The bytes from `at` to the end of what is held, if `at` is.
    fn from(&self, at: u64) -> Option<&[u8]> {
        let within = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(within..).filter(|rest| !rest.is_empty())
    }
}

/// One version of a remote file.
pub(crate) struct Remote {
    client: Client,
    version: Version,
    name: String,
    cache: Option<Cache>,
    /// Of the last answer.
    answer: Held,
    /// Of the cache, or of an answer so short that it does not take the place of a long one.
    block: Held,
    heads: Heads,
}

impl Remote {
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let client = Client::new(options)?;
        // What a cache may have of this file is of no use before its version is known, and the header is always fetched.
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
            answer: Held { start: 0, bytes },
            block: Held::default(),
            heads: Heads::default(),
        };
        Self::keep(&mut remote.cache, &remote.answer);
        Ok(remote)
    }

    fn blocks(&self) -> u64 {
        self.version.total.div_ceil(BLOCK)
    }

    /// Makes the block `wanted` one that is held; `last` is the last one that this read needs.
    fn load(&mut self, wanted: u64, last: u64) -> Result<(), Error> {
        if let Some(bytes) = self.cache.as_mut().and_then(|cache| cache.get(wanted)) {
            let start = wanted * BLOCK;
            self.block = Held { start, bytes };
            return Ok(());
        }
        let planned = self.heads.plan(wanted);
        let end = wanted.saturating_add(planned).min(self.blocks());
        // What the cache has is not fetched again, but for what this read needs in one piece.
        let cached = |block: &u64| self.cache.as_ref().is_some_and(|cache| cache.has(*block));
        let needed = last.saturating_add(1);
        let end = (needed..end).find(cached).unwrap_or(end).max(needed);
        self.fetch(wanted, needed, end, false)
    }

    /// Fetches the blocks from `first` to before `end`; where that fails, to before `needed`.
    fn fetch(&mut self, first: u64, needed: u64, end: u64, past_caches: bool) -> Result<(), Error> {
        let total = self.version.total;
        let start = first * BLOCK;
        let range = |end: u64| Range {
            start,
            len: end.saturating_mul(BLOCK).min(total).saturating_sub(start),
        };
        // Room for what comes. A look at something else, in the middle of a scan, leaves what the scan has.
        self.block = Held::default();
        if end.saturating_sub(first) > SHORT {
            self.answer = Held::default();
        }
        let mut tries = 0;
        let mut of_try = |attempt| {
            tries = attempt;
            range(if attempt == 1 { end } else { needed })
        };
        let part = self.client.part(&mut of_try, &self.version, past_caches);
        if tries > 1 {
            self.heads.failed();
        }
        let (range, bytes) = part?;
        self.heads
            .fetched(range.start.saturating_add(range.len).div_ceil(BLOCK));
        let held = Held { start, bytes };
        Self::keep(&mut self.cache, &held);
        match end.saturating_sub(first) > SHORT {
            true => self.answer = held,
            false => self.block = held,
        }
        Ok(())
    }

    /// Puts an answer into the cache.
    fn keep(cache: &mut Option<Cache>, held: &Held) {
        let Some(cache) = cache else { return };
        let size = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        let first = held.start / BLOCK;
        for (block, bytes) in (first..).zip(held.bytes.chunks(size)) {
            cache.put(block, bytes);
        }
    }
}

impl RemoteFile for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.version.total
    }

    fn read(&mut self, out: &mut [u8], at: u64) -> Result<(), Error> {
        let end = at.saturating_add(out.len() as u64);
        if end > self.version.total {
            return Err(Error::new(&code::BUG, "a read beyond a remote file's end"));
        }
        let last = end.saturating_sub(1) / BLOCK;
        let mut at = at;
        let mut out = out;
        while !out.is_empty() {
            let held = [&self.answer, &self.block];
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

    fn distrust(&mut self, at: u64, len: usize) -> Result<(), Error> {
        let end = at.saturating_add(len as u64).min(self.version.total);
        let last = end.saturating_sub(1) / BLOCK;
        let needed = last.saturating_add(1);
        // Also where it is held.
        self.answer = Held::default();
        self.fetch(at / BLOCK, needed, needed, true)
    }
}
