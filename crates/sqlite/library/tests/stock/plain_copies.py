"""No copy of a sealed database reaches a plain file unasked, whether the file is new or was there, whatever its journal mode, and however large the copy is."""
import os
import sqlite3
import subprocess

from support import EXT, NEEDLE, at, connect, count, expect, fill, loader, main, make, no_plaintext, sound, uri

# More than SQLite's page cache holds (2 MB): pages are then written before the transaction ends.
MANY = 30000


def plain(name, mode="delete", reserve=None):
    """A plain database with another table, closed again. With `reserve`, a source whose pages keep as many bytes as those of a sealed database."""
    if reserve:
        make("reserve-source.db")
        db = connect("reserve-source.db", key_env="K")
        db.execute("delete from t")
        db.execute("vacuum into '%s'" % uri(name, allow_plaintext=1))
        db.close()
        os.unlink(at("reserve-source.db"))
    db = connect(name)
    db.execute("pragma journal_mode=" + mode)
    db.execute("create table other(x)")
    db.execute("insert into other values('kept')")
    db.close()
    with open(at(name), "rb") as file:
        assert file.read(21)[20] == (32 if reserve else 0), name


def is_as_it_was(name):
    no_plaintext(name + "*")
    db = connect(name)
    assert db.execute("select x from other").fetchall() == [("kept",)]
    sound(db)
    db.close()


def test_backup_into_a_plain_database_that_exists():
    for rows in (300, MANY):
        make("source.db", rows=rows)
        source = connect("source.db", key_env="K")
        for mode in ("delete", "truncate", "persist", "wal"):
            for reserve in (None, 32):
                name = "existing-%s-%s-%d.db" % (mode, reserve, rows)
                plain(name, mode, reserve)
                for pages in (-1, 7):
                    target = connect(name)
                    expect(6003, lambda: source.backup(target, pages=pages))
                    target.close()
                    is_as_it_was(name)
        source.close()
        os.unlink(at("source.db"))


def test_backup_into_one_that_this_connection_has_used():
    make("used-source.db")
    source = connect("used-source.db", key_env="K")
    for mode in ("delete", "wal"):
        name = "used-%s.db" % mode
        target = connect(name)
        target.execute("pragma journal_mode=" + mode)
        target.execute("create table other(x)")
        target.execute("insert into other values('kept')")
        expect(6003, lambda: source.backup(target))
        target.close()
        is_as_it_was(name)
    source.close()


def test_no_page_of_a_large_copy_is_written_before_it_is_refused():
    """SQLite takes the file back when the copy fails, but the disk has had what was written."""
    make("large.db", rows=MANY)
    source = connect("large.db", key_env="K")
    looks = []

    def look(pattern):
        looks.append(pattern)
        no_plaintext(pattern)

    for mode in ("delete", "wal"):
        plain("large-existing-%s.db" % mode, mode)
        for name in ("large-existing-%s.db" % mode, "large-new-%s.db" % mode):
            target = connect(name)
            expect(6003, lambda: source.backup(target, pages=50, progress=lambda *_: look(name + "*")))
            target.close()
            no_plaintext(name + "*")
    assert len(looks) > 10, looks
    looks.clear()
    source.set_progress_handler(lambda: look("large-vacuum.db*"), 2000)
    expect(6003, lambda: source.execute("vacuum into '%s'" % at("large-vacuum.db")))
    source.set_progress_handler(None, 0)
    no_plaintext("large-vacuum.db*")
    source.close()


def test_a_copy_that_was_asked_for_is_made():
    make("asked.db", rows=MANY)
    source = connect("asked.db", key_env="K")
    plain("asked-existing.db")
    for name in ("asked-new.db", "asked-existing.db"):
        target = connect(name, allow_plaintext=1)
        source.backup(target)
        assert count(target) == MANY
        sound(target)
        target.close()
    source.execute("vacuum into '%s'" % uri("asked-vacuum.db", allow_plaintext=1))
    assert count(connect("asked-vacuum.db")) == MANY
    source.close()


def test_plain_databases_are_copied_and_written_as_ever():
    """Beside a sealed one that is open, also where their pages have the reserve of a sealed one's copy."""
    make("beside.db")
    beside = connect("beside.db", key_env="K")
    assert count(beside) == 300
    make("clear.db", rows=MANY, allow_plaintext=0)
    source = connect("clear.db")
    for mode in ("delete", "wal"):
        plain("into-%s.db" % mode, mode)
        for name in ("into-%s.db" % mode, "into-new-%s.db" % mode):
            target = connect(name)
            source.backup(target)
            assert count(target) == MANY
            target.close()
        name = "written-%s.db" % mode
        plain(name, mode, reserve=32)
        db = connect(name)
        db.execute("pragma cache_size=10")
        fill(db, MANY)
        db.execute("begin")
        db.execute("update t set b = 'x'")
        db.execute("rollback")
        assert count(db) == MANY
        db.execute("begin")
        db.execute("delete from t")
        db.close()
        db = connect(name)
        assert count(db) == MANY
        db.execute("vacuum")
        db.execute("pragma wal_checkpoint(truncate)")
        sound(db)
        db.close()
    beside.close()


def test_the_shell_backs_up_into_a_plain_database_that_exists():
    make("shell.db")
    plain("shell-plain.db")
    script = ".load %s\n.open '%s'\nselect count(*) from t;\n.backup '%s'\n" % (EXT, uri("shell.db", key_env="K"), at("shell-plain.db"))
    done = subprocess.run(["/usr/bin/sqlite3"], input=script, capture_output=True, text=True, env={**os.environ, "STRONGROOM_LOG": "on"})
    assert "300" in done.stdout and "SR-6003" in done.stderr, done
    is_as_it_was("shell-plain.db")


main()
