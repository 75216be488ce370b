"""Goal: strongroom.connect gives sqlite3's connection to a sealed database, whatever it is named by, and to nothing else.

Method: the installed wheel, real files, and the files' bytes.
"""

import contextlib
import datetime
import os
import pathlib
import sqlite3
import sys
import threading
import unittest

import strongroom
from support import NEEDLE, OTHER, RAW, Case, child, count


class Connects(Case):
    def test_is_a_connection_of_sqlite3(self):
        connection = strongroom.connect("a.db", key_env="K")
        self.assertIsInstance(connection, sqlite3.Connection)
        [main] = connection.databases()
        self.assertEqual(
            (main.name, main.path, main.encrypted, main.cipher, main.key_id, main.page_size),
            ("main", str(self.directory / "a.db"), True, "aes-256-gcm", "raw", 4096),
        )
        self.make("b.db")
        self.no_plaintext()

    def test_every_source_of_the_key(self):
        self.make()
        pathlib.Path("key").write_text(RAW + "\n")
        sources = [
            {"key_env": "K"},
            {"key_file": "key"},
            {"key_file": pathlib.Path("key")},
            {"key_command": "cat key"},
            {"key": lambda: RAW},
            {"key": lambda: RAW.encode()},
            {"key": lambda: bytearray.fromhex(RAW.replace("1", "1"))},
            {"key": os.environ["K"].__str__},
        ]
        for source in sources:
            with self.subTest(source=sorted(source)):
                with contextlib.closing(strongroom.connect("a.db", **source)) as connection:
                    self.assertEqual(count(connection), 300)

    def test_a_keyring(self):
        import subprocess

        command = os.environ["STRONGROOM_COMMAND"]
        pathlib.Path("root").write_text(OTHER)
        ring = ["--keyring", "ring"]
        for words in (["keyring", "init", "--provider", "file:root"], ["key", "create", "app"]):
            subprocess.run([command, *words, *ring], check=True, capture_output=True)
        self.make(key_id="app", keyring=pathlib.Path("ring"))
        with contextlib.closing(strongroom.connect("a.db", key_id="app", keyring="ring")) as connection:
            self.assertEqual(connection.databases()[0].key_id, "app:1")
            self.assertEqual(count(connection), 300)
        self.fails("SR-2003", strongroom.connect, "a.db", key_id="none", keyring="ring")
        self.fails("SR-2004", strongroom.connect, "a.db", key_id="app", keyring="no-ring")
        # The library's format is the command's.
        done = subprocess.run([command, "verify", "a.db", "--key-id", "app", *ring], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_of_files(self):
        odd = ["plain.db", "with space.db", "per%cent.db", "ha#sh?and&=.db", "file:looks-like.db", "umläut.db", "a+b.db"]
        for name in odd:
            for shape in (name, name.encode(), pathlib.Path(name), self.directory / name):
                with self.subTest(name=name, shape=type(shape).__name__):
                    with contextlib.closing(strongroom.connect(shape, key=lambda: RAW)) as connection:
                        connection.execute("CREATE TABLE IF NOT EXISTS t(a)")
                        self.assertEqual(connection.databases()[0].path, str(self.directory / name))
        self.assertEqual(sorted(os.listdir()), sorted(odd))
        # A name that is not UTF-8, and a path that begins with two slashes.
        with contextlib.closing(strongroom.connect(b"\xff.db", key_env="K")) as connection:
            connection.execute("CREATE TABLE t(a)")
        self.assertIn(b"\xff.db", os.listdir(b"."))
        with contextlib.closing(strongroom.connect(f"/{self.directory}/two.db", key_env="K")) as connection:
            connection.execute("CREATE TABLE t(a)")
        self.assertTrue(os.path.exists("two.db"))
        with self.assertRaises(ValueError):
            strongroom.connect("a\0b", key_env="K")

    def test_uris(self):
        self.make("a b.db")
        absolute = (self.directory / "a b.db").as_uri()
        self.make("plain-key.db")
        for uri, more in [
            (absolute, {"key_env": "K"}),
            (absolute + "?key_env=K", {}),
            ("file:a%20b.db?mode=ro#part", {"key_env": "K"}),
            (f"file://localhost{self.directory}/a%20b.db", {"key": lambda: RAW}),
            ("file:a%20b.db?key_env=K&vfs=strongroom", {}),
        ]:
            with self.subTest(uri=uri):
                with contextlib.closing(strongroom.connect(uri, uri=True, **more)) as connection:
                    self.assertEqual(count(connection), 300)
        read_only = strongroom.connect("file:a%20b.db?mode=ro", uri=True, key_env="K")
        with self.assertRaisesRegex(sqlite3.OperationalError, "readonly"):
            read_only.execute("DELETE FROM t")
        read_only.close()
        pathlib.Path("key+1 &").write_text(RAW)
        strongroom.connect("file:a%20b.db?key_file=key+1%20%26", uri=True).close()
        strongroom.connect("a b.db", key_file="key+1 &").close()
        self.fails("SR-2019", strongroom.connect, absolute + "?key_env=K", uri=True, key_env="K")
        self.fails("SR-2019", strongroom.connect, absolute + "?key_env=K", uri=True, key_file="x")
        self.fails("SR-2273", strongroom.connect, "file:new.db?vfs=unix", uri=True, key_env="K")
        self.assertFalse(os.path.exists("new.db"))

    def test_keyword_arguments_are_those_of_sqlite3(self):
        self.make()
        connection = strongroom.connect(
            "a.db",
            key_env="K",
            timeout=1.5,
            detect_types=sqlite3.PARSE_DECLTYPES,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=7,
        )
        self.assertIsNone(connection.isolation_level)
        connection.execute("CREATE TABLE d(day date)")
        connection.execute("INSERT INTO d VALUES ('2024-02-29')")
        self.assertFalse(connection.in_transaction)
        self.assertEqual(connection.execute("SELECT day FROM d").fetchone(), (datetime.date(2024, 2, 29),))
        thread = threading.Thread(target=connection.close)
        thread.start()
        thread.join()

    def test_autocommit(self):
        self.make()
        if sys.version_info < (3, 12):
            with self.assertRaises(TypeError):
                strongroom.connect("a.db", key_env="K", autocommit=False)
            return
        connection = strongroom.connect("a.db", key_env="K", autocommit=False)
        self.assertTrue(connection.in_transaction)
        # Nothing was read in the transaction that is open: another connection's changes are seen.
        with contextlib.closing(strongroom.connect("a.db", key_env="K", autocommit=True)) as other:
            other.execute("DELETE FROM t")
        self.assertEqual(count(connection), 0)
        connection.close()

    def test_factories(self):
        class Mine(sqlite3.Connection):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                self.row_factory = lambda cursor, row: {"first": row[0]}

        self.make()
        connection = strongroom.connect("a.db", key_env="K", factory=Mine)
        self.assertIs(type(connection), Mine)
        self.assertEqual(connection.execute("SELECT count(*) FROM t").fetchone(), {"first": 300})
        connection.close()
        bare = strongroom.connect("a.db", key_env="K", factory=sqlite3.Connection)
        self.assertIs(type(bare), sqlite3.Connection)
        bare.close()

    def test_a_database_in_memory_takes_no_key_and_attaches(self):
        self.make()
        memory = strongroom.connect(":memory:")
        memory.execute("ATTACH 'file:a.db?key_env=K' AS sealed")
        self.assertEqual(count(memory, "sealed.t"), 300)
        self.assertEqual([row.encrypted for row in memory.databases()], [False, True])
        memory.close()
        strongroom.connect("").close()
        strongroom.connect("file::memory:", uri=True).close()
        for name in (":memory:", ""):
            self.fails("SR-2272", strongroom.connect, name, key_env="K")
            self.fails("SR-2272", strongroom.connect, name, key=lambda: RAW)
            self.fails("SR-2272", strongroom.connect, name, cipher="gcm")
        self.fails("SR-2272", strongroom.connect, "file:x?mode=memory", uri=True, key_env="K")
        self.assertEqual(os.listdir(), ["a.db"])

    def test_attach_of_one_with_a_callable_key(self):
        self.make("a.db")
        self.make("b.db", key_env="K2")
        connection = strongroom.connect("a.db", key=lambda: RAW)
        connection.execute("ATTACH 'file:b.db?key_env=K2' AS b")
        self.assertEqual(count(connection, "b.t"), 300)
        # The key of the connection was for the connection: it opens nothing else.
        self.fails("SR-2001", connection.execute, "ATTACH 'a.db' AS again")
        self.fails("SR-6004", connection.execute, "ATTACH 'b.db' AS c KEY 'x'", kind=sqlite3.DatabaseError)
        connection.close()

    def test_cipher_and_page_size(self):
        connection = strongroom.connect("a.db", key_env="K", cipher="ctr", page_size=8192)
        connection.execute("CREATE TABLE t(a)")
        [main] = connection.databases()
        self.assertEqual((main.cipher, main.page_size), ("aes-256-ctr", 8192))
        connection.close()
        self.fails("SR-6009", strongroom.connect, "b.db", key_env="K", cipher="rot13")
        self.fails("SR-6009", strongroom.connect, "b.db", key_env="K", page_size=1000)

    def test_no_call_makes_or_opens_a_plain_database(self):
        self.fails("SR-2273", strongroom.connect, "new.db")
        self.assertEqual(os.listdir(), [])
        pathlib.Path("empty.db").touch()
        self.fails("SR-2273", strongroom.connect, "empty.db")
        plain = sqlite3.connect("plain.db")
        plain.execute("CREATE TABLE t(a)")
        plain.close()
        self.fails("SR-2273", strongroom.connect, "plain.db")
        self.fails("SR-3008", strongroom.connect, "plain.db", key_env="K")
        # sqlite3.connect opens it as ever.
        self.assertEqual(count(sqlite3.connect("plain.db")), 0)

    def test_journal_log_and_temporary_files(self):
        self.make(rows=5000)
        connection = strongroom.connect("a.db", key_env="K")
        self.assertEqual(connection.execute("PRAGMA journal_mode=WAL").fetchone(), ("wal",))
        connection.execute("UPDATE t SET b = b || 'x'")
        connection.execute("PRAGMA temp_store_directory")
        connection.execute("CREATE TEMP TABLE copy AS SELECT * FROM t")
        connection.commit()
        names = {path.name for path in self.no_plaintext()}
        self.assertLess({"a.db", "a.db-wal"}, names)
        connection.close()


class Encrypts(Case):
    def plain(self):
        connection = sqlite3.connect("plain.db")
        connection.execute("PRAGMA page_size=1024")
        connection.execute("CREATE TABLE t(a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(row, NEEDLE) for row in range(500)])
        connection.execute("PRAGMA user_version=7")
        connection.commit()
        connection.close()
        os.chmod("plain.db", 0o640)

    def test_a_sealed_copy(self):
        self.plain()
        for name, more in [("a.db", {"key_env": "K"}), ("b.db", {"key": lambda: RAW, "page_size": 8192})]:
            strongroom.encrypt("plain.db", name, **more)
            self.assertEqual(os.stat(name).st_mode & 0o777, 0o640)
            with contextlib.closing(strongroom.connect(name, key_env="K")) as connection:
                self.assertEqual(count(connection), 500)
                self.assertEqual(connection.execute("PRAGMA user_version").fetchone(), (7,))
                self.assertEqual(connection.databases()[0].page_size, more.get("page_size", 1024))
        os.unlink("plain.db")
        self.no_plaintext()
        self.assertEqual(sorted(os.listdir()), ["a.db", "b.db"])

    def test_refusals_leave_nothing(self):
        self.plain()
        self.make("sealed.db")
        before = sorted(os.listdir())
        self.fails("SR-1002", strongroom.encrypt, "plain.db", "sealed.db", key_env="K")
        self.fails("SR-1006", strongroom.encrypt, "none.db", "x.db", key_env="K")
        self.fails("SR-2273", strongroom.encrypt, "plain.db", "x.db")
        self.fails("SR-2001", strongroom.encrypt, "sealed.db", "x.db", key_env="K")
        self.fails("SR-2008", strongroom.encrypt, "plain.db", "x.db", key_env="NOT_SET")
        self.fails("SR-6009", strongroom.encrypt, "plain.db", "x.db", key_env="K", cipher="rot13")
        self.fails("SR-2271", strongroom.encrypt, "plain.db", "x.db", key=RAW)
        os.symlink("nowhere", "link.db")
        self.fails("SR-1002", strongroom.encrypt, "plain.db", "link.db", key_env="K")
        os.unlink("link.db")
        self.assertEqual(sorted(os.listdir()), before)

    def test_a_kill_leaves_no_half_of_a_copy(self):
        self.plain()
        code = """
            import signal, strongroom._connect as c
            c._publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            import strongroom
            strongroom.encrypt("plain.db", "a.db", key_env="K")
        """
        with self.assertRaisesRegex(AssertionError, "^-9"):
            child(code)
        self.assertFalse(os.path.exists("a.db"))
        os.unlink("plain.db")
        self.no_plaintext()


if __name__ == "__main__":
    unittest.main()
