"""Statements that could leave plaintext behind on stock SQLite: ATTACH ... KEY, VACUUM INTO, the backup API, and the
ones that change a sealed database in place: PRAGMA rekey, PRAGMA page_size.

Method: after each, the files in the scratch directory are searched for the rows' text.
"""
import os
import sqlite3
import subprocess

from support import (
    EXT, NEEDLE, OTHER, RAW, at, before, child, connect, count, expect, fill, fresh_last_error, last_error, loader, main, make,
    no_plaintext, refused, sound, uri,
)

ATTACH_KEY = [
    "attach '%s' as x key 'secret'",
    "ATTACH DATABASE '%s' AS x KEY 'secret';",
    "/* c */ attach/**/'%s'/**/as/**/x/**/key/**/'secret' -- end",
    "-- c\nattach '%s' as [x] key\n'secret'",
    "attach '%s' as \"x\" key x'00ff'",
    "attach ('%s') as x key ('se'||'cret')",
    "attach '%s' as key key 'secret'",
    "attach '%s' as 'x' key \"secret\"",
    "attach trim('%s') as x key 'secret'",
    ";; attach '%s' as x key 'secret'",
    "\ufeffattach '%s' as x key 'secret'",
    "attach '%s' as x key ''||'secret'",
    "attach '%s' x key 'secret'",
    "attach '%s' as `x` key 'secret'",
    "attach database'%s'as x key'secret'",
    "attach '%s' as case when 1 then 'x' end key 'secret'",
    "attach '%s' as as_ key 'secret'",
    "attach cast('%s' as text) as x key 'secret'",
    "attach '%s' as x key NULL||'a'",
]


def leftover(name):
    """Whether anything was written under `name`."""
    return any(os.path.getsize(at(file)) for file in os.listdir(at("")) if file.startswith(name))


def attach_and_write(db, sql, name):
    """Runs an ATTACH with a KEY clause and, if it passed, writes rows into what it attached."""
    before_it = {row[1] for row in db.execute("pragma database_list")}
    try:
        db.execute(sql % at(name))
    except sqlite3.Error as error:
        assert {row[1] for row in db.execute("pragma database_list")} == before_it, sql
        return str(error)
    for schema in {row[1] for row in db.execute("pragma database_list")} - before_it:
        db.execute('create table "%s".t as select ? as b' % schema, (NEEDLE,))
        db.execute('detach "%s"' % schema)
    return "written"


def try_attach(db, kind):
    """No form of ATTACH ... KEY makes a plain database."""
    wrong = []
    for index, sql in enumerate(ATTACH_KEY):
        name = "attach-%s-%d.db" % (kind, index)
        fresh_last_error()
        outcome = attach_and_write(db, sql, name)
        said = "SR-6004" in last_error() or "syntax error" in outcome or "unrecognized" in outcome
        if outcome == "written" or not said or leftover(name):
            wrong.append((sql, outcome, last_error()))
    assert not wrong, wrong


def test_attach_key_through_the_vfs():
    make("g.db")
    try_attach(connect("g.db", key_env="K"), "sealed")
    try_attach(connect("g2.db"), "plain")
    try_attach(sqlite3.connect(":memory:", isolation_level=None), "memory")


def test_attach_key_on_the_loading_connection():
    try_attach(loader, "loader")


def test_attach_key_other_ways():
    db = connect("g3.db", key_env="K")
    # Bound name and key; in a script; prepared before and stepped later.
    expect(6004, lambda: db.execute("attach ? as x key ?", (at("ow1.db"), "secret")))
    expect(6004, lambda: db.executescript("create table if not exists z(y); attach '%s' as x key 'k';" % at("ow2.db")))
    make("existing-plain.db", allow_plaintext=0)
    expect(6004, lambda: db.execute("attach ? as x key 'k'", (at("existing-plain.db"),)))
    make("existing-sealed.db")
    expect(6004, lambda: db.execute("attach ? as x key ?", (uri("existing-sealed.db", key_env="K"), RAW)))
    db.execute("attach ? as y key ''", (at("ow3.db"),))
    db.execute("create table y.t(a)")
    assert not leftover("ow1.db") and not leftover("ow2.db")
    # The refused ones do not stay attached, and the connection goes on.
    assert {row[1] for row in db.execute("pragma database_list")} == {"main", "y"}
    db.execute("create table m(x)")
    # A connection with no database on disk, in the shell: prepared statements, and .read.
    for before_open in ("", ".open '%s'\n" % uri("g4.db", key_env="K")):
        script = ".load %s\n%sATTACH '%s' AS x KEY 'k';\nCREATE TABLE x.t AS SELECT '%s' AS v;\n" % (
            EXT, before_open, at("sh.db"), NEEDLE)
        run = subprocess.run(["/usr/bin/sqlite3"], input=script, capture_output=True, text=True)
        assert "SR-6004" in run.stderr or "interrupted" in run.stderr or "uthorization" in run.stderr, run
        assert not leftover("sh.db"), before_open


