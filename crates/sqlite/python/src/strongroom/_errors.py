"""The extension's errors as exceptions of sqlite3, with their stable code.

SQLite's interface carries a number only; the extension keeps the text, for each thread, until somebody asks. An exception here
is always also what sqlite3 raised, so that a handler written for sqlite3 goes on working.

Must not: show a key, or take an older error of the extension for the one at hand.
"""

from __future__ import annotations

import re
import sqlite3
from typing import NoReturn, Optional

# What goes wrong before the extension is loaded, or before SQLite is called: (class of code, what
# happened, what to do). docs/reference/errors.md has the same words; a test compares them.
OWN = {
    "SR-1002": (
        "the output exists already, and would have to be overwritten",
        "choose another name, or move the existing file away first",
    ),
    "SR-1006": ("the file does not exist", "check the path"),
    "SR-2019": (
        "the key options or URI parameters contradict one another, or are not valid",
        "give exactly one source for each key",
    ),
    "SR-2270": (
        "the SQLite of this Python does not load extensions",
        "use a Python whose sqlite3 module does, such as the distribution's or one that was built with "
        "--enable-loadable-sqlite-extensions; or use apsw: docs/guides/python.md",
    ),
    "SR-2271": (
        "a key was given as a value, which tracebacks and logs would show",
        "give a callable that returns the key, such as getpass.getpass, or say where the key is: key_id, "
        "key_file, key_env or key_command",
    ),
    "SR-2272": (
        "a key was given for a database that has no file",
        "leave the key out; attach the sealed database to the one in memory",
    ),
    "SR-2273": (
        "the database is plain, or would be made plain",
        "name a key; open a plain database with sqlite3.connect, and seal one with strongroom.encrypt",
    ),
    "SR-2274": (
        "the sealing VFS is installed in another SQLite library of this process already",
        "use only one SQLite library in a process; Python's sqlite3 module and apsw each bring their own",
    ),
    "SR-3011": (
        "the file is sealed already",
        "change its key with `strongroom sqlite rekey SEALED`; to seal it anew, decrypt it first",
    ),
    "SR-6007": ("this SQLite library is too old for the sealing VFS", "use SQLite 3.37 or later"),
}

# Result codes of SQLite under which the extension's errors travel, and SQLite's words for them
# (Python before 3.11 has no number).
_SQLITE_ERROR = 1
_RESULTS = {
    9: "interrupted",
    10: "disk I/O error",
    11: "database disk image is malformed",
    14: "unable to open database",  # "... file", and in ATTACH "...: NAME"
    23: "authorization denied",
    26: "file is not a database",
}

_LINE = re.compile(r"SR-\d{4}(?=: )")


class Error(sqlite3.DatabaseError):
    """An error that the extension explains.

    `code` is stable, "SR-2002"; `advice` is one line of what to do, as `strongroom explain SR-2002` prints it.
    `sqlite_errorcode` and `sqlite_errorname` are those of the exception that sqlite3 raised, where Python (3.11 or later)
    knows them.
    """

    code: str
    advice: str

    def __init__(self, message: str, code: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.advice = advice

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}; {self.advice}" if self.advice else text

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.args[0], self.code, self.advice))


class OperationalError(Error, sqlite3.OperationalError):
    """Where sqlite3 raises `sqlite3.OperationalError`: a file or key out of reach, a refusal, a page that is not authentic."""


class ProgrammingError(Error, sqlite3.ProgrammingError):
    """The call was wrong: contradicting key parameters, a key as a value."""


def own(kind: type[Error], code: str, detail: str = "") -> Error:
    """An error that is not the extension's library's but this package's."""
    what, advice = OWN[code]
    return kind(f"{code}: {what} ({detail})" if detail else f"{code}: {what}", code, advice)


def explain(error: BaseException) -> Optional[Error]:
    """The extension's error behind `error`, or None where the extension has nothing to do with it.

    For connections that were made by `sqlite3.connect`, or with a factory of your own. To be called in the thread in which
    `error` was raised, before that thread uses SQLite again: the extension remembers its last error only, and forgets it when
    it is asked.
    """
    if isinstance(error, Error):
        return error
    if not isinstance(error, sqlite3.DatabaseError):
        return None
    message = str(error)
    result = _result(error, message)
    if result is None:
        return None
    # The extension keeps errors for each thread, and any connection tells them; this one is of
    # nobody else.
    asked = sqlite3.connect(":memory:")
    try:
        row = asked.execute("SELECT strongroom_last_error(?)", (str(result),)).fetchone()
        # What fails with SQLITE_ERROR says itself what the extension says, or is not the
        # extension's.
        line = message if result == _SQLITE_ERROR else row[0] or ""
        found = _LINE.match(line)
        if found is None:
            return None
        code = found.group()
        advice = asked.execute("SELECT strongroom_explain(?)", (code,)).fetchone()[0] or ""
    except sqlite3.OperationalError:
        return None  # The extension is not loaded.
    finally:
        asked.close()
    kind = OperationalError if isinstance(error, sqlite3.OperationalError) else Error
    explained = kind(line, code, advice)
    for name in ("sqlite_errorcode", "sqlite_errorname"):
        if hasattr(error, name):
            setattr(explained, name, getattr(error, name))
    return explained


def _result(error: sqlite3.DatabaseError, message: str) -> Optional[int]:
    number = getattr(error, "sqlite_errorcode", None)
    if number is not None and number & 0xFF != _SQLITE_ERROR:
        return number & 0xFF if number & 0xFF in _RESULTS else None
    for result, words in _RESULTS.items():
        if message.startswith(words):
            return result
    return _SQLITE_ERROR if _LINE.match(message) else None


def again(error: sqlite3.DatabaseError) -> NoReturn:
    """Raises `error` as the extension explains it, or as it is."""
    explained = explain(error)
    if explained is None or explained is error:
        raise error
    raise explained from error
