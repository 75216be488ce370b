//! What the name of a medium means: a directory, or a place in an object store.
//!
//! Must not: read anything.

use std::path::Path;

/// Returns whether the name of a medium is a URL (`SCHEME://...`) and so names a place in an object
/// store. A directory of such a name is written with `./`.
#[must_use]
pub fn is_url(medium: &Path) -> bool {
    let text = medium.to_string_lossy();
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://b/p", "gs://b", "az://c/p", "http://h/p", "S3://b"] {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in ["/mnt/s3://b", "./s3://b", "s3:/b", "://b", "b", ""] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
    }
}
