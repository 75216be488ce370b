//! The stable error codes: number, what happened, what to do, and the exit code of the class.
//!
//! This table is the one source of docs/reference/errors.md (checked by `tests/spec.rs`) and of
//! `strongroom explain`. A number is never reused. Must not: carry anything that varies, so nothing
//! secret can be in it.

/// Who has to act, which is also the exit code of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call was wrong. Exit code 2.
    Usage,
    /// A key is missing, wrong or out of reach. Exit code 3.
    Key,
    /// Bytes are damaged, forged, or not what they should be. Exit code 4.
    Data,
    /// The operating system refused. Exit code 5.
    Io,
    /// Refused to protect data. Exit code 6.
    Refused,
    /// A warning: nothing failed. Exit code 0.
    Warning,
    /// A defect in Strongroom. Exit code 70.
    Bug,
}

impl Class {
    /// The command's exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Warning => 0,
            Self::Usage => 2,
            Self::Key => 3,
            Self::Data => 4,
            Self::Io => 5,
            Self::Refused => 6,
            Self::Bug => 70,
        }
    }
}

/// One stable error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Four digits, shown as `SR-nnnn`.
    pub number: u16,
    /// Who has to act.
    pub class: Class,
    /// What happened, one line.
    pub what: &'static str,
    /// What to do, one line.
    pub todo: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $class:ident, $what:literal, $todo:literal;)*) => {
        $(
            #[doc = $what]
            pub const $name: Code = Code { number: $number, class: Class::$class, what: $what, todo: $todo };
        )*
        /// Every code, in order of number.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    USAGE = 1001, Usage, "the command line is not valid", "see the command's --help";
    EXISTS = 1002, Refused, "the output exists already, and would have to be overwritten", "choose another name, or move the existing file away first";
    SAME_FILE = 1003, Usage, "input and output are the same file", "name another file for the output";
    NO_TERMINAL = 1004, Usage, "a passphrase has to be typed, but there is no terminal", "run the command at a terminal, or give the passphrase in the way that the message names; where it names none, give the key with --key-file, --key-env or --key-command, or use a keyring whose root key needs no passphrase (`strongroom keyring rotate-root`)";
    SQL = 1005, Usage, "SQLite refused the statement", "correct the SQL; SQLite's own message is shown with this error";
    NOT_FOUND = 1006, Usage, "the file does not exist", "check the path";
    NOT_A_FILE = 1007, Usage, "the path does not name a regular file", "name the file itself: a directory, a pipe or a device cannot be used here";

    NO_KEY = 2001, Key, "the object is sealed, and no key was given", "give one of --key-id, --key-env, --key-file, --key-command or --ask (URI: key_id, key_env, key_file, key_command)";
    WRONG_KEY = 2002, Key, "no key slot opens with the key that was given", "give the key that the object was sealed with; `strongroom inspect` lists its slots";
    UNKNOWN_KEY_ID = 2003, Key, "the keyring holds no key of that name or version", "check the name with `strongroom key list`, or name the right keyring with --keyring";
    KEYRING_MISSING = 2004, Key, "there is no keyring at this path", "create one with `strongroom keyring init`, or name yours with --keyring or STRONGROOM_KEYRING";
    KEYRING_DAMAGED = 2005, Data, "the keyring is damaged", "change nothing in it; put a backup of the file back, or import an export into a new keyring: `strongroom keyring init`, then `strongroom keyring import FILE`";
    KEYRING_WRONG_ROOT = 2006, Key, "the root key does not open the keyring", "check the key that the keyring's provider delivers; `strongroom keyring status` names the provider";
    KEY_FILE = 2007, Key, "the key file cannot be read", "check that it exists and that this user may read it";
    KEY_ENV = 2008, Key, "the environment variable that should hold the key is not set", "set the variable for this process only";
    KEY_COMMAND = 2009, Key, "the key command failed", "run the command by hand: it must exit with 0 and print the key on standard output";
    KEY_COMMAND_TIMEOUT = 2010, Key, "the key command did not finish in time, and was ended", "make it answer within 30 seconds, or set STRONGROOM_KEY_COMMAND_TIMEOUT (seconds)";
    KEY_MALFORMED = 2011, Key, "the key is empty, too long, or in no form that is known", "give 64 hexadecimal digits, `encryptionkey=` and 64 hexadecimal digits, 32 raw bytes, or a passphrase";
    KEY_RETIRED = 2012, Key, "the key is retired, and seals nothing new", "use an active key, or make a new version of this one: `strongroom key rotate NAME`";
    KEY_NAME = 2013, Usage, "the name of a key or of a client is not valid", "use 1 to 128 characters of a-z, A-Z, 0-9, '.', '_', '-'";
    KEY_EXISTS = 2014, Refused, "the keyring has a key of that name already", "choose another name, or make a new version of the key: `strongroom key rotate NAME`";
    KEYRING_EXISTS = 2015, Refused, "there is a keyring at this path already", "use it, or name another path with --keyring; a keyring is never overwritten";
    KEYRING_BUSY = 2016, Io, "another process is changing the keyring", "try again when that process has finished";
    KEY_CHANGED = 2017, Key, "another process changed the object's key while the object was open", "close the object, and open it again with the new key";
    KEY_COMMAND_REFUSED = 2018, Refused, "a key command named in SQL was refused", "open the database by URI from the application; or set STRONGROOM_ATTACH_KEY_COMMAND=1, if everyone who can send SQL may run commands";
    KEY_OPTION = 2019, Usage, "the key options or URI parameters contradict one another, or are not valid", "give exactly one source for each key";
    PROVIDER = 2020, Usage, "the provider is not known, or its argument is not valid", "use passphrase, env:VAR, file:PATH, command:CMD, or a kind that docs/guides/providers.md names";
    IMPORT_DIFFERS = 2021, Refused, "the keyring has another key of the same name and version as an imported one", "import the export into a new keyring (`strongroom --keyring NEW keyring init --provider PROVIDER`, then `strongroom --keyring NEW keyring import FILE`) and find out which keyring sealed what; nothing was changed";
    NOT_EXPORTED = 2022, Warning, "some keys of this keyring were never exported: if the keyring is lost, what they seal is lost", "run `strongroom keyring export --out FILE`, and keep the file elsewhere";
    MEMORY_NOT_LOCKED = 2023, Warning, "the memory that holds keys could not be locked, and may be swapped out", "raise the memlock limit (ulimit -l) to at least 1024 KiB, or encrypt the swap space";
    KEYRING_FULL = 2024, Refused, "the keyring is full: it holds 65536 versions of keys, or 256 certificates", "make a second keyring: `strongroom --keyring NEW keyring init --provider PROVIDER`";
    CERT_EXISTS = 2025, Refused, "the keyring has a certificate of that name, or with that public key, already", "choose another name; `strongroom cert list` shows the certificates";
    CERT_UNKNOWN = 2026, Key, "the keyring has no such certificate", "check the name with `strongroom cert list`, or name the right keyring with --keyring";
    CERT_WEAK = 2027, Refused, "the certificate cannot be used: its key is not RSA of 2048 to 4096 bits, is weak, or may not be used for key encipherment", "use an RSA certificate of 3072 or 4096 bits; `strongroom cert create NAME` makes one";
    CERT_MISMATCH = 2028, Refused, "the private key does not belong to the certificate", "give the private key that the certificate was issued for";
    CERT_FILE = 2029, Data, "the file holds no certificate that can be read", "give a certificate in PEM or DER, with or without its private key, or a PKCS #12 file";
    CERT_PASSPHRASE = 2030, Key, "the passphrase does not open the private key in the file", "give the passphrase that the file was made with: --key-file, --key-env, --key-command or --ask";
    CERT_NO_KEY = 2031, Key, "the keyring does not hold the private key of this certificate", "bring it back from the PKCS #12 file that was exported: `strongroom cert restore FILE`";
    CERT_NEEDED = 2032, Key, "the object opens only with the private key of a certificate, and the keyring holds none that fits", "bring back the private key of one of the certificates that the message names: `strongroom cert restore FILE`";
    CERT_NOT_EXPORTED = 2033, Warning, "the private key of a certificate was never exported: if this keyring is lost, backups that are sealed for the certificate alone can never be read", "run `strongroom cert export NAME --out FILE`, and keep the file and its passphrase elsewhere, apart from each other";
    EXPORT_UNPROVED = 2034, Io, "the new export, of a keyring or of a certificate, does not open when it is read back, and was not kept", "check the disk, and export again";
    CERT_DATES = 2035, Warning, "the certificate is not valid today: it has expired, or its time has not begun", "what was sealed for it still opens; for new backups make or import a certificate: `strongroom cert create NAME`, `strongroom cert import FILE`";
    CERT_RETIRED = 2036, Key, "the certificate is retired, and seals nothing new", "use an active certificate; `strongroom cert list` shows them";
    CERT_SUBJECT = 2037, Usage, "the subject or the number of days of the certificate is not valid", "write the subject as CN=NAME,O=NAME,C=XX, and give 1 to 36500 days";
    TEXT_AS_RAW_KEY = 2038, Warning, "a passphrase of 32 bytes opened this as a raw key, without Argon2id, as an older version sealed it: guessing it is cheap", "make new key slots, with the same passphrase if you like: `strongroom sqlite rekey --slots-only`, `strongroom pg rotate --slots-only`, `strongroom backup rewrap` or `strongroom keyring rotate-root`; older copies keep the weak slot";
    KEYRING_OLDER = 2039, Refused, "this is an older copy of the keyring than the one that was last changed on this host: versions of keys that were retired since would seal again", "put the newest copy back; if there is none, run `strongroom keyring accept-older`, then `strongroom key rotate NAME` for every key, and retire again what was retired";
    KEYRING_OLDER_USED = 2040, Warning, "this is an older copy of the keyring than the one that was last changed on this host: keys that were made since are missing, and keys that were retired since appear active", "put the newest copy back; if there is none, run `strongroom keyring accept-older`, then `strongroom key rotate NAME` for every key, and retire again what was retired";
    KEY_NONE = 2041, Usage, "no key was given", "name one: --key-id for a key of the keyring, or --key-file, --key-env, --key-command, or --ask for a passphrase at the terminal";
    PASSPHRASE_TEXT = 2042, Key, "the passphrase, share or token is empty, too long, or not text", "look at the file or variable that the message names: it must hold 1 to 1024 bytes of UTF-8 text, without a zero byte; one line end after the text does not count";
    ENVIRONMENT_SECONDS = 2043, Usage, "an environment variable holds no valid time limit", "set the variable that the message names to a whole number of seconds from 1 to 3600, or unset it";
    EXPORT_KEY = 2044, Usage, "an export of a keyring needs a key from outside the keyring, and none was given", "give --ask for a passphrase at the terminal, or --key-file, --key-env or --key-command; a key of the keyring would be lost together with it";

    PROVIDER_ELSEWHERE = 2100, Key, "the keyring's root key comes from a provider that this program does not have", "use a `strongroom` command that was built with the provider, or change the provider with that command: `strongroom keyring rotate-root --provider PROVIDER`";
    PROVIDER_UNREACHABLE = 2101, Key, "the provider of the root key could not be reached, or did not answer in time", "check that its server, device or module is there and answers; nothing was changed";
    PROVIDER_DENIED = 2102, Key, "the provider of the root key rejected the credentials, or does not permit their holder to use the key", "check the PIN, certificate or access token, and that their holder may use the key; some devices lock after a few wrong PINs";
    PROVIDER_NO_KEY = 2103, Key, "the provider of the root key does not have the key, or has destroyed it", "check the name of the key; if the key was destroyed, restore the keyring from an export";
    PROVIDER_DISABLED = 2104, Key, "the provider's key is disabled, or may not wrap and unwrap keys", "enable the key at the provider, or use one that may wrap and unwrap";
    PROVIDER_ANSWER = 2105, Data, "the provider did not unwrap the root key, or its answer is not authentic: it is damaged, forged, or comes from another key", "check that the keyring and the provider's key belong together; if they do, restore the keyring from a backup";
    PROVIDER_STATE = 2106, Key, "the machine is not in the state that the root key was sealed for", "boot the system that the key was sealed under, or import an export into a new keyring; before the next update of the system, change to another provider: `strongroom keyring rotate-root --provider PROVIDER`";
    PROVIDER_TRUST = 2120, Key, "the TLS certificate of the server that keeps the root key is not trusted", "check the address, and the certificate authority in the provider's `ca`; the check cannot be switched off";
    PROVIDER_DESTROYED = 2121, Key, "the provider's key is destroyed, or is scheduled for destruction", "cancel the destruction while the server allows it, or restore the key from the server's backup; otherwise restore the keyring from an export";
    PROVIDER_BUSY = 2122, Key, "the server that keeps the root key cannot serve now: it is sealed, on standby, overloaded, or has failed", "unseal the server or wait, then try again";
    PROVIDER_CREDENTIALS = 2123, Key, "the credentials for the server that keeps the root key are missing, or cannot be used", "check the file or variable that the provider names: this user, and nobody else, must be able to read it";
    PROVIDER_TLS = 2124, Key, "this host and the server that keeps the root key have no TLS version or cipher in common", "give the server TLS 1.3, or a certificate with an ECDSA key (P-256): docs/guides/providers-network.md, \"KMIP\"";

    DUCKDB_NOT = 2200, Data, "the file is not a DuckDB database", "check the path; `strongroom inspect FILE` shows what the file is";
    DUCKDB_PLAIN = 2201, Refused, "the DuckDB database is not encrypted", "copy it into an encrypted one in DuckDB: ATTACH with ENCRYPTION_KEY, then COPY FROM DATABASE";
    DUCKDB_HEADER = 2202, Data, "the main header of the DuckDB database is damaged", "put a copy of the header back (`strongroom duckdb header-restore FILE COPY`), or restore the file from a backup";
    DUCKDB_FORMAT = 2203, Refused, "the DuckDB database has a format that this version does not know", "use a newer version of Strongroom; nothing was changed";
    DUCKDB_KEY = 2204, Key, "the key does not open the DuckDB database", "give the text that DuckDB gets as ENCRYPTION_KEY, in the same upper and lower case; if it is right, the header belongs to another file";
    DUCKDB_KEY_TEXT = 2205, Key, "DuckDB would not accept this text as a key", "write DuckDB's keys in ASCII, and other bytes as \\xHH; 32 random bytes in Base64 are best";
    DUCKDB_UNIT = 2206, Data, "a block or header of the DuckDB database failed authentication", "the block is damaged or forged, or was encrypted with another key; `strongroom verify FILE` names every such block; restore the file from a backup";
    DUCKDB_CHECKSUM = 2207, Data, "the inner checksum of a block or header of the DuckDB database is wrong", "the block is damaged; `strongroom verify FILE` names every such block; restore the file from a backup";
    DUCKDB_TRUNCATED = 2208, Data, "the DuckDB database file ends before its last block", "restore the file from a backup";
    DUCKDB_IN_USE = 2209, Io, "another process has the DuckDB database open", "close it there, then try again";
    DUCKDB_WAL = 2210, Refused, "the DuckDB database has a write-ahead log", "open it in DuckDB with its key, run CHECKPOINT and close it; the log is then gone";
    DUCKDB_REKEYING = 2211, Refused, "a change of the DuckDB database's key was begun and not finished", "run `strongroom duckdb rekey FILE` again with the same two keys: it goes on where it stopped";
    DUCKDB_REKEY_FILE = 2212, Data, "the file of an unfinished change of the DuckDB database's key is damaged, or belongs to another database", "put the file that belongs to this database back beside it; if it is lost, move the damaged or wrong one away and run `strongroom duckdb rekey FILE` again";
    DUCKDB_SAME_KEY = 2213, Refused, "the DuckDB database has that key already", "give another key; nothing was changed";
    DUCKDB_SHORT_KEY = 2214, Warning, "the new key is accepted although it is shorter than 32 bytes: DuckDB hashes a key only once, so that guessing a short one is cheap", "give the database a key of 32 random bytes in Base64: `strongroom duckdb rekey FILE`";
    DUCKDB_BACKUP = 2215, Refused, "the copy of the header does not belong to this DuckDB database and key, or the database needs no copy", "see the detail; nothing was changed";
    DUCKDB_HEADERS = 2216, Data, "neither of the two database headers of the DuckDB database is authentic", "restore the file from a backup";
    REMOTE_URL = 2240, Usage, "the address of a remote database, or one of its options, is not valid", "write url=https://HOST/PATH, percent-encoded in a URI; docs/reference/sqlite.md lists the options";
    REMOTE_UNREACHABLE = 2241, Io, "the server of a remote database could not be reached, or did not answer in time", "check the address and the network, then try again; http_timeout sets how many seconds one read may take";
    REMOTE_TRUST = 2242, Io, "the TLS certificate of the server of a remote database is not trusted", "check the address; where the certificate authority is a private one, name its file with http_ca; the check cannot be switched off";
    REMOTE_STATUS = 2243, Io, "the HTTP server of a remote database refused the request", "check the address, and that it may be read without logging in; the status of the answer is in the detail. Requests that got 408, 425, 429, 500, 502, 503 or 504 were sent several times before this error, others once";
    REMOTE_RANGES = 2244, Io, "the server of a remote database does not return the requested ranges of the file unchanged", "serve the file as a static file, with range requests and without compression";
    REMOTE_VALIDATOR = 2245, Io, "the server of a remote database sends no strong ETag, so that a change of the file would go unnoticed", "configure the server to send strong ETags";
    REMOTE_CHANGED = 2246, Io, "the remote database has changed since it was opened", "open it again; publish each version under a name of its own, so that readers can finish with the old one";
    REMOTE_REDIRECT = 2247, Io, "the server of a remote database answers with a redirect, which is not followed", "give the address that the redirect leads to";
    REMOTE_SQL = 2248, Refused, "the address of a remote database was named in SQL, and was refused", "open the database by URI from the application, or attach a pointer file; or set STRONGROOM_ATTACH_URL=1, if everyone who can send SQL may send requests";
    REMOTE_CIPHER = 2249, Refused, "the remote database is sealed with AES-256-CTR, so that changes by the server would go unnoticed", "publish a copy that is sealed with AES-256-GCM; VACUUM INTO makes one: docs/guides/remote.md";
    REMOTE_POINTER = 2250, Usage, "the pointer file of a remote database cannot be used", "check its lines; the file must belong to this user or to root, and nobody else may write to it";
    REMOTE_CACHE = 2251, Warning, "the cache of a remote database is not used", "check the directory: it must belong to this user, nobody else may write to it, and there must be room on the disk";
    REMOTE_NO_CLIENT = 2252, Usage, "this build cannot read over the network", "use the extension, or build the library with its feature `http`";
    REMOTE_CLEAR = 2253, Refused, "the address of a remote database begins with http:// and names another machine", "use https://; or add http_plain=1 to the parameters of the database's URI, if observers may see which parts are read; pages are authenticated either way";
    REMOTE_COST = 2254, Refused, "the key slots of the remote database ask for more memory or time than may be spent on what a server sends", "if you trust the file's origin, download it and open it from the disk; its publisher can make cheaper slots with `strongroom sqlite rekey --slots-only`";
    PYTHON_NO_EXTENSIONS = 2270, Usage, "the SQLite of this Python does not load extensions", "use a Python whose sqlite3 module does, such as the distribution's or one that was built with --enable-loadable-sqlite-extensions; or use apsw: docs/guides/python.md";
    PYTHON_KEY_VALUE = 2271, Usage, "a key was given as a value, which tracebacks and logs would show", "give a callable that returns the key, such as getpass.getpass, or say where the key is: key_id, key_file, key_env or key_command";
    PYTHON_NO_FILE = 2272, Usage, "a key was given for a database that has no file", "leave the key out; attach the sealed database to the one in memory";
    PYTHON_PLAIN = 2273, Refused, "the database is plain, or would be made plain", "name a key; open a plain database with sqlite3.connect, and seal one with strongroom.encrypt";
    OTHER_SQLITE = 2274, Refused, "the sealing VFS is installed in another SQLite library of this process already", "use only one SQLite library in a process; Python's sqlite3 module and apsw each bring their own";
    FOREIGN_WORD = 2280, Usage, "this is how another product asks for an encrypted database, or the word is misspelt", "see the detail for what to write instead; nothing was opened or changed";
    KEY_TOO_LATE = 2281, Refused, "the connection was opened before the extension was loaded, and its database is plain", "load the extension first, on a connection to :memory:, then open the database with key_id, key_env or key_file in its URI";
    NEVER_PLAIN = 2282, Refused, "this process must not open plain databases", "name a key in the URI, or unset STRONGROOM_SQLITE_NEVER_PLAIN";
    VFS_BYPASSED = 2283, Refused, "a key was named, but SQLite opens the database without the sealing VFS, and the database would be plain", "leave `vfs=` out of the URI, and load the extension before the connection is opened; after sqlite3_shutdown(), open the connection once more";
    DEFAULT_PLAIN = 2284, Refused, "the database is plain, and the program was started with a key", "seal it with `strongroom sqlite encrypt PLAIN SEALED`, or start the program with `strongroom sqlite run --existing-plain`";
    RUN_PROGRAM = 2285, Refused, "the extension cannot be loaded into the SQLite of this program, which would write plain databases", "see the detail; `strongroom sqlite shell` reads and writes sealed databases, and docs/guides/developer.md names other ways";
    RUN_LIBRARY = 2286, Usage, "the libraries for `strongroom sqlite run` were not found", "install libstrongroom_sqlite_run.so and libstrongroom_sqlite.so beside the command, in ../lib or in /usr/lib/strongroom, or set STRONGROOM_SQLITE_RUN_LIB to the path of the first";
    RUN_OWN_SQLITE = 2287, Warning, "the program has used, or could have used, an SQLite without the extension", "do not use the part of the program that the detail names: what it wrote is plain";
    OTHER_CIPHER = 2288, Usage, "the file is probably a database that another product encrypted", "decrypt it into a plain file with that product (SQLCipher: ATTACH ... KEY '' and sqlcipher_export), then seal the plain file: docs/guides/dba.md";
    VFS_LOADED_TWICE = 2289, Refused, "this process has another copy of the sealing VFS already", "load one copy of the extension only; in a program that `strongroom sqlite run` started, it is loaded already";
    SOURCE_KEY = 2290, Key, "the source is sealed, and no key that opens it was given", "name the source's key: --source-key-id, --source-key-file, --source-key-env, --source-key-command or --source-ask; --key-id and its like name the key of the backup";

    NOT_SEALED = 3001, Data, "the file is not a sealed object", "check the path; `strongroom inspect FILE` shows what the file is";
    NEWER_FORMAT = 3002, Data, "the object was written by a newer version of Strongroom", "open it with that version or a later one";
    HEADER_DAMAGED = 3003, Data, "the object's header is damaged", "restore the file from a backup; without the wrapped key in its header the data is lost";
    HEADER_FORGED = 3004, Data, "the object's header was changed without its key", "do not trust this file; restore it from a backup";
    CANARY = 3005, Data, "the canary in the header does not open: the header and the key do not belong together", "do not trust this file; restore it from a backup";
    HEADER_TRUNCATED = 3006, Data, "the file ends within the header", "restore the file from a backup";
    WRONG_KIND = 3007, Data, "the object is sealed, but is of another kind than the expected one", "`strongroom inspect FILE` shows its kind";
    PLAIN_FILE = 3008, Refused, "a key was given, but the file is a plain database", "seal it with `strongroom sqlite encrypt PLAIN SEALED`, or open it without a key";
    SLOTS_FULL = 3009, Refused, "the header has no room for another key slot", "give fewer keys or certificates, or remove a slot first; a header holds at most 8 key slots";
    ANCHOR = 3010, Data, "both anchors in the header are damaged", "restore the file from a backup; `strongroom verify FILE` shows what else is damaged";
    ALREADY_SEALED = 3011, Refused, "the file is sealed already", "change its key with `strongroom sqlite rekey SEALED`; to seal it anew, decrypt it first";

    PAGE = 4001, Data, "a page failed authentication", "the page is damaged, forged, or comes from another place; `strongroom verify FILE` names every such page; restore the database from a backup";
    PAGE_TRUNCATED = 4002, Data, "the file ends within a page", "restore the file from a backup";
    WAL_FRAME = 4003, Data, "a frame of the write-ahead log failed authentication", "`strongroom verify FILE` names the frame; restore the database and its log together from a backup";
    JOURNAL = 4004, Data, "the rollback journal failed authentication, or is cut short", "do not delete the journal: restore it and the database together from a backup";
    SUPER_JOURNAL = 4005, Data, "the super-journal failed authentication, or belongs to other databases", "in one connection, open the other databases of that transaction first";
    WAL_STALE = 4006, Data, "the write-ahead log does not belong to this state of the database", "the log comes from an older copy; remove it only if you want the database without it";
    JOURNAL_STALE = 4007, Data, "the rollback journal does not belong to this state of the database", "do not delete the journal: after a torn write or a copy from another time, it may be all that can undo a half-written transaction; copy database and journal to another place, then restore both from a backup";
    UNKNOWN_EPOCH = 4008, Data, "a page was sealed under a key epoch that the header does not have", "the page or the header comes from another copy of the file; restore the file from a backup";
    TEMP = 4009, Data, "a temporary file failed authentication", "look for a program or user that writes to SQLite's temporary directory; the statement was stopped";
    UNVERIFIED = 4010, Data, "some parts could not be verified", "see the list of what was not checked";
    MALFORMED = 4011, Data, "SQLite found the database malformed, although its pages are authentic or were not checked", "run `strongroom verify FILE` and PRAGMA integrity_check; restore the database from a backup";
    STALE = 4012, Data, "the pages do not match the digest in the header: one or more of them are older copies", "restore the database from a backup; if you know the reason and want these pages, run `strongroom verify --settle FILE`";
    ROOT = 4013, Data, "the freshness root of the database is not the expected one", "the database was changed since that root was noted, or it is an older copy: compare its root with the newest one that you have noted, and restore the newest copy if it differs";
    FRESHNESS_OFF = 4014, Usage, "the database was made without freshness", "choose freshness when a database is made: `strongroom sqlite encrypt --freshness`, or freshness=1 in the URI";

    IO = 5001, Io, "the operating system reported an error", "see its message; check disk space, permissions and the device";
    NO_MEMORY = 5002, Io, "there is not enough memory", "free memory, or raise the memory limit of the process";

    RESERVE = 6001, Refused, "pages without the reserved bytes cannot be written to a sealed database", "copy with VACUUM INTO or `strongroom sqlite encrypt PLAIN SEALED`; the backup API cannot add the reserved bytes";
    PAGE_SIZE = 6002, Refused, "the page size of a sealed database cannot be changed in place", "use PRAGMA page_size=N and then VACUUM INTO 'file:NEW?key_id=...&page_size=N'";
    PLAINTEXT_COPY = 6003, Refused, "a sealed database was to be copied into a plain file", "give the target a key, or add allow_plaintext=1 to its URI; or use `strongroom sqlite decrypt SEALED PLAIN`";
    ATTACH_KEY = 6004, Refused, "ATTACH ... KEY does not name a key here: SQLite ignores it and would make a plain database", "give the key in the file name: ATTACH 'file:x.db?key_id=NAME'; or register it with strongroom_key()";
    FOREIGN_VFS = 6005, Refused, "a sealed database was attached to a connection whose temporary files are not sealed", "open the connection itself through the sealing VFS: load the extension first, or add vfs=strongroom to the URI";
    KEY_ON_PLAIN = 6006, Refused, "PRAGMA key was used on a plain database", "seal it with `strongroom sqlite encrypt PLAIN SEALED` first";
    HOST_TOO_OLD = 6007, Usage, "this SQLite library is too old for the sealing VFS", "use SQLite 3.37 or later";
    CTR_WARNING = 6008, Warning, "AES-256-CTR does not authenticate: changed pages go unnoticed", "the database can be used; make new ones with AES-256-GCM unless you have a reason not to";
    URI = 6009, Usage, "a URI parameter, or another setting of a database, is not valid", "see the detail; docs/reference/sqlite.md lists the parameters";
    BUSY = 6010, Io, "another connection is using the database", "close it there, or try again";
    REKEY_NEEDED = 6011, Refused, "a rekey of this database was begun and not finished", "finish it with `strongroom sqlite rekey SEALED`";
    SEALS_MANY = 6012, Warning, "the data key of a database has sealed at least a quarter of the pages that it may seal", "nothing is refused; before it has sealed them all, give the database a new data key: `strongroom sqlite rekey SEALED`";
    SEALS_PASSED = 6013, Warning, "the data key of a database has sealed more pages than it may seal", "give the database a new data key with `strongroom sqlite rekey SEALED`; nothing is refused until then";
    OWNER_WAY = 6020, Refused, "root was given a path that another user could exchange for another one", "run the command as the user who owns it (runuser -u USER -- strongroom ...), or let every directory on the way belong to root or to that user, writable by nobody else";
    OWNER_ACT = 6021, Refused, "root cannot act as the owner of the path", "run the command as that user: runuser -u USER -- strongroom ..., or setpriv --reuid where the user has no name";
    KEY_COMMAND_FOREIGN = 6022, Refused, "the file that names a key command belongs to another user, or others may write to it", "run the command as the owner of that file, and make the file writable by its owner alone";
    KEY_FILE_OPEN = 6023, Warning, "other users can read a key file", "take the permission away (chmod 600; 640 if root owns the file and one group must read it), and change the key if somebody may have read it";

    PG_FILE = 7001, Data, "a sealed file of a PostgreSQL instance is damaged or cut short, or was sealed under another key or for another name", "restore the file from a backup; a file that PostgreSQL makes anew (statistics, caches) may be removed while the server is stopped";
    PG_REFUSED = 7002, Refused, "a file or a call that cannot be sealed was refused", "see the detail: mount what is not mounted, put back the file whose place something else has taken; a server needs dynamic_shared_memory_type = posix and io_method worker or sync; other names are in the documentation of what is sealed";
    PG_CONVERTING = 7003, Refused, "a conversion of the instance was begun and not finished", "if the `strongroom pg` command that began it still runs, wait until it has ended; otherwise run it again, which finishes the conversion";
    PG_NOT_SEALED = 7004, Refused, "the shield was given a key, but the data directory is not sealed", "seal it with `strongroom pg encrypt` or `strongroom pg initdb`, or start it without the shield";
    PG_SYMBOL = 7005, Io, "the C library lacks a function that the shield needs", "use the shield with glibc 2.31 or later";
    PG_ROOTS = 7006, Usage, "one program cannot have more than 8 instances open", "name at most 8 data directories";
    PG_KEY_OPTION = 7007, Usage, "a line of strongroom.conf is not valid", "write `name = value` with key_id, key_env, key_file, key_command or keyring as the name";
    PG_RUNNING = 7008, Refused, "a server is running on the data directory", "stop it first: `strongroom pg stop`, or pg_ctl stop";
    PG_NOT_SHUT_DOWN = 7009, Refused, "the instance was not shut down cleanly", "start it as before, and stop it again; a standby too must be stopped cleanly";
    PG_GEOMETRY = 7010, Refused, "the instance was not built with blocks of 8 KiB and segments of 1 GiB", "dump it, and restore it into an instance with these sizes";
    PG_NOT_INSTANCE = 7011, Usage, "the directory is not a PostgreSQL data directory of a supported version", "name the directory that holds PG_VERSION, of PostgreSQL 15 to 18";
    PG_ALREADY_SEALED = 7012, Refused, "the data directory is sealed already, or has a header", "`strongroom pg rotate` changes its data key; `strongroom pg rotate --slots-only` changes which keys open it";
    PG_CONVERT_STATE = 7013, Data, "the file that records the progress of the conversion is damaged, or belongs to another instance", "do not remove it; restore the data directory from a backup";
    PG_NO_ROOM = 7014, Io, "there is not enough room to convert the instance", "make room for a second copy of its largest files, then run the command again";
    PG_ROOT = 7015, Usage, "PostgreSQL's programs do not run as root", "run the command as the user who owns the data directory: runuser -u postgres -- strongroom pg ...";
    PG_PROGRAMS = 7016, Usage, "PostgreSQL's programs were not found", "install PostgreSQL, or name the directory of its programs with --bindir or PG_BINDIR";
    PG_SHIELD = 7017, Usage, "the shield's library was not found, or cannot be preloaded from where it is", "install it beside the command or in ../lib, or set STRONGROOM_SHIELD_LIB to its path; the path may hold no blank and no colon";
    PG_PROGRAM = 7018, Io, "a PostgreSQL program failed", "read its messages above, or in the server's log";
    PG_KEEP_KEY = 7019, Warning, "if the key of this instance is lost, its data is lost", "keep the key and a copy of strongroom.header in a second place, apart from each other";
    PG_NO_SOURCE = 7020, Warning, "the instance will not start unattended: its configuration names no key", "start it with `strongroom pg start --ask`, or give it a key that needs no passphrase: `strongroom pg rotate --slots-only`";
    PG_NOT_SHIELDED = 7021, Bug, "the new instance is not sealed, because the shield was not loaded", "please report it; nothing was kept";
    PG_PLAIN_FILE = 7022, Data, "a plain file lies where the files of a PostgreSQL instance are sealed", "move it out of the data directory; only certificates and configuration may lie in the data directory itself or in conf.d, and logs in log";
    PG_RESTORED = 7023, Data, "the file that `restore_command` brought back cannot become a segment of this instance's log", "check which server's archive it comes from; a sealed archive is read with the header of the instance that wrote it (`strongroom pg initdb --copy-key-from`), and plain segments are taken only with STRONGROOM_PG_PLAIN_ARCHIVE=accept in the server's environment";
    PG_NOTHING_SEALED = 7024, Warning, "the shield is loaded, but the server's data directory is not sealed: the server runs, and what it writes is plain", "if it should be sealed, stop the server, and put strongroom.header back or name the directory of the sealed instance in STRONGROOM_PG_ROOTS; otherwise take the library out of LD_PRELOAD";
    PG_NOT_RUNNING = 7027, Io, "no server is running on the data directory", "`strongroom pg status` shows the instance; `strongroom pg start` starts a server";
    PG_NO_CLUSTER = 7028, Usage, "no cluster of postgresql-common has this data directory", "make one with `pg_createcluster -d DIR`, or set LD_PRELOAD in the service that starts the server";
    PG_STATUS_ZEROS = 7029, Data, "a transaction status file holds zeros that were not sealed: they were written without the shield, or the disk lost what was there", "restore the instance from a backup: with these zeros, committed transactions would be lost; a file of zeros that PostgreSQL's manual asks for is made under the shield (`strongroom pg run -D DIR -- dd ...`)";
    PG_NO_CHECKSUMS = 7030, Warning, "data checksums are off, so that a relation's page that was changed on the disk goes unnoticed", "while the server is stopped, turn them on: `strongroom pg run -D DIR -- pg_checksums --enable -D DIR`";
    PG_NO_CONFIGURATION = 7033, Usage, "the data directory has no postgresql.conf, and it is not clear where its server's configuration is", "name the file with --config-file, or make a cluster for the directory with `pg_createcluster -d DIR`";
    PG_BOUND_NAME = 7040, Refused, "a small sealed file of a PostgreSQL instance cannot be renamed, because it is sealed for its name", "copy it under the shield and remove the old one (`strongroom pg run -D DIR -- sh -c 'cp OLD NEW && rm OLD'`); `mv` under the shield does both by itself";

    MEDIUM_ABSENT = 7101, Usage, "there is no backup medium at this place", "check the path, and that it is mounted; `strongroom backup create` makes a medium in an empty or absent directory";
    MEDIUM_DAMAGED = 7102, Data, "the head of the backup medium is damaged", "its sets can still be restored by naming their heads one by one; use a new medium for new sets";
    MEDIUM_FOREIGN = 7103, Refused, "this place holds something other than a backup medium", "name an empty or absent directory, or an existing medium";
    MEDIUM_SEALED = 7104, Refused, "an unencrypted set cannot be added to a sealed medium", "give a key instead of --no-encryption, or use another medium; --format begins this medium anew and removes its sets";
    MEDIUM_PLAIN = 7105, Refused, "a sealed set cannot be added to an unencrypted medium", "use another medium, or --no-encryption if anyone may read the data; --format begins this medium anew and removes its sets";
    SET_HEAD = 7106, Data, "the head of the backup set is damaged, or was changed", "restore another set, or this set from another copy of the medium";
    SET_ABSENT = 7107, Usage, "the medium holds no such set", "`strongroom backup header` lists the sets and their positions";
    FAMILY_ABSENT = 7108, Data, "a data file (family) of the backup set is missing", "bring it back from the place that it was moved to, or restore another set";
    SEGMENT = 7109, Data, "a segment of the backup set is damaged, forged, or comes from another place", "restore another set, or this set from another copy of the medium";
    FAMILY_SHORT = 7110, Data, "a data file (family) of the backup set has the wrong length, or is not the one that the set's head names", "if this medium is a copy, copy the file again from the original; otherwise restore another set";
    STREAM = 7111, Data, "the contents of the backup set are malformed", "do not trust this set: it was made by a defective version, or by another program";
    FILE_DIGEST = 7112, Data, "a file of the backup set differs from the file that was backed up", "restore another set; please report it";
    TARGET_NOT_EMPTY = 7113, Refused, "the directory to restore into is not empty", "name an absent or empty directory; `strongroom backup restore --delta` restores over the directory that a set was made of";
    BACKUP_SOURCE = 7114, Io, "the source of the backup cannot be read, or is of no known kind", "check the path or the connection string, and that the user who runs the command may read the source";
    BACKUP_SERVER = 7115, Io, "the PostgreSQL server refused or ended the backup", "see its message; the server's log has more";
    BACKUP_MANIFEST = 7116, Data, "the backup does not match PostgreSQL's own manifest", "take the backup again; if it happens again, check the server's disks and memory";
    STRIPES = 7117, Refused, "the medium has another number of stripes", "leave out --stripes; --format begins the medium anew and removes its sets";
    NOT_COPIED = 7118, Warning, "something was left out of the backup", "see the detail: sockets, pipes and devices hold no data, and a file that was removed or exchanged during the backup is in the next one; back up in another way whatever else you need";
    PLAIN_SET = 7119, Warning, "the backup is not encrypted: anyone who can read the medium can read the data", "leave out --no-encryption and give a key";
    WAL_DIFFERS = 7120, Refused, "the archive has a different file of that name already", "find out which server wrote it: two servers must not share one archive; nothing was overwritten";
    WAL_ABSENT = 7121, Usage, "the archive has no file of that name", "none, if recovery has reached the end of the archive: PostgreSQL asks until a file is missing; otherwise check the name, or bring the file back from another copy of the medium";
    UNTIL_LATER = 7122, Usage, "the recovery target lies before the end of the backup", "choose an earlier set: a backup is consistent only from its end on";
    UNEXPIRED = 7123, Refused, "--init or --format would remove a set that has not expired", "wait until it expires, add the set with --append, or give --skip to remove it all the same";
    BACKUP_KEY_LOST = 7124, Warning, "if the key of this backup is lost, the backup is lost", "keep the key, or an export of the keyring, in a second place, apart from the medium";
    SET_NOT_SEALED = 7126, Data, "the set or archived file is not sealed, although a key was given or the medium is sealed", "leave out the key only if it was never sealed; otherwise somebody replaced it: use another copy of the medium";
    WAL_GAP = 7130, Data, "the archive lacks a file of the write-ahead log, but has later ones", "bring the file back from another copy of the medium, or end recovery before it with --until-lsn or --until-time";
    MEDIUM_CHANGED = 7131, Refused, "another writer is using the backup medium, or has begun it anew meanwhile", "run the command again when the other writer has ended; no set was added";
    OTHER_RECIPIENTS = 7132, Refused, "other keys or certificates open the set or archived file too, and would no longer do so", "give --add if they are to keep access, or --drop-others if they are to lose it; the set or file was not changed";
    STORE_URL = 7140, Usage, "the URL does not name a usable place in an object store", "use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; credentials and endpoint come from the environment";
    STORE_LOST = 7141, Io, "the object store cannot be reached, or does not answer", "check the network, the endpoint and the proxy (AWS_ENDPOINT and others), then run the command again";
    STORE_DENIED = 7142, Io, "the object store denies access", "check the credentials in the environment, the clock, and the store's policy: it must allow get, put, delete and list below the prefix";
    STORE_FAILED = 7143, Io, "the object store failed, or does not support the request", "the detail has the store's answer; a store needs conditional puts, ranges and multipart uploads (docs/spec/backup.md)";
    SET_LATE = 7144, Io, "writing the set took longer than may pass on an object store", "use more stripes, threads or bandwidth; no set was added";
    MIRRORS = 7145, Io, "not all mirrors have the set", "the message names the mirrors that have the set, whole; repair the others, and run the command again with --to and --mirror for them alone";
    OBJECT_CHANGED = 7146, Refused, "another writer changed or removed the object meanwhile", "run the command again; nothing was changed";
    UNSETTLED = 7147, Io, "it is not known whether the object was written: a set may have been added", "before you run the command again, look with `strongroom backup header`: a set that is listed is complete, unless it builds on one that is not";
    RESTORE_EXCHANGED = 7150, Refused, "a directory was replaced by another one while a set was restored into it", "restore below a directory that nobody else can write to; the set was not restored";
    HISTORY_NOT_KEPT = 7151, Warning, "the run could not be recorded in the catalogue of backups", "the backup itself is not affected; remove the cause, name another catalogue with --catalogue, or give --no-history";
    HISTORY_ABSENT = 7152, Usage, "there is no catalogue of backups at this path", "`strongroom backup create --key-id NAME` makes one, and so does `strongroom backup history --key-id NAME`; --scan fills it from a medium";
    METRICS_NOT_WRITTEN = 7153, Warning, "the metrics could not be written", "check the directory, and that the user who runs the command may write to it; the backup itself is not affected";
    INCREMENTAL_BASE = 7160, Refused, "there is no set that an incremental set can build on", "see the detail; make a full set with `strongroom backup create` without --incremental";
    CHAIN = 7161, Data, "a set that an incremental set builds on is missing, or another one is in its place", "bring its head and families back from another copy of the medium, or use a full set";
    COMBINE = 7162, Io, "PostgreSQL's `pg_combinebackup` could not combine the sets of a chain", "see its message; --bindir names the directory of the programs of the server's version";
    RESTORE_TEST = 7163, Data, "a cluster that was restored as a test failed it", "do not rely on this set: see the message, restore the set and examine it, and make a new one";
    TEST_PROGRAM = 7164, Io, "a program that is needed to test a restore cannot be run", "install PostgreSQL's programs of the server's version, or name their directory with --bindir";
    ARCHIVE_FOREIGN = 7165, Refused, "the archive on the medium belongs to another PostgreSQL cluster", "use one medium for each cluster; nothing was written";
    RECEIVE = 7166, Io, "the write-ahead log could not be received", "see the server's message; if the server no longer has the log, make a new set: recovery cannot pass the gap";
    LEGACY_CIPHER = 7170, Refused, "Triple DES needs a second confirmation: NIST has allowed it for no encryption since 2024 (SP 800-131A Rev. 2), because its blocks are short; it is also slow", "choose aes-256; where a regulation requires Triple DES, add --allow-legacy";
    LEGACY_SET = 7171, Warning, "the set is sealed with Triple DES, which NIST has allowed for no encryption since 2024", "choose aes-256 for new sets, and keep this one no longer than the regulation requires";
    NO_TRIPLE_DES = 7172, Io, "the set is sealed with Triple DES, which this system's libcrypto does not have", "the set may be sound: read it on a host whose OpenSSL has DES-EDE3-CBC, and seal the restored data anew";
    NOT_LOG = 7173, Refused, "the file is not what PostgreSQL archives under this name, or belongs to another cluster", "give the file where the server has it: a sealed instance's log is opened only in the instance's own pg_wal; nothing was archived or handed over";
    ARCHIVE_CONTENT = 7174, Data, "archived segments of the log do not match their names", "recovery ends before the first of them: make a new set, and examine what archives them";
    LOG_NOT_REPLAYED = 7175, Data, "a server that was restored as a test did not replay the archived log to its end", "recovery ends where the message says: make a new set, and find out what damaged the log";
    DELTA_REFUSED = 7176, Refused, "this set cannot be restored over this directory", "see the detail; nothing was changed; a restore to a new directory is always possible";
    SET_UNSIGNED = 7177, Data, "the backup set is not signed, but a signature is required", "name a signed set with --set; leave out --signed-by only if it does not matter who made the set";
    SET_SIGNATURE = 7178, Data, "the signature of the backup set is damaged, belongs to another set, or was made by none of the named keys", "name the public key of the host that makes the backups; if you did, do not restore this set: somebody else may have made it";
    SIGNATURE_KEY = 7179, Key, "the file holds no key that can sign or check backup sets", "make a private key for --sign-key with `openssl genpkey -algorithm ed25519 -out FILE`, and its public key for --signed-by with `openssl pkey -in FILE -pubout -out FILE.pub`";

    FID_STALE = 8001, Data, "the identifier no longer names a value", "if a table still holds it, restore the table and the zone to the same point in time; report it if neither was restored";
    FID_FORGED = 8002, Data, "the identifier never named a value of this table or statement", "on a standby, run the statement again in a moment; otherwise start the zone with the store of this server; if it has that, the value was lost or something other than Strongroom wrote the row: restore the table from a backup";
    ZONE_LOST = 8003, Io, "the zone cannot be reached, or ended or was restarted while the statement ran", "run the statement again; if the zone cannot be reached, check that it runs and that strongroom.zone is the path of its socket; the zone's own log says why it ended";
    FID_KIND = 8004, Data, "the value has another type than the operation needs", "if the table's definition was changed in the catalog, change it back; otherwise something other than Strongroom wrote the identifier there: restore the table from a backup";
    FID_COLUMN = 8005, Data, "the value belongs to another column", "something other than Strongroom moved identifiers between columns: restore the table from a backup";
    NO_TICKET = 8006, Refused, "the session has no ticket that allows this operation", "connect through `strongroom columns proxy`, or have the data owner issue a ticket for it";
    TICKET_SPENT = 8007, Refused, "the budget of the ticket or of the column key is spent", "see `strongroom columns ledger`, which shows what it was used for; a key's limit begins anew after its period, or when its owner sets another one, a ticket's with a new connection";
    NO_COLUMN_KEY = 8008, Key, "the zone does not hold the key of this column", "release the key to the zone: connect once through `strongroom columns proxy`";
    ENVELOPE = 8009, Data, "the envelope does not open: it is damaged or forged, or was sealed for another column", "seal the value again with the column's key; do not move envelopes between columns";
    STORE_OLD = 8010, Data, "the zone's store is not the newest: its counter differs from the one that is kept apart from it (--anchor)", "bring back the newest store; if you restored an older one on purpose, start `strongroom columns zone` once with --accept-restored";
    STORE_BLOCK = 8011, Data, "a block of the zone's store is damaged, or comes from another time or place", "restore the zone's directory from a backup and let it replay the log";
    LOG_GAP = 8012, Data, "a redo record is missing from the log", "restore the log completely; without the record, values that tables refer to are lost";
    RECOVERING = 8013, Io, "the zone has not replayed the log to its end yet", "wait; the server's log tells how far it is, and why if it cannot";
    ZONE_MEMORY = 8014, Io, "the zone has no memory left", "raise the zone's memory limit; or set it below the host's memory, so that the zone can move values to its store";
    ZONE_DISK = 8015, Io, "the zone's disk is full", "make room; nothing that was acknowledged is lost";
    REDO_RECORD = 8016, Data, "a redo record does not open", "the record is damaged or forged, or belongs to the store of another zone: restore the log";
    PARTITION_UNKNOWN = 8017, Data, "the zone does not know the partition", "restore the table and the zone to the same point in time";
    PARTITIONS_FULL = 8018, Refused, "the zone has no partition number left", "drop tables with confidential columns that are no longer needed";
    BAD_REQUEST = 8019, Usage, "the zone does not know the request", "use the extension of the same version as the zone";
    ARENA_FULL = 8020, Refused, "the statement has made more values than an arena can address", "split the statement";
    CLIENT_MESSAGE = 8021, Data, "the client's message does not open", "connect again; if it happens again, something between client and zone changes the messages";
    NOT_ACCUMULATOR = 8022, Data, "the identifier does not name an accumulator", "use the aggregate itself, such as `sum`, and do not call its `_step` or `_final` function; if no statement calls one, something other than Strongroom changed the identifier in the server: do not trust the result";
    STORE_IO = 8023, Io, "the operating system reported an error on the zone's store", "see its message; after a failed write to the disk the zone must be restarted";
    STORE_MANIFEST = 8024, Data, "the manifest of the zone's store is damaged or forged, or belongs to another store", "restore the zone's directory from a backup and let it replay the log";
    STORE_IN_USE = 8025, Refused, "another process has the zone's store open", "end the other zone first: a store serves one zone at a time";
    ZONE_UNLOCKED = 8026, Warning, "memory of the zone could not be locked and may be swapped out", "the zone runs all the same; raise the memlock limit (ulimit -l, LimitMEMLOCK=) and start the zone again: with the zone's memory limit plus 64 MiB it locks values and keys, with `unlimited` all memory of the process; or encrypt the swap space";
    ZONE_LOCK = 8027, Refused, "the memory for values could not be locked, and the zone was started with --insist-on-locks", "raise the memlock limit (ulimit -l) to the zone's memory limit plus 64 MiB, and start the zone again";
    EXTENTS_FULL = 8028, Refused, "the partition's identifiers are used up", "rewrite the table with VACUUM FULL, which gives it a new partition";
    STORE_HISTORY = 8030, Data, "the zone's store and the server's log belong to different histories", "give the zone a store from before the histories diverged, or a copy of the store of the zone whose server this one now follows: docs/guides/columns.md";
    NOT_NAMED = 8031, Refused, "the value is not one that its owner's client has sealed for this column, whose values the server can compare", "write the value into the column by a constant or a parameter of an INSERT, UPDATE or COPY through the proxy that names the table itself; for computed values and copies of other columns start the proxy with --store-derived; after a table or column was renamed, or restored under another name, say what it was called: strongroom columns pins --adopt";
    STORE_EARLY = 8032, Data, "the zone's store was written by an early version of Strongroom, in a form that this version does not read", "start the zone and the server with the version that wrote it, copy the tables out through its proxy (`COPY ... TO STDOUT`), and copy them in through the proxy of this version: docs/guides/columns.md; the store was not changed";
    COLUMN_CONSTANT = 8101, Refused, "a constant would reach the server in clear", "write it where its type is known, or start the proxy with --plaintext-constants=allow if the server may know it";
    COLUMN_PARAMETER = 8102, Refused, "a parameter would reach the server in clear", "compare it with a confidential column, or cast it to the column's type";
    COLUMN_STATEMENT = 8103, Refused, "a statement of this kind cannot pass the proxy without revealing values", "see its hint; an operator can run the statement at the server, without values";
    COLUMN_VALUE = 8104, Usage, "the value is not valid for the column's type", "correct the value; PostgreSQL would refuse it too";
    COLUMN_PROTOCOL = 8105, Usage, "a message of PostgreSQL's protocol is malformed, or was not expected here", "the driver or the server does not speak version 3 of the protocol as the proxy expects it; please report it";
    COLUMN_DENIED = 8106, Data, "the server claims that a column that --pin names is not confidential", "find out who changed the column's type, and change it back; if it is meant to be plain, restart the proxy without --pin for it; until then nothing is sent";
    COLUMN_CHANGED = 8107, Data, "a relation with confidential columns is not what it was when the proxy learned its columns", "find out who changed it; if it was changed on purpose, past this proxy, have the proxy learn it again: `strongroom columns pins --forget SCHEMA.RELATION`";
    COLUMN_RESULT = 8108, Data, "the server has sent, in the place of a confidential column of a result, a plain value or a value of something else", "if columns have exchanged their names, say what they were called: `strongroom columns pins --adopt`; if a column was made plain, connect again; otherwise find out who changed the server";
    COLUMN_CONVERT = 8121, Refused, "the column cannot be converted in its present state", "follow the message, and run the command again; nothing was changed";
    COLUMN_SERVER = 8122, Refused, "the database server refused a statement of this command", "see its message; a conversion stays as far as it has come, and the same command goes on from there";
    COLUMN_RECORD = 8123, Data, "the record does not open", "give the key for records that the zone was started with; a record that was changed or cut short cannot be replayed";
    COLUMN_UNRECORDED = 8124, Refused, "the zone does not record this", "start the zone with --record-key-file, and choose a name that is not taken; plain values, and more than 64 MiB, are not recorded";
    COLUMN_DEPARTED = 8125, Usage, "the statement that is replayed differs from the one in the record of a session, or would store something", "connect anew, and send the recorded statement again with the same text, by the same protocol and on the same data; statements that store something cannot be replayed: docs/guides/columns.md";
    COLUMN_SETUP = 8126, Refused, "something that is there already is in the way of setting up confidential columns", "see the message, and run the command again when that is put right; nothing that was there was changed";
    COLUMN_SETUP_ROOT = 8127, Usage, "setting up confidential columns needs root on the server's machine", "run the command as root; where you have no root, as with a managed service, the extension cannot be loaded: docs/reference/columns-setup.md";
    COLUMN_NOT_INSTALLED = 8128, Usage, "the extension of confidential columns is not installed in this PostgreSQL", "install it with crates/columns/extension/install, and run the command again; nothing was changed";
    COLUMN_ZONE_START = 8129, Io, "the zone did not begin to serve", "see its log: `journalctl -u strongroom-zone`; put right what it says, and run the command again";
    COLUMN_LIMIT_NEAR = 8130, Refused, "less of a column key's limit is left than --require-left asks for", "see who was told so much; wait for the next period, or set a higher limit with --answers or --outputs before statements are refused (SR-8007)";

    LUKS_NOT = 8300, Data, "the file or device does not begin with a LUKS header", "check the path; `strongroom inspect FILE` shows what is there";
    LUKS_1 = 8301, Refused, "the volume is LUKS1", "close it, back up its header, and convert it: `cryptsetup convert --type luks2 DEVICE`";
    LUKS_DAMAGED = 8302, Data, "neither copy of the volume's LUKS2 header can be used", "restore the header from its backup; the message names the first field that is wrong";
    LUKS_UNSUPPORTED = 8303, Refused, "the volume uses a feature that needs device-mapper", "open it with `strongroom volume open` or with cryptsetup, on a system that has device-mapper";
    LUKS_REENCRYPTING = 8304, Refused, "a re-encryption of the volume was begun and not finished", "finish it on a system that has device-mapper, or offline: `cryptsetup reencrypt --resume-only DEVICE`";
    LUKS_FORGED = 8305, Data, "the volume's re-encryption metadata was written without the volume's keys", "do not open this volume with any tool; restore its header from a backup, and find out who wrote to it";
    LUKS_KEY = 8306, Key, "the given key opens no key slot of the volume", "`strongroom inspect FILE` lists the key slots and what opens them";
    LUKS_COST = 8307, Refused, "a key slot asks for more memory or time than is reasonable", "if you made the slot so, open the volume with cryptsetup; otherwise somebody wrote to the header";
    LUKS_IN_USE = 8308, Refused, "the volume is in use", "detach or close it first; two writers would destroy it";
    LUKS_ONE_COPY = 8309, Warning, "one of the two copies of the volume's header is damaged", "back up the header, then let cryptsetup repair it: `cryptsetup repair DEVICE`";
    MOUNTPOINT = 8310, Usage, "the mount point cannot be used", "name an empty directory to attach to, or the directory that a volume is attached to";
    FUSE = 8311, Io, "the volume could not be attached through FUSE", "check that /dev/fuse exists, and that this user may mount";
    VOLUME_IN_USE = 8320, Refused, "the device is in use: mounted, mapped, or held by another program", "unmount or close it first; nothing was changed";
    VOLUME_NOT_EMPTY = 8321, Refused, "the device is not empty", "check that it is the right device; --overwrite destroys its contents";
    VOLUME_NOT_LUKS = 8322, Data, "this is no LUKS2 volume", "check the path; `strongroom inspect FILE` shows what is there; a lost header comes back from its backup";
    VOLUME_TOKEN = 8323, Data, "the volume has no token of Strongroom's, several of them, or a damaged one, so that it is unknown which key opens it", "open it with --passphrase or --recovery; `strongroom volume enroll` adds a token";
    VOLUME_LIBRARY = 8324, Io, "libcryptsetup reported an error", "see its message; `strongroom inspect FILE` shows the state of the header";
    VOLUME_LAST_OPENER = 8325, Refused, "the last key slot, or the last recovery key, cannot be removed", "enroll another one first; --force removes a last recovery key, and only `strongroom volume shred` removes a last key slot";
    VOLUME_SIZE = 8326, Usage, "the size of the device or of the new file is not usable for a volume", "a volume needs room for its header of 16 MiB and for data, in whole sectors";
    VOLUME_KERNEL = 8327, Io, "the kernel cannot map encrypted devices, because device-mapper or one of its targets is missing", "load the modules dm_crypt and, for --integrity, dm_integrity; in a container use `strongroom volume attach`";
    VOLUME_ROTATING = 8328, Refused, "a re-encryption of the volume was begun and not finished", "finish it with `strongroom volume rotate DEVICE` and the options that it was begun with";
    VOLUME_LIBRARY_VERSION = 8329, Refused, "this version of libcryptsetup must not re-encrypt: before 2.4.3 it can be made to decrypt (CVE-2021-4122), and 2.7.0 to 2.7.4 can damage data", "install another version; nothing was changed";
    VOLUME_SLOT = 8330, Usage, "the volume has no such key slot, or no key slot of that kind", "`strongroom volume status DEVICE` lists its slots";
    VOLUME_NO_REPAIR = 8331, Refused, "the header is not in the only state that can be repaired: a re-encryption of which nothing but the last step is missing", "nothing was changed; a re-encryption that stopped earlier goes on with `strongroom volume rotate DEVICE`; without one there is nothing to repair";
    VOLUME_NO_RECOVERY = 8332, Warning, "the volume has no recovery key: if its key is lost, the data is lost", "`strongroom volume enroll DEVICE recovery` makes one";
    VOLUME_NOT_ESCROWED = 8333, Warning, "the backup of the header could not be sent to the key server", "keep a backup of your own, and run `strongroom volume backup DEVICE` when the key server answers";
    VOLUME_COPY = 8334, Data, "the copy differs from its source", "do not use the copy; stop everything that writes to the source and run the command again, which copies the differences";
    VOLUME_TABLE = 8335, Usage, "the table of the volumes that are opened at boot is not valid", "see the detail; docs/reference/volume.md describes the table";
    VOLUME_LOCKED = 8336, Key, "not every volume was unlocked in time", "see the reason for each; `strongroom volume open` tries again";
    VOLUME_NAME = 8337, Usage, "the name of a mapping or a label is not valid", "use 1 to 47 characters of a-z, A-Z, 0-9, '.', '_', '-'; a mapping's name does not begin with '.', is not `control`, and no mapping has it already";
    VOLUME_OPENERS = 8338, Usage, "a volume key can be changed only if the secret for each key slot is given", "give the passphrase or the recovery key of each other slot, replace the recovery key with --new-recovery, or remove slots with --drop";
    VOLUME_WARNED = 8339, Warning, "something remains that may help to read the shredded volume", "see the detail; destroy every backup of its header; if the key server destroys its key at a later time, `strongroom keyserver keys` shows when that is done";
    VOLUME_CIPHER = 8340, Refused, "the header names a cipher that does not encrypt, or one that Strongroom does not open", "if nobody changed it on purpose, somebody wrote to the disk: restore the header from its backup, and do not trust the contents of the disk";
    VOLUME_OLD_DATA = 8341, Warning, "the device's former contents can be read below the volume until they are overwritten", "make the volume again with --overwrite --wipe, which overwrites the whole device first; on flash memory only the device's own secure erase reaches every block";
    VOLUME_TPM_STATE = 8350, Key, "the machine is not in the state that the TPM sealed the volume's key for", "boot the system that it was sealed under, or open the volume with its key (`strongroom volume open DEVICE`) or --recovery; then run `strongroom volume unenroll DEVICE tpm` and `strongroom volume enroll DEVICE tpm`";
    VOLUME_TPM_OTHER = 8351, Key, "the volume's key was not sealed by this TPM, which is another one or was cleared, or the token is damaged", "open the volume with its key (`strongroom volume open DEVICE`) or --recovery; then run `strongroom volume unenroll DEVICE tpm` and `strongroom volume enroll DEVICE tpm`";
    VOLUME_TPM_AWAY = 8352, Key, "the TPM does not answer, or refuses", "check that it is there (/dev/tpmrm0, or --tcti) and switched on, and that this user may use it; the volume also opens with its key or --recovery";
    VOLUME_RESTORE = 8353, Refused, "the device holds something that restoring the header would destroy", "check that it is the right device and the right backup; --confirm UUID gives up the volume that the message names, --overwrite anything else; nothing was changed";
    VOLUME_BACKUP = 8354, Data, "the backup of a volume's header cannot be used: it is damaged, cut short, or was made during a re-encryption", "use another backup, or the one that the key server keeps; nothing was changed";
    VOLUME_KEPT = 8355, Key, "the passphrase that was kept for a boot without key servers cannot be used: it has expired, was changed, or belongs to another volume or key", "boot the machine while a key server answers, which keeps it anew, or open the volume with --recovery or a passphrase";
    VOLUME_NOT_KEPT = 8356, Warning, "the volume's passphrase could not be kept for a boot without key servers", "see the detail; the machine needs a TPM (/dev/tpmrm0, or `tcti` in the table) and room in /var/lib/strongroom/cache; it is tried again when a key server next delivers the volume's key";
    VOLUME_UNSEEN = 8357, Usage, "the recovery key cannot be shown, because there is no terminal", "give --recovery-out FILE to write it to a new file that only you can read; `strongroom volume create --no-recovery` makes a volume without one";
    VOLUME_KEY_REMAINS = 8358, Refused, "the volume is destroyed, but the key server did not destroy everything that it should", "see the message for what still exists and why; have an administrator run `strongroom keyserver destroy KEY` (and a second one, where the server requires two); until then, anyone who gets the key and a copy of the header can read the data";
    VOLUME_CONFIRM = 8359, Refused, "--confirm names another volume", "if this is the volume to destroy, give the UUID that `strongroom volume status DEVICE` shows; nothing was changed";
    VOLUME_WHICH = 8360, Usage, "nothing on the device says which volume it was", "give --object-id and --key-id: the fleet page of the key server shows them beside the name of the volume, and `strongroom volume create --json` printed them";
    VOLUME_RECOVERY_KEY = 8361, Key, "this is not the recovery key of a volume", "give all of its 64 letters (of cbdefghijklnrtuv), as they were shown or written to the file of --recovery-out; dashes and blanks do not count";
    VOLUME_KEY_SHARED = 8362, Refused, "other objects need the key that was to be destroyed with the volume; nothing was changed", "give --keep-key to destroy this volume alone, or destroy the others first";
    NODE_CONFIG = 8400, Usage, "the node's configuration cannot be used", "name it with --node FILE or STRONGROOM_NODE (an administrator's admin.toml too); `strongroom keyserver join` writes it: docs/guides/nodes.md";
    NODE_FILE = 8401, Key, "a file that the node's configuration names cannot be used", "see the message; the private key must belong to this user and be readable by nobody else (mode 0600)";
    KEYSERVER_UNREACHABLE = 8402, Key, "no key server answered within the configured time", "see the reason for each server; another key slot of the object may still open it";
    KEYSERVER_NOT_TRUSTED = 8403, Key, "the certificate of the server that answered is not one that the configured authority issued for this address", "see the message: the address must have a name that the server's certificate has; otherwise check this host's clock, and that `authority` is the file that the key server gave; somebody may intercept the connection";
    KEYSERVER_ANSWER = 8404, Data, "the response is not one of a key server, or not to this request", "check the address of the server, and its version";
    KEYSERVER_UNCERTAIN = 8405, Io, "a change was sent, and no answer says whether it was made", "look at the state of the key server before you ask for the change again";
    KEYSERVER_REFUSED = 8406, Key, "the key server refused the request", "see the server's message in the detail; `strongroom explain CODE` says what a code in it means";
    KEYSERVER_NOT_ACCEPTED = 8407, Key, "the key server does not accept this node's certificate", "the certificate may have expired, or belong to another key server: join again with `strongroom keyserver join`";
    KEYSERVER_ADDRESS = 8408, Usage, "this is not the address of a key server", "write `https://`, a name or IP address that is in the server's certificate, and the port if it is not 443: https://keys.example.org:8443";
    KEYSERVER_NOBODY = 8409, Key, "no key server can be reached at that address", "check that the key server runs (`strongroom keyserver run` on its machine), and the name and port in `servers` of the configuration or after --server";
    KEYSERVER_SHARES = 8410, Key, "fewer shares were given than the root key of the key server needs", "give one --share-file for each share, as many as the message says; without --share-file the command asks for them at the terminal";
    KEYSERVER_SECOND = 8411, Refused, "nothing has changed yet: a second administrator must agree to the destruction of the key", "within seven days, have another administrator run `strongroom keyserver destroy NAME`";
    SERVER_NAME = 8412, Usage, "a key server cannot have this name", "give a DNS name (keys.example.org) or an IP address, without https:// and without a port: clients connect to it, and the server's certificate contains it";
    SERVER_CERTIFICATE_NEEDED = 8420, Key, "the key server requires a client certificate, and none was sent", "join the node first: `strongroom keyserver join`";
    SERVER_NOT_ENROLLED = 8421, Key, "the client certificate is not enrolled with the key server, or is no longer enrolled", "have an administrator make a token (`strongroom keyserver token NAME`), and join again: `strongroom keyserver join`";
    SERVER_ROLE = 8422, Refused, "the key server does not allow this to a client of this role", "use the certificate of a client whose role allows it";
    SERVER_NO_SUCH = 8423, Key, "the key server has no such record, or this client has no access to it", "check the name; an administrator grants access to a key: `strongroom keyserver grant NODE KEY`";
    SERVER_EXISTS = 8424, Refused, "the key server has something of that name already", "choose another name";
    SERVER_DESTROYED = 8425, Key, "the key was destroyed", "it cannot be brought back; what was sealed under it is lost, unless another key slot opens it";
    SERVER_DISABLED = 8426, Key, "the key is disabled, or is scheduled for destruction", "an administrator can enable it (`strongroom keyserver enable NAME`) or cancel the destruction (`strongroom keyserver restore NAME`)";
    SERVER_TOO_MANY = 8427, Io, "the client has sent too many requests to the key server", "wait as long as the response says, and try again";
    SERVER_SEALED = 8428, Key, "the key server is sealed, and delivers no keys", "give the shares with `strongroom keyserver unseal`, or repair the provider of its root key";
    SERVER_REQUEST = 8429, Usage, "the request to the key server is malformed", "docs/spec/keyserver.md describes the requests";
    SERVER_TOO_LARGE = 8430, Usage, "the request to the key server is too large", "send less at once: docs/spec/keyserver.md, \"Limits\"";
    SERVER_TOKEN = 8431, Key, "the enrolment token is wrong, was used, or has expired", "have an administrator make another one: `strongroom keyserver token NAME`";
    SERVER_SHARE = 8432, Key, "this is not a share of this key server's root key", "check the text, and which server the share belongs to";
    SERVER_NO_ADDRESS = 8433, Usage, "the key server has no such path, or does not support the method on it", "docs/spec/keyserver.md lists paths and methods";
    SERVER_CONFIG = 8434, Usage, "the key server's configuration is not valid", "docs/guides/keyserver.md describes it under \"Configuration\"";
    SERVER_STORE = 8435, Io, "the key server's store does not answer, or its contents are damaged", "see the server's log; check the disk, or the members of the replicated store";
    SERVER_AUDIT = 8436, Data, "the audit log is not complete: a row is missing, was changed, or is out of order", "keep a copy of the store, compare the audit log with the heads in the server's log, and find out who had access to the store";
    SERVER_ROOT = 8437, Key, "the root key does not open the key server's store", "check the key that the provider or the shares deliver, and that server.toml belongs to this store";
    SERVER_TIMEOUT = 8438, Io, "the key server did not complete the request in time", "try again";
    SERVER_STATE = 8439, Refused, "the state of the key, the client or the server does not allow this", "see the detail; `strongroom keyserver status`, `strongroom keyserver keys` and `strongroom keyserver nodes` show the states";
    SERVER_TLS = 8440, Usage, "a certificate or private key of the key server cannot be used", "check the files that server.toml names";
    SERVER_SHARE_TWICE = 8441, Refused, "this share was given already", "give another share";
    SERVER_BUSY = 8442, Io, "others changed the same record at the same time, repeatedly", "try again";
    SERVER_QUOTA = 8443, Refused, "this exceeds what one node may have at the key server", "see the detail; remove what is no longer needed, or have the limits raised: docs/guides/keyserver.md, \"Configuration\"";
    SERVER_NO_GRANT = 8444, Usage, "the key server has not granted this key to this client", "see the grants: `strongroom keyserver grants NODE`";
    SERVER_FOREIGN = 8450, Refused, "a page in a browser sent this request; this address takes no request from a page, whatever certificate the browser sends", "use `strongroom keyserver` or another program; the fleet page has an address of its own";
    SERVER_MEDIA_TYPE = 8451, Refused, "the request does not have the Content-Type that this path requires", "send the `Content-Type` that the detail names with every request that changes something, even without a body";
    SERVER_TOO_SOON = 8452, Refused, "the key server does not destroy a key so soon", "give a later time; `destroy_least_days` in the server's configuration is the least";
    KEYSERVER_NOT_CONFIRMED = 8453, Refused, "a key is destroyed only if its name is confirmed", "check what needs the key, then add `--confirm NAME`";
    SERVER_NO_KEY = 8454, Usage, "the key server has no key of that name", "make it first: `strongroom keyserver create NAME`; or let the node make it, with a token of `strongroom keyserver token NODE --may-create`";
    SERVER_NO_CLIENT = 8455, Usage, "the key server has no client of that name", "list the clients with `strongroom keyserver nodes`; enrol one with `strongroom keyserver token NAME`, then `strongroom keyserver join` on its machine";
    SERVER_ARCHIVE = 8456, Io, "rows of the audit log could not be written to an archive", "see the detail; nothing was removed; rows stay in the store until an archive holds them: docs/guides/keyserver-audit.md";
    SERVER_NO_OBJECT = 8457, Usage, "the key server has no object of that id", "the fleet page lists the ids; an id has 32 hexadecimal digits";
    SERVER_ASKED_OTHERWISE = 8458, Refused, "another administrator asked for the destruction of the key at another time", "see the request with `strongroom keyserver keys`; agree with the same time or without one, or withdraw it: `strongroom keyserver destroy NAME --withdraw`";
    SERVER_NO_TOKEN = 8459, Usage, "the key server has no unused token of that id", "list the unused tokens with `strongroom keyserver tokens`; end a client that has used its token with `strongroom keyserver revoke NAME`";
    NODE_CERTIFICATE_ENDED = 8470, Key, "this host's certificate for the key server has expired", "check this host's clock; if it is right, have an administrator make a token, and join again: `strongroom keyserver join ... --replace`";
    NODE_RENEWAL_COMMAND = 8471, Io, "the certificate was renewed, but the command after --then failed", "repair the command, and run `strongroom keyserver renew` again, which goes on from there; the former certificate stays valid until the new one is used";
    SERVER_BREAK_GLASS = 8472, Warning, "somebody used the root key of the key server to make an administrator", "if nobody of yours did it, somebody has the root key or the custodians' shares: revoke that administrator, and read the audit log";
    SERVER_CERTIFICATE_ENDS = 8473, Warning, "the key server's certificate expires soon, and could not be renewed", "see the detail; `strongroom keyserver server-cert renew` on the server's machine makes a new one; nodes do not trust a server whose certificate has expired";
    SERVER_ROOM = 8474, Warning, "the key server runs short of room, or cannot archive its audit log; without room no key is delivered", "see the detail; archive the audit log, or give more room: docs/guides/keyserver-audit.md, \"When there is no room\"";

    BUG = 9001, Bug, "an internal error: this is a defect in Strongroom", "please report it with the version and what was done";
}

/// The code with this number; `None` when there is none.
#[must_use]
pub fn by_number(number: u16) -> Option<&'static Code> {
    ALL.iter().find(|code| code.number == number)
}
