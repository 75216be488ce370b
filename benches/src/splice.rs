//! The figures' place in a document: between two marker lines.
//!
//! Must not: touch a byte outside the markers.

use std::path::Path;

use crate::Failure;

/// A place for figures: the lines before and after them.
#[derive(Clone, Copy)]
pub struct Markers {
    begin: &'static str,
    end: &'static str,
}

/// Of `strongroom-bench`.
pub const SQLITE: Markers = Markers {
    begin: "<!-- figures: begin (written by strongroom-bench) -->",
    end: "<!-- figures: end -->",
};

/// Of `strongroom-bench-sqlite`.
pub const SQLITE_PEERS: Markers = Markers {
    begin: "<!-- peers of sealed SQLite: begin (written by strongroom-bench-sqlite) -->",
    end: "<!-- peers of sealed SQLite: end -->",
};

/// Around the figures of confidential columns.
pub const COLUMNS: Markers = Markers {
    begin: "<!-- confidential columns: begin (written by strongroom-bench-columns) -->",
    end: "<!-- confidential columns: end -->",
};

/// Around those at scale 1 and above.
pub const COLUMNS_LARGE: Markers = Markers {
    begin: "<!-- confidential columns, large: begin (written by strongroom-bench-columns --scale 1) -->",
    end: "<!-- confidential columns, large: end -->",
};

/// Of `strongroom-bench-backup`.
pub const BACKUP: Markers = Markers {
    begin: "<!-- backup figures: begin (written by strongroom-bench-backup) -->",
    end: "<!-- backup figures: end -->",
};

/// Of `strongroom-bench-backup --matrix`.
pub const BACKUP_MATRIX: Markers = Markers {
    begin: "<!-- backup matrix: begin (written by strongroom-bench-backup) -->",
    end: "<!-- backup matrix: end -->",
};

/// Of `strongroom-bench-postgres`.
pub const POSTGRES: Markers = Markers {
    begin: "<!-- PostgreSQL figures: begin (written by strongroom-bench-postgres) -->",
    end: "<!-- PostgreSQL figures: end -->",
};

/// Of `strongroom-bench-postgres --instructions`.
pub const POSTGRES_INSTRUCTIONS: Markers = Markers {
    begin: "<!-- PostgreSQL instructions: begin (written by strongroom-bench-postgres) -->",
    end: "<!-- PostgreSQL instructions: end -->",
};

/// `document` with `figures` between its markers. `None` when the markers are not there, once each
/// and in order.
#[must_use]
pub fn splice(document: &str, markers: Markers, figures: &str) -> Option<String> {
    let Markers { begin, end } = markers;
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    if after.contains(begin) || after.contains(end) {
        return None;
    }
    Some(format!(
        "{before}{begin}\n\n{}\n\n{end}{after}",
        figures.trim()
    ))
}

/// Replaces the figures in the document at `path`.
///
/// # Errors
/// The document cannot be read or replaced, or has no markers.
pub fn splice_file(path: &Path, markers: Markers, figures: &str) -> Result<(), Failure> {
    let document = std::fs::read_to_string(path)?;
    let spliced = splice(&document, markers, figures).ok_or_else(|| {
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
    use super::{
        BACKUP, BACKUP_MATRIX, Markers, POSTGRES, POSTGRES_INSTRUCTIONS, SQLITE, SQLITE_PEERS,
        splice,
    };

    const ALL: [Markers; 6] = [
        SQLITE,
        SQLITE_PEERS,
        POSTGRES,
        POSTGRES_INSTRUCTIONS,
        BACKUP,
        BACKUP_MATRIX,
    ];

    #[test]
    fn only_what_is_between_the_markers_changes() {
        for markers in ALL {
            let Markers { begin, end } = markers;
            let document = format!("a\n{begin}\nold\n{end}\nb\n");
            let spliced = splice(&document, markers, "| new |\n").unwrap();
            assert_eq!(spliced, format!("a\n{begin}\n\n| new |\n\n{end}\nb\n"));
            assert_eq!(splice(&spliced, markers, "| new |").unwrap(), spliced);
        }
    }

    #[test]
    fn each_table_has_a_place_of_its_own() {
        let place = |Markers { begin, end }| format!("{begin}\n\nold\n\n{end}\n");
        let document = ALL.map(place).concat();
        for (index, markers) in ALL.into_iter().enumerate() {
            let mut expected = ALL.map(place);
            expected[index] = expected[index].replace("old", "new");
            let spliced = splice(&document, markers, "new").unwrap();
            assert_eq!(spliced, expected.concat());
        }
    }

    #[test]
    fn missing_or_repeated_markers_are_refused() {
        let Markers { begin, end } = SQLITE;
        assert!(splice("no markers", SQLITE, "x").is_none());
        assert!(splice(&format!("{end}{begin}"), SQLITE, "x").is_none());
        assert!(splice(&format!("{begin}{end}{begin}{end}"), SQLITE, "x").is_none());
    }
}
