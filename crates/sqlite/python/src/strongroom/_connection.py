"""Connection and Cursor: those of sqlite3, whose errors carry the extension's code.

Must not: do anything else. What sqlite3 has is inherited, so that pandas and every other user of a DB-API connection finds
what it expects; `factory=sqlite3.Connection` does without this file.
"""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Any, Callable, Iterable, NamedTuple, Optional, TypeVar

from ._errors import again

_C = TypeVar("_C", bound=sqlite3.Cursor)

# Bound once: these are on the way of every statement and every row.
_execute = sqlite3.Cursor.execute
_executemany = sqlite3.Cursor.executemany
_executescript = sqlite3.Cursor.executescript
_fetchone = sqlite3.Cursor.fetchone
_fetchmany = sqlite3.Cursor.fetchmany
_fetchall = sqlite3.Cursor.fetchall
_next = sqlite3.Cursor.__next__


class Cursor(sqlite3.Cursor):
    """A cursor whose errors carry the extension's code. See `sqlite3.Cursor`."""

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        try:
            _execute(self, sql, parameters)
        except sqlite3.DatabaseError as error:
            again(error)
        return self

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor:
        try:
            _executemany(self, sql, parameters)
        except sqlite3.DatabaseError as error:
            again(error)
        return self

    def executescript(self, sql_script: str, /) -> Cursor:
        try:
            _executescript(self, sql_script)
        except sqlite3.DatabaseError as error:
            again(error)
        return self

    def fetchone(self) -> Any:
        try:
            return _fetchone(self)
        except sqlite3.DatabaseError as error:
            again(error)

    def fetchmany(self, size: Optional[int] = None) -> list[Any]:
        try:
            return _fetchmany(self, self.arraysize if size is None else size)
        except sqlite3.DatabaseError as error:
            again(error)

    def fetchall(self) -> list[Any]:
        try:
            return _fetchall(self)
        except sqlite3.DatabaseError as error:
            again(error)

    def __next__(self) -> Any:
        try:
            return _next(self)
        except sqlite3.DatabaseError as error:
            again(error)


class Connection(sqlite3.Connection):
    """A connection whose errors carry the extension's code. See `sqlite3.Connection`.

    Not to be used across `fork`, nor pickled, like any connection of SQLite: a child process opens its own.
    """

    def cursor(self, factory: Optional[Callable[[sqlite3.Connection], _C]] = None) -> Any:
        return super().cursor(Cursor if factory is None else factory)

    # sqlite3's own make a cursor of sqlite3's, whatever `cursor` makes.

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        return self.cursor().executescript(sql_script)

    def commit(self) -> None:
        try:
            super().commit()
        except sqlite3.DatabaseError as error:
            again(error)

    def rollback(self) -> None:
        try:
            super().rollback()
        except sqlite3.DatabaseError as error:
            again(error)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> Any:
        try:
            return super().__exit__(kind, value, traceback)
        except sqlite3.DatabaseError as error:
            again(error)

    def backup(self, target: sqlite3.Connection, **options: Any) -> None:
        try:
            super().backup(target, **options)
        except sqlite3.DatabaseError as error:
            again(error)

    def databases(self) -> list[Database]:
        """What is attached, and how it is sealed: the proof that a database is."""
        return databases(self)


class Database(NamedTuple):
    """One attached database: a row of `strongroom_databases()`."""

    name: str
    """The schema's name: "main", or what ATTACH called it."""
    path: str
    """Absolute; empty for a database in memory."""
    encrypted: bool
    """Whether it is sealed."""
    cipher: Optional[str]
    """The cipher's name, if it is sealed."""
    key_id: Optional[str]
    """`NAME:VERSION` of a keyring's key, "raw" or "passphrase"."""
    page_size: Optional[int]
    """In bytes."""


def databases(connection: sqlite3.Connection) -> list[Database]:
    """What is attached to any connection of sqlite3, and how it is sealed: the proof that a database is."""
    cursor = sqlite3.Cursor(connection)  # Not the connection's own, which may make other rows.
    try:
        cursor.execute("SELECT name, path, encrypted, cipher, key_id, page_size FROM strongroom_databases()")
        return [Database(row[0], row[1], bool(row[2]), *row[3:]) for row in cursor.fetchall()]
    except sqlite3.DatabaseError as error:
        again(error)
    finally:
        cursor.close()
