#!/usr/bin/env python3
"""Another key for a DuckDB database of about 1 GB, and its verification, beside DuckDB's own way: COPY FROM DATABASE into a new file.

    make build && make deps-test
    target/duckdb/2.0.0/bin/python benches/duckdb/bench.py target/release/strongroom [--rounds 5] [--rows N] [--directory DIR]

Interleaved rounds, medians. The table is of numbers that do not compress, so that DuckDB's copy is as fast as it gets. DuckDB uses the
cryptography that it has in its package (mbedTLS). Every run ends with data on the disk; the page cache is warm for all of them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import duckdb

OLD, NEW = "b2xk" * 11, "bmV3" * 11


def connected():
    con = duckdb.connect()
    con.execute("SET force_mbedtls_unsafe = true")
    return con


def make(path, rows):
    con = connected()
    con.execute(f"ATTACH '{path}' AS e (ENCRYPTION_KEY '{OLD}')")
    con.execute(f"CREATE TABLE e.t AS SELECT random() AS a, random() AS b, hash(range) AS c, hash(-range) AS d FROM range({rows})")
    con.execute("DETACH e")


def copied(path, target):
    if os.path.exists(target):
        os.remove(target)
    con = connected()
    con.execute(f"ATTACH '{path}' AS e (ENCRYPTION_KEY '{OLD}', READ_ONLY)")
    begun = time.perf_counter()
    con.execute(f"ATTACH '{target}' AS c (ENCRYPTION_KEY '{NEW}')")
    con.execute("COPY FROM DATABASE e TO c")
    con.execute("DETACH c")
    return time.perf_counter() - begun


def command(*arguments):
    begun = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def memory(arguments):
    """Of one command, in MiB. A process of its own starts it: what is forked from this one counts this one's memory."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); " \
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strongroom")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=31_000_000)
    parser.add_argument("--directory", default="/var/tmp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        path = lambda name: os.path.join(place, name)
        for name, text in (("old", OLD), ("new", NEW)):
            with open(path(name), "w") as file:
                file.write(text)
        make(path("app.db"), options.rows)
        size = os.path.getsize(path("app.db"))
        print(f"DuckDB {duckdb.__version__}, {size / 1e6:.0f} MB, {os.cpu_count()} processors, {options.rounds} rounds")
        seconds = {"copy": [], "rekey": [], "verify": [], "cp and sync": []}
        strongroom = os.path.abspath(options.strongroom)
        keys = ["old", "new"]
        for _ in range(options.rounds):
            seconds["cp and sync"].append(command("sh", "-c", f"cp '{path('app.db')}' '{path('plain')}' && sync '{path('plain')}'"))
            os.remove(path("plain"))
            if keys[0] == "old":
                seconds["copy"].append(copied(path("app.db"), path("copy.db")))
                os.remove(path("copy.db"))
            rekey = [strongroom, "duckdb", "rekey", path("app.db"), "--key-file", path(keys[0]), "--new-key-file", path(keys[1])]
            seconds["rekey"].append(command(*rekey))
            keys.reverse()
            seconds["verify"].append(command(strongroom, "verify", path("app.db"), "--key-file", path(keys[0])))
            # Back to the key that DuckDB's copy reads with; not counted.
            command(strongroom, "duckdb", "rekey", path("app.db"), "--key-file", path(keys[0]), "--new-key-file", path(keys[1]))
            keys.reverse()
        base = statistics.median(seconds["copy"])
        for name, found in seconds.items():
            median = statistics.median(found)
            spread = f"{min(found):.2f} to {max(found):.2f}"
            print(f"{name:12} {median:7.2f} s ({spread})  {size / median / 1e6:7.0f} MB/s  {base / median:5.1f} times the copy")
        rekey = [strongroom, "duckdb", "rekey", path("app.db"), "--key-file", path("old"), "--new-key-file", path("new")]
        verify = [strongroom, "verify", path("app.db"), "--key-file", path("new")]
        print(f"most memory: rekey {memory(rekey)} MiB, verify {memory(verify)} MiB")


main()
