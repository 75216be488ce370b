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
    EXISTS = 1002, Refused, "the output exists already and would be overwritten", "choose another name, or move the existing file away first";
    SAME_FILE = 1003, Usage, "input and output are the same file", "name a different output";
    NO_TERMINAL = 1004, Usage, "a passphrase was to be asked for, but there is no terminal", "run it at a terminal, or give it in the way that the message names; where it names none, with --key-file, --key-env or --key-command, or from a keyring whose root key nobody has to type (`strongroom keyring rotate-root`)";
    SQL = 1005, Usage, "SQLite refused the statement", "correct the SQL; SQLite's own message is shown with this error";
    NOT_FOUND = 1006, Usage, "the file does not exist", "check the path";
    NOT_A_FILE = 1007, Usage, "the path is not that of a regular file", "name the file itself; directories, pipes and devices do not serve here";

    NO_KEY = 2001, Key, "the object is sealed and no key was given", "give one of --key-id, --key-env, --key-file, --key-command or --ask (URI: key_id, key_env, key_file, key_command)";
    WRONG_KEY = 2002, Key, "no key slot opens with the key that was given", "give the key that the object was sealed with; `strongroom inspect` lists its slots";
    UNKNOWN_KEY_ID = 2003, Key, "the keyring holds no key of that id or version", "check the id with `strongroom key list`, or name the right keyring with --keyring";
    KEYRING_MISSING = 2004, Key, "there is no keyring at that path", "create one with `strongroom keyring init`, or name yours with --keyring or STRONGROOM_KEYRING";
    KEYRING_DAMAGED = 2005, Data, "the keyring is damaged", "restore it from an export or a backup; do not write to it";
    KEYRING_WRONG_ROOT = 2006, Key, "the root key does not open the keyring", "check what the keyring's provider delivers: `strongroom keyring status` names it";
    KEY_FILE = 2007, Key, "the key file cannot be read", "check that it exists and that this user may read it";
    KEY_ENV = 2008, Key, "the environment variable that should hold the key is not set", "set it for this process, and for no other";
    KEY_COMMAND = 2009, Key, "the key command failed", "run it by hand: it must exit with 0 and print the key on standard output";
    KEY_COMMAND_TIMEOUT = 2010, Key, "the key command did not finish in time and was ended", "make it answer within 30 seconds, or set STRONGROOM_KEY_COMMAND_TIMEOUT (seconds)";
    KEY_MALFORMED = 2011, Key, "the key material is empty, too long, or not in a form that is known", "give 64 hexadecimal digits, `encryptionkey=` and 64 hexadecimal digits, 32 raw bytes, or a passphrase";
    KEY_RETIRED = 2012, Key, "the key is retired and may not seal anything new", "use an active key, or rotate this one: `strongroom key rotate NAME`";
    KEY_NAME = 2013, Usage, "the name of a key or of a client is not valid", "use 1 to 128 characters of a-z, A-Z, 0-9, '.', '_', '-'";
    KEY_EXISTS = 2014, Refused, "a key of that name exists already", "choose another name, or `strongroom key rotate NAME` for a new version";
    KEYRING_EXISTS = 2015, Refused, "a keyring exists already at that path", "use it, or name another path; a keyring is never overwritten";
    KEYRING_BUSY = 2016, Io, "the keyring is being changed by another process", "try again when that process has finished";
    KEY_CHANGED = 2017, Key, "the object's key was changed by another process while it was open", "close it and open it again with the new key";
    KEY_COMMAND_REFUSED = 2018, Refused, "a key command named in SQL was refused", "open the database by URI from the application, or set STRONGROOM_ATTACH_KEY_COMMAND=1 if every writer of SQL may run commands";
    KEY_OPTION = 2019, Usage, "key options or URI parameters contradict each other or are not valid", "give exactly one source of the key";
    PROVIDER = 2020, Usage, "the provider is not known or its argument is not valid", "use passphrase, env:VAR, file:PATH, command:CMD, or a kind that docs/guides/providers.md names";
    IMPORT_DIFFERS = 2021, Refused, "the imported key differs from the one of the same name and version", "import into a fresh keyring and compare";
    NOT_EXPORTED = 2022, Warning, "this keyring has keys that were never exported: lose it and the data is gone", "run `strongroom keyring export` and keep the copy elsewhere";
    MEMORY_NOT_LOCKED = 2023, Warning, "memory for keys could not be locked and may be swapped out", "raise the memlock limit (ulimit -l) to at least 1024 KiB, or seal the swap";
    KEYRING_FULL = 2024, Refused, "the keyring holds as many keys as it can", "make a second keyring; a keyring holds 65536 versions of keys and 256 certificates";
    CERT_EXISTS = 2025, Refused, "the keyring has a certificate of that name, or of that public key, already", "choose another name; `strongroom cert list` shows what there is";
    CERT_UNKNOWN = 2026, Key, "the keyring holds no such certificate", "check the name with `strongroom cert list`, or name the right keyring with --keyring";
    CERT_WEAK = 2027, Refused, "the certificate cannot be used: its key is not RSA of 2048 to 4096 bits, or is weak, or may not encipher keys", "use a certificate of RSA with 3072 or 4096 bits; `strongroom cert create NAME` makes one";
    CERT_MISMATCH = 2028, Refused, "the private key is not the certificate's", "give the private key that the certificate was issued for";
    CERT_FILE = 2029, Data, "the file holds no certificate, or none that can be read", "give a certificate in PEM or DER, with or without its private key, or a PKCS #12 file";
    CERT_PASSPHRASE = 2030, Key, "the file's private key does not open with that passphrase", "give the passphrase that the file was made with, with --key-file, --key-env, --key-command or --ask";
    CERT_NO_KEY = 2031, Key, "the keyring does not hold the private key of that certificate", "`strongroom cert restore FILE` brings it back from the PKCS #12 file that was exported";
    CERT_NEEDED = 2032, Key, "the object opens with the private key of a certificate, and the keyring holds none of them", "bring one of the certificates that are named back: `strongroom cert restore FILE`";
    CERT_NOT_EXPORTED = 2033, Warning, "the private key of a certificate was never exported: lose this keyring, and no backup under it can ever be read", "run `strongroom cert export NAME --out FILE`, and keep the file and its passphrase elsewhere, apart from each other";
    EXPORT_UNPROVED = 2034, Io, "what was exported does not open when it is read back; nothing was kept", "check the disk, and export again";
    CERT_DATES = 2035, Warning, "the certificate is not valid at this time", "what was sealed under it still opens; make or import a certificate for what comes";
    CERT_RETIRED = 2036, Key, "the certificate is retired and may not seal anything new", "use an active certificate: `strongroom cert list` shows them";
    CERT_SUBJECT = 2037, Usage, "the certificate's subject or days are not valid", "write the subject as CN=NAME,O=NAME,C=XX, and days from 1 to 36500";
    TEXT_AS_RAW_KEY = 2038, Warning, "a passphrase of 32 bytes opened this without Argon2id, as an older version sealed it: guessing it is cheap", "make new key slots, with the same passphrase if you like: `strongroom sqlite rekey --slots-only`, `pg rotate --slots-only`, `backup rewrap`, `keyring rotate-root`; old copies keep the weak slot";
    KEYRING_OLDER = 2039, Refused, "the keyring is an older copy than the one that was last changed here: versions of keys that were retired since would seal again", "put the newest copy back; if there is none, run `strongroom keyring accept-older`, then `strongroom key rotate` for every key, and retire again what was retired";
    KEYRING_OLDER_USED = 2040, Warning, "the keyring is an older copy than the one that was last changed here: keys that were made since are missing, and ones that were retired since seem active", "put the newest copy back; if there is none, run `strongroom keyring accept-older`, then `strongroom key rotate` for every key, and retire again what was retired";
    KEY_NONE = 2041, Usage, "no key was given", "name one: --key-id for a key of the keyring, --key-file, --key-env, --key-command, or --ask for a passphrase at the terminal";
    PASSPHRASE_TEXT = 2042, Key, "what was given as a passphrase, a share or a token is empty, too long, or not text", "look at the file or variable that the message names: it holds 1 to 1024 bytes of UTF-8 text; one line end after it does not count";
    ENVIRONMENT_SECONDS = 2043, Usage, "a time limit in the environment is not a number of seconds that is allowed", "set the variable that the message names to a whole number from 1 to 3600, or unset it";
    EXPORT_KEY = 2044, Usage, "an export of a keyring is sealed for a key of its own, and none was given", "give --ask for a passphrase at the terminal, or --key-file, --key-env or --key-command; not a key of the keyring: whoever lost the keyring could not open the export";

    PROVIDER_ELSEWHERE = 2100, Key, "the keyring's root key comes from a provider that this program does not have", "use the `strongroom` command, built with that provider; or change the provider with `strongroom keyring rotate-root`";
    PROVIDER_UNREACHABLE = 2101, Key, "the provider of the root key could not be reached, or did not answer in time", "check that its server, device or module is there and answers; nothing was changed";
    PROVIDER_DENIED = 2102, Key, "the provider of the root key refused the credentials", "check the PIN, certificate or token, and that it may use the key; some devices lock after a few wrong PINs";
    PROVIDER_NO_KEY = 2103, Key, "the provider of the root key does not have the key, or has destroyed it", "check the key's name; if it was destroyed, restore the keyring from an export";
    PROVIDER_DISABLED = 2104, Key, "the provider's key is disabled, or may not be used for wrapping", "enable the key at the provider, or use one that may wrap and unwrap";
    PROVIDER_ANSWER = 2105, Data, "the provider did not open the wrapped root key, or its answer is not authentic: damaged, forged, or of another key", "check that the keyring and the provider's key belong together; restore the keyring from a backup";
    PROVIDER_STATE = 2106, Key, "the machine is not in the state that the root key was sealed for", "boot the system that it was sealed under, or import an export into a new keyring; before updates change the provider";
    PROVIDER_TRUST = 2120, Key, "the server that keeps the root key is not who it should be: its TLS certificate is not trusted", "check the address and the provider's `ca`; there is no way to go on without it";
    PROVIDER_DESTROYED = 2121, Key, "the provider's key is destroyed, or will be soon", "cancel the deletion while the server lets you, or restore the key from the server's backup; otherwise restore the keyring from an export";
    PROVIDER_BUSY = 2122, Key, "the server that keeps the root key does not serve now: it is sealed, stands by, has failed or is asked too often", "unseal it or wait, then try again";
    PROVIDER_CREDENTIALS = 2123, Key, "the credentials for the server that keeps the root key are not there, or cannot be used", "check the file or variable that the provider names: this user must be able to read it, and nobody else";
    PROVIDER_TLS = 2124, Key, "this host and the server that keeps the root key have no version or cipher of TLS in common", "give the server TLS 1.3, or a certificate with an ECDSA key (P-256): docs/guides/providers-network.md, \"KMIP\"";

    DUCKDB_NOT = 2200, Data, "the file is not a DuckDB database", "check the path; `strongroom inspect` shows what it is";
    DUCKDB_PLAIN = 2201, Refused, "the DuckDB database is not encrypted", "copy it into an encrypted one in DuckDB: ATTACH with ENCRYPTION_KEY, then COPY FROM DATABASE";
    DUCKDB_HEADER = 2202, Data, "the main header of the DuckDB database is damaged", "put a copy of the header back: `strongroom duckdb header-restore`; or restore the file from a backup";
    DUCKDB_FORMAT = 2203, Refused, "the DuckDB database is of a format that this version does not know", "use a newer version of Strongroom; nothing was changed";
    DUCKDB_KEY = 2204, Key, "the key does not open the DuckDB database", "give the text that DuckDB gets as ENCRYPTION_KEY, in the same letters; or the header is that of another file";
    DUCKDB_KEY_TEXT = 2205, Key, "DuckDB would not take this as a key", "DuckDB's keys are ASCII; other bytes are written as \\xHH. Best are 32 random bytes in Base64";
    DUCKDB_UNIT = 2206, Data, "a block or header of the DuckDB database failed authentication", "it is damaged, forged, or of another key; `strongroom verify` names every such block; restore from a backup";
    DUCKDB_CHECKSUM = 2207, Data, "the inner checksum of a block or header of the DuckDB database is wrong", "it is damaged; `strongroom verify` names every such block; restore from a backup";
    DUCKDB_TRUNCATED = 2208, Data, "the DuckDB database file ends before its last block", "restore the file from a backup";
    DUCKDB_IN_USE = 2209, Io, "another process has the DuckDB database open", "close it there, and try again";
    DUCKDB_WAL = 2210, Refused, "the DuckDB database has a write-ahead log", "open it in DuckDB with its key, run CHECKPOINT and close it; the log is then gone";
    DUCKDB_REKEYING = 2211, Refused, "a change of the DuckDB database's key was begun and not finished", "run `strongroom duckdb rekey` again with the same two keys; it goes on where it was";
    DUCKDB_REKEY_FILE = 2212, Data, "the file that belongs to an unfinished change of the DuckDB database's key is damaged, or is another database's", "put the right file back beside the database; if it is lost, move this one away and run the rekey again";
    DUCKDB_SAME_KEY = 2213, Refused, "the new key of the DuckDB database is the one that it has", "give another key; nothing was changed";
    DUCKDB_SHORT_KEY = 2214, Warning, "the new key is shorter than 32 bytes: DuckDB hashes it once, so that guessing is cheap", "use 32 random bytes in Base64";
    DUCKDB_BACKUP = 2215, Refused, "the copy of a header does not belong to this DuckDB database and key, or the header needs no copy", "see what it says; nothing was changed";
    DUCKDB_HEADERS = 2216, Data, "neither of the two database headers of the DuckDB database is authentic", "restore the file from a backup";
    REMOTE_URL = 2240, Usage, "the address of a remote database, or one of its options, cannot be used", "write url=https://HOST/PATH, percent-encoded in a URI; docs/reference/sqlite.md lists the options";
    REMOTE_UNREACHABLE = 2241, Io, "the server of a remote database could not be reached, or did not answer in time", "check the address and the network, then try again; http_timeout is how many seconds one read may take";
    REMOTE_TRUST = 2242, Io, "the server of a remote database is not who it should be: its TLS certificate is not trusted", "check the address, and http_ca where the server's authority is a private one; there is no way to go on without it";
    REMOTE_STATUS = 2243, Io, "the server of a remote database refused the request", "check the address, and what the server says; 404 and 403 are not tried again";
    REMOTE_RANGES = 2244, Io, "the server of a remote database does not serve parts of the file as they are", "serve it as a static file, with ranges and without compression";
    REMOTE_VALIDATOR = 2245, Io, "the server of a remote database names no version of it: there is no strong ETag", "have the server send strong ETags; without one a change of the file could not be told";
    REMOTE_CHANGED = 2246, Io, "the remote database is not the version any more that was opened", "open it again; publish a new version under a new name, so that readers can finish with the old one";
    REMOTE_REDIRECT = 2247, Io, "the server of a remote database sends readers elsewhere, which is not followed", "give the address that it leads to";
    REMOTE_SQL = 2248, Refused, "an address named in SQL was refused", "open the database by URI from the application or attach a pointer file, or set STRONGROOM_ATTACH_URL=1 if every writer of SQL may send requests";
    REMOTE_CIPHER = 2249, Refused, "the remote database is sealed with AES-256-CTR, which does not show what a server changed", "publish a copy with AES-256-GCM: VACUUM INTO makes one, docs/guides/remote.md says how";
    REMOTE_POINTER = 2250, Usage, "the pointer file of a remote database cannot be used", "check its lines; it must belong to this user or to root, and nobody else may write to it";
    REMOTE_CACHE = 2251, Warning, "the cache of a remote database is not used", "check the directory: it must belong to this user, nobody else may write to it, and there must be room";
    REMOTE_NO_CLIENT = 2252, Usage, "this build cannot read over the network", "use the extension or the library with its feature `http`";
    REMOTE_CLEAR = 2253, Refused, "the address of a remote database is http:// and leads to another host", "use https://, or http_plain=1 if observers may see what is read; pages are authenticated either way";
    REMOTE_COST = 2254, Refused, "the key slots of the remote database ask for more memory or work than is spent on what a server sends", "download the file if you trust where it comes from, and open it from the disk; the publisher can make the slots anew with `strongroom sqlite rekey --slots-only`";
    PYTHON_NO_EXTENSIONS = 2270, Usage, "this Python's SQLite does not load extensions", "use a Python whose sqlite3 module can, such as the distribution's or one that was built with --enable-loadable-sqlite-extensions; or apsw: docs/guides/python.md";
    PYTHON_KEY_VALUE = 2271, Usage, "a key was given as a value, which tracebacks and logs show", "give a callable that returns it, such as getpass.getpass, or name where the key is: key_id, key_file, key_env, key_command";
    PYTHON_NO_FILE = 2272, Usage, "a key was given for a database that has no file", "leave the key away; attach the sealed database to the one in memory";
    PYTHON_PLAIN = 2273, Refused, "the database is not sealed, or would not be", "name a key; a plain database is opened with sqlite3.connect and sealed with strongroom.encrypt";
    OTHER_SQLITE = 2274, Refused, "the guard serves another SQLite library of this process already", "use one SQLite library in a process: Python's sqlite3 module and apsw bring one each";
    FOREIGN_WORD = 2280, Usage, "that is how another product is asked for an encrypted database, or it is misspelt", "see the detail for what to write here; nothing was opened or changed";
    KEY_TOO_LATE = 2281, Refused, "the connection was opened before Strongroom was loaded, and its database is plain", "load the extension first, on a connection to :memory:, then open the database with key_id, key_env or key_file in its URI";
    NEVER_PLAIN = 2282, Refused, "plain databases are refused in this process", "name a key in the URI, or unset STRONGROOM_SQLITE_NEVER_PLAIN";
    PAST_THE_GUARD = 2283, Refused, "a key was named, but SQLite opens the database past the guard: it would be plain", "leave `vfs=` out of the URI, and load the extension before the connection is opened; after sqlite3_shutdown() open it once more";
    DEFAULT_PLAIN = 2284, Refused, "the database is plain, and the program was started with a key", "seal it with `strongroom sqlite encrypt`, or start the program with --existing-plain";
    RUN_PROGRAM = 2285, Refused, "the guard cannot be put into this program, which would write plain databases", "see the detail; `strongroom sqlite shell` reads and writes sealed databases, and docs/guides/developer.md says what else does";
    RUN_LIBRARY = 2286, Usage, "the libraries for `strongroom sqlite run` were not found", "install libstrongroom_sqlite_run.so and libstrongroom_sqlite.so beside the command, in ../lib or in /usr/lib/strongroom, or name the first with STRONGROOM_SQLITE_RUN_LIB";
    RUN_OWN_SQLITE = 2287, Warning, "the program has used, or could have used, an SQLite that the guard is not in", "do not use the part of the program that the detail names: what it wrote is plain";
    OTHER_CIPHER = 2288, Usage, "the file is probably a database that another product has encrypted", "decrypt it into a plain file with that product (SQLCipher: ATTACH ... KEY '' and sqlcipher_export), then seal that: docs/guides/dba.md";
    GUARD_TWICE = 2289, Refused, "another copy of the guard is in this process already", "load one copy of the extension: in a program that `strongroom sqlite run` has started it is there already";
    SOURCE_KEY = 2290, Key, "the source is sealed, and no key that opens it was given", "name one: --source-key-id, --source-key-file, --source-key-env, --source-key-command or --source-ask; --key-id and the like are for what is written";

    NOT_SEALED = 3001, Data, "the file is not a sealed object", "check the path; `strongroom inspect` shows what it is";
    NEWER_FORMAT = 3002, Data, "the object was written by a newer version of Strongroom", "open it with that version or a later one";
    HEADER_DAMAGED = 3003, Data, "the object's header is damaged", "restore the file from a backup; the header holds the wrapped key, without it the data is gone";
    HEADER_FORGED = 3004, Data, "the object's header was changed by someone without the key", "do not trust this file; restore it from a backup";
    CANARY = 3005, Data, "the header's canary does not open: header and key do not belong together", "do not trust this file; restore it from a backup";
    HEADER_TRUNCATED = 3006, Data, "the file ends within the header", "restore the file from a backup";
    WRONG_KIND = 3007, Data, "the object is sealed, but is of another kind than expected", "`strongroom inspect` shows its kind";
    PLAIN_FILE = 3008, Refused, "a key was given, but the file is a plain database", "seal it with `strongroom sqlite encrypt`, or open it without a key";
    SLOTS_FULL = 3009, Refused, "the header has no room for another key slot", "remove a slot first";
    ANCHOR = 3010, Data, "both anchors in the header are damaged", "restore the file from a backup; `strongroom verify` says what else is damaged";
    ALREADY_SEALED = 3011, Refused, "the file is sealed already", "to change its key use `strongroom sqlite rekey`; to seal it anew, decrypt it first";

    PAGE = 4001, Data, "a page failed authentication", "the page is damaged, forged or from another place; `strongroom verify` names every such page; restore from a backup";
    PAGE_TRUNCATED = 4002, Data, "the file ends within a page", "restore the file from a backup";
    WAL_FRAME = 4003, Data, "a frame of the write-ahead log failed authentication", "`strongroom verify` names the frame; restore database and log together from a backup";
    JOURNAL = 4004, Data, "the rollback journal failed authentication, or is cut short", "do not delete it: restore database and journal together from a backup";
    SUPER_JOURNAL = 4005, Data, "the super-journal failed authentication or belongs to other databases", "open the other databases of that transaction in the same connection first";
    WAL_STALE = 4006, Data, "the write-ahead log is not the one that belongs to this state of the database", "the log was put back from an older copy: remove it only if the database alone is what you want";
    JOURNAL_STALE = 4007, Data, "the rollback journal is not the one that belongs to this state of the database", "do not delete it: a torn write of the disk or a copy from another time can be the cause, and the journal may be all that undoes a half-written transaction; copy database and journal aside, then restore both from a backup";
    UNKNOWN_EPOCH = 4008, Data, "a page was sealed under a key epoch that the header does not know", "the page or the header is from another copy of the file; restore from a backup";
    TEMP = 4009, Data, "a temporary file failed authentication", "someone writes to the temporary directory; the statement was stopped";
    UNVERIFIED = 4010, Data, "not everything could be verified", "read the list of what was not checked";
    MALFORMED = 4011, Data, "SQLite found the database malformed, though its pages are authentic or were not looked at", "run `strongroom verify` and PRAGMA integrity_check; restore from a backup";
    STALE = 4012, Data, "the pages are not those that the header's digest is of: a page, or some, are older copies", "restore from a backup; or, if you know why and want these pages, run `strongroom verify --settle`";
    ROOT = 4013, Data, "the database has another root than the one that was expected", "it was changed since that root was noted, or is an older copy: compare with the newest root that you have";
    FRESHNESS_OFF = 4014, Usage, "the database does not keep freshness", "it is chosen when a database is made: `strongroom sqlite encrypt --freshness`, or freshness=1 in the URI";

    IO = 5001, Io, "the operating system reported an error", "see its message; check disk space, permissions and the device";
    NO_MEMORY = 5002, Io, "there is not enough memory for this", "free memory, or raise the limit that is set for the process";

    RESERVE = 6001, Refused, "pages without the reserved bytes were to be written to a sealed database", "copy with VACUUM INTO or `strongroom sqlite encrypt`; the backup API cannot add reserved bytes";
    PAGE_SIZE = 6002, Refused, "the page size of a sealed database cannot be changed in place", "use PRAGMA page_size=N and then VACUUM INTO 'file:NEW?key_id=...&page_size=N'";
    PLAINTEXT_COPY = 6003, Refused, "a sealed database was about to be copied into a plain file", "give the target a key, or add allow_plaintext=1 to its URI; or use `strongroom sqlite decrypt`";
    ATTACH_KEY = 6004, Refused, "ATTACH ... KEY was used; SQLite ignores it and would have made a plain database", "give the key in the file name: ATTACH 'file:x.db?key_id=NAME'; or register it with strongroom_key()";
    FOREIGN_VFS = 6005, Refused, "a sealed database was attached to a connection that keeps temporary files outside the guard", "open the connection itself through the guard: load the extension first, or add vfs=strongroom to its URI";
    KEY_ON_PLAIN = 6006, Refused, "PRAGMA key was used on a plain database", "seal it with `strongroom sqlite encrypt` first";
    HOST_TOO_OLD = 6007, Usage, "this SQLite library is too old for the guard", "use SQLite 3.37 or later";
    CTR_WARNING = 6008, Warning, "AES-256-CTR does not authenticate: changed pages are not found", "use AES-256-GCM unless you have a reason not to";
    URI = 6009, Usage, "a URI parameter is not valid", "see docs/reference/sqlite.md for the parameters";
    BUSY = 6010, Io, "the database is in use by another connection", "close it there, or try again";
    REKEY_NEEDED = 6011, Refused, "a rekey of this database was begun and not finished", "finish it with `strongroom sqlite rekey`";
    SEALS_MANY = 6012, Warning, "the data key of a database has sealed a quarter or more of the pages that it may", "give it a new data key with `strongroom sqlite rekey` before it has sealed them all";
    SEALS_PASSED = 6013, Warning, "the data key of a database has sealed more pages than it may", "give it a new data key with `strongroom sqlite rekey`; nothing is refused until then";
    OWNER_WAY = 6020, Refused, "root was pointed at something that another user could exchange for something else", "run the command as the user who owns it (runuser -u USER -- strongroom ...), or let every directory on the way belong to root or to that user, writable by nobody else";
    OWNER_ACT = 6021, Refused, "root cannot act as the owner of what it was pointed at", "run the command as that user: runuser -u USER -- strongroom ..., or setpriv --reuid where the user has no name";
    KEY_COMMAND_FOREIGN = 6022, Refused, "a key command is named in a file that belongs to another user, or that others may write to", "run the command as the owner of that file, and make the file writable by its owner alone";
    KEY_FILE_OPEN = 6023, Warning, "a key file can be read by other users", "take the permission away (chmod 600; 640 if root owns it and one group must read it), and change the key if somebody may have read it";

    PG_FILE = 7001, Data, "a sealed file of a PostgreSQL instance is damaged, cut short, or sealed under another key or for another name", "restore the file from a backup; one that PostgreSQL makes anew (statistics, caches) may be removed while the server is stopped";
    PG_REFUSED = 7002, Refused, "a file or a call that cannot be sealed was refused", "see the detail: mount what is not mounted, put back the file whose place something else has taken; a server needs dynamic_shared_memory_type = posix and io_method worker or sync; other names are in the documentation of what is sealed";
    PG_CONVERTING = 7003, Refused, "a conversion of the instance was begun and not finished", "finish it with the `strongroom pg` command that began it";
    PG_NOT_SEALED = 7004, Refused, "the shield was given a key, but the data directory is not sealed", "seal it with `strongroom pg encrypt` or `strongroom pg initdb`, or start it without the shield";
    PG_SYMBOL = 7005, Io, "the C library lacks a function that the shield needs", "use the shield with glibc 2.31 or later";
    PG_ROOTS = 7006, Usage, "more instances than one program can have open", "name at most 8 data directories";
    PG_KEY_OPTION = 7007, Usage, "a line of strongroom.conf is not valid", "write `name = value` with key_id, key_env, key_file, key_command or keyring as the name";
    PG_RUNNING = 7008, Refused, "a server is running on the data directory", "stop it first: `strongroom pg stop`, or pg_ctl stop";
    PG_NOT_SHUT_DOWN = 7009, Refused, "the instance was not shut down cleanly", "start it as it was and stop it again; a standby too must be stopped cleanly";
    PG_GEOMETRY = 7010, Refused, "the instance was built with another block size or segment size than 8 KiB and 1 GiB", "dump it and restore it into one made with the usual sizes";
    PG_NOT_INSTANCE = 7011, Usage, "the directory is not a PostgreSQL data directory of a version that is supported", "name the directory that holds PG_VERSION, of PostgreSQL 15 to 18";
    PG_ALREADY_SEALED = 7012, Refused, "the data directory is sealed already, or holds a header", "`strongroom pg rotate` changes its data key; `strongroom pg rotate --slots-only` changes who may open it";
    PG_CONVERT_STATE = 7013, Data, "the state of the conversion is damaged, or is another instance's", "do not remove it: restore the data directory from a backup";
    PG_NO_ROOM = 7014, Io, "there is not enough room to convert the instance", "make room for a second copy of its largest files, then run the command again";
    PG_ROOT = 7015, Usage, "PostgreSQL's programs do not run as root", "run the command as the user who owns the data directory: runuser -u postgres -- strongroom pg ...";
    PG_PROGRAMS = 7016, Usage, "PostgreSQL's programs were not found", "install PostgreSQL, or name the directory that holds them with --bindir or PG_BINDIR";
    PG_SHIELD = 7017, Usage, "the shield's library was not found, or cannot be preloaded from where it is", "install it beside the command or in ../lib, or name it by STRONGROOM_SHIELD_LIB; its path may hold no blank and no colon";
    PG_PROGRAM = 7018, Io, "a program of PostgreSQL's failed", "read what it said above, or in the server's log";
    PG_KEEP_KEY = 7019, Warning, "whoever loses the key of this instance has lost its data", "keep the key and a copy of strongroom.header in a second place, apart from each other";
    PG_NO_SOURCE = 7020, Warning, "the instance will not start unattended: its configuration names no key", "start it with `strongroom pg start --ask`, or give it a key of another source with `strongroom pg rotate --slots-only`";
    PG_NOT_SHIELDED = 7021, Bug, "the instance that was made is not sealed: the library was not loaded", "please report it; nothing was kept";
    PG_PLAIN_FILE = 7022, Data, "a file that is stored in clear lies where the files of a PostgreSQL instance are sealed", "put it outside the data directory; certificates and configuration may lie in the data directory itself or in conf.d, logs in log";
    PG_RESTORED = 7023, Data, "what the restore command brought back cannot become a segment of this instance's log", "check which archive it is of; a sealed archive is read with the header of the instance that wrote it (strongroom pg initdb --copy-key-from); log in clear is taken only with STRONGROOM_PG_PLAIN_ARCHIVE=accept in the environment of the server";
    PG_NOTHING_SEALED = 7024, Warning, "the shield is loaded, but the server was started on a directory that is not sealed", "if the instance should be sealed, put strongroom.header back or name its directory in STRONGROOM_PG_ROOTS; else take the library out of LD_PRELOAD";
    PG_NOT_RUNNING = 7027, Io, "no server is running on the data directory", "`strongroom pg status` shows the instance; `strongroom pg start` starts a server";
    PG_NO_CLUSTER = 7028, Usage, "no cluster of postgresql-common has this data directory", "make one with pg_createcluster -d, or set LD_PRELOAD in what starts the server";
    PG_STATUS_ZEROS = 7029, Data, "a transaction status file holds zeros that were not sealed: they were written past the shield, or the disk lost what stood there", "restore the instance from a backup: with zeros there, transactions that were committed would be gone; a file of zeros that PostgreSQL's manual asks for is made under the shield (strongroom pg run -D DIR -- dd ...)";
    PG_NO_CHECKSUMS = 7030, Warning, "data checksums are off: a page of a relation that was changed on the disk is read as it is", "turn them on while the server is stopped: `strongroom pg run -D DIR -- pg_checksums --enable -D DIR`";
    PG_NO_CONFIGURATION = 7033, Usage, "the data directory has no postgresql.conf, and where the configuration of its server lies is not clear", "name the file with --config-file, or make a cluster for the directory with pg_createcluster -d";
    PG_BOUND_NAME = 7040, Refused, "a small sealed file of a PostgreSQL instance was to get another name, and it is sealed for the one that it has", "copy it under the shield and remove the old one (strongroom pg run -D DIR -- sh -c 'cp OLD NEW && rm OLD'); mv does that by itself";

    MEDIUM_ABSENT = 7101, Usage, "there is no backup medium at that place", "check the path; `strongroom backup create` makes a medium in an empty or absent directory";
    MEDIUM_DAMAGED = 7102, Data, "the head of the backup medium is damaged", "sets can be restored by naming their heads one by one; begin a new medium for new ones";
    MEDIUM_FOREIGN = 7103, Refused, "the place holds something that is not a backup medium", "name an empty or absent directory, or an existing medium";
    MEDIUM_SEALED = 7104, Refused, "an unencrypted set was to be added to a sealed medium", "give a key instead of --no-encryption, or use another medium; --format begins this one anew and removes its sets";
    MEDIUM_PLAIN = 7105, Refused, "a sealed set was to be added to an unencrypted medium", "use another medium, or --no-encryption if the data may be read by anyone; --format begins this one anew and removes its sets";
    SET_HEAD = 7106, Data, "the head of the backup set is damaged, or was changed", "restore another set, or this one from another copy of the medium";
    SET_ABSENT = 7107, Usage, "the medium holds no such set", "`strongroom backup header` lists the sets and their positions";
    FAMILY_ABSENT = 7108, Data, "a family of the backup set is missing", "bring it back from where it was moved, or restore another set";
    SEGMENT = 7109, Data, "a segment of the backup set is damaged, forged or from another place", "restore another set, or this one from another copy of the medium";
    FAMILY_SHORT = 7110, Data, "a family of the backup set is cut short, or is not the one that the set's head names", "copy it again from where it came, or restore another set";
    STREAM = 7111, Data, "what the backup set holds has not the form that it must have", "do not trust this set: whoever made it was not this program, or was defective";
    FILE_DIGEST = 7112, Data, "a file of the backup set is not what it was when it was read", "restore another set; please report it";
    TARGET_NOT_EMPTY = 7113, Refused, "the directory to restore into is not empty", "name an absent or empty one; `strongroom backup restore --delta` restores over the directory that a set was made of";
    BACKUP_SOURCE = 7114, Io, "what was to be backed up cannot be read, or is not of a kind that is known", "check the path, or the connection string, and who runs the command";
    BACKUP_SERVER = 7115, Io, "the PostgreSQL server has refused or ended the backup", "see its message; the server's log says more";
    BACKUP_MANIFEST = 7116, Data, "the backup is not what PostgreSQL's own manifest says", "take the backup again; if it happens again, check the server's disks and memory";
    STRIPES = 7117, Refused, "the medium has another number of stripes", "leave out --stripes; --format begins the medium anew";
    NOT_COPIED = 7118, Warning, "something was left out of the backup", "sockets, pipes and devices hold no data; what was removed or exchanged meanwhile is in the next backup; whatever could be needed must be backed up in another way";
    PLAIN_SET = 7119, Warning, "the backup is not encrypted: whoever can read the medium can read the data", "leave out --no-encryption and give a key";
    WAL_DIFFERS = 7120, Refused, "the archive has another file of that name already", "find out which server wrote it: two servers must not share one archive; nothing was overwritten";
    WAL_ABSENT = 7121, Usage, "the archive has no file of that name", "none, at the end of recovery: PostgreSQL asks until there is none";
    UNTIL_LATER = 7122, Usage, "the point to recover to lies before the end of the backup", "choose an earlier set: a backup is consistent from its end on";
    UNEXPIRED = 7123, Refused, "--init or --format would remove a set that has not expired", "wait until it expires, add the set with --append, or give --skip to remove it all the same";
    BACKUP_KEY_LOST = 7124, Warning, "whoever loses the key of this backup has lost the backup", "keep the key, or an export of the keyring, in a second place, apart from the medium";
    SET_NOT_SEALED = 7126, Data, "the set or archived file is not sealed, but must be", "leave out the key only if this was never sealed; else someone has replaced it: use another copy of the medium";
    WAL_GAP = 7130, Data, "the archive lacks a file of the log, but has later ones", "bring the file back from another copy of the medium, or end recovery before it with --until-lsn or --until-time";
    MEDIUM_CHANGED = 7131, Refused, "another writer is at work on the backup medium, or has begun it anew meanwhile", "run the command again when the other one has ended; no set was added";
    OTHER_RECIPIENTS = 7132, Refused, "others can open the set or archived file too, and could not any more", "give --drop-others if they are to lose it; nothing was changed";
    STORE_URL = 7140, Usage, "the URL does not name a place in an object store that can be used", "use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; credentials and endpoint come from the environment";
    STORE_LOST = 7141, Io, "the object store cannot be reached, or does not answer", "check network, endpoint and proxy (AWS_ENDPOINT and others), then run the command again";
    STORE_DENIED = 7142, Io, "the object store refuses access", "check the credentials in the environment, the clock, and what the store's policy allows: get, put, delete and list below the prefix";
    STORE_FAILED = 7143, Io, "the object store has failed, or does not know what was asked of it", "its answer is in the message; a store needs conditional puts, ranges and multipart uploads (docs/spec/backup.md)";
    SET_LATE = 7144, Io, "writing the set took longer than an object store allows", "use more stripes, threads or bandwidth; no set was added";
    MIRRORS = 7145, Io, "not all mirrors have the set", "the message names those that have it, whole; mend the others and run the command again for them";
    OBJECT_CHANGED = 7146, Refused, "another has changed or removed the object meanwhile", "run the command again; nothing was changed";
    UNSETTLED = 7147, Io, "it is not known whether the object was written: a set may have been added", "look with `strongroom backup header` before running the command again: a set that is listed is whole, unless it builds on one that is not";
    RESTORE_EXCHANGED = 7150, Refused, "a directory was exchanged for another one while a set was restored into it", "restore below a directory that nobody else can write to; the set was not restored";
    HISTORY_NOT_KEPT = 7151, Warning, "the run could not be noted in the catalogue of backups", "the backup itself is not concerned; mend the cause, name another catalogue with --catalogue, or give --no-history";
    HISTORY_ABSENT = 7152, Usage, "there is no catalogue of backups there", "`strongroom backup create` with --key-id makes one, and so does `strongroom backup history --key-id NAME`; --scan fills it from a medium";
    METRICS_NOT_WRITTEN = 7153, Warning, "the metrics could not be written", "check the directory and who runs the command; the backup itself is not concerned";
    INCREMENTAL_BASE = 7160, Refused, "there is no set that an incremental one can build on", "make a full set with `strongroom backup create` without --incremental; see the detail";
    CHAIN = 7161, Data, "a set that an incremental set builds on is missing, or is not the one it was", "bring its head and families back from another copy of the medium, or use a full set";
    COMBINE = 7162, Io, "PostgreSQL could not put the sets of a chain together", "see its message; --bindir names the directory of the programs of the server's version";
    RESTORE_TEST = 7163, Data, "a cluster that was restored for a test has failed it", "do not rely on this set: see the message, restore it and look, and make a new one";
    TEST_PROGRAM = 7164, Io, "a program that the test of a restore needs cannot be run", "install PostgreSQL's programs of the server's version, or name their directory with --bindir";
    ARCHIVE_FOREIGN = 7165, Refused, "the archive on the medium is of another PostgreSQL cluster", "use one medium for one cluster; nothing was written";
    RECEIVE = 7166, Io, "the log cannot be received", "see the server's message; if it no longer has the log, make a new set: recovery cannot pass the gap";
    LEGACY_CIPHER = 7170, Refused, "Triple DES is not used unless it is asked for twice: NIST allows it for no encryption since 2024 (SP 800-131A Rev. 2), for its blocks are short and it is slow", "choose aes-256; where a rule demands Triple DES, give --allow-legacy beside it";
    LEGACY_SET = 7171, Warning, "the set is sealed with Triple DES, which NIST allows for no encryption since 2024", "choose aes-256 for new sets, and keep this one no longer than the rule asks that demands it";
    NO_TRIPLE_DES = 7172, Io, "the set is sealed with Triple DES, which this system's libcrypto does not have", "the set may be sound: read it on a host whose OpenSSL has DES-EDE3-CBC, and seal what is restored anew";
    NOT_LOG = 7173, Refused, "the file is not what PostgreSQL archives under its name, or of another cluster", "nothing was archived or handed over; give the file where the server has it: log of a sealed instance is opened only from the instance's own pg_wal";
    ARCHIVE_CONTENT = 7174, Data, "archived segments of the log are not what their names say", "recovery ends before the first of them: make a new set, and look at what archives them";
    LOG_NOT_REPLAYED = 7175, Data, "a server that was restored for a test has not replayed the archived log to its end", "recovery ends where the message says: make a new set, and find out what has damaged the log";
    DELTA_REFUSED = 7176, Refused, "the directory is not one that this set is restored over", "see the detail; nothing was changed. A restore to a new directory is always possible";
    SET_UNSIGNED = 7177, Data, "the backup set is not signed, but must be", "name a set that is signed with --set; leave out --signed-by only where it does not matter who made the set";
    SET_SIGNATURE = 7178, Data, "the signature of the backup set is damaged, of another set, or by none of the keys that were named", "name the public key of the host that makes the backups; if it was that one, do not restore this set: someone else may have made it";
    SIGNATURE_KEY = 7179, Key, "the file holds no key that can be used for signatures of backup sets", "make a private key with `openssl genpkey -algorithm ed25519 -out FILE`, which --sign-key takes, and the public one for --signed-by with `openssl pkey -in FILE -pubout -out FILE.pub`";

    FID_STALE = 8001, Data, "the identifier does not name a value any more", "if a table still holds it, restore table and zone to one point in time; report it if neither was restored";
    FID_FORGED = 8002, Data, "the identifier never named a value of this place", "someone or something other than Strongroom wrote it into the table, or the zone's store is another one's";
    ZONE_LOST = 8003, Io, "the zone ended or was started anew while the statement ran", "run the statement again; the zone's own log says why it ended";
    FID_KIND = 8004, Data, "the value is of another type than the operation", "someone or something other than Strongroom wrote the identifier there, or the table's definition was changed in the catalog";
    FID_COLUMN = 8005, Data, "the value belongs to another column", "someone or something other than Strongroom moved identifiers between columns: restore the table from a backup";
    NO_TICKET = 8006, Refused, "the session has no ticket that allows this operation", "connect through `strongroom columns proxy`, or have the data owner issue a ticket for it";
    TICKET_SPENT = 8007, Refused, "the ticket's budget is spent", "have the data owner issue a new one; the ledger says what the last one was spent on";
    NO_COLUMN_KEY = 8008, Key, "the zone holds no key of that column", "release the key to the zone: connect once through `strongroom columns proxy`";
    ENVELOPE = 8009, Data, "the envelope does not open: damaged, forged, or sealed for another column", "seal the value again with the column's key; do not move envelopes between columns";
    STORE_OLD = 8010, Data, "the zone's store is not the newest: its counter and the freshness anchor do not agree", "bring back the newest store; if this is a restore on purpose, open it once with --accept-restored";
    STORE_BLOCK = 8011, Data, "a block of the zone's store is damaged, or is from another time or place", "restore the zone's directory from a backup and let it replay the log";
    LOG_GAP = 8012, Data, "a redo record is missing from the log", "restore the log whole; without the record, values that tables refer to are lost";
    RECOVERING = 8013, Io, "the zone has not read the log to its end yet", "wait; `strongroom columns status` shows how far it is";
    ZONE_MEMORY = 8014, Io, "the zone has no memory left for this", "raise the zone's memory limit, or let it page: give it a lower limit than the host has memory";
    ZONE_DISK = 8015, Io, "the zone's disk is full", "make room; nothing that was acknowledged is lost";
    REDO_RECORD = 8016, Data, "a redo record does not open", "the record is damaged or forged, or belongs to another zone's store: restore the log";
    PARTITION_UNKNOWN = 8017, Data, "the zone knows no such partition", "restore table and zone to one point in time";
    PARTITIONS_FULL = 8018, Refused, "the zone has no partition number left", "drop tables with confidential columns that are not needed";
    BAD_REQUEST = 8019, Usage, "the request is not one that the zone knows", "use an extension of the zone's own version";
    ARENA_FULL = 8020, Refused, "the statement has made more values than an arena can name", "split the statement";
    CLIENT_MESSAGE = 8021, Data, "the client's message does not open", "connect anew; someone between client and zone changes messages if it happens again";
    NOT_ACCUMULATOR = 8022, Data, "the identifier is not an accumulator's", "someone or something other than Strongroom wrote it";
    STORE_IO = 8023, Io, "the operating system reported an error on the zone's store", "see its message; after a failed write to disk the zone must be started anew";
    STORE_MANIFEST = 8024, Data, "the manifest of the zone's store is damaged, forged, or another store's", "restore the zone's directory from a backup and let it replay the log";
    STORE_IN_USE = 8025, Refused, "another process has the zone's store open", "one zone at a time: end the other one first";
    ZONE_UNLOCKED = 8026, Warning, "memory of the zone could not be locked and may be swapped out", "raise the memlock limit (ulimit -l, LimitMEMLOCK=): the zone's memory limit and 64 MiB are enough for the values and keys, all memory of the process needs `unlimited`; or seal the swap";
    ZONE_LOCK = 8027, Refused, "memory for values could not be locked, and the zone was told to insist on it", "raise the memlock limit (ulimit -l) to the zone's memory limit and 64 MiB";
    EXTENTS_FULL = 8028, Refused, "the partition's identifiers are used up", "rewrite the table with VACUUM FULL: it gets a new partition";
    STORE_HISTORY = 8030, Data, "the zone's store and the server's log are of different histories", "bring the zone a store from before the histories parted, or a copy of the store of the zone whose server this one now follows; see docs/guides/columns.md";
    COLUMN_CONSTANT = 8101, Refused, "a constant would reach the server in clear", "give it a place where its type is known, or start the proxy with --plaintext-constants=allow if it may be known";
    COLUMN_PARAMETER = 8102, Refused, "a parameter would reach the server in clear", "compare it with a confidential column or cast it to the column's type";
    COLUMN_STATEMENT = 8103, Refused, "a statement of this sort cannot go through the proxy without giving something away", "see its hint; an operator can run it at the server, without values";
    COLUMN_VALUE = 8104, Usage, "a value is not one of the column's type", "correct the value; PostgreSQL would refuse it too";
    COLUMN_PROTOCOL = 8105, Usage, "a message of PostgreSQL's protocol does not have its form, or comes where it cannot", "the driver and the server do not speak version 3 of the protocol as the proxy knows it; please report it";
    COLUMN_DENIED = 8106, Data, "the server says of a pinned column that it is not confidential", "find out who changed the column's type; nothing is sent until server and proxy agree";
    COLUMN_CONVERT = 8121, Refused, "the column cannot be converted as it is", "do what the message says and run the command again; nothing was changed";
    COLUMN_SERVER = 8122, Refused, "the database server has refused a statement of this command", "see its message; what was converted so far stays, and running the command again goes on";
    COLUMN_RECORD = 8123, Data, "the record does not open", "use the key for records that the zone was started with; a record that was changed or cut is not replayed";
    COLUMN_UNRECORDED = 8124, Refused, "the zone makes no record of this", "start the zone with --record-key-file, choose a name that is not taken; values in clear and more than 64 MiB are not recorded";
    COLUMN_DEPARTED = 8125, Usage, "the statement departs from its record, or would change something", "replay the statement that was recorded, in the same form and on the same data, in a new session; see docs/guides/columns.md";

    LUKS_NOT = 8300, Data, "the file or device does not begin with a LUKS header", "check the path; `strongroom inspect` says what it looks like";
    LUKS_1 = 8301, Refused, "the volume is LUKS1", "convert it while it is closed: `cryptsetup convert --type luks2 DEVICE`, after a header backup";
    LUKS_DAMAGED = 8302, Data, "neither copy of the volume's LUKS2 header can be used", "restore the header from its backup; the field that is named is the first that is wrong";
    LUKS_UNSUPPORTED = 8303, Refused, "the volume uses something that is not supported without device-mapper", "open it with `strongroom volume open`, or with cryptsetup, where there is device-mapper";
    LUKS_REENCRYPTING = 8304, Refused, "a re-encryption of the volume was begun and not finished", "finish it where there is device-mapper, or offline: `cryptsetup reencrypt --resume-only DEVICE`";
    LUKS_FORGED = 8305, Data, "the volume's re-encryption metadata was not made by someone with its keys", "do not open this volume with any tool; restore its header from a backup, and find out who wrote to it";
    LUKS_KEY = 8306, Key, "no key slot of the volume opens with the key that was given", "`strongroom inspect` lists the key slots and what opens them";
    LUKS_COST = 8307, Refused, "a key slot asks for more memory or time than is reasonable", "if you made it so, open it with cryptsetup; otherwise someone has written to the header";
    LUKS_IN_USE = 8308, Refused, "the volume is in use", "detach or close it first; two writers would destroy it";
    LUKS_ONE_COPY = 8309, Warning, "one of the two copies of the volume's header is not as it should be", "back up the header, then let cryptsetup repair it: `cryptsetup repair DEVICE`";
    MOUNTPOINT = 8310, Usage, "the mount point cannot be used", "name an empty directory to attach to, or the directory that a volume is attached to";
    FUSE = 8311, Io, "the volume could not be attached through FUSE", "check that /dev/fuse is there and that this user may mount";
    VOLUME_IN_USE = 8320, Refused, "the device is in use: mounted, mapped, or held by another program", "unmount or close it first; nothing was changed";
    VOLUME_NOT_EMPTY = 8321, Refused, "the device holds something already", "check that it is the right device; --overwrite destroys what is on it";
    VOLUME_NOT_LUKS = 8322, Data, "there is no LUKS2 volume", "check the path; `strongroom inspect` says what is there; a header that was lost comes back from its backup";
    VOLUME_TOKEN = 8323, Data, "the volume has no token of Strongroom's, or a damaged one, so that it does not say which key opens it", "open it with --passphrase or --recovery; `strongroom volume enroll` adds a token";
    VOLUME_LIBRARY = 8324, Io, "libcryptsetup reported an error", "see its message; `strongroom inspect` shows the state of the header";
    VOLUME_LAST_OPENER = 8325, Refused, "the last key slot, or the last recovery key, would be removed", "enroll another one first; --force removes a last recovery key, nothing removes a last key slot but `strongroom volume shred`";
    VOLUME_SIZE = 8326, Usage, "the size of the device or of a new file does not serve for a volume", "a volume needs its 16 MiB header and room for data, in whole sectors";
    VOLUME_KERNEL = 8327, Io, "the kernel cannot map encrypted devices: device-mapper or one of its targets is missing", "load the modules dm_crypt and, for --integrity, dm_integrity; in a container use `strongroom volume attach`";
    VOLUME_ROTATING = 8328, Refused, "a re-encryption of the volume was begun and not finished", "finish it with `strongroom volume rotate`, with the options that it was begun with";
    VOLUME_LIBRARY_VERSION = 8329, Refused, "this version of libcryptsetup must not re-encrypt: before 2.4.3 it can be made to decrypt (CVE-2021-4122), and 2.7.0 to 2.7.4 can damage data", "install another version; nothing was changed";
    VOLUME_SLOT = 8330, Usage, "the volume has no such key slot, or no opener of that kind", "`strongroom volume status` lists its slots";
    VOLUME_NO_REPAIR = 8331, Refused, "the header is not in the state that can be repaired", "nothing was changed; a re-encryption that stopped before its last step goes on with `strongroom volume rotate`";
    VOLUME_NO_RECOVERY = 8332, Warning, "the volume has no recovery key: lose the key and the data is gone", "`strongroom volume enroll DEVICE recovery` makes one";
    VOLUME_NOT_ESCROWED = 8333, Warning, "the backup of the header could not be brought to the key server", "keep a backup of your own, and run `strongroom volume backup DEVICE` when the server answers";
    VOLUME_COPY = 8334, Data, "the copy differs from its source", "do not use the copy; run the command again, which copies what differs, on a source that nobody writes to";
    VOLUME_TABLE = 8335, Usage, "the table of volumes for the start of the system is not valid", "see docs/reference/volume.md for its form; the detail names the line";
    VOLUME_LOCKED = 8336, Key, "not every volume was unlocked in time", "see the reason given for each; `strongroom volume open` tries again";
    VOLUME_NAME = 8337, Usage, "the name of a mapping or a label is not valid", "use 1 to 47 characters of a-z, A-Z, 0-9, '.', '_', '-'; no mapping may have the name already";
    VOLUME_OPENERS = 8338, Usage, "a volume key can be changed only together with what opens each slot", "give the passphrase or the recovery key of each other slot, replace the recovery key with --new-recovery, or give slots up with --drop";
    VOLUME_WARNED = 8339, Warning, "what remains after the keys of a volume are destroyed", "destroy every backup of its header; a key that waits for its destruction is gone when `strongroom keyserver keys` shows it as destroyed";
    VOLUME_CIPHER = 8340, Refused, "the header names a cipher that does not encrypt, or one that is not opened here", "if nobody changed it on purpose, somebody wrote to the disk: restore the header from its backup, and do not trust what the disk holds";
    VOLUME_OLD_DATA = 8341, Warning, "what the device held before can be read below the volume until it is written over", "make the volume again with --overwrite --wipe, which overwrites all of the device first; on flash memory only its own secure erase reaches every block";
    VOLUME_TPM_STATE = 8350, Key, "the machine is not in the state that the TPM sealed the volume's opener to", "start the system that it was sealed under, or open the volume with its key or --recovery; then `unenroll DEVICE tpm` and `enroll DEVICE tpm`";
    VOLUME_TPM_OTHER = 8351, Key, "no opener of the volume was sealed by this TPM: it is another, was cleared, or the token is damaged", "open the volume with its key or --recovery; then `unenroll DEVICE tpm` and `enroll DEVICE tpm`";
    VOLUME_TPM_AWAY = 8352, Key, "the TPM does not answer, or refuses", "check that it is there (/dev/tpmrm0, or --tcti), switched on, and that this user may use it; the volume opens with its key or --recovery";
    VOLUME_RESTORE = 8353, Refused, "the device holds something that putting the header back would destroy", "check that it is the right device and the right backup; --confirm UUID gives up the volume that is named, --overwrite anything else; nothing was changed";
    VOLUME_BACKUP = 8354, Data, "the backup of a volume's header cannot be used: damaged, cut off, or made while the volume was re-encrypted", "use another backup, or the one that the key server keeps; nothing was changed";
    VOLUME_KEPT = 8355, Key, "the passphrase that was kept for a start without key servers cannot be used: its time is over, it was changed, or it is of another volume or key", "start the machine while a key server answers, which keeps it anew, or open the volume with --recovery or a passphrase";
    VOLUME_NOT_KEPT = 8356, Warning, "the volume's passphrase could not be kept for a start without key servers", "see the detail; the machine needs a TPM (/dev/tpmrm0, or `tcti` in the table) and room in /var/lib/strongroom/cache";
    VOLUME_UNSEEN = 8357, Usage, "the recovery key can be shown to nobody: there is no terminal", "give --recovery-out FILE: a new file that only you can read takes it; `strongroom volume create --no-recovery` makes a volume without one";
    VOLUME_KEY_REMAINS = 8358, Refused, "the volume is destroyed, but not everything that was to be destroyed at the key server", "see the message for what is still there and why; have an administrator run `strongroom keyserver destroy KEY` (a second one too, where the server wants two); until then, whoever gets the key and a copy of the header can read the data";
    VOLUME_CONFIRM = 8359, Refused, "the volume is not the one that --confirm names", "nothing was changed; if this is the volume that is to be destroyed, give the UUID that `strongroom volume status DEVICE` shows";
    VOLUME_WHICH = 8360, Usage, "the device does not say which volume it was", "give --object-id and --key-id: the fleet page of the key server shows them beside the name of the volume, and `strongroom volume create --json` printed them";
    VOLUME_RECOVERY_KEY = 8361, Key, "that is not a recovery key of a volume", "give all of its 64 letters, which are of cbdefghijklnrtuv, as they were shown or written to the file of --recovery-out; dashes and blanks do not count";
    VOLUME_KEY_SHARED = 8362, Refused, "other objects need the key that was to be destroyed with the volume; nothing was changed", "give --keep-key to destroy this volume alone, or destroy the others first";
    NODE_CONFIG = 8400, Usage, "the node's configuration cannot be used", "name it with --node FILE or STRONGROOM_NODE, an administrator's admin.toml too; `strongroom keyserver join` writes it: docs/guides/nodes.md";
    NODE_FILE = 8401, Key, "a file that the node's configuration names cannot be used", "see the message; the private key must be this user's alone (mode 0600)";
    KEYSERVER_UNREACHABLE = 8402, Key, "no key server gave an answer in the time that was configured", "see what each server came to; another opener of the object still opens it";
    KEYSERVER_NOT_TRUSTED = 8403, Key, "who answered is not a key server that the configured authority vouches for", "see the message: the address must have a name that the server's certificate has; else check this host's clock, and that `authority` is the file the key server gave; someone may be in between";
    KEYSERVER_ANSWER = 8404, Data, "the answer is not that of a key server, or not to what was asked", "check the address of the server, and its version";
    KEYSERVER_UNCERTAIN = 8405, Io, "the connection broke after a change was sent: whether it was made is not known", "look at the key server before you ask for it again";
    KEYSERVER_REFUSED = 8406, Key, "the key server refused", "see what it says; its codes are those of this table";
    KEYSERVER_NOT_ACCEPTED = 8407, Key, "the key server does not accept this node's certificate", "it may have expired, or be another key server's: join again with `strongroom keyserver join`";
    KEYSERVER_ADDRESS = 8408, Usage, "that is not the address of a key server", "write `https://`, the name or IP address that the certificate of the server has, and the port if it is not 443: https://keys.example.org:8443";
    KEYSERVER_NOBODY = 8409, Key, "no key server can be reached at that address", "check that the key server runs (on its machine: `strongroom keyserver run`), and the name and port in `servers` of the configuration, or after --server";
    KEYSERVER_SHARES = 8410, Key, "fewer shares were given than the root key of the key server needs", "give one --share-file for each share, as many as the message says; without --share-file they are asked for on the terminal";
    KEYSERVER_SECOND = 8411, Refused, "nothing has changed yet: the key server wants a second administrator to agree to the destruction of the key", "have another administrator run `strongroom keyserver destroy NAME` within seven days";
    SERVER_NAME = 8412, Usage, "that cannot be the name of a key server", "give a DNS name (keys.example.org) or an IP address, without https:// and without a port: clients connect to it, and it goes into the certificate of the server";
    SERVER_CERTIFICATE_NEEDED = 8420, Key, "the key server wants a client certificate, and none was shown", "join the node first: `strongroom keyserver join`";
    SERVER_NOT_ENROLLED = 8421, Key, "the client certificate is not enrolled with the key server, or no longer", "have an administrator make a token, and join again";
    SERVER_ROLE = 8422, Refused, "the key server does not allow this to the role of the client", "use the certificate of a client that may";
    SERVER_NO_SUCH = 8423, Key, "the key server has no such thing, or it is not granted to this client", "check the name; an administrator grants keys: `strongroom keyserver grant`";
    SERVER_EXISTS = 8424, Refused, "the key server has one of that name already", "choose another name";
    SERVER_DESTROYED = 8425, Key, "the key was destroyed", "it cannot be brought back; what was sealed under it is gone unless there is another opener";
    SERVER_DISABLED = 8426, Key, "the key is disabled or about to be destroyed", "an administrator enables or restores it: `strongroom keyserver enable`, `strongroom keyserver restore`";
    SERVER_TOO_MANY = 8427, Io, "the key server was asked too often", "wait as long as it says, and try again";
    SERVER_SEALED = 8428, Key, "the key server is sealed and serves nothing", "give the shares with `strongroom keyserver unseal`, or see to the provider of its root key";
    SERVER_REQUEST = 8429, Usage, "the request to the key server is not well formed", "see docs/spec/keyserver.md";
    SERVER_TOO_LARGE = 8430, Usage, "the request to the key server is too large", "send less at once: docs/spec/keyserver.md, \"Limits\"";
    SERVER_TOKEN = 8431, Key, "the enrolment token is wrong, used, or expired", "have an administrator make another: `strongroom keyserver token`";
    SERVER_SHARE = 8432, Key, "that is not a share of this key server's root key", "check what was typed, and which server the share is for";
    SERVER_NO_ADDRESS = 8433, Usage, "the key server has no such address or method", "see docs/spec/keyserver.md";
    SERVER_CONFIG = 8434, Usage, "the key server's configuration is not valid", "see docs/guides/keyserver.md, \"Configuration\"";
    SERVER_STORE = 8435, Io, "the key server's store does not answer, or holds what it should not", "see its log; check the disk, or the members of the replicated store";
    SERVER_AUDIT = 8436, Data, "the audit log is not whole: a row is missing, changed, or out of order", "keep a copy of the store, compare with the heads in the server's log, and find out who had access to it";
    SERVER_ROOT = 8437, Key, "the root key does not open the key server's store", "check what the provider delivers, and that server.toml belongs to this store";
    SERVER_TIMEOUT = 8438, Io, "the request to the key server did not end in time", "try again";
    SERVER_STATE = 8439, Refused, "the state of the key, the client or the server does not allow that", "see the detail, and the states: `strongroom keyserver status`, `strongroom keyserver keys`";
    SERVER_TLS = 8440, Usage, "a certificate or private key of the key server cannot be used", "check the files that server.toml names";
    SERVER_SHARE_TWICE = 8441, Refused, "that share was given already", "give another one";
    SERVER_BUSY = 8442, Io, "others changed the same thing at the same time, again and again", "try again";
    SERVER_QUOTA = 8443, Refused, "that is more than one node may have at the key server", "see the detail; remove what is no longer needed, or have the limits raised: docs/guides/keyserver.md, \"Configuration\"";
    SERVER_NO_GRANT = 8444, Usage, "the key server has no grant of that key to that client", "see what is granted: `strongroom keyserver grants NODE`";
    SERVER_FOREIGN = 8450, Refused, "a page in a browser sent this request; nothing is done here for a page, whatever certificate the browser shows", "use the command `strongroom keyserver`, or a program; the fleet page has an address of its own";
    SERVER_MEDIA_TYPE = 8451, Refused, "the request does not say that its body is what this address takes", "send `Content-Type: application/json` with every request that changes something, also without a body";
    SERVER_TOO_SOON = 8452, Refused, "the key server destroys no key as soon as that", "give a later time; the least is `destroy_least_days` of the server's configuration";
    KEYSERVER_NOT_CONFIRMED = 8453, Refused, "a key is destroyed only when its name is given once more", "look at what needs it, then give `--confirm NAME`";
    SERVER_NO_KEY = 8454, Usage, "the key server has no key of that name", "make it first: `strongroom keyserver create NAME`; or let the node make it itself, with a token that says `--may-create`";
    SERVER_NO_CLIENT = 8455, Usage, "the key server has no client of that name", "see who there is: `strongroom keyserver nodes`; enrol one: `strongroom keyserver token NAME`, then `strongroom keyserver join` on its machine";
    SERVER_ARCHIVE = 8456, Io, "rows of the audit log could not be put into an archive", "see the detail; nothing was removed; rows stay in the store until an archive holds them: docs/guides/keyserver-audit.md";
    SERVER_NO_OBJECT = 8457, Usage, "the key server knows no object of that id", "see the fleet page; an id has 32 hexadecimal digits";
    SERVER_ASKED_OTHERWISE = 8458, Refused, "another administrator asked for the key's destruction at another time", "look at it: `strongroom keyserver keys`; agree with the same time or without one, or take it back: `strongroom keyserver destroy NAME --withdraw`";
    SERVER_NO_TOKEN = 8459, Usage, "the key server has no unused token of that id", "see the tokens that were not used: `strongroom keyserver tokens`; a client that was enrolled with a token is ended with `strongroom keyserver revoke NAME`";
    NODE_CERTIFICATE_ENDED = 8470, Key, "this host's certificate of the key server has ended", "check this host's clock; if it is right, have an administrator make a token, and join again: `strongroom keyserver join ... --replace`";
    NODE_RENEWAL_COMMAND = 8471, Io, "the certificate was renewed, but the command that was to run then failed", "mend it and run `strongroom keyserver renew` again: it goes on from there, and the former certificate counts until the new one is used";
    SERVER_BREAK_GLASS = 8472, Warning, "an administrator was made with the root key of the key server", "if nobody of yours did that, somebody has the root key or the custodians' shares: revoke that administrator, and read the audit log";
    SERVER_CERTIFICATE_ENDS = 8473, Warning, "the key server's certificate is due and could not be renewed", "see the detail; `strongroom keyserver server-cert renew` on the server's machine makes a new one; nodes believe no server whose certificate has ended";
    SERVER_ROOM = 8474, Warning, "the key server runs short of room, or cannot archive its audit log; without room no key is delivered", "see the detail; archive the audit log, or give more room: docs/guides/keyserver-audit.md, \"When there is no room\"";

    BUG = 9001, Bug, "an internal error: this is a defect in Strongroom", "please report it with the version and what was done";
}

/// The code with this number.
#[must_use]
pub fn by_number(number: u16) -> Option<&'static Code> {
    ALL.iter().find(|code| code.number == number)
}
