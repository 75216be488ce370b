//! Long lists of the key server, which it hands over in parts.
//!
//! Must not: ask for a page twice.

use serde_json::Value;
use ureq::http::Method;

use crate::client::Client;
use crate::error::{Error, Kind};

/// Items that are asked for at once: an answer has a bounded length.
const PAGE: usize = 200;

impl Client {
    /// The items of `list` at `path` that come after `after`, page by page, until `each` says that
    /// it has enough. `key` is what the next page comes after.
    ///
    /// # Errors
    /// Those of [`Client::call`]; [`Kind::Malformed`] for an answer without the list; those of
    /// `each`.
    pub fn pages<E: From<Error>>(
        &self,
        path: &str,
        list: &str,
        mut after: String,
        key: impl Fn(&Value) -> String,
        mut each: impl FnMut(Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        loop {
            let page = format!("{path}?limit={PAGE}&after={after}");
            let mut answer = self.call(&Method::GET, &page, None, true)?;
            let more = answer.get("more") == Some(&Value::Bool(true));
            let Some(Value::Array(items)) = answer.get_mut(list).map(Value::take) else {
                let detail = format!("no `{list}` in it");
                return Err(Error::new(Kind::Malformed, detail).into());
            };
            let last = items.last().map(&key);
            for item in items {
                if !each(item)? {
                    return Ok(());
                }
            }
            match last {
                Some(last) if more && !last.is_empty() && last != after => after = last,
                _ => return Ok(()),
            }
        }
    }
}