def test_sealed_attached_to_a_foreign_connection():
    make("f.db")
    expect(6005, lambda: before.execute("attach '%s&vfs=strongroom' as s" % uri("f.db", key_env="K")))
    expect(6005, lambda: before.execute("attach '%s&vfs=strongroom' as s" % uri("f-new.db", key_env="K")))
    expect(2283, lambda: before.execute("attach '%s' as s" % uri("f.db", key_env="K")))
    assert "not a database" in refused(lambda: before.execute("attach '%s' as s" % uri("f.db")))


def test_key_in_a_uri_on_the_connection_that_loaded():
    """It was opened before the sealing VFS was there; its own VFS would ignore the key and make a plain database."""
    for index, sql in enumerate(("attach '%s' as s", "ATTACH ? AS s", "vacuum into '%s'", "; vacuum into ?")):
        target = uri("loader-%d.db" % index, key_env="K")
        arguments = (sql, (target,)) if "?" in sql else (sql % target,)
        expect(6005, lambda: loader.execute(*arguments))
        assert not leftover("loader-%d" % index), sql
    script = ".load %s\nATTACH '%s' AS x;\nCREATE TABLE x.t AS SELECT '%s' AS v;\n" % (
        EXT, uri("loader-sh.db", key_env="K"), NEEDLE)
    run = subprocess.run(["/usr/bin/sqlite3", at("loader-plain.db")], input=script, capture_output=True, text=True,
                         env={**os.environ, "STRONGROOM_LOG": "on"})
    assert "SR-6005" in run.stderr, run
    assert not leftover("loader-sh")
    # Without a key these are what they always were.
    loader.execute("attach '%s' as s" % at("loader-clear.db"))
    loader.execute("create table s.t(x)")
    loader.execute("detach s")


def test_vacuum_into():
    make("v.db", page_size=8192, key_env="K")
    db = connect("v.db", key_env="K")
    db.execute("vacuum into '%s'" % uri("v1.db", key_env="K2"))
    db.execute("vacuum into '%s'" % uri("v2.db", key_env="K", cipher="ctr"))
    for name, key, size in (("v1.db", "K2", 8192), ("v2.db", "K", 8192)):
        copy = connect(name, key_env=key)
        assert copy.execute("pragma page_size").fetchone()[0] == size
        assert count(copy) == 300
        sound(copy)
        copy.close()
    expect(6003, lambda: db.execute("vacuum into '%s'" % at("v3.db")))
    expect(6003, lambda: db.execute("vacuum into ?", (at("v4.db"),)))
    expect(6003, lambda: db.execute("vacuum main into '%s'" % uri("v5.db", mode="rwc")))
    no_plaintext("v[0-5].db*")
    loader.execute("select strongroom_key(?, ?)", (at("v6.db"), OTHER)).fetchone()
    db.execute("vacuum into '%s'" % at("v6.db"))
    loader.execute("select strongroom_forget(?)", (at("v6.db"),)).fetchone()
    no_plaintext("v6.db*")
    assert count(connect("v6.db", key_env="K2")) == 300
    # Onto an existing file, of any kind, nothing.
    for name in ("v1.db", "v.db"):
        refused(lambda: db.execute("vacuum into '%s'" % uri(name, key_env="K2")))
    db.execute("vacuum into '%s'" % uri("export.db", allow_plaintext=1))
    assert count(connect("export.db")) == 300
    # From an attached schema with an odd name, and from a plain source.
    db.execute("attach '%s' as \"odd \"\"name\"" % uri("v1.db", key_env="K2"))
    db.execute("vacuum \"odd \"\"name\" into '%s'" % uri("v7.db", key_env="K"))
    assert count(connect("v7.db", key_env="K")) == 300
    make("plain-source.db", allow_plaintext=0)
    plain = connect("plain-source.db")
    plain.execute("vacuum into '%s'" % uri("v8.db", key_env="K"))
    plain.execute("pragma page_size=16384")
    plain.execute("vacuum into '%s'" % uri("v9.db", key_env="K", page_size=16384))
    plain.close()
    no_plaintext("v[89].db*")
    for name in ("v8.db", "v9.db"):
        copy = connect(name, key_env="K")
        sound(copy)
        assert count(copy) == 300


