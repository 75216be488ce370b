"""Several processes on one sealed database, crashes, full disks, and journals that were tampered with in between.

Method: children run Python of their own; killed ones are killed with SIGKILL while a transaction has spilled to disk.
"""
import os
import signal
import sqlite3
import time

from support import (
    NEEDLE, at, child, connect, count, expect, fill, fresh_last_error, last_error, main, make, no_plaintext, refused,
    sound, uri,
)

CREATE = """
import time
while time.time() < float(sys.argv[2]): pass
db = connect(sys.argv[1], key_env='K', timeout=20)
try:
    db.execute('create table if not exists t(a integer primary key, b text)')
    db.execute("insert into t(b) values('%d')" % os.getpid())
    print('ok', db.execute('select count(*) from t').fetchone()[0])
except sqlite3.OperationalError as error:
    print('busy' if 'locked' in str(error) else 'ERROR', error, last_error())
except Exception as error:
    print('ERROR', error, last_error())
"""


def test_one_new_database_made_by_several_processes():
    for attempt in range(8):
        name = "race-%d.db" % attempt
        start = str(time.time() + 0.4)
        children = [child(CREATE, name, start, wait=False) for _ in range(4)]
        outputs = [process.communicate(timeout=60)[0].strip() for process in children]
        assert not any(line.startswith("ERROR") for line in outputs), outputs
        db = connect(name, key_env="K")
        assert count(db) == sum(line.startswith("ok") for line in outputs), outputs
        assert count(db) >= 1
        sound(db)


def test_one_new_database_made_by_two_connections():
    for first, second in (("create", "create"), ("wal", "create"), ("create", "wal")):
        name = "two-%s-%s.db" % (first, second)
        one, two = connect(name, key_env="K"), connect(name, key_env="K")
        for db, what in ((one, first), (two, second)):
            if what == "wal":
                db.execute("pragma journal_mode=wal")
            db.execute("create table if not exists t(a integer primary key, b text)")
            fill(db, 5)
        assert count(one) == count(two) == 10
        sound(one)
    # With different keys only one can win; the other is told.
    one, two = connect("two-keys.db", key_env="K"), connect("two-keys.db", key_env="K2")
    one.execute("create table t(a integer primary key, b text)")
    expect(2002, lambda: two.execute("create table u(x)"))
    fill(one, 3)
    assert count(one) == 3
    # A plain connection to the same empty file, opened before.
    clear, sealed = connect("two-clear.db"), connect("two-clear.db", key_env="K")
    sealed.execute("create table t(a integer primary key, b text)")
    fill(sealed, 300)
    refused(lambda: clear.execute("create table u as select '%s' as v" % NEEDLE))
    no_plaintext("two-clear.db*")
    assert count(sealed) == 300
    sound(sealed)
    clear, sealed = connect("two-clear2.db"), connect("two-clear2.db", key_env="K")
    clear.execute("create table t(a integer primary key, b text)")
    refused(lambda: sealed.execute("create table u(x)"))
    assert count(clear) == 0
    sound(clear)


WRITER = """
db = connect(sys.argv[1], key_env='K', timeout=30)
for round in range(60):
    db.execute('begin immediate')
    db.execute('update t set b = ?||a', (round,))
    db.execute('insert into log values(?)', (round,))
    db.execute('commit')
print('done')
"""

READER = """
db = connect(sys.argv[1], key_env='K', timeout=30)
seen = 0
while seen < 59:
    rows = db.execute('select b, a from t union all select max(x), -1 from log').fetchall()
    latest = rows.pop()[0]
    heads = {b[:len(b) - len(str(a))] for b, a in rows}
    assert heads == {str(latest)}, (heads, latest)
    seen = latest
print('done')
"""


def test_readers_beside_a_writer():
    for mode in ("wal", "delete", "truncate", "persist"):
        name = "rw-%s.db" % mode
        make(name, rows=200, mode=mode)
        db = connect(name, key_env="K")
        db.execute("create table log(x)")
        db.execute("update t set b = -1||a")
        db.execute("insert into log values(-1)")
        children = [child(code, name, wait=False) for code in (READER, READER, WRITER)]
        for process in children:
            out, errors = process.communicate(timeout=120)
            assert out.strip() == "done", (mode, out, errors)
        assert count(db) == 200
        sound(db)


REKEY = """
db = connect(sys.argv[1], key_env='K', timeout=30)
db.execute('pragma busy_timeout=30000')
for attempt in range(40):
    try:
        print(db.execute("pragma rekey='%s'" % os.environ[sys.argv[2]]).fetchone()[0]); break
    except sqlite3.Error as error:
        if 'SR-6010' not in str(error): raise
        time.sleep(0.1)
else:
    sys.exit('never finished')
"""


