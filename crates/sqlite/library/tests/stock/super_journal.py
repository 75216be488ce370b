"""Transactions over several databases: all of them or none, whichever is opened first, also when one is plain; and a
super-journal or its parts changed, exchanged or deleted in between.

Method: a preloaded function ends the writer at the commit point, which leaves every journal and the super-journal.
"""
import glob
import os
import shutil
import sqlite3
import subprocess

from support import (
    NEEDLE, at, child, connect, count, expect, last_error, main, make, no_plaintext, sound, uri,
)

HERE = os.path.dirname(os.path.abspath(__file__))
WRITER = """
db = connect(sys.argv[1], **({'key_env': 'K'} if sys.argv[3] == 'sealed' else {}))
db.execute("attach '%s' as two" % uri(sys.argv[2], key_env='K2'))
db.execute('begin')
db.execute("update main.t set b = 'X'||b")
db.execute("update two.t set b = 'X'||b")
db.execute('commit')
"""


def interrupted(one, two, when, first="sealed"):
    """Two databases whose common transaction was ended at its commit point."""
    shim = at("exit_at.so")
    if not os.path.exists(shim):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, os.path.join(HERE, "exit_at.c"), "-ldl"], check=True)
    make(one, rows=200, **({"key_env": "K"} if first == "sealed" else {"allow_plaintext": 0}))
    make(two, rows=200, key_env="K2")
    process = child(WRITER, one, two, first, wait=False, LD_PRELOAD=shim, EXIT_AT=when)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 9, (process.returncode, out, errors)
    assert os.path.exists(at(one + "-journal")) and os.path.exists(at(two + "-journal"))
    supers = glob.glob(at(one + "-mj*"))
    assert len(supers) == (1 if when == "before" else 0), supers
    return supers[0] if supers else None


def changed(db, schema="main"):
    """Rows that the interrupted transaction changed."""
    return db.execute("select count(*) from %s.t where b like 'X%%'" % schema).fetchone()[0]


def key_of(name, one, first):
    """URI parameters of a database."""
    return {"key_env": "K2"} if name != one else ({"key_env": "K"} if first == "sealed" else {})


def test_all_or_none_whichever_is_opened_first():
    number = 0
    for first in ("sealed", "plain"):
        for when, expected in (("before", 0), ("after", 200)):
            for order in ("one-two", "two-one", "together"):
                number += 1
                one, two = "a%d.db" % number, "b%d.db" % number
                interrupted(one, two, when, first)
                no_plaintext(two + "*")
                if first == "sealed":
                    no_plaintext(one + "*")
                    no_plaintext(one + "*", "-journal")
                if order == "together":
                    db = connect(one, **key_of(one, one, first))
                    db.execute("attach '%s' as two" % uri(two, key_env="K2"))
                    found = [changed(db), changed(db, "two")]
                    db.close()
                else:
                    found = []
                    for name in ((one, two) if order == "one-two" else (two, one)):
                        db = connect(name, **key_of(name, one, first))
                        found.append(changed(db))
                        sound(db)
                        db.close()
                assert found == [expected] * 2, (first, when, order, found)


def test_first_opened_in_another_process_alone():
    interrupted("p1.db", "p2.db", "before")
    for name, key in (("p2.db", "K2"), ("p1.db", "K")):
        code = "db = connect(sys.argv[1], key_env=sys.argv[2]); print(db.execute(\"select count(*) from t where b like 'X%'\").fetchone()[0])"
        assert child(code, name, key).strip() == "0", name
    assert not glob.glob(at("p1.db-mj*")), "the super-journal stays for ever"


def outcome(one, two):
    """What both say afterwards: rows changed, or the sealing VFS's text."""
    found = []
    for name, key in ((one, "K"), (two, "K2")):
        try:
            db = connect(name, key_env=key)
            found.append(changed(db))
            sound(db)
            db.close()
        except sqlite3.Error:
            found.append(last_error())
    return found


def test_a_changed_super_journal_is_told():
    path = interrupted("c1.db", "c2.db", "before")
    with open(path, "rb") as file:
        good = file.read()
    saved = {name: open(at(name), "rb").read() for name in os.listdir(at("")) if name.startswith(("c1.db", "c2.db"))}
    wrong = []
    for offset in range(0, len(good), 7):
        for name in glob.glob(at("c[12].db*")):
            os.remove(name)
        for name, content in saved.items():
            with open(at(name), "wb") as file:
                file.write(content)
        damaged = bytearray(good)
        damaged[offset] ^= 1
        with open(path, "wb") as file:
            file.write(damaged)
        found = outcome("c1.db", "c2.db")
        # Rolled back, or refused: never one changed and the other not, never half.
        for part in found:
            if part != 0 and "SR-4005" not in str(part):
                wrong.append((offset, found))
    assert not wrong, wrong[:5]


def test_a_super_journal_of_other_databases():
    theirs = interrupted("d1.db", "d2.db", "before")
    path = interrupted("e1.db", "e2.db", "before")
    shutil.copy(theirs, path)
    for part in outcome("e1.db", "e2.db"):
        assert part == 0 or "SR-4005" in str(part), part


def test_journals_of_two_participants_exchanged():
    interrupted("f1.db", "f2.db", "before")
    os.rename(at("f1.db-journal"), at("swap"))
    os.rename(at("f2.db-journal"), at("f1.db-journal"))
    os.rename(at("swap"), at("f2.db-journal"))
    for part in outcome("f1.db", "f2.db"):
        # Both were ended before the commit point; a journal that is not ours must not make it a
        # commit.
        assert part in (0, 200) or "SR-4" in str(part), part
    print("  note: journals exchanged:", outcome("f1.db", "f2.db"))


if __name__ == "__main__":
    main()
