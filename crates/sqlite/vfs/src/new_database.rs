//! What a new database is to be like.
//!
//! Must not: hold a key.

use strongroom_format::header::Cipher;

/// The settings of a database that is still to be created.
#[derive(Clone, Copy)]
pub(crate) struct NewDatabase {
    /// Page cipher.
    pub cipher: Cipher,
    /// Page size in bytes.
    pub page_size: u32,
    /// Its anchors keep a digest over its pages.
    pub freshness: bool,
}
