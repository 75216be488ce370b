"""Whoever asks for a key, in whatever words, gets a sealed database or an error, and no plain file."""
import os
import subprocess
import sys

from support import EXT, SCRATCH, at, connect, main, make, uri

SPELLINGS = [
    "key", "hexkey", "textkey", "password", "passphrase", "keyid", "key-id", "keyId", "keyenv", "key-env", "keyfile",
    "key-file", "keycommand", "key-command", "pagesize", "kdf_iter",
]


def refused(call, *words):
    """The call ends with an error, whose words are looked for in it."""
    try:
        call()
    except Exception as error:
        for word in words:
            assert word in str(error), (word, error)
        return
    raise AssertionError("it was not refused")


def child(code, **environment):
    """Runs code in a process of its own; its standard output."""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_parameters_of_other_products_and_misspelt_ones():
    for number, spelling in enumerate(SPELLINGS):
        name = "parameter-%d.db" % number
        refused(lambda: connect(name, **{spelling: "secret"}).execute("create table t(a)"))
        assert not os.path.exists(at(name)) or os.path.getsize(at(name)) == 0, spelling
    db = connect("own.db", key_env="K")
    refused(lambda: db.execute("attach '%s' as a" % uri("attached.db", keyid="app")))
    assert not os.path.exists(at("attached.db")) or os.path.getsize(at("attached.db")) == 0
    db.close()


def test_pragmas_of_other_products():
    make("sealed.db")
    for connection in (connect("sealed.db", key_env="K"), connect("plain.db")):
        for pragma in ("hexkey='%s'" % ("11" * 32), "textkey='x'", "hexrekey='%s'" % ("11" * 32), "textrekey='x'", "cipher='aes256cbc'",
                       "kdf_iter=256000", "cipher_page_size=4096"):
            refused(lambda: connection.execute("pragma " + pragma).fetchall(), "SR-2280", pragma.split("=")[0])
        assert connection.execute("pragma cipher_version").fetchall() == []
        connection.close()


def test_pragma_key_on_a_connection_from_before_the_guard():
    name = at("early.db")
    told = child("""
import sqlite3
db = sqlite3.connect(%r, isolation_level=None)
db.enable_load_extension(True)
db.load_extension(%r)
for pragma in ("key='secret'", "hexkey='11'", "REKEY='other'", "main.key='secret'", "cipher_integrity_check"):
    try:
        db.execute("pragma " + pragma)
        print("taken", pragma)
    except sqlite3.DatabaseError as error:
        print("refused", error)
print(db.execute("select strongroom_last_error()").fetchone()[0])
db.execute("pragma user_version=7")
""" % (name, EXT))
    assert "taken" not in told and told.count("refused") == 5 and "SR-2281" in told, told


def test_a_process_that_never_opens_plain_databases():
    make("kept.db")
    connect("clear.db").execute("create table t(a)")
    told = child("""
import os, sqlite3
os.environ["STRONGROOM_LOG"] = "off"
from support import connect, uri
def tried(what, call):
    try:
        call()
        print(what, "taken")
    except sqlite3.DatabaseError as error:
        print(what, "refused")
tried("existing", lambda: connect("clear.db").execute("select * from t"))
tried("new", lambda: connect("new.db").execute("create table t(a)"))
db = connect("kept.db", key_env="K")
tried("sealed", lambda: db.execute("select count(*) from t").fetchone())
tried("attach", lambda: db.execute("attach '%s' as a" % uri("attached-plain.db")))
tried("vacuum", lambda: db.execute("vacuum into '%s'" % uri("copy-plain.db")))
tried("copy", lambda: db.execute("vacuum into '%s'" % uri("copy-sealed.db", key_env="K")))
tried("memory", lambda: sqlite3.connect(":memory:").execute("create table t(a)"))
""", STRONGROOM_SQLITE_NEVER_PLAIN="1")
    lines = dict(line.split() for line in told.splitlines())
    assert lines == {"existing": "refused", "new": "refused", "sealed": "taken", "attach": "refused", "vacuum": "refused", "copy": "taken",
                     "memory": "taken"}, told
    for name in ("new.db", "attached-plain.db", "copy-plain.db"):
        assert not os.path.exists(at(name)) or os.path.getsize(at(name)) == 0, name


main()
