"""`connect` and `encrypt`: sealed databases by path or URI, and where their keys come from.

Invariants:
1. A connection that is returned for a file is one to a sealed database whose key was right: it was asked before it was
   handed out. No call makes a plain database.
2. A key is never an argument, a variable that a traceback shows, or part of a URI or of SQL text. What a callable returned
   is bound as a parameter, and wiped here as soon as the extension has it. (What the callable keeps is the callable's.)
3. A key that a callable gave serves the one connection it was asked for.

Must not: leave a registered key behind, or half a file.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import threading
from typing import Any, Callable, Optional, TypeVar, Union, overload

from . import _errors
from ._connection import Connection, databases
from ._loader import load
from ._names import Name, StrOrBytesPath, shown

KeyCallable = Callable[[], Union[str, bytes, bytearray]]
"""Returns a passphrase or a raw key when it is called: `getpass.getpass`, a method of a secret store's client."""

_C = TypeVar("_C", bound=sqlite3.Connection)
_UNSET: Any = object()

# Held while a key is registered: two threads that open one database must not take each other's
# away.
_registration = threading.RLock()


def _after_fork() -> None:
    """Another thread of the parent may have held it."""
    global _registration
    _registration = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


@overload
def connect(
    database: StrOrBytesPath,
    *,
    key: Optional[KeyCallable] = ...,
    key_id: Optional[str] = ...,
    key_file: Optional[StrOrBytesPath] = ...,
    key_env: Optional[str] = ...,
    key_command: Optional[str] = ...,
    keyring: Optional[StrOrBytesPath] = ...,
    cipher: Optional[str] = ...,
    page_size: Optional[int] = ...,
    uri: bool = ...,
    timeout: float = ...,
    detect_types: int = ...,
    isolation_level: Optional[str] = ...,
    check_same_thread: bool = ...,
    cached_statements: int = ...,
    autocommit: Union[bool, int] = ...,
) -> Connection: ...


@overload
def connect(
    database: StrOrBytesPath,
    *,
    factory: type[_C],
    key: Optional[KeyCallable] = ...,
    key_id: Optional[str] = ...,
    key_file: Optional[StrOrBytesPath] = ...,
    key_env: Optional[str] = ...,
    key_command: Optional[str] = ...,
    keyring: Optional[StrOrBytesPath] = ...,
    cipher: Optional[str] = ...,
    page_size: Optional[int] = ...,
    uri: bool = ...,
    timeout: float = ...,
    detect_types: int = ...,
    isolation_level: Optional[str] = ...,
    check_same_thread: bool = ...,
    cached_statements: int = ...,
    autocommit: Union[bool, int] = ...,
) -> _C: ...


def connect(
    database: StrOrBytesPath,
    *,
    key: Optional[KeyCallable] = None,
    key_id: Optional[str] = None,
    key_file: Optional[StrOrBytesPath] = None,
    key_env: Optional[str] = None,
    key_command: Optional[str] = None,
    keyring: Optional[StrOrBytesPath] = None,
    cipher: Optional[str] = None,
    page_size: Optional[int] = None,
    uri: bool = False,
    factory: type[sqlite3.Connection] = Connection,
    timeout: float = _UNSET,
    detect_types: int = _UNSET,
    isolation_level: Optional[str] = _UNSET,
    check_same_thread: bool = _UNSET,
    cached_statements: int = _UNSET,
    autocommit: Union[bool, int] = _UNSET,
) -> sqlite3.Connection:
    """Opens a sealed database, or makes one if there is none, and returns a connection of sqlite3.

    `database` and what follows `page_size` are `sqlite3.connect`'s. Exactly one of these says where the key is:

    - `key_id`: the name of a key of the keyring (`keyring`: its path, else `STRONGROOM_KEYRING`, else the user's own);
    - `key_file`: the contents of a file; `key_env`: the value of an environment variable;
    - `key_command`: what `/bin/sh -c` prints;
    - `key`: a callable that returns it, asked once: `getpass.getpass`. A key itself is refused (SR-2271).

    64 hexadecimal digits, or 32 bytes that are not UTF-8, are a raw key; everything else is a passphrase. With
    `uri=True` the parameters may stand in the URI instead.

    `cipher` ("gcm", or "ctr", which does not authenticate) and `page_size` (a power of two from 512 to 65536) are for a
    database that is made.

    `":memory:"` and `""` take no key: databases without a file of their own, to which sealed ones can be attached
    (`ATTACH 'file:x.db?key_id=app' AS x`). Their temporary files are sealed.

    Raises `strongroom.Error`, whose `code` is stable: SR-2002 for the wrong key, SR-2273 for a database that is plain, or
    would be because no key was named; docs/reference/errors.md has all. Other exceptions are sqlite3's.
    """
    name = Name(database, uri)
    parameters = _parameters(key_id, key_file, key_env, key_command, keyring, cipher, page_size)
    _one_key(key, parameters, name)
    given = {
        "timeout": timeout,
        "detect_types": detect_types,
        "isolation_level": isolation_level,
        "check_same_thread": check_same_thread,
        "cached_statements": cached_statements,
        "autocommit": autocommit,
    }
    options = {option: value for option, value in given.items() if value is not _UNSET}
    target = name.uri(parameters)
    if name.path is None:
        if key is not None or parameters or name.names_key():
            raise _errors.own(_errors.ProgrammingError, "SR-2272")
        load()
        return _open(target, factory, options)
    if key is None and not _names_key(parameters) and not name.names_key() and name.would_be_made():
        raise _errors.own(_errors.OperationalError, "SR-2273", shown(name.file()))
    load()
    if key is None:
        return _proved(_open(target, factory, options), name)
    with _Secret(key) as secret, secret.registered(name.file()):
        connection = _open(target, factory, options)
    return _proved(connection, name)


