//! The figures' place in a document: between two marker lines.
//!
//! Must not: touch a byte outside the markers.

use std::path::Path;

use crate::Failure;

/// The line before the figures.
pub const BEGIN: &str = "<!-- figures: begin (written by strongroom-bench) -->";
/// The line after them.
pub const END: &str = "<!-- figures: end -->";

/// `document` with `figures` between its markers. `None` when the markers are not there, once each and in order.
#[must_use]
pub fn splice(document: &str, figures: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    if after.contains(BEGIN) || after.contains(END) {
        return None;
    }
    Some(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        figures.trim()
    ))
}

/// Replaces the figures in the document at `path`.
///
/// # Errors
/// The document cannot be read or replaced, or has no markers.
pub fn splice_file(path: &Path, figures: &str) -> Result<(), Failure> {
    let document = std::fs::read_to_string(path)?;
    let spliced = splice(&document, figures).ok_or_else(|| {
        format!(
            "{}: the markers of the figures are not there",
            path.display()
        )
    })?;
    strongroom_keyring::durable::replace(path, spliced.as_bytes(), 0o644)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, splice};

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let spliced = splice(&document, "| new |\n").unwrap();
        assert_eq!(spliced, format!("a\n{BEGIN}\n\n| new |\n\n{END}\nb\n"));
        assert_eq!(splice(&spliced, "| new |").unwrap(), spliced);
    }

    #[test]
    fn missing_or_repeated_markers_are_refused() {
        assert!(splice("no markers", "x").is_none());
        assert!(splice(&format!("{END}{BEGIN}"), "x").is_none());
        assert!(splice(&format!("{BEGIN}{END}{BEGIN}{END}"), "x").is_none());
    }
}
