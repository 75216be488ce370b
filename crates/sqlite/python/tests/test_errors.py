"""Goal: what fails says why by a stable code, is still sqlite3's exception, and shows no key anywhere.

Method: real failures (wrong keys, damaged pages, refusals), and tracebacks with every variable of every frame.
"""

import contextlib
import pickle
import sqlite3
import threading
import traceback
import unittest

import strongroom
from strongroom import _errors
from support import OTHER, RAW, Case, child, count, documented


def damage(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


class Errors(Case):
    def test_wrong_and_missing_keys(self):
        self.make()
        error = self.fails("SR-2002", strongroom.connect, "a.db", key_env="K2")
        self.assertIsInstance(error, sqlite3.DatabaseError)
        self.fails("SR-2002", strongroom.connect, "a.db", key=lambda: OTHER)
        self.fails("SR-2001", strongroom.connect, "a.db")
        error = self.fails("SR-2008", strongroom.connect, "a.db", key_env="NOT_SET")
        self.assertIsInstance(error, sqlite3.OperationalError)
        self.fails("SR-2007", strongroom.connect, "a.db", key_file="nowhere")
        self.fails("SR-2009", strongroom.connect, "a.db", key_command="exit 3")
        self.fails("SR-2011", strongroom.connect, "a.db", key=str)
        self.fails("SR-2019", strongroom.connect, "a.db", key_env="K", key=lambda: RAW, kind=sqlite3.ProgrammingError)
        self.fails("SR-2019", strongroom.connect, "a.db", key_env="K", key_file="x")

    def test_a_damaged_page_has_its_code_wherever_it_is_met(self):
        self.make(rows=3000)
        damage("a.db", 4096 + 4096 * 60)
        connection = strongroom.connect("a.db", key_env="K")
        error = self.fails("SR-4001", count, connection, kind=sqlite3.OperationalError)
        if hasattr(sqlite3, "SQLITE_IOERR_DATA"):
            self.assertEqual(error.sqlite_errorcode, sqlite3.SQLITE_IOERR_DATA)
            self.assertEqual(error.sqlite_errorname, "SQLITE_IOERR_DATA")
        rows = "SELECT * FROM t"
        self.fails("SR-4001", lambda: list(connection.execute(rows)))
        self.fails("SR-4001", lambda: connection.execute(rows).fetchall())
        self.fails("SR-4001", lambda: connection.execute(rows).fetchmany(5000))

        def one_by_one():
            cursor = connection.execute(rows)
            while cursor.fetchone():
                pass

        self.fails("SR-4001", one_by_one)
        self.fails("SR-4001", connection.executescript, "SELECT sum(length(b)) FROM t;")
        self.fails("SR-4001", connection.executemany, "UPDATE t SET b = ?", [("x",)])
        connection.rollback()
        self.fails("SR-4001", connection.backup, strongroom.connect("copy.db", key_env="K"))
        connection.close()

    def test_a_bare_connection_can_be_explained(self):
        self.make(rows=3000)
        damage("a.db", 4096 + 4096 * 60)
        bare = strongroom.connect("a.db", key_env="K", factory=sqlite3.Connection)
        with self.assertRaises(sqlite3.OperationalError) as caught:
            count(bare)
        self.assertNotIsInstance(caught.exception, strongroom.Error)
        self.assertEqual(strongroom.explain(caught.exception).code, "SR-4001")
        # An older one that nobody asked for is not taken for SQLite's own.
        with self.assertRaises(sqlite3.OperationalError):
            count(bare)
        with contextlib.closing(strongroom.connect("a.db", key_env="K")) as connection:
            with self.assertRaisesRegex(sqlite3.OperationalError, "no such table: none") as own:
                connection.execute("SELECT * FROM none")
            self.assertNotIsInstance(own.exception, strongroom.Error)
            self.fails("SR-2011", connection.execute, "SELECT strongroom_key('x', 1)")
        # Told once: a later error of SQLite's own is not taken for it.
        self.assertIsNone(strongroom.explain(caught.exception))
        bare.close()

    def test_errors_of_sqlite_stay_what_they_are(self):
        self.make()
        connection = strongroom.connect("a.db", key_env="K")
        for sql, kind in [
            ("SELECT * FROM none", sqlite3.OperationalError),
            ("SELEKT", sqlite3.OperationalError),
            ("INSERT INTO t(a) VALUES (1)", sqlite3.IntegrityError),
        ]:
            with self.assertRaises(kind) as caught:
                connection.execute(sql)
            self.assertNotIsInstance(caught.exception, strongroom.Error)
        connection.rollback()
        with self.assertRaises(sqlite3.OperationalError) as caught:
            strongroom.connect("/nowhere/x.db", key_env="K")
        self.assertNotIsInstance(caught.exception, strongroom.Error)
        with self.assertRaises(sqlite3.ProgrammingError):
            connection.execute("SELECT ?", ())
        connection.close()
        with self.assertRaises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")
        # An older error of the extension with the same result code, in another thread, is not this
        # one's.
        thread = threading.Thread(target=lambda: self.fails("SR-2002", strongroom.connect, "a.db", key_env="K2"))
        thread.start()
        thread.join()
        with open("noise.db", "wb") as file:
            file.write(b"x" * 8192)
        with self.assertRaises(sqlite3.DatabaseError) as caught:
            sqlite3.connect("noise.db").execute("SELECT * FROM sqlite_master")
        self.assertIsNone(strongroom.explain(caught.exception))

    def test_locked_databases_are_locked(self):
        self.make()
        one = strongroom.connect("a.db", key_env="K", isolation_level=None)
        one.execute("BEGIN EXCLUSIVE")
        with self.assertRaisesRegex(sqlite3.OperationalError, "database is locked") as caught:
            strongroom.connect("a.db", key_env="K", timeout=0.1)
        self.assertNotIsInstance(caught.exception, strongroom.Error)
        one.close()

    def test_no_traceback_shows_a_key(self):
        self.make()
        secret = "a-passphrase-that-nobody-may-see"
        long = secret * 200  # Too long for the extension.

        def shown_by(call):
            """Every variable of the package's frames, and all that the exceptions hold."""
            try:
                call()
            except Exception as error:
                texts, chain = [], error
                while chain is not None:
                    texts += [str(chain), repr(chain), repr(vars(chain)), repr(getattr(chain, "object", ""))]
                    for frame, _ in traceback.walk_tb(chain.__traceback__):
                        if "strongroom" in frame.f_globals["__name__"]:
                            texts.append(frame.f_code.co_name + repr(frame.f_locals))
                    chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
                return "\n".join(texts)
            raise AssertionError("nothing failed")

        calls = [
            lambda: strongroom.connect("a.db", key=lambda: secret),
            lambda: strongroom.connect("a.db", key=lambda: long),
            lambda: strongroom.connect("a.db", key=lambda: secret.encode()),
            lambda: strongroom.connect("a.db", key=lambda: secret + "\udcff"),
            lambda: strongroom.connect("a.db", key=lambda: [secret]),
            lambda: strongroom.connect("a.db/x", key=lambda: secret),
        ]
        for call in calls:
            shown = shown_by(call)
            self.assertIn("connect{", shown)
            self.assertNotIn(secret, shown)
        # A key as an argument stands in the caller's frame and in ours; it is refused without being
        # repeated.
        error = self.fails("SR-2271", strongroom.connect, "a.db", key=secret)
        self.assertNotIn(secret, str(error) + repr(vars(error)))

    def test_a_callable_that_fails_is_heard(self):
        self.make()
        with self.assertRaises(EOFError):
            strongroom.connect("a.db", key=lambda: (_ for _ in ()).throw(EOFError()))
        # And leaves no lock behind.
        strongroom.connect("a.db", key=lambda: RAW).close()

    def test_a_callable_may_itself_open_a_sealed_database(self):
        self.make("keys.db")
        self.make("a.db", key=lambda: OTHER)

        def from_keys():
            with contextlib.closing(strongroom.connect("keys.db", key=lambda: RAW)):
                return OTHER

        strongroom.connect("a.db", key=from_keys).close()

    def test_errors_are_pickled_and_connections_are_not(self):
        self.make()
        error = self.fails("SR-2002", strongroom.connect, "a.db", key_env="K2")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.code, str(again)), (type(error), error.code, str(error)))
        connection = strongroom.connect("a.db", key_env="K")
        for unpicklable in (connection, connection.cursor()):
            with self.assertRaises(TypeError):
                pickle.dumps(unpicklable)
        connection.close()

    def test_own_texts_are_those_of_the_reference(self):
        rows = documented()
        self.assertGreater(len(rows), 100)
        for code, texts in _errors.OWN.items():
            self.assertEqual(texts, rows[code], code)

    def test_advice_is_that_of_the_reference(self):
        connection = sqlite3.connect(":memory:")
        for code, (_, advice) in documented().items():
            self.assertEqual(connection.execute("SELECT strongroom_explain(?)", (code,)).fetchone()[0], advice)
        for unknown in ("SR-0000", "x", None, 99999):
            self.assertIsNone(connection.execute("SELECT strongroom_explain(?)", (unknown,)).fetchone()[0])

    def test_nothing_on_standard_error_unless_it_was_asked_for(self):
        self.make()
        code = """
            import strongroom
            try:
                strongroom.connect("a.db", key_env="K2")
            except strongroom.Error as error:
                assert error.code == "SR-2002"
            os.dup2(1, 2)
        """
        silent = f"import os\nos.dup2(1, 2)\n{__import__('textwrap').dedent(code)}"
        self.assertEqual(child(silent), "")
        self.assertIn("SR-2002", child(silent, STRONGROOM_LOG="on"))


if __name__ == "__main__":
    unittest.main()
