"""From what a caller names a database by, to the URI that SQLite opens it by.

A path is escaped byte by byte, so that no name of a file can be read as syntax. A URI (only with `uri=True`, as in sqlite3)
is kept as it is and gets parameters.

Must not: put a key into a URI: URIs are shown by `PRAGMA database_list` and in messages.
"""

from __future__ import annotations

import os
from typing import Optional, Union
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from . import _errors

StrOrBytesPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

KEY_PARAMETERS = ("key_id", "key_file", "key_env", "key_command")


class Name:
    """A database's name: the URI without parameters of ours, and what it refers to."""

    def __init__(self, database: StrOrBytesPath, uri: bool) -> None:
        raw = os.fspath(database)
        data = raw if isinstance(raw, bytes) else os.fsencode(raw)
        if b"\0" in data:
            raise ValueError("embedded null character in the database's name")
        self.parameters: dict[str, str] = {}
        if uri and data.startswith(b"file:"):
            self._read(data.decode("utf-8", "surrogateescape"))
        elif data in (b"", b":memory:"):
            self.path: Optional[bytes] = None
            self._base = "file:" + data.decode()
        else:
            self.path = data
            # An empty authority before an absolute path: "//x" at its start would be one.
            self._base = ("file://" if data.startswith(b"/") else "file:") + quote(data)

    def _read(self, text: str) -> None:
        text, _, _ = text.partition("#")
        base, _, query = text.partition("?")
        self._base = base
        # To SQLite a plus sign is one; to HTML's forms it is a space.
        pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, errors="surrogateescape")
        self.parameters = dict(pairs)
        rest = base[len("file:") :]
        if rest.startswith("//"):
            rest = "/" + rest[2:].partition("/")[2]
        path = unquote_to_bytes(rest)
        in_memory = path in (b"", b":memory:") or self.parameters.get("mode") == "memory"
        # The shared in-memory databases of SQLite's own VFS "memdb" do not exist here: the VFS is
        # the extension.
        self.path = None if in_memory else path

    def names_key(self) -> bool:
        """Whether the URI itself says where the key is."""
        return any(name in self.parameters for name in KEY_PARAMETERS)

    def uri(self, more: dict[str, str]) -> str:
        """The URI with `more` parameters.

        It does not name the extension's VFS, which is the default one: the extension takes a URI that does for one of ATTACH on a
        connection it does not know, and runs no key command for it.
        """
        both = sorted(set(more) & set(self.parameters))
        named = [name for name in KEY_PARAMETERS if name in more or name in self.parameters]
        if both or len(named) > 1:
            raise _errors.own(_errors.ProgrammingError, "SR-2019", ", ".join(both or named))
        vfs = self.parameters.get("vfs", "strongroom")
        if vfs != "strongroom":
            raise _errors.own(_errors.OperationalError, "SR-2273", f"vfs={vfs}")
        pairs = {**self.parameters, **more}
        query = "&".join(f"{quote_text(name)}={quote_text(value)}" for name, value in pairs.items())
        return f"{self._base}?{query}" if query else self._base

    def file(self) -> bytes:
        """The path of the database's file, absolute."""
        assert self.path is not None, "asked for a database with a file only"
        return os.path.abspath(self.path)

    def would_be_made(self) -> bool:
        """Whether there is no database yet: no file, or an empty one."""
        try:
            return os.stat(self.file()).st_size == 0
        except FileNotFoundError:
            return True
        except OSError:
            return False  # SQLite says what is wrong with it.


def quote_text(text: str) -> str:
    """Percent-encoded, with nothing left that a URI or SQL could take for syntax."""
    return quote(os.fsencode(text), safe="")


def shown(database: StrOrBytesPath) -> str:
    """For a message."""
    return os.fsdecode(os.fspath(database))


