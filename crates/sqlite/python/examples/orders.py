"""Sealed orders with pandas: the guide's example (docs/guides/python.md), run by the tests.

    export ORDERS_KEY=$(openssl rand -hex 32)      # or a passphrase; in production a keyring: key_id="orders"
    python orders.py DIRECTORY
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
from pathlib import Path

import pandas

import strongroom

CUSTOMERS = pandas.DataFrame(
    {
        "customer": [1, 2, 3],
        "name": ["Ada Example", "Grace Example", "Edsger Example"],
        "city": ["London", "New York", "Rotterdam"],
    }
)
ORDERS = pandas.DataFrame(
    {
        "number": range(1, 10_001),
        "customer": [1 + number % 3 for number in range(10_000)],
        "amount": [(number * 37 % 1000) / 10 for number in range(10_000)],
    }
)


def make(path: Path) -> None:
    """A DataFrame becomes a table of a sealed database, which is made."""
    with strongroom.connect(path, key_env="ORDERS_KEY") as connection:
        ORDERS.to_sql("orders", connection, index=False)
        connection.execute("CREATE INDEX by_customer ON orders(customer)")
    connection.close()


def prove(path: Path) -> None:
    """What says that it is sealed: the extension, and the bytes."""
    connection = strongroom.connect(path, key_env="ORDERS_KEY")
    for database in connection.databases():
        print(f"{database.name}: sealed {database.encrypted}, {database.cipher}, key {database.key_id}")
        assert database.encrypted
    connection.close()
    contents = path.read_bytes()
    assert b"CREATE TABLE" not in contents and b"SQLite format 3" not in contents


def seal_an_old_one(plain: Path, sealed: Path) -> None:
    """A plain database of before is copied into a sealed one. (The plain file is yours to shred.)"""
    connection = sqlite3.connect(plain)
    CUSTOMERS.to_sql("customers", connection, index=False)
    connection.close()
    strongroom.encrypt(plain, sealed, key_env="ORDERS_KEY")


def join(orders: Path, customers: Path) -> pandas.DataFrame:
    """Two sealed databases in one query: ATTACH names the key in the URI."""
    connection = strongroom.connect(orders, key_env="ORDERS_KEY")
    connection.execute("ATTACH ? AS crm", (f"{customers.as_uri()}?key_env=ORDERS_KEY",))
    frame = pandas.read_sql(
        "SELECT name, count(*) AS orders, sum(amount) AS total FROM orders JOIN crm.customers USING (customer) "
        "GROUP BY name ORDER BY name",
        connection,
    )
    connection.close()
    return frame


def total_of(task: tuple[Path, int]) -> float:
    """In a process of its own: a connection is never handed to another process, each opens one."""
    path, customer = task
    connection = strongroom.connect(path, key_env="ORDERS_KEY")
    try:
        return float(connection.execute("SELECT sum(amount) FROM orders WHERE customer = ?", (customer,)).fetchone()[0])
    finally:
        connection.close()


def refused(path: Path) -> str:
    """A wrong key is an error with a code that does not change."""
    try:
        strongroom.connect(path, key=lambda: "not the key").close()
    except strongroom.Error as error:
        print(f"{error.code}: {error.advice}")
        return error.code
    raise AssertionError("the wrong key opened the database")


def main(directory: Path) -> None:
    orders, customers = directory / "orders.db", directory / "customers.db"
    make(orders)
    prove(orders)
    seal_an_old_one(directory / "customers-plain.db", customers)
    frame = join(orders, customers)
    print(frame.to_string(index=False))
    assert frame["orders"].sum() == len(ORDERS)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        totals = pool.map(total_of, [(orders, customer) for customer in (1, 2, 3)])
    assert abs(sum(totals) - ORDERS["amount"].sum()) < 1e-6
    assert refused(orders) == "SR-2002"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
