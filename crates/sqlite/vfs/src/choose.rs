//! Decides, when SQLite opens a file, of which kind it is: sealed, plain, a log, a journal, or a
//! temporary file.
//!
//! Invariants:
//! V1. A file that begins with the sealed magic is never given to SQLite as a plain one.
//! V2. A temporary file is always sealed, because SQLite does not say which database its rows come
//!     from.
//! V3. The log or journal of a sealed database is sealed, or it is not opened at all.
//!
//! Must not: open or close the file below.
#![expect(unsafe_code, reason = "calls SQLite about file names")]

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;

use strongroom_format::code;
use strongroom_format::header::{HEADER_LEN, Header, HeaderError, ObjectKind, is_sealed};
use strongroom_format::layout::is_zero;
use strongroom_format::sqlite::{AuxKind, JOURNAL_MAGIC, Prologue, prologue_layout};
use strongroom_keyring::{KeySource, Keyring, inspect_checksum, redo};

use crate::api::api;
use crate::connection;
use crate::connection_list;
use crate::database_key::{names_a_key, opener_for};
use crate::defaults;
use crate::defaults::{Defaults, never_plain};
use crate::ffi::TEMPORARY_FILES;
use crate::ffi::{
    SQLITE_IOERR, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL, SQLITE_OPEN_READONLY,
    SQLITE_OPEN_SUPER_JOURNAL, SQLITE_OPEN_WAL,
};
use crate::handle;
use crate::handle::with;
use crate::header_creation;
use crate::io_methods::PassThrough;
use crate::journal::{JournalFile, JournalOwner};
use crate::key_options::KeyOptions;
use crate::lower::LowerFile;
use crate::main_file::MainFile;
use crate::new_database::NewDatabase;
use crate::open_file::OpenFile;
use crate::plain::PlainFile;
use crate::remote;
use crate::remote::Pointer;
use crate::report::{report, report_error};
use crate::sqlite_code::{SqliteCode, SqliteResult};
use crate::sqlite_text::uri_parameter;
use crate::super_journal::{SuperReader, SuperWriter};
use crate::temp::TempFile;
use crate::wal::WalFile;

/// What SQLite asked to open.
pub(crate) struct OpenRequest {
    pub(crate) name: *const c_char,
    pub(crate) path: String,
    pub(crate) flags: c_int,
    pub(crate) lower: LowerFile,
}

impl OpenRequest {
    /// Returns the value of the parameter `key` in the URI that is opened. `None` when it is
    /// absent.
    fn parameter(&self, key: &str) -> Option<String> {
        // SAFETY: `name` is a file name from SQLite's core, which is what the function asks for.
        unsafe { uri_parameter(self.name, key) }
    }
}

/// Decides by SQLite's flags and the file's first bytes of which kind the file is, and prepares it.
/// Fetches the key of a sealed database, from its URI, a registration or the program's defaults,
/// and opens it; without a key it stays locked. An empty database becomes sealed if there is a key,
/// and plain otherwise. A pointer to a remote database is followed to its server. The log or
/// journal of a new sealed database has that database's header written first.
///
/// After an error the caller closes the file below. Errors of Strongroom are reported: SR-3001 to
/// SR-3008 for a file that is damaged or of another kind, SR-2282 and SR-2284 for one that must not
/// be plain, SR-6005 where another VFS hides a sealed database, SR-2001 for a log or journal
/// without a key, SR-4005 for a super-journal, those of the key and of a remote server. An error of
/// the VFS below may be returned without a report.
pub(crate) fn choose_file(request: &OpenRequest) -> SqliteResult<OpenFile> {
    let lower = request.lower;
    if request.flags & TEMPORARY_FILES != 0 {
        return Ok(OpenFile::Temporary(TempFile::new(lower)?));
    }
    if request.flags & SQLITE_OPEN_MAIN_DB != 0 {
        return choose_main(request);
    }
    if request.flags & SQLITE_OPEN_MAIN_JOURNAL != 0 {
        return choose_log_or_journal(request, |main, sealed| {
            let of = JournalOwner {
                sealed,
                main: main.lower(),
                shared: Arc::clone(main.shared()),
            };
            let journal = JournalFile::new(lower, of);
            main.set_journal(&journal);
            OpenFile::Journal(journal)
        });
    }
    if request.flags & SQLITE_OPEN_WAL != 0 {
        return choose_log_or_journal(request, |main, sealed| {
            let shared = Arc::clone(main.shared());
            OpenFile::Log(Box::new(WalFile::new(lower, main.lower(), sealed, shared)))
        });
    }
    if request.flags & SQLITE_OPEN_SUPER_JOURNAL != 0 {
        return choose_super_journal(request);
    }
    Ok(OpenFile::PassThrough(PassThrough(lower)))
}

