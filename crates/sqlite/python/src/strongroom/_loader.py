"""Loads the extension into the SQLite library that this Python's sqlite3 module uses, once per process.

Two ways: the module's own (`enable_load_extension`), and, where Python was built without it, the same calls of the same
library through ctypes. Whether it was the same library is not believed but asked: a connection of the module must have the
extension's functions afterwards.

Must not: leave the loading of extensions switched on.
"""

from __future__ import annotations

import os
import sqlite3
import threading

from . import _errors

_lock = threading.Lock()
_loaded = False


def _after_fork() -> None:
    """Another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def extension_path() -> str:
    """The path of the extension's library, for hosts other than Python's sqlite3 module, such as apsw."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_guard", "lib_guard.so")


def load() -> None:
    """Loads the extension, if it is not. Every connection that sqlite3 opens from then on passes through it.

    `strongroom.connect` does this by itself. Call it first where connections are opened by somebody else (a pool, an ORM):
    a connection that was opened before cannot attach a sealed database (SR-6005).

    Raises `strongroom.OperationalError`: SR-2270 if this Python cannot load extensions, SR-6007 if its SQLite is older than
    3.37, SR-2274 if another SQLite library of this process has the extension.
    """
    global _loaded
    with _lock:
        if _loaded:
            return
        if sqlite3.sqlite_version_info < (3, 37, 0):
            raise _errors.own(_errors.OperationalError, "SR-6007", sqlite3.sqlite_version)
        if hasattr(sqlite3.Connection, "enable_load_extension"):
            _by_module(extension_path())
        else:
            _by_library(extension_path())
        _prove()
        _loaded = True


def _by_module(path: str) -> None:
    loader = sqlite3.connect(":memory:")
    try:
        loader.enable_load_extension(True)
        loader.load_extension(path)
    except sqlite3.NotSupportedError as error:
        raise _errors.own(_errors.OperationalError, "SR-2270", str(error)) from error
    except sqlite3.OperationalError as error:
        raise _failed(str(error)) from error
    finally:
        loader.close()


def _by_library(path: str) -> None:
    """Through the C interface of the library that the module is linked to."""
    import ctypes

    try:
        import _sqlite3

        # None, where the module is part of the interpreter: the process's own symbols.
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        version = library.sqlite3_libversion
        version.restype = ctypes.c_char_p
        open_, close = library.sqlite3_open, library.sqlite3_close
        enable, load_, free = (
            library.sqlite3_enable_load_extension,
            library.sqlite3_load_extension,
            library.sqlite3_free,
        )
    except (ImportError, OSError, AttributeError) as error:
        raise _errors.own(_errors.OperationalError, "SR-2270", str(error)) from error
    if version() != sqlite3.sqlite_version.encode():
        raise _errors.own(_errors.OperationalError, "SR-2270", "its SQLite library was not found")
    enable.argtypes = [ctypes.c_void_p, ctypes.c_int]
    load_.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
    free.argtypes, free.restype = [ctypes.c_void_p], None
    close.argtypes = [ctypes.c_void_p]
    connection = ctypes.c_void_p()
    try:
        result = open_(b":memory:", ctypes.byref(connection)) or enable(connection, 1)
        message = ctypes.c_void_p()
        if result == 0:
            result = load_(connection, os.fsencode(path), None, ctypes.byref(message))
        if result != 0:
            said = ctypes.string_at(message.value).decode(errors="replace") if message.value else f"result {result}"
            free(message)
            raise _failed(said)
    finally:
        close(connection)


def _failed(said: str) -> _errors.Error:
    """SQLite's or the extension's own words on why it was not loaded."""
    at = max(said.find("SR-"), 0)
    code = said[at : at + 7]
    if code in _errors.OWN:
        return _errors.OperationalError(said[at:], code, _errors.OWN[code][1])
    return _errors.own(_errors.OperationalError, "SR-2270", said)


def _prove() -> None:
    """A connection of the module has the extension's functions; from here on exceptions tell what the extension says."""
    probe = sqlite3.connect(":memory:")
    try:
        probe.execute("SELECT strongroom_version()").fetchone()
        if os.environ.get("STRONGROOM_LOG") is None:
            probe.execute("SELECT strongroom_log('off')").fetchone()
    except sqlite3.OperationalError as error:
        raise _errors.own(_errors.OperationalError, "SR-2270", str(error)) from error
    finally:
        probe.close()
