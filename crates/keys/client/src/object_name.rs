//! The name under which the key server lists an object of a node.
//!
//! Must not: hold a control character.

use std::path::Path;

use strongroom_format::text::printable;

/// Returns the name for the object at `path`, which the caller has made absolute. The server takes
/// names of at most 256 bytes without control characters: each of those becomes U+FFFD, and a path
/// of more than 250 bytes is cut at its beginning and gets `…` there, because the end tells more.
#[must_use]
pub fn object_name(path: &Path) -> String {
    const LONGEST: usize = 250;
    let name = printable(&path.to_string_lossy());
    let cut = name.len().saturating_sub(LONGEST);
    let cut = (cut..=name.len()).find(|at| name.is_char_boundary(*at));
    match cut.and_then(|at| name.get(at..)) {
        Some(end) if end.len() < name.len() => format!("\u{2026}{end}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::object_name;

    #[test]
    fn names_fit() {
        assert_eq!(object_name(Path::new("/srv/a")), "/srv/a");
        assert_eq!(
            object_name(Path::new("/srv/a\nb\u{7f}")),
            "/srv/a\u{fffd}b\u{fffd}"
        );
        let long = format!("/{}/end", "\u{fc}".repeat(300));
        let name = object_name(Path::new(&long));
        assert!(name.len() <= 256 && name.starts_with('\u{2026}') && name.ends_with("/end"));
    }
}
