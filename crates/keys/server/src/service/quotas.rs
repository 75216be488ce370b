//! Quotas of nodes: what a node stores on the server is counted in the commit that stores it.
//!
//! Invariant: no commit of a node raises one of its counts above its quota. A count that is above a
//! quota because the quota was lowered may still go down.
//!
//! Must not: apply a quota to an administrator.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::identify::Client;
use super::state::Service;
use crate::paths::usage_path;
use crate::records::{Guarded, Usage};
use crate::store::{Change, Guard};

impl Service {
    /// Applies `update` to the counts of the client named `name`, in memory. Returns the guard on
    /// the counts that were read, and the change that writes them, both for the caller's commit.
    /// `client` makes the request.
    ///
    /// # Errors
    /// SR-8443 when a count grows above its quota and `client` is no administrator; what the store
    /// reports.
    pub(super) fn update_usage(
        &self,
        client: &Client,
        name: &str,
        update: impl FnOnce(&mut Usage),
    ) -> Result<(Guard, Change), Error> {
        let found: Guarded<Usage> = self.read(&usage_path(name))?;
        let before = found.record.unwrap_or_default();
        let mut after = before;
        update(&mut after);
        if !client.is_admin() {
            self.check_usage(&before, &after)?;
        }
        let change = self.put(&found.guard.path, &after)?;
        Ok((found.guard, change))
    }

    /// Checks that no count has grown and is above its quota. SR-8443 if one has.
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