def encrypt(
    plain: StrOrBytesPath,
    sealed: StrOrBytesPath,
    *,
    key: Optional[KeyCallable] = None,
    key_id: Optional[str] = None,
    key_file: Optional[StrOrBytesPath] = None,
    key_env: Optional[str] = None,
    keyring: Optional[StrOrBytesPath] = None,
    cipher: Optional[str] = None,
    page_size: Optional[int] = None,
) -> None:
    """Writes a sealed copy of the plain database `plain` to `sealed`, which must not exist.

    The copy appears under its name when it is whole and durable, or not at all. `plain` stays as it is, in plaintext.
    The key is named as for `connect`; for `key_command`, and to decrypt or to change keys, there is the `strongroom` command.
    """
    source, name = Name(plain, False), Name(sealed, False)
    parameters = _parameters(key_id, key_file, key_env, None, keyring, cipher, page_size)
    _one_key(key, parameters, name)
    if name.path is None or source.path is None:
        raise _errors.own(_errors.ProgrammingError, "SR-2272")
    if key is None and not _names_key(parameters):
        raise _errors.own(_errors.OperationalError, "SR-2273", shown(name.file()))
    if not os.path.exists(source.file()):
        raise _errors.own(_errors.OperationalError, "SR-1006", shown(source.file()))
    if os.path.lexists(name.file()):
        raise _errors.own(_errors.OperationalError, "SR-1002", shown(name.file()))
    load()
    directory = os.path.dirname(name.file())
    # Mode 0600, empty: SQLite writes into an empty file as into a new one.
    handle, temporary = tempfile.mkstemp(prefix=b".strongroom-", suffix=b".tmp", dir=directory)
    try:
        copy = Name(temporary, False)
        if key is None:
            _copy(source, copy, parameters, page_size)
            _open_proved(copy, parameters).close()
        else:
            with _Secret(key) as secret, secret.registered(copy.file()):
                _copy(source, copy, parameters, page_size)
                _open_proved(copy, parameters).close()
        os.fchmod(handle, os.stat(source.file()).st_mode & 0o777)
        os.fsync(handle)
        _publish(temporary, name.file(), directory)
    finally:
        os.close(handle)
        for leftover in (b"", b"-journal", b"-wal", b"-shm"):
            if os.path.exists(temporary + leftover):
                os.unlink(temporary + leftover)


def _copy(source: Name, copy: Name, parameters: dict[str, str], page_size: Optional[int]) -> None:
    """VACUUM INTO, which also carries over what only SQLite knows of the database."""
    connection = sqlite3.connect(source.uri({"mode": "rw"}), uri=True, isolation_level=None, factory=Connection)
    try:
        if databases(connection)[0].encrypted:
            raise _errors.own(_errors.OperationalError, "SR-3011", shown(source.file()))
        size = page_size or connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA page_size={int(size)}")
        connection.execute("VACUUM INTO ?", (copy.uri({**parameters, "page_size": str(size)}),))
    finally:
        connection.close()


def _open_proved(name: Name, parameters: dict[str, str]) -> sqlite3.Connection:
    keyed = {name: value for name, value in parameters.items() if name not in ("cipher", "page_size")}
    return _proved(_open(name.uri(keyed), Connection, {}), name)


