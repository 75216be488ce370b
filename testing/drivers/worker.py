"""The worker of crate strongroom-testing, on an unmodified SQLite with the loadable extension.

Speaks the line protocol of testing/src/driver.rs. argv[1] is the extension.
Must not: print anything else to standard output.
"""
import os
import sqlite3
import sys


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def stop():
    say("stopped")
    sys.stdin.readline()
    return 0


def main():
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(sys.argv[1])
    connection = None
    while True:
        line = sys.stdin.readline()
        command, _, rest = line.rstrip("\n").partition(" ")
        if command in ("", "quit"):
            if connection:
                connection.close()
            return
        try:
            if command == "open":
                if connection:
                    connection.close()
                connection = sqlite3.connect(rest, uri=True, isolation_level=None)
                connection.execute("PRAGMA schema_version").fetchone()
                say("ok")
            elif command == "sql":
                rows = connection.execute(rest).fetchall()
                say("ok " + (str(rows[0][0]) if rows else ""))
            elif command == "every":
                steps = int(rest)
                connection.set_progress_handler(stop if steps else None, steps)
                say("ok")
            elif command == "removals":
                say("ok")
            elif command == "abort":
                os.abort()
            else:
                say("error 0 unknown request")
        except sqlite3.Error as error:
            say("error 0 " + str(error).replace("\n", " "))


main()
