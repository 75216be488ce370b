//! How much one node may have here: counted beside what it puts here, in the same commit.
//!
//! Invariant: no commit of a node takes one of its numbers above its bound. What is above it since the bound was lowered may shrink.
//!
//! Must not: hold an administrator to a bound.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::{Client, Service};
use crate::records::{Found, USAGE, Usage};
use crate::store::{Change, Guard};

/// How much one node may have here.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// Headers.
    pub headers: u64,
    /// Their bytes.
    pub header_bytes: u64,
    /// Objects that it reports.
    pub objects: u64,
    /// Keys that it makes.
    pub keys: u64,
    /// Versions that a key may get in a day for nodes to make another one.
    pub rotations_per_day: u32,
}

impl Service {
    /// The change by which `count` comes into what this name has here, and what it is based upon.
    ///
    /// # Errors
    /// SR-8443 when it would be more than the client may bring about.
    pub(super) fn counted(
        &self,
        client: &Client,
        name: &str,
        count: impl FnOnce(&mut Usage),
    ) -> Result<(Guard, Change), Error> {
        let found: Found<Usage> = self.read(&format!("{USAGE}{name}"))?;
        let before = found.record.unwrap_or_default();
        let mut after = before;
        count(&mut after);
        if !client.is_admin() {
            self.check_usage(&before, &after)?;
        }
        let change = self.put(&found.guard.path, &after)?;
        Ok((found.guard, change))
    }

    fn check_usage(&self, before: &Usage, after: &Usage) -> Result<(), Error> {
        let most = self.rules().quotas;
        let numbers = [
            ("headers", before.headers, after.headers, most.headers),
            (
                "bytes of headers",
                before.header_bytes,
                after.header_bytes,
                most.header_bytes,
            ),
            ("objects", before.objects, after.objects, most.objects),
            ("keys", before.keys, after.keys, most.keys),
        ];
        for (what, before, after, most) in numbers {
            if after > most && after > before {
                let detail = format!("{what}: at most {most}");
                return Err(Error::new(&code::SERVER_QUOTA, detail));
            }
        }
        Ok(())
    }
}
