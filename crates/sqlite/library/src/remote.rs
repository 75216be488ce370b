//! Opens a sealed database on a web server, read-only.
//!
//! Must not: put key material into a URI.

use rusqlite::{Connection, OpenFlags};
use strongroom_keyring::Error;
use strongroom_sqlite_http::Options;
use strongroom_sqlite_vfs as vfs;

use crate::open::{OpenOptions, explain, register, uri, with_key};

/// Opens the sealed database at `remote.url`, and reads its schema. Of `options`, only `key` and
/// `keyring` are used.
///
/// The connection is read-only and sees one version of the file, which is the server's at the time
/// of the open. A read that needs more of it after the server has another version fails with
/// SR-2246; a new connection sees the new version.
///
/// # Errors
/// SR-2240 to SR-2253; those of the key (SR-2xxx), of the header (SR-3xxx) and of page 1 (SR-4001).
///
/// ```no_run
/// use strongroom_sqlite::{KeySource, OpenOptions, RemoteOptions, open_remote};
///
/// let key = KeySource::KeyId { id: "books".to_owned() };
/// let options = OpenOptions { key: Some(key), ..OpenOptions::default() };
/// let mut remote = RemoteOptions::new("https://cdn.example/books.db");
/// remote.cache = Some("/var/cache/books".into());
/// let connection = open_remote(&remote, &options)?;
/// # Ok::<(), strongroom_sqlite::Error>(())
/// ```
pub fn open_remote(remote: &Options, options: &OpenOptions) -> Result<Connection, Error> {
    register()?;
    // A name for SQLite; no file of this name is opened. There is one for each address, because
    // keys are registered by name.
    let path = std::path::PathBuf::from(format!("/strongroom-remote/{}", label(&remote.url)));
    let opener = options.opener(&path, false)?;
    let uri = uri(&path, &remote.parameters())?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_FULL_MUTEX;
    let connection = with_key(&path, opener, || {
        vfs::asked_by_application(|| Connection::open_with_flags(&uri, flags).map_err(explain))
    })?;
    let settled = connection.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0));
    settled.map_err(explain)?;
    Ok(connection)
}

/// Returns the address without its query and without what would be syntax in a path, at most 200
/// characters.
fn label(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name = plain.chars().map(|c| if kept(c) { c } else { '-' });
    name.take(200).collect()
}
