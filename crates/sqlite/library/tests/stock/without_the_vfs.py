"""An SQLite without the sealing VFS meets a sealed database that was not closed: it must not destroy what only the log or the
journal has.

Stock SQLite deletes a journal in which it finds nothing to play back, and a log in which it finds no frame, before or
after it says "file is not a database". It leaves alone a journal whose first byte is zero (pager.c, hasHotJournal) and a
log of a later version with a valid header checksum (wal.c, walIndexRecover).
"""
import os
import signal
import subprocess

from support import at, child, connect, count, main, make, sound

STOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for sql in ('select count(*) from t', 'pragma wal_checkpoint(truncate)', 'create table x(y)', 'vacuum',
            'pragma journal_mode=delete'):
    try:
        print('ACCEPTED', sql, db.execute(sql).fetchall())
    except sqlite3.DatabaseError as error:
        pass
db.close()
"""


def left_behind(name, mode, statements):
    """A writer is killed with a transaction committed to the log, or half done beside the journal."""
    make(name, rows=2000, mode=mode)
    code = "db = connect(sys.argv[1], key_env='K')\n%s\nprint('there', flush=True)\nimport time; time.sleep(100)"
    process = child(code % statements, name, wait=False)
    assert process.stdout.readline().strip() == "there", process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.communicate()


def meets_stock(name):
    """Runs an SQLite that has no sealing VFS on the file."""
    run = subprocess.run(["/usr/bin/python3", "-c", STOCK, at(name)], capture_output=True, text=True)
    assert "ACCEPTED" not in run.stdout.replace("ACCEPTED pragma journal_mode", ""), run


def test_a_log_survives():
    left_behind("log.db", "wal", "db.execute('pragma wal_autocheckpoint=0'); fill(db, 300)")
    with open(at("log.db-wal"), "rb") as file:
        before = file.read()
    meets_stock("log.db")
    assert os.path.exists(at("log.db-wal")), "committed transactions were deleted with the log"
    with open(at("log.db-wal"), "rb") as file:
        assert before == file.read()
    db = connect("log.db", key_env="K")
    assert count(db) == 2300
    sound(db)


def test_a_hot_journal_survives():
    left_behind("hot.db", "delete", "db.execute('pragma cache_size=5'); db.execute('begin'); "
                "db.execute(\"update t set b = 'X'||substr(b, 2)\")")
    with open(at("hot.db-journal"), "rb") as file:
        before = file.read()
    meets_stock("hot.db")
    assert os.path.exists(at("hot.db-journal")), "the journal that makes the database whole was deleted"
    with open(at("hot.db-journal"), "rb") as file:
        assert before == file.read()
    db = connect("hot.db", key_env="K")
    assert count(db) == 2000
    assert db.execute("select count(*) from t where b like 'X%'").fetchone()[0] == 0
    sound(db)


if __name__ == "__main__":
    main()