def test_vacuum_into_another_page_size():
    """SQLite takes a copy's page size from PRAGMA page_size alone; a URI that says something else is refused."""
    make("vp.db")
    db = connect("vp.db", key_env="K")
    expect(6002, lambda: db.execute("vacuum into '%s'" % uri("vp1.db", key_env="K", page_size=1024)))
    db.execute("pragma page_size=1024")
    db.execute("vacuum into '%s'" % uri("vp2.db", key_env="K", page_size=1024))
    copy = connect("vp2.db", key_env="K")
    assert copy.execute("pragma page_size").fetchone()[0] == 1024
    assert count(copy) == count(db) == 300
    sound(copy)
    no_plaintext("vp*.db*")


def test_backup_api():
    make("b.db")
    db = connect("b.db", key_env="K")
    target = connect("b-plain.db")
    expect(6003, lambda: db.backup(target))
    target.close()
    no_plaintext("b-plain.db*")
    target = connect("b-sealed.db", key_env="K2")
    db.backup(target)
    assert count(target) == 300
    sound(target)
    target.close()
    no_plaintext("b-sealed.db*")
    make("b-src.db", allow_plaintext=0)
    plain = connect("b-src.db")
    target = connect("b-new.db", key_env="K")
    expect(6001, lambda: plain.backup(target))
    target.close()
    no_plaintext("b-new.db*")
    make("b-full.db")
    target = connect("b-full.db", key_env="K")
    expect(6001, lambda: plain.backup(target))
    sound(target)
    assert count(target) == 300
    target.close()
    # Step by step with other page sizes and ciphers, while the source changes.
    target = connect("b-ctr.db", key_env="K", cipher="ctr")
    db.backup(target, pages=3, progress=lambda *_: db.execute("insert into t(b) values('x')") if count(db) < 303 else None)
    assert 300 <= count(target) <= count(db)
    sound(target)
    target.close()
    target = connect("b-size.db", key_env="K", page_size=1024)
    try:
        db.backup(target)
        assert count(target) == count(db)
        sound(target)
    except sqlite3.Error:
        assert "SR-6002" in last_error() or "SR-6001" in last_error(), last_error()
    target.close()
    no_plaintext("b-size.db*")
    memory = sqlite3.connect(":memory:")
    db.backup(memory)
    assert count(memory) == count(db)


def test_backup_onto_an_existing_plain_database():
    make("be.db")
    db = connect("be.db", key_env="K")
    existing = connect("be-plain.db")
    existing.execute("create table other(x)")
    existing.execute("insert into other values('kept')")
    outcome = None
    try:
        db.backup(existing)
        outcome = "copied"
    except sqlite3.Error:
        outcome = last_error()
    existing.close()
    assert outcome != "copied", "a sealed database was copied over an existing plain one, in clear"
    no_plaintext("be-plain.db*")


def test_backup_of_the_shell():
    make("sb.db")
    script = ".load %s\n.open '%s'\nselect count(*) from t;\n.backup '%s'\n.backup '%s'\n" % (
        EXT, uri("sb.db", key_env="K"), at("sb-plain.db"), uri("sb-sealed.db", key_env="K"))
    run = subprocess.run(["/usr/bin/sqlite3"], input=script, capture_output=True, text=True, env={**os.environ, "STRONGROOM_LOG": "on"})
    assert "300" in run.stdout and "SR-6003" in run.stderr, run
    no_plaintext("sb-plain.db*")
    no_plaintext("sb-sealed.db*")
    assert os.path.exists(at("sb-sealed.db")), run
    assert count(connect("sb-sealed.db", key_env="K")) == 300


