"""The key surface on stock SQLite: every way to give a key, and every way to give a wrong one. Each error has its code.

Method: one scratch database per case; the sealing VFS's text through strongroom_last_error().
"""
import os
import sqlite3
import time

from support import (
    NEEDLE, OTHER, RAW, at, before, child, connect, count, expect, fill, last_error, loader, main, make, no_plaintext,
    refused, uri,
)


def expect_text(number, call):
    """As expect; returns the sealing VFS's text."""
    expect(number, call)
    return last_error()


def test_wrong_and_missing_keys():
    make("a.db")
    expect(2002, lambda: connect("a.db", key_env="K2"))
    db = connect("a.db")
    expect(2001, lambda: db.execute("select count(*) from t"))
    expect(2001, lambda: db.execute("create table x(y)"))
    expect(2001, lambda: db.execute("pragma journal_mode=wal"))
    db.close()
    expect(2008, lambda: connect("a.db", key_env="NOT_SET_ANYWHERE"))
    expect(2007, lambda: connect("a.db", key_file=at("no-such-file")))
    expect(2007, lambda: connect("a.db", key_file=at("")))
    expect(2004, lambda: connect("a.db", key_id="k", keyring=at("no-keyring")))
    with open(at("noise"), "wb") as noise:
        noise.write(b"not a keyring")
    # A keyring that is no sealed object at all; a damaged one is SR-2005 (tested with the keyring).
    assert "noise" in expect_text(3001, lambda: connect("a.db", key_id="k", keyring=at("noise")))
    with open(at("empty.key"), "wb"):
        pass
    expect(2011, lambda: connect("a.db", key_file=at("empty.key")))
    expect(2019, lambda: connect("a.db", key_env="K", key_file=at("empty.key")))
    expect(6009, lambda: connect("n.db", key_env="K", page_size=1000))
    expect(6009, lambda: connect("n.db", key_env="K", cipher="rot13"))
    expect(2009, lambda: connect("a.db", key_command="exit%203"))
    with open(at("n.db"), "rb") as file:
        assert not file.read()
    db = connect("a.db", key_env="K")
    assert count(db) == 300


def test_unreadable_key_file_as_another_user():
    with open(at("secret.key"), "w") as file:
        file.write(RAW)
    os.chmod(at("secret.key"), 0)
    if os.geteuid() == 0:
        os.chmod(os.path.dirname(at("x")), 0o755)
        code = "os.setegid(65534); os.seteuid(65534); expect(2007, lambda: connect('u.db', mode='ro', key_file=at('secret.key')))"
        make("u.db")
        os.chmod(at("u.db"), 0o644)
        child(code)
    else:
        expect(2007, lambda: connect("u.db", key_file=at("secret.key")))


def test_hanging_command_is_ended():
    make("h.db")
    os.environ["STRONGROOM_KEY_COMMAND_TIMEOUT"] = "1"
    start = time.time()
    expect(2010, lambda: connect("h.db", key_command="sleep%20100"))
    assert time.time() - start < 10
    expect(2010, lambda: connect("h.db", key_command="trap%20%27%27%20TERM;%20sleep%20100%20%26%20wait"))
    del os.environ["STRONGROOM_KEY_COMMAND_TIMEOUT"]
    db = connect("h.db", key_command="echo%20encryptionkey=" + RAW)
    assert count(db) == 300


def test_key_command_from_sql_is_refused():
    make("c.db")
    db = connect("main.db", key_env="K")
    db.execute("create table m(x)")
    target = uri("c.db", key_command="touch%20" + at("ran") + ";echo%20$K")
    for sql in ("attach '%s' as c", "/* x */ attach database '%s' as c", "-- y\nATTACH '%s' AS [c]",
                "vacuum into '%s'", "attach ('%s') as c", ";;attach '%s' as c", "explain attach '%s' as c"):
        try:
            expect(2018, lambda: db.execute(sql % target))
        except AssertionError:
            # EXPLAIN opens nothing; nothing else may pass.
            assert sql.startswith("explain"), (sql, last_error())
        assert not os.path.exists(at("ran")), sql
    expect(2018, lambda: db.execute("attach ? as c", (target,)))
    expect(2018, lambda: db.executescript("select 1; attach '%s' as c;" % target))
    expect(2018, lambda: before.execute("attach '%s&vfs=strongroom' as c" % target))
    assert not os.path.exists(at("ran"))
    os.environ["STRONGROOM_ATTACH_KEY_COMMAND"] = "1"
    db.execute("attach ? as c", (target,))
    assert os.path.exists(at("ran")) and count(db, "c.t") == 300
    del os.environ["STRONGROOM_ATTACH_KEY_COMMAND"]


def test_registered_keys():
    path = at("r.db")
    assert loader.execute("select strongroom_key(?, ?)", (path, RAW)).fetchone()[0] == "ok"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("create table t(a integer primary key, b text)")
    fill(db, 10)
    db.close()
    no_plaintext("r.db*")
    assert loader.execute("select strongroom_forget(?)", (path,)).fetchone()[0] == "ok"
    assert loader.execute("select strongroom_forget(?)", (path,)).fetchone()[0] is None
    db = sqlite3.connect(path)
    expect(2001, lambda: db.execute("select * from t"))
    db.close()
    loader.execute("select strongroom_key(?, ?)", (path, bytes.fromhex(RAW))).fetchone()
    db = sqlite3.connect(path)
    assert count(db) == 10
    db.close()
    # A relative path and a symbolic link name the same file.
    loader.execute("select strongroom_forget(?)", (path,)).fetchone()
    os.symlink(path, at("link.db"))
    loader.execute("select strongroom_key(?, ?)", (at("link.db"), RAW)).fetchone()
    db = sqlite3.connect(path)
    assert count(db) == 10
    db.close()
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    db = sqlite3.connect("r.db")
    assert count(db) == 10
    os.chdir(here)
    loader.execute("select strongroom_forget(?)", (path,)).fetchone()
    for value in (None, 1, 2.5):
        expect_2011(value)
    for value in ("", b""):
        expect(2011, lambda: loader.execute("select strongroom_key(?, ?)", (path, value)).fetchone())
    refused(lambda: loader.execute("create table q(x)") and loader.execute("create view v as select strongroom_key('/x', 'y')")
            and loader.execute("select * from v").fetchone())