/// Decides whether a main database is sealed, plain, remote, or new. A sealed file becomes sealed
/// whatever the parameters say; SR-3006 if it ends within the header. An empty file becomes sealed
/// if a key is named, and plain otherwise. With a key, SR-3008 for an existing plain database and
/// SR-3001 for any other file.
fn choose_main(request: &OpenRequest) -> SqliteResult<OpenFile> {
    if remote::is_remote(request.lower) {
        return choose_remote(request, None);
    }
    let parameters =
        KeyOptions::read(|key| request.parameter(key)).map_err(|error| report_error(&error))?;
    let mut header = vec![0; HEADER_LEN];
    let size = request.lower.size()?;
    let whole = request.lower.read_whole(&mut header, 0)?;
    if size > 0 && is_sealed(&header) {
        if !whole {
            return Err(report(&code::HEADER_TRUNCATED, request.path.as_str()));
        }
        return open_sealed(request, &parameters, &header);
    }
    if let Some(pointer) = remote::open_pointer_target(request.lower, &request.path, &header)? {
        return choose_remote(request, Some(&pointer));
    }
    let empty = size == 0 || header_creation::is_unfinished(size, &header);
    let plain = header.starts_with(b"SQLite format 3\0");
    if plain && may_stay_plain(request, &parameters)? {
        return plain_file(request, &parameters, false);
    }
    let key = opener_for_request(request, &parameters, empty)?;
    match key {
        None => plain_file(request, &parameters, size == 0),
        Some(opener) if empty => {
            let source = connection::vacuum_source_page_size();
            let wanted = new_database_settings(request, &parameters, source.flatten())?;
            // SQLite lays out a connection's own database as it does a plain one, so that PRAGMA
            // auto_vacuum and page_size work on it; `connection::lay_out_new_database` reserves the
            // bytes as soon as it is open. There is no such moment for an attached database: a
            // synthetic header that fixes its layout tells SQLite of the reserved bytes.
            let free = source.is_some() || !connection_list::may_be_opened_by_sql();
            let path = request.path.clone();
            let main = MainFile::create(request.lower, path, wanted, opener, free)?;
            Ok(OpenFile::Main(Box::new(main)))
        }
        Some(_) => Err(report(
            if plain {
                &code::PLAIN_FILE
            } else {
                &code::NOT_SEALED
            },
            request.path.as_str(),
        )),
    }
}

/// Whether an existing plain database is to be opened as plain without looking for a key, because
/// the program has a default key and allows plain databases. False when there is no default key or
/// the database names one of its own. SR-2284 when the default key forbids plain databases.
fn may_stay_plain(request: &OpenRequest, parameters: &KeyOptions) -> SqliteResult<bool> {
    let defaults = defaults::get().map_err(|error| report_error(&error))?;
    let Some(defaults) = defaults else {
        return Ok(false);
    };
    if names_a_key(parameters, &request.path) {
        return Ok(false);
    }
    if defaults.open_existing_plain() || parameters.allow_plaintext {
        return Ok(true);
    }
    Err(report(&code::DEFAULT_PLAIN, request.path.as_str()))
}

/// Makes a plain file. SR-2282 where the process may open sealed databases only.
fn plain_file(
    request: &OpenRequest,
    parameters: &KeyOptions,
    was_empty: bool,
) -> SqliteResult<OpenFile> {
    if never_plain() {
        return Err(report(&code::NEVER_PLAIN, request.path.as_str()));
    }
    Ok(OpenFile::Plain(PlainFile::new(
        request.lower,
        request.path.clone(),
        was_empty,
        parameters.allow_plaintext,
    )))
}

/// Returns cipher, page size and freshness for a new database: from its URI, else from the
/// program's defaults, else AES-256-GCM, 4096 bytes and no freshness. `copied` is the page size of
/// the database that VACUUM INTO copies, and takes the place of the default page size. SR-6009 if
/// the program's defaults are malformed.
fn new_database_settings(
    request: &OpenRequest,
    parameters: &KeyOptions,
    copied: Option<u32>,
) -> SqliteResult<NewDatabase> {
    let defaults = defaults::get().map_err(|error| report_error(&error))?;
    let defaults = defaults.filter(|_| !names_a_key(parameters, &request.path));
    let Some(defaults) = defaults.map(Defaults::options) else {
        return Ok(parameters.new_database(copied.unwrap_or(4096)));
    };
    let size = copied.or(defaults.page_size).unwrap_or(4096);
    let mut wanted = parameters.new_database(size);
    wanted.cipher = parameters
        .cipher
        .or(defaults.cipher)
        .unwrap_or(wanted.cipher);
    wanted.freshness |= defaults.freshness;
    Ok(wanted)
}