def test_page_size_in_place():
    for mode in ("delete", "wal"):
        name = "ps-%s.db" % mode
        make(name, mode=mode)
        db = connect(name, key_env="K")
        db.execute("pragma page_size=8192")
        if mode == "wal":
            db.execute("vacuum")  # SQLite keeps the size in WAL mode
        else:
            expect(6002, lambda: db.execute("vacuum"))
        assert count(db) == 300
        sound(db)
        db.close()
        db = connect(name, key_env="K")
        assert count(db) == 300 and db.execute("pragma page_size").fetchone()[0] == 4096
        sound(db)
        db.execute("vacuum")
        fill(db, 10)
        assert count(db) == 310
        no_plaintext(name + "*")


def test_rekey():
    for mode in ("delete", "wal", "truncate", "persist"):
        name = "rk-%s.db" % mode
        make(name, mode=mode)
        db = connect(name, key_env="K")
        reader = connect(name, key_env="K")
        assert count(reader) == 300
        db.execute("begin")
        message = refused(lambda: db.execute("pragma rekey='%s'" % OTHER))
        assert "SR-" in message, message
        db.execute("rollback")
        assert count(db) == 300
        # A reader with an open snapshot: the rekey waits or says busy; the reader reads on.
        reader.execute("begin")
        assert count(reader) == 300
        try:
            db.execute("pragma busy_timeout=100")
            done = db.execute("pragma rekey='%s'" % OTHER).fetchone()[0]
            assert done.startswith("ok"), done
        except sqlite3.Error as error:
            assert "SR-6010" in str(error), error
        assert count(reader) == 300
        reader.execute("commit")
        done = db.execute("pragma rekey='%s'" % OTHER).fetchone()[0]
        assert done.startswith("ok"), done
        assert count(db) == 300
        try:
            assert count(reader) == 300
            reader.execute("insert into t(b) values('x')")
        except sqlite3.Error:
            assert "SR-2017" in last_error(), last_error()
        sound(db)
        db.close()
        reader.close()
        expect(2002, lambda: connect(name, key_env="K"))
        db = connect(name, key_env="K2")
        assert count(db) in (300, 301)
        sound(db)
        assert db.execute("pragma journal_mode").fetchone()[0] == mode or mode in ("truncate", "persist")
        db.close()
        no_plaintext(name + "*")
        assert not os.path.exists(at(name + "-strongroom"))


def test_rekey_where_it_cannot():
    plain = connect("rkp.db")
    plain.execute("create table t(a)")
    message = refused(lambda: plain.execute("pragma rekey='%s'" % OTHER))
    assert "SR-3001" in message or "SR-6006" in message, message
    make("rkl.db")
    locked = connect("rkl.db")
    message = refused(lambda: locked.execute("pragma rekey='%s'" % OTHER))
    assert "SR-2001" in message, message
    readonly = connect("rkl.db", key_env="K", mode="ro")
    message = refused(lambda: readonly.execute("pragma rekey='%s'" % OTHER))
    assert "SR-" in message, message
    assert count(readonly) == 300
    db = connect("rkl.db", key_env="K")
    message = refused(lambda: db.execute("pragma rekey=''"))
    assert "SR-2011" in message, message
    assert count(connect("rkl.db", key_env="K")) == 300


def test_temporary_files_hold_no_plaintext():
    """Sorters, temp tables and VACUUM spill to files: their bytes are read through /proc while they are open."""
    os.environ["SQLITE_TMPDIR"] = at("")
    db = connect("tmp.db", key_env="K")
    db.execute("create table t(a integer primary key, b text)")
    fill(db, 4000)
    db.execute("pragma cache_size=5")
    db.execute("pragma temp_store=1")
    db.execute("create temp table copy as select b||'%s' as b from t" % NEEDLE)
    db.execute("create index temp.i on copy(b)")
    cursor = db.execute("select a.b from copy a order by a.b||a.rowid desc")
    cursor.fetchone()
    seen = 0
    for link in os.listdir("/proc/self/fd"):
        path = "/proc/self/fd/" + link
        target = os.readlink(path) if os.path.islink(path) else ""
        if os.path.basename(target).startswith("etilqs"):
            with open(path, "rb") as file:
                assert NEEDLE.encode() not in file.read(), target
            seen += 1
    assert seen >= 1, "nothing was spilled: the test looks at nothing"
    no_plaintext("tmp.db*")
    del os.environ["SQLITE_TMPDIR"]


if __name__ == "__main__":
    main()