def expect_2011(value):
    """strongroom_key with a value that is no key."""
    try:
        loader.execute("select strongroom_key('/other', ?)", (value,)).fetchone()
    except sqlite3.Error as error:
        assert "SR-2011" in str(error), error
        return
    raise AssertionError("accepted: %r" % (value,))


def test_pragma_key():
    db = connect("p.db")
    assert db.execute("pragma key='%s'" % RAW).fetchone()[0] == "ok"
    db.execute("create table t(a integer primary key, b text)")
    fill(db, 50)
    db.close()
    no_plaintext("p.db*")
    db = connect("p.db")
    message = expect(2002, lambda: db.execute("pragma key='%s'" % OTHER))
    assert "SR-2002" in message and OTHER not in message
    expect(2001, lambda: count(db))
    assert db.execute("pragma key='%s'" % RAW).fetchone()[0] == "ok"
    assert count(db) == 50
    expect(2002, lambda: db.execute("pragma key='%s'" % OTHER))
    assert count(db) == 50
    expect(2011, lambda: db.execute("pragma key=''"))
    assert count(db) == 50
    db.close()
    plain = connect("plain.db")
    plain.execute("create table t(a integer primary key, b text)")
    fill(plain, 5)
    expect(6006, lambda: plain.execute("pragma key='%s'" % RAW))
    assert count(plain) == 5
    # With a transaction open, after a first read of an empty file, and on an attached one.
    db = connect("p2.db")
    assert db.execute("select count(*) from sqlite_master").fetchone()[0] == 0
    db.execute("pragma key='%s'" % RAW)
    db.execute("create table t(a integer primary key, b text)")
    fill(db, 50)
    db.execute("attach '%s' as other" % at("p3.db"))
    db.execute("pragma other.key='%s'" % OTHER)
    db.execute("create table other.t(a integer primary key, b text)")
    fill(db, 50, "other")
    assert count(db, "other.t") == 50
    db.close()
    no_plaintext("p2.db*")
    no_plaintext("p3.db*")
    db = connect("p3.db", key_env="K2")
    assert count(db) == 50


def test_pragma_key_within_a_transaction():
    db = connect("pt.db")
    db.execute("begin immediate")
    db.execute("create table t(a integer primary key, b text)")
    db.execute("insert into t(b) values(?)", (NEEDLE * 10,))
    # Too late: SQLite has laid out page 1 without the reserved bytes. Nothing may reach the file.
    try:
        db.execute("pragma key='%s'" % RAW)
    except sqlite3.Error as error:
        assert "SR-" in str(error), error
    else:
        expect(6001, lambda: db.execute("commit"))
    db.close()
    no_plaintext("pt.db*")
    with open(at("pt.db"), "rb") as file:
        assert b"SQLite format" not in file.read()


def test_plain_file_with_a_key_and_sealed_without():
    make("plain1.db", allow_plaintext=0)
    with open(at("plain1.db"), "rb") as file:
        assert file.read(15) == b"SQLite format 3"
    expect(3008, lambda: connect("plain1.db", key_env="K"))
    with open(at("noise.db"), "wb") as noise:
        noise.write(os.urandom(8192))
    expect(3001, lambda: connect("noise.db", key_env="K"))
    make("s1.db")
    outside = child("d = before; import sqlite3\ntry:\n  before.execute(\"attach '%s' as s\" % sys.argv[1])\nexcept sqlite3.Error as e: print(e)", at("s1.db"))
    assert "not a database" in outside, outside


def databases(db):
    """Rows of strongroom_databases() without paths."""
    rows = db.execute("select name, encrypted, cipher, key_id, page_size from strongroom_databases()").fetchall()
    return {row[0]: row[1:] for row in rows}


def test_list_and_copies_both_ways():
    make("l1.db")
    db = connect("l1.db", key_env="K")
    db.execute("attach '%s' as clear" % at("l2.db"))
    db.execute("attach '%s' as other" % uri("l3.db", key_env="K2", cipher="ctr", page_size=8192))
    db.execute("attach ':memory:' as mem")
    assert databases(db)["main"] == (1, "aes-256-gcm", "raw", 4096)
    assert databases(db)["clear"] == (0, None, None, 4096)
    assert databases(db)["other"] == (1, "aes-256-ctr", "raw", 8192)
    assert databases(db)["mem"][0] == 0
    for target in ("clear", "other", "mem"):
        db.execute("create table %s.t as select * from main.t" % target)
        assert count(db, target + ".t") == 300
        db.execute("insert into main.t(b) select b from %s.t" % target)
        db.execute("delete from main.t where a > 300")
    no_plaintext("l1.db*")
    no_plaintext("l3.db*")
    # One transaction over all of them, in clear super-journal mode (U2), and rolled back.
    db.execute("begin")
    for target in ("main", "clear", "other"):
        db.execute("delete from %s.t" % target)
    db.execute("rollback")
    assert [count(db, name + ".t") for name in ("main", "clear", "other")] == [300] * 3


if __name__ == "__main__":
    main()
