//! Strong `ETag` values, each of which names one version of a file.
//!
//! Must not: accept a weak ETag.

/// Longest ETag, in bytes.
const ETAG_MAX: usize = 512;
/// Whether `etag` is a strong ETag (RFC 9110, section 8.8.3): visible characters other than quotes,
/// between quotes, without `W/`.
pub(crate) fn etag_is_strong(etag: &str) -> bool {
    let inner = etag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    etag.len() <= ETAG_MAX
        && inner.is_some_and(|inner| {
            inner
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'"')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strong_tags_are_versions() {
        for etag in ["\"a\"", "\"\"", "\"66f-5e\"", "\"W/x\""] {
            assert!(etag_is_strong(etag), "{etag}");
        }
        let long = format!("\"{}\"", "x".repeat(ETAG_MAX));
        for etag in [
            "",
            "\"",
            "a",
            "W/\"a\"",
            "w/\"a\"",
            "\"a",
            "a\"",
            "\"a\"b\"",
            "\"a b\"",
            "\"\u{e9}\"",
            "\"a\r\n\"",
            long.as_str(),
        ] {
            assert!(!etag_is_strong(etag), "{etag}");
        }
    }
}
