//! The forms that results are written in.
//!
//! Must not: write one.

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Aligned columns.
    Table,
    /// RFC 4180.
    Csv,
    /// One array of objects for each statement.
    Json,
}

impl Mode {
    /// Returns the mode of this name, as `.mode` takes it; `None` for another text.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "table" => Self::Table,
            "csv" => Self::Csv,
            "json" => Self::Json,
            _ => return None,
        })
    }
}
