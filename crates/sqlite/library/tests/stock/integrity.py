"""`PRAGMA cipher_integrity_check` says the truth: no row when all is authentic, else one that names what is not."""
import os

from support import at, child, connect, fill, last_error, main, make, refused


def answer(db, schema="main"):
    """The rows of the pragma."""
    return [row[0] for row in db.execute("pragma %s.cipher_integrity_check" % schema).fetchall()]


def change(name, offset):
    """One bit of the file."""
    with open(at(name), "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def page(number):
    """The middle of a page in the file."""
    return 4096 + (number - 1) * 4096 + 2000


def test_no_row_for_what_is_intact():
    for mode in ("delete", "wal", "truncate"):
        make("whole-%s.db" % mode, mode=mode)
        db = connect("whole-%s.db" % mode, key_env="K")
        assert answer(db) == []
        # With frames that count, and in the middle of a transaction.
        fill(db, 200)
        assert answer(db) == [], mode
        db.execute("begin immediate")
        db.execute("update t set b = 'x'")
        assert answer(db) == [], mode
        db.execute("rollback")
        assert answer(db) == [], mode
        db.execute("pragma locking_mode=exclusive")
        fill(db, 20)
        assert answer(db) == [], mode
        db.close()
    assert answer(connect("not-yet.db", key_env="K")) == []


def test_pages_that_are_bad_are_named():
    make("bad.db")
    change("bad.db", page(3))
    change("bad.db", page(5))
    db = connect("bad.db", key_env="K")
    found = answer(db)
    assert len(found) == 1, found
    lines = found[0].split("\n")
    assert [line.split(":")[0] for line in lines] == ["page 3", "page 5"], lines
    assert "SR-4001" in lines[0]
    # Of another schema, and beside it an intact one.
    make("good.db")
    other = connect("good.db", key_env="K")
    other.execute("attach 'file:%s?key_env=K' as aux" % at("bad.db"))
    assert answer(other) == [] and answer(other, "aux") == found
    db.close()
    other.close()


def test_the_end_that_is_missing():
    make("short.db")
    os.truncate(at("short.db"), os.path.getsize(at("short.db")) - 4096)
    found = answer(connect("short.db", key_env="K"))
    assert len(found) == 1 and "SR-4002" in found[0], found


def test_a_frame_that_is_bad():
    make("log.db", mode="wal")
    db = connect("log.db", key_env="K")
    fill(db, 300)
    change("log.db-wal", 204 + 4148 + 1000)
    found = answer(db)
    assert len(found) == 1 and found[0].startswith("wal-frame 2: SR-4003"), found


def test_what_cannot_be_checked_is_no_empty_answer():
    make("counter.db", key_env="K", cipher="ctr")
    found = answer(connect("counter.db", key_env="K"))
    assert len(found) == 1 and "does not authenticate" in found[0], found
    plain = connect("plain.db")
    plain.execute("create table t(a)")
    assert "plain" in refused(answer, plain) and "SR-2280" in last_error()
    make("locked.db")
    refused(answer, connect("locked.db"))
    assert "SR-2001" in last_error(), last_error()


def test_beside_a_writer_that_has_the_file_for_itself():
    make("busy.db")
    db = connect("busy.db", key_env="K")
    db.execute("begin exclusive")
    told = child("""
db = connect("busy.db", key_env="K")
try:
    print(db.execute("pragma cipher_integrity_check").fetchall())
except sqlite3.Error as error:
    print(error)
""")
    assert "SR-6010" in told, told
    assert answer(db) == []
    db.execute("rollback")


main()
