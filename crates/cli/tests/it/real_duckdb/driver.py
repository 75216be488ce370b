"""What the tests have a real DuckDB do: one command on the command line, one JSON line as answer."""

import glob
import json
import os
import sys

import duckdb

con = duckdb.connect()
if duckdb.__version__.startswith("1.4."):
    # 1.4 writes encrypted files only with this extension's cryptography.
    here = os.path.dirname(os.path.dirname(duckdb.__file__))
    con.execute(f"LOAD '{glob.glob(here + '/duckdb_extension_httpfs/**/httpfs.duckdb_extension', recursive=True)[0]}'")
else:
    con.execute("SET force_mbedtls_unsafe = true")


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def attach(path, key, more=""):
    con.execute(f"ATTACH {quoted(path)} AS e (ENCRYPTION_KEY {quoted(key)}{more})")


def make(path, key, more, rows):
    attach(path, key, more)
    con.execute(f"CREATE TABLE e.t AS SELECT range AS a, hash(range)::VARCHAR AS b FROM range({rows})")
    con.execute("DETACH e")
    return os.path.getsize(path)


def total(path, key, more):
    """The table's digest; changes nothing."""
    attach(path, key, ", READ_ONLY" + more)
    found = con.execute("SELECT count(*), sum(a), bit_xor(hash(b))::VARCHAR FROM e.t").fetchone()
    con.execute("DETACH e")
    return [int(found[0]), int(found[1]), found[2]]


def write(path, key, more):
    attach(path, key, more)
    con.execute("INSERT INTO e.t VALUES (-1, 'after')")
    con.execute("CHECKPOINT e")
    con.execute("DETACH e")
    return True


def hold(path, key, more):
    attach(path, key, more)
    print(json.dumps(True), flush=True)
    sys.stdin.read()
    return True


def leave_log(path, key, more):
    attach(path, key, more)
    con.execute("INSERT INTO e.t VALUES (-2, 'in the log')")
    print(json.dumps(True), flush=True)
    os._exit(0)


def keys(folder):
    """Makes a database for each line of FOLDER/keys, a JSON string; tells which keys DuckDB takes."""
    taken = []
    for number, line in enumerate(open(os.path.join(folder, "keys"))):
        path = os.path.join(folder, f"{number}.db")
        try:
            attach(path, json.loads(line))
            con.execute("CREATE TABLE e.t(a INT)")
            con.execute("DETACH e")
            taken.append(True)
        except Exception:
            taken.append(False)
    return taken


try:
    print(json.dumps({"done": globals()[sys.argv[1]](*sys.argv[2:])}))
except duckdb.Error as error:
    print(json.dumps({"refused": str(error)}))