def test_rekey_in_another_process():
    """Open connections go on, or are told that the key was changed (SR-2017). Never other rows, never damage."""
    for mode in ("wal", "delete"):
        for key in ("K2", "K"):
            name = "rkp-%s-%s.db" % (mode, key)
            make(name, rows=3000, mode=mode)
            reader, writer = connect(name, key_env="K"), connect(name, key_env="K")
            assert count(reader) == 3000
            process = child("import time\n" + REKEY, name, key, wait=False)
            added, told = 0, set()
            while process.poll() is None:
                try:
                    assert 3000 <= count(reader) <= 3000 + added
                    assert reader.execute("select count(*) from t where b not like 'CANARY%'").fetchone()[0] == 0
                    fresh_last_error()
                    writer.execute("insert into t(b) values(?)", (NEEDLE,))
                    added += 1
                except sqlite3.Error as error:
                    if "locked" not in str(error):
                        assert "SR-2017" in last_error(), (mode, key, str(error), last_error())
                        told.add(str(error))
                time.sleep(0.02)
            out, errors = process.communicate()
            assert out.startswith("ok"), (mode, key, out, errors)
            for db in (reader, writer):
                try:
                    assert count(db) == 3000 + added
                except sqlite3.Error as error:
                    assert "SR-2017" in last_error(), (mode, key, str(error), last_error())
            reader.close()
            writer.close()
            db = connect(name, key_env=key)
            assert count(db) == 3000 + added
            sound(db)
            no_plaintext(name + "*")


SPILL = """
db = connect(sys.argv[1], key_env='K', timeout=30)
db.execute('pragma journal_mode=' + sys.argv[2])
db.execute('pragma cache_size=5')
db.execute('pragma cache_spill=1')
db.execute('begin')
db.execute("update t set b = 'X' || substr(b, 2)")
db.execute("insert into t(b) select b from t")
print('spilled', flush=True)
import time
time.sleep(100)
"""


def spill_and_kill(name, mode):
    """A transaction that has reached the disk is killed."""
    process = child(SPILL, name, mode, wait=False)
    line = process.stdout.readline()
    assert line.strip() == "spilled", (line, process.stderr.read())
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Collected, so that its pipes are closed.
    process.communicate()


def test_killed_in_a_transaction():
    for mode in ("delete", "truncate", "persist", "wal"):
        name = "kill-%s.db" % mode
        make(name, rows=2000, mode=mode)
        for _ in range(3):
            spill_and_kill(name, mode)
            beside = name + ("-wal" if mode == "wal" else "-journal")
            assert os.path.getsize(at(beside)) > 10000, beside
            no_plaintext(name + "*")
            no_plaintext(name + "*", NEEDLE[1:] * 2)
            db = connect(name, key_env="K")
            assert count(db) == 2000
            assert db.execute("select count(*) from t where b like 'X%'").fetchone()[0] == 0
            sound(db)
            db.close()


def test_hot_journal_without_a_key():
    make("hot.db", rows=2000)
    spill_and_kill("hot.db", "delete")
    with open(at("hot.db-journal"), "rb") as file:
        journal = file.read()
    db = connect("hot.db")
    expect(2001, lambda: count(db))
    db.close()
    expect(2002, lambda: connect("hot.db", key_env="K2"))
    with open(at("hot.db-journal"), "rb") as file:
        assert journal == file.read(), "the journal was touched without its key"
    db = connect("hot.db", key_env="K")
    assert count(db) == 2000
    sound(db)


FULL = """
import resource
db = connect(sys.argv[1], key_env='K', timeout=30)
db.execute('pragma cache_size=5')
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sizes = [os.path.getsize(at(f)) for f in os.listdir(at('')) if f.startswith(sys.argv[1])]
resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + int(sys.argv[2]),) * 2)
done = 0
try:
    for _ in range(400):
        db.execute('begin')
        for _ in range(20):
            db.execute('insert into t(b) values(?)', (NEEDLE * 40,))
        db.execute('commit')
        done += 1
except sqlite3.Error as error:
    print(done, 'full', error, flush=True)
else:
    print(done, 'room', flush=True)
os._exit(0)
"""


def test_full_disk():
    """Every write of a commit fails once: what was committed is there, and nothing else."""
    for mode in ("wal", "delete", "truncate", "persist"):
        for room in (0, 1, 511, 4095, 5000, 20000, 60001, 120000):
            name = "full-%s-%d.db" % (mode, room)
            make(name, rows=300, mode=mode)
            out = child("import signal\n" + FULL, name, str(room))
            done, outcome = out.split()[:2]
            assert outcome == "full", (mode, room, out)
            db = connect(name, key_env="K")
            assert count(db) == 300 + 20 * int(done), (mode, room, out, count(db))
            sound(db)
            db.execute("insert into t(b) values('after')")
            db.close()
            no_plaintext(name + "*")


def test_full_disk_while_creating():
    for room in (0, 1, 4095, 4096, 4097, 8191, 8192, 9000):
        name = "fc-%d.db" % room
        code = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (%d,) * 2)
try:
    db = connect(sys.argv[1], key_env='K')
    db.execute('create table t(a, b)')
    db.execute('insert into t values(1, ?)', (NEEDLE,))
    print('room', flush=True)
except sqlite3.Error as error:
    print('full', flush=True)
os._exit(0)
""" % room
        outcome = child(code, name).strip()
        no_plaintext(name + "*")
        # Afterwards the name can be used, or the reason is told; nothing is taken for a plain
        # database.
        try:
            db = connect(name, key_env="K")
            db.execute("create table if not exists t2(a)")
            sound(db)
            db.close()
        except sqlite3.Error as error:
            raise AssertionError((room, outcome, str(error), last_error(), os.path.getsize(at(name)))) from error
        no_plaintext(name + "*")


if __name__ == "__main__":
    main()
