"""What the stock-SQLite tests share: the extension loaded once, keys in the environment, and expectations.

Run by ../stock.rs with STRONGROOM_EXT (the extension) and STRONGROOM_SCRATCH (an empty directory) set. Functions named
test_* of the script that calls main() are run in order; the first failure ends the script with exit code 1.
Must not: skip anything.
"""
import glob
import os
import sqlite3
import subprocess
import sys
import traceback

EXT = os.environ["STRONGROOM_EXT"]
SCRATCH = os.environ["STRONGROOM_SCRATCH"]
RAW = "11" * 32
OTHER = "22" * 32
os.environ["K"] = RAW
os.environ["K2"] = OTHER
NEEDLE = "CANARY-TEXT"

if not hasattr(sqlite3.Connection, "enable_load_extension"):
    sys.exit("this Python cannot load SQLite extensions: install the distribution's (apt install python3 libsqlite3-0)")

# Opened before the sealing VFS is there: a connection of the VFS below, for good.
before = sqlite3.connect(":memory:", isolation_level=None, uri=True)
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(EXT)


def at(name):
    """A path in the scratch directory."""
    return os.path.join(SCRATCH, name)


def uri(name, **parameters):
    """A URI of a file in the scratch directory."""
    return "file:%s?%s" % (at(name), "&".join("%s=%s" % pair for pair in parameters.items()))


def connect(name, timeout=5.0, **parameters):
    """A connection through the sealing VFS, in autocommit mode."""
    return sqlite3.connect(uri(name, **parameters), uri=True, isolation_level=None, timeout=timeout)


def make(name, rows=300, mode="delete", **parameters):
    """A database with a table t(a, b) of `rows` rows, closed again."""
    parameters = parameters or {"key_env": "K"}
    db = connect(name, **parameters)
    db.execute("pragma journal_mode=" + mode)
    db.execute("create table t(a integer primary key, b text)")
    fill(db, rows)
    db.close()


def fill(db, rows, schema="main"):
    """Adds rows whose text can be looked for in the files."""
    db.execute("begin")
    for _ in range(rows):
        db.execute("insert into %s.t(b) values(?)" % schema, (NEEDLE * 10,))
    db.execute("commit")


def count(db, table="t"):
    """Rows in a table."""
    return db.execute("select count(*) from " + table).fetchone()[0]


def sound(db, schema="main"):
    """The database is whole in SQLite's eyes."""
    assert db.execute("pragma %s.integrity_check" % schema).fetchone()[0] == "ok"


def last_error():
    """The sealing VFS's last error on this thread."""
    return loader.execute("select strongroom_last_error()").fetchone()[0]


def fresh_last_error():
    """Something else becomes the last error, so that an old one is not taken for a new one."""
    try:
        loader.execute("select strongroom_key('/marker', 1)").fetchone()
    except sqlite3.OperationalError:
        pass
    assert "neither text nor blob" in last_error(), last_error()


def expect(number, call, *arguments):
    """`call` fails, and the sealing VFS says SR-`number` of it. Returns SQLite's message."""
    fresh_last_error()
    try:
        call(*arguments)
    except sqlite3.Error as error:
        said = last_error()
        assert "SR-%d:" % number in said and "neither text nor blob" not in said, (number, said, str(error))
        assert RAW not in said and RAW not in str(error)
        return str(error)
    raise AssertionError("SR-%d expected, but nothing failed" % number)


def refused(call, *arguments):
    """`call` fails; returns SQLite's message."""
    try:
        call(*arguments)
    except sqlite3.Error as error:
        return str(error)
    raise AssertionError("nothing failed")


def no_plaintext(pattern, needle=NEEDLE):
    """No file that matches holds the rows' text. Returns the files looked at."""
    found = sorted(glob.glob(at(pattern)))
    for path in found:
        with open(path, "rb") as file:
            assert needle.encode() not in file.read(), "plaintext in " + path
    return found


def child(code, *arguments, wait=True, **environment):
    """Runs Python `code` in a process of its own, which has this module imported."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from support import *\n" + code, *arguments],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env={**os.environ, "STRONGROOM_LOG": "off", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    if not wait:
        return process
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, (process.returncode, out, errors)
    return out


def main():
    """Runs the calling script's tests."""
    tests = [(name, value) for name, value in sys.modules["__main__"].__dict__.items() if name.startswith("test_")]
    only = sys.argv[1:]
    assert tests
    failed = 0
    for name, test in tests:
        if only and name not in only:
            continue
        try:
            test()
            print("ok", name, flush=True)
        except Exception:
            failed += 1
            print("FAILED", name, flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
