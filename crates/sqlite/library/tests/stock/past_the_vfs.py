"""A key in a URI gives a sealed database or an error, also where SQLite opens it past the sealing VFS: after `sqlite3_shutdown()`,
with `vfs=` in the URI, and on connections from before the sealing VFS was loaded."""
import ctypes
import os
import sqlite3

import support
from support import EXT, at, connect, main, make, uri

sqlite = ctypes.CDLL("libsqlite3.so.0")


def fails(*arguments, **parameters):
    """The database is refused, and nothing is made in its place."""
    try:
        sqlite3.connect(*arguments, **parameters).execute("create table t(a)")
    except sqlite3.DatabaseError:
        return
    raise AssertionError("a database was opened past the sealing VFS: %r" % (arguments,))


def is_sealed(name):
    with open(at(name), "rb") as file:
        return file.read(16) != b"SQLite format 3\0"


def shut_down():
    """SQLite forgets the default VFS and the automatic extensions."""
    support.before.close()
    support.loader.close()
    assert sqlite.sqlite3_shutdown() == 0
    assert sqlite.sqlite3_initialize() == 0


def test_another_vfs_in_the_uri():
    for vfs in ["unix", "unix-none", "unix-dotfile", "unix-excl"]:
        for parameter in ["key_env=K", "key_id=app", "key=secret", "keyid=app"]:
            fails(uri("past.db", vfs=vfs) + "&" + parameter, uri=True)
            assert "SR-2283" in support.last_error(), support.last_error()
            assert not os.path.exists(at("past.db"))
    plain = sqlite3.connect(uri("plain.db", vfs="unix"), uri=True)
    plain.execute("create table t(a)")
    plain.close()
    assert not is_sealed("plain.db")


def test_a_connection_from_before_attaches_none():
    fails_to_attach(support.before, "attached.db")


def fails_to_attach(connection, name):
    try:
        connection.execute("attach '%s' as a" % uri(name, key_env="K"))
    except sqlite3.DatabaseError:
        assert not os.path.exists(at(name))
        return
    raise AssertionError("it was attached past the sealing VFS")


def test_a_key_after_shutdown_is_refused_once_and_then_taken():
    make("older.db")
    for turn in range(3):
        shut_down()
        name = "new-%d.db" % turn
        fails(uri(name, key_env="K"), uri=True)
        assert not os.path.exists(at(name))
        db = connect("older.db", key_env="K")
        assert db.execute("select count(*) from t").fetchone() == (300,)
        assert "SR-2283" in db.execute("select strongroom_last_error()").fetchone()[0]
        db.close()
        make(name)
        assert is_sealed(name)


def test_after_shutdown_a_memory_database_attaches_no_plain_one():
    shut_down()
    memory = sqlite3.connect(":memory:", uri=True)
    fails_to_attach(memory, "attached-later.db")
    memory.close()


def test_after_shutdown_a_pragma_key_on_a_plain_connection_is_an_error():
    shut_down()
    db = sqlite3.connect(at("first.db"))
    for statement in ["pragma key='secret'", "pragma hexkey='%s'" % ("11" * 32)]:
        try:
            db.execute(statement)
        except sqlite3.DatabaseError:
            continue
        raise AssertionError("%s was taken" % statement)
    db.close()


def test_after_shutdown_the_extension_can_be_loaded_again():
    shut_down()
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(EXT)
    make("loaded-again.db")
    assert is_sealed("loaded-again.db")
    loader.close()


main()
