"""The sealing VFS above each VFS that SQLite ships: what the file below cannot do, the sealed one does not offer.

The VFS is made the default one before the sealing VFS is loaded, by the library that Python's module uses."""
import ctypes
import os
import sqlite3
import subprocess
import sys

LOWER = os.environ.get("LOWER_VFS")
if LOWER:
    sqlite = ctypes.CDLL("libsqlite3.so.0")
    sqlite.sqlite3_vfs_find.restype = ctypes.c_void_p
    found = sqlite.sqlite3_vfs_find(LOWER.encode())
    assert found and sqlite.sqlite3_vfs_register(ctypes.c_void_p(found), 1) == 0
    plain = os.path.join(os.environ["STRONGROOM_SCRATCH"], "plain-%s.db" % LOWER)
    db = sqlite3.connect(plain)
    expected = db.execute("pragma journal_mode=wal").fetchone()
    db.close()

from support import connect, main, make  # noqa: E402: the sealing VFS is loaded here, over what is the default now


def over(name):
    """Runs this script once more, over that VFS."""
    environment = {**os.environ, "LOWER_VFS": name}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (name, done.returncode, done.stdout, done.stderr)


if LOWER:

    def test_the_journal_modes_are_those_of_the_file_below():
        name = "sealed-%s.db" % LOWER
        make(name)
        db = connect(name, key_env="K")
        assert db.execute("pragma journal_mode=wal").fetchone() == expected, expected
        db.execute("pragma mmap_size=1000000")
        db.execute("insert into t(b) values ('after')")
        assert db.execute("select count(*) from t").fetchone() == (301,)
        assert db.execute("select datetime('now') is not null").fetchone() == (1,)
        db.close()

else:

    def test_over_unix():
        over("unix")

    def test_over_unix_excl():
        over("unix-excl")

    def test_over_unix_none():
        over("unix-none")

    def test_over_unix_dotfile():
        over("unix-dotfile")


main()
