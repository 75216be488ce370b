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
    /// Fetches the items of the member `list` of the responses at `path`, page by page from the one
    /// after `after` on, and calls `each` with every item, until `each` returns `Ok(false)` or
    /// there are no more. `key` returns what the next page comes after, from the last item of a
    /// page; if that is empty or does not change, the list ends.
    ///
    /// # Errors
    /// Those of [`Client::call`]; [`Kind::Malformed`] for a response without the list; those of
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