/// Opens a sealed database on a web server, whose file has taken the place of the file below. The
/// key is the one that the URI or the pointer file names. SR-3001 if the remote file is not sealed.
fn choose_remote(request: &OpenRequest, pointer: Option<&Pointer>) -> SqliteResult<OpenFile> {
    let parameters = remote::key_options(|key| request.parameter(key), pointer)
        .map_err(|error| report_error(&error))?;
    let header = remote::read_header(request.lower)?;
    open_sealed(request, &parameters, &header)
}

/// Opens a sealed database (V1), whose header `in_place` was read from the file. A newer redo copy
/// of the header replaces it. The structure is checked before a key is fetched, so that damage is
/// not taken for a wrong key: SR-3002 for a newer version, SR-3003 if it is damaged, SR-3007 for
/// another kind of object; for remote files also SR-2249 and SR-2254. Without a key the file stays
/// locked; SR-2002 for a wrong key.
fn open_sealed(
    request: &OpenRequest,
    parameters: &KeyOptions,
    in_place: &[u8],
) -> SqliteResult<OpenFile> {
    // No local file influences a remote database.
    let (header, path) = if remote::is_remote(request.lower) {
        (in_place.to_vec(), remote::name(request.lower))
    } else {
        let newest = redo::newest_header(Path::new(&request.path), in_place);
        (newest, request.path.clone())
    };
    let path = path.as_str();
    let parsed = match Header::parse(&header) {
        Err(HeaderError::Newer(version)) => {
            return Err(report(
                &code::NEWER_FORMAT,
                format!("{path}: version {version}"),
            ));
        }
        Ok(parsed) if inspect_checksum(&header) => parsed,
        _ => return Err(report(&code::HEADER_DAMAGED, path)),
    };
    if parsed.kind != ObjectKind::Sqlite {
        return Err(report(
            &code::WRONG_KIND,
            format!("{path}: {}", parsed.kind.name()),
        ));
    }
    remote::check_cipher(request.lower, parsed.cipher)?;
    remote::check_cost(request.lower, &parsed.slots)?;
    let opener = opener_for_request(request, parameters, false)?;
    Ok(OpenFile::Main(Box::new(MainFile::existing(
        request.lower,
        path.to_owned(),
        parsed.unit_size,
        opener,
    )?)))
}

/// Fetches the key for this file; `None` when none is named. SR-2018 when the key comes from a
/// command, or from a keyring whose provider runs one or acts in another way, and an SQL statement
/// may have named it, unless `STRONGROOM_ATTACH_KEY_COMMAND` is 1. Otherwise the errors of
/// `KeySource::opener`, the keyring's provider's among them. Errors are reported.
fn opener_for_request(
    request: &OpenRequest,
    parameters: &KeyOptions,
    creating: bool,
) -> SqliteResult<Option<Arc<strongroom_keyring::Opener>>> {
    // A user who can make an application run ATTACH must not be able to make it run a command in
    // this way: neither a command in the URI, nor one that is the provider of a keyring named in
    // the URI. A provider may also load a module or send credentials.
    let is_command = matches!(parameters.source, Some(KeySource::Command(_)))
        || parameters
            .keyring
            .as_deref()
            .is_some_and(|path| Keyring::status(path).is_ok_and(|about| about.provider_acts));
    let allowed =
        std::env::var_os("STRONGROOM_ATTACH_KEY_COMMAND").is_some_and(|value| value == "1");
    // A connection that is older than the extension reaches this VFS only through the parameter
    // `vfs`, and is not in the list of connections.
    let by_sql = || request.parameter("vfs").is_some() || connection_list::may_be_opened_by_sql();
    if is_command && !allowed && by_sql() {
        return Err(report(&code::KEY_COMMAND_REFUSED, request.path.as_str()));
    }
    opener_for(parameters, &request.path, creating).map_err(|error| report_error(&error))
}

