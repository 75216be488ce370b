"""Executes the same statements on a plain and on a sealed database and compares, on an unmodified SQLite.

argv: extension, plain URI, sealed URI. Standard input: per line, the statement for each, separated by a tab.
Must not: compare messages that name a file.
"""
import sqlite3
import sys


def run(connection, sql):
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.Error as error:
        return (type(error).__name__, "" if "file:" in sql else str(error))


def main():
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(sys.argv[1])
    plain, sealed = [sqlite3.connect(uri, uri=True, isolation_level=None) for uri in sys.argv[2:4]]
    count = failed = 0
    for line in sys.stdin:
        for_plain, for_sealed = line.rstrip("\n").split("\t")
        expected, found = run(plain, for_plain), run(sealed, for_sealed)
        count += 1
        failed += isinstance(expected, tuple)
        if expected != found:
            sys.exit(f"statement {count}: {for_sealed[:300]}\n plain: {str(expected)[:500]}\nsealed: {str(found)[:500]}")
    print(count, failed, sqlite3.sqlite_version)


main()
