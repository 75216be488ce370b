"""Sealed SQLite databases for Python's own sqlite3 module.

    import strongroom

    con = strongroom.connect("orders.db", key_id="app")     # a sqlite3.Connection; the file is made if it is not there
    con.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, body TEXT)")

Pages, journal, log and temporary files are sealed (AES-256-GCM); SQL, types and transactions are sqlite3's. Losing the key
loses the data. Guide: docs/guides/python.md; errors and what to do: docs/reference/errors.md.
"""

from __future__ import annotations

from ._connect import KeyCallable, connect, encrypt
from ._connection import Connection, Cursor, Database, databases
from ._errors import Error, OperationalError, ProgrammingError, explain
from ._loader import extension_path, load

__version__ = "0.1.0"

__all__ = [
    "Connection",
    "Cursor",
    "Database",
    "Error",
    "KeyCallable",
    "OperationalError",
    "ProgrammingError",
    "connect",
    "databases",
    "encrypt",
    "explain",
    "extension_path",
    "load",
]