/// Makes the log or journal of a database: with `sealed_body` when the database is sealed (V3), and
/// otherwise as a file that passes through, or as the log of a plain database. Writes the header of
/// a new sealed database first. SR-6005 if another VFS hides the database, and a sealed one of that
/// path is open; SR-2001 if no key has opened the database.
fn choose_log_or_journal(
    request: &OpenRequest,
    sealed_body: impl FnOnce(&mut MainFile, Arc<crate::sealed::SealedDatabase>) -> OpenFile,
) -> SqliteResult<OpenFile> {
    let Some(api) = api() else {
        return Err(SqliteCode(SQLITE_IOERR));
    };
    // SAFETY: SQLite opens journals and logs with names that it made itself, as the function
    // demands.
    let main = unsafe { (api.database_file_object)(request.name) };
    if !handle::is_ours(main) {
        // Another VFS above this one hides the database in its own file object.
        let database = request
            .path
            .strip_suffix("-journal")
            .or_else(|| request.path.strip_suffix("-wal"));
        let sealed = crate::sealed::SealedDatabase::find_open(|path, _| Some(path) == database);
        if !sealed.is_empty() {
            return Err(report(&code::FOREIGN_VFS, request.path.as_str()));
        }
        return Ok(OpenFile::PassThrough(PassThrough(request.lower)));
    }
    let mut sealed_body = Some(sealed_body);
    let body = with(main, |open| {
        let is_log = request.flags & SQLITE_OPEN_WAL != 0;
        if let Some(plain) = open.file.as_plain()
            && is_log
        {
            return Ok(Some(OpenFile::PlainLog(plain.log(request.lower))));
        }
        let Some(main) = open.file.as_main() else {
            return Ok(None);
        };
        let sealed = main.sealed_for_auxiliary()?;
        Ok(sealed_body.take().map(|make| make(main, sealed)))
    })?;
    Ok(body.unwrap_or_else(|| OpenFile::PassThrough(PassThrough(request.lower))))
}

/// Whether `bytes` are the beginning of a sealed journal that is shorter than its prologue.
fn begins_journal(bytes: &[u8]) -> bool {
    let magic = bytes.get(..JOURNAL_MAGIC.len().min(bytes.len()));
    bytes.len() < prologue_layout::SIZE
        && magic.is_some_and(|magic| JOURNAL_MAGIC.starts_with(magic))
}

/// Makes the reader or writer of a super-journal. A journal that recovery reads as one becomes a
/// reader too if it is sealed, and passes through if it is plain, or if its first write was
/// interrupted. SR-4005 if the file cannot be opened or is not recognised. Reads at most 1 MiB of
/// it.
fn choose_super_journal(request: &OpenRequest) -> SqliteResult<OpenFile> {
    let lower = request.lower;
    if request.flags & SQLITE_OPEN_READONLY == 0 {
        return Ok(OpenFile::SuperWriter(SuperWriter::new(lower)));
    }
    let size = usize::try_from(lower.size()?.min(1 << 20)).map_err(|_| SqliteCode(SQLITE_IOERR))?;
    let mut bytes = vec![0; size];
    lower.read_whole(&mut bytes, 0)?;
    if !bytes.is_empty() && begins_journal(&bytes) {
        // The first write of a sealed journal was interrupted. It was never synced, so nothing
        // depends on the journal, and it names no super-journal. Its own database would have
        // removed it.
        return Ok(OpenFile::PassThrough(PassThrough(lower)));
    }
    if AuxKind::of(&bytes).is_none() {
        return match bytes.first() {
            // Names in clear. SQLite writes absolute paths.
            Some(b'/') => Ok(OpenFile::SuperReader(SuperReader::from_clear_names(
                lower,
                request.path.clone(),
                bytes,
            ))),
            // A plain database's journal: empty, ended (zeros), or beginning as SQLite's journals
            // do.
            None | Some(0xd9) => Ok(OpenFile::PassThrough(PassThrough(lower))),
            Some(0) if bytes.get(..28).is_some_and(is_zero) => {
                Ok(OpenFile::PassThrough(PassThrough(lower)))
            }
            Some(_) => Err(report(&code::SUPER_JOURNAL, request.path.as_str())),
        };
    }
    let Some(prologue) = Prologue::parse(&bytes) else {
        return Err(report(&code::SUPER_JOURNAL, request.path.as_str()));
    };
    if prologue.kind == AuxKind::SuperJournal {
        return Ok(OpenFile::SuperReader(SuperReader::open(
            lower,
            request.path.clone(),
            &bytes,
        )?));
    }
    Ok(OpenFile::SuperReader(SuperReader::presume(
        lower,
        request.path.clone(),
    )?))
}