def _publish(temporary: bytes, final: bytes, directory: bytes) -> None:
    """Gives the file its name, which nobody else's file may have."""
    try:
        os.link(temporary, final)
    except FileExistsError as error:
        raise _errors.own(_errors.OperationalError, "SR-1002", shown(final)) from error
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parameters(
    key_id: Optional[str],
    key_file: Optional[StrOrBytesPath],
    key_env: Optional[str],
    key_command: Optional[str],
    keyring: Optional[StrOrBytesPath],
    cipher: Optional[str],
    page_size: Optional[int],
) -> dict[str, str]:
    """The extension's URI parameters."""
    given: dict[str, Optional[str]] = {
        "key_id": key_id,
        "key_file": None if key_file is None else shown(key_file),
        "key_env": key_env,
        "key_command": key_command,
        "keyring": None if keyring is None else shown(keyring),
        "cipher": cipher,
        "page_size": None if page_size is None else str(page_size),
    }
    found = {name: value for name, value in given.items() if value is not None}
    if any("\0" in value for value in found.values()):
        raise ValueError("embedded null character in a parameter")
    return found


def _names_key(parameters: dict[str, str]) -> bool:
    return any(name.startswith("key_") for name in parameters)


def _one_key(key: Any, parameters: dict[str, str], name: Name) -> None:
    """Refuses a key that is a value, and two keys."""
    if key is None:
        return
    if not callable(key):
        raise _errors.own(_errors.ProgrammingError, "SR-2271")
    if _names_key(parameters) or name.names_key():
        raise _errors.own(_errors.ProgrammingError, "SR-2019", "key and another source")


def _open(target: str, factory: type[sqlite3.Connection], options: dict[str, Any]) -> sqlite3.Connection:
    try:
        return sqlite3.connect(target, uri=True, factory=factory, **options)
    except sqlite3.DatabaseError as error:
        _errors.again(error)


def _proved(connection: sqlite3.Connection, name: Name) -> sqlite3.Connection:
    """Invariant 1. SQLite reads nothing when it opens a file, so a wrong key would be found only later."""
    try:
        main = next(row for row in databases(connection) if row.name == "main")
        if not main.encrypted:
            raise _errors.own(_errors.OperationalError, "SR-2273", shown(name.file()))
        if getattr(connection, "autocommit", True) is False:
            # There the question has begun to read within the transaction that is always open.
            sqlite3.Connection.rollback(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class _Secret:
    """A key between the callable and the extension. Tracebacks that show variables show this object."""

    __slots__ = ("_bytes",)

    def __init__(self, key: KeyCallable) -> None:
        self._bytes = _taken(key)

    def __enter__(self) -> _Secret:
        return self

    def __exit__(self, *_: object) -> None:
        self._bytes[:] = bytes(len(self._bytes))

    def __repr__(self) -> str:
        return "<a key>"

    def __reduce__(self) -> Any:
        raise TypeError("a key is not pickled")

    def registered(self, path: bytes) -> _Registered:
        """For a `with` block: the extension has the key for `path`."""
        return _Registered(path, self._bytes)


def _taken(key: KeyCallable) -> bytearray:
    """What the callable returns, without a name that stays."""
    returned = _Return(key())
    return returned.as_bytes()


class _Return:
    """Keeps a callable's answer out of the frames of a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "<a key>"

    def as_bytes(self) -> bytearray:
        """A copy that can be wiped."""
        if isinstance(self._value, str):
            try:
                return bytearray(self._value, "utf-8")
            except UnicodeEncodeError:
                # That error holds the whole text.
                raise ValueError("the key is text that is not Unicode") from None
        if isinstance(self._value, (bytes, bytearray, memoryview)):
            return bytearray(self._value)
        raise TypeError(f"the key's callable returned {type(self._value).__name__}, not str or bytes")


class _Registered:
    """While it is entered, the extension has a key for a path."""

    __slots__ = ("_path", "_key")

    def __init__(self, path: bytes, key: bytearray) -> None:
        self._path = path
        self._key = key

    def __repr__(self) -> str:
        return "<a registered key>"

    def __enter__(self) -> None:
        _registration.acquire()
        try:
            with contextlib.closing(sqlite3.connect(":memory:")) as connection:
                # The tuple has no name, and sqlite3 no frame: a traceback that shows variables does
                # not show the key.
                connection.execute("SELECT strongroom_key(CAST(? AS TEXT), ?)", (self._path, self._key)).fetchone()
        except BaseException as error:
            _registration.release()
            if isinstance(error, sqlite3.DatabaseError):
                _errors.again(error)
            raise

    def __exit__(self, *_: object) -> None:
        try:
            with contextlib.closing(sqlite3.connect(":memory:")) as connection:
                connection.execute("SELECT strongroom_forget(CAST(? AS TEXT))", (self._path,)).fetchone()
        finally:
            _registration.release()
