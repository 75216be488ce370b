"""A worker of the bank test on an unmodified SQLite: see testing/src/bank.rs. argv: extension, URI, worker, rounds, seed.

Must not: retry a statement by hand.
"""
import random
import sqlite3
import sys
import time


def main():
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(sys.argv[1])
    connection = sqlite3.connect(sys.argv[2], uri=True, isolation_level=None, timeout=60)
    worker, rounds, seed = map(int, sys.argv[3:6])
    choice = random.Random(seed + worker)
    for _ in range(rounds):
        connection.execute("BEGIN IMMEDIATE")
        amount = choice.randrange(50)
        for sign in (-1, 1):
            connection.execute("UPDATE account SET v=v+? WHERE id=?", (sign * amount, choice.randint(1, 300)))
        connection.execute("UPDATE counter SET c=c+1 WHERE id=?", (worker,))
        connection.execute("COMMIT")
        time.sleep(0.003)
    connection.close()


main()
