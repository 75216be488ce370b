"""Goal: the extension gets into the SQLite that Python uses by either way, into apsw's, never into two, and says why it cannot.

Method: processes of their own, since loading is once and for all. STRONGROOM_PYTHONS: further interpreters, separated by
spaces, for which the package is imported from here.
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import strongroom
from support import Case, child

USE = """
    import strongroom
    connection = strongroom.connect("x.db", key_env="K")
    connection.execute("CREATE TABLE IF NOT EXISTS t(a)")
    print(connection.databases()[0].encrypted)
"""


class Hosts(Case):
    def test_through_the_library_where_the_module_does_not_load(self):
        out = child(
            """
            from strongroom import _loader
            _loader._by_library(_loader.extension_path())
            _loader._prove()
            _loader._loaded = True
            """,
            USE,
        )
        self.assertEqual(out.strip(), "True")

    def test_a_library_that_is_not_there_is_said(self):
        out = child(
            """
            import _sqlite3, strongroom
            from strongroom import _loader
            # The process itself has no SQLite but the one that the module brings.
            del _sqlite3.__file__
            try:
                _loader._by_library(_loader.extension_path())
            except strongroom.Error as error:
                print(error.code, error.advice)
            try:
                _loader._by_module("/nowhere.so")
            except strongroom.Error as error:
                print(error.code)
            """
        )
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["SR-2270", "SR-2270"])
        self.assertIn("--enable-loadable-sqlite-extensions", out)

    def test_loading_is_off_afterwards(self):
        out = child(
            """
            import strongroom
            strongroom.load()
            strongroom.load()
            connection = strongroom.connect(":memory:")
            try:
                connection.execute("SELECT load_extension(?)", (strongroom.extension_path(),))
            except sqlite3.OperationalError as error:
                print(error)
            """
        )
        self.assertIn("not authorized", out)

    def test_connections_that_were_there_before(self):
        out = child(
            """
            before = sqlite3.connect(":memory:", uri=True)
            import strongroom
            strongroom.connect("x.db", key_env="K").execute("CREATE TABLE t(a)")
            try:
                before.execute("ATTACH 'file:x.db?key_env=K&vfs=strongroom' AS x")
                before.execute("SELECT * FROM x.t")
            except sqlite3.DatabaseError as error:
                print(strongroom.explain(error).code)
            """
        )
        self.assertEqual(out.strip(), "SR-6005")

    def test_apsw(self):
        out = child(
            """
            import apsw, strongroom
            loader = apsw.Connection(":memory:")
            loader.enable_load_extension(True)
            loader.load_extension(strongroom.extension_path())
            loader.close()
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection("file:x.db?key_env=K", flags=flags)
            connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES ('apsw')")
            print(connection.execute("SELECT encrypted FROM strongroom_databases()").fetchall())
            """
        )
        self.assertEqual(out.strip(), "[(1,)]")
        # The distribution's SQLite reads what apsw's has written.
        connection = strongroom.connect("x.db", key_env="K")
        self.assertEqual(connection.execute("SELECT a FROM t").fetchall(), [("apsw",)])
        connection.close()

    def test_two_libraries_in_one_process_are_refused(self):
        refused = child(
            """
            import strongroom, apsw
            strongroom.load()
            loader = apsw.Connection(":memory:")
            loader.enable_load_extension(True)
            for _ in range(3):
                try:
                    loader.load_extension(strongroom.extension_path())
                except apsw.Error as error:
                    print(error)
            del loader
            """,
            USE,
        )
        self.assertEqual(refused.count("SR-2274"), 3, refused)
        self.assertTrue(refused.endswith("True\n"))
        other = child(
            """
            import strongroom, apsw
            loader = apsw.Connection(":memory:")
            loader.enable_load_extension(True)
            loader.load_extension(strongroom.extension_path())
            try:
                strongroom.connect("y.db", key_env="K")
            except strongroom.Error as error:
                print(error.code, error.advice)
            print(sqlite3.connect(":memory:").execute("SELECT 1").fetchone())
            """
        )
        self.assertTrue(other.startswith("SR-2274 use only one SQLite library"), other)

    def test_sqlalchemy(self):
        import sqlalchemy

        self.make()
        engine = sqlalchemy.create_engine(
            "sqlite://",
            creator=lambda: strongroom.connect("a.db", key_env="K", check_same_thread=False),
            poolclass=sqlalchemy.QueuePool,
        )
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO t(b) VALUES ('x')"))
            self.assertEqual(connection.execute(sqlalchemy.text("SELECT count(*) FROM t")).scalar(), 301)
        engine.dispose()

    def test_other_interpreters(self):
        package = str(Path(strongroom.__file__).resolve().parents[1])
        others = os.environ.get("STRONGROOM_PYTHONS", "/usr/bin/python3").split()
        for python in others:
            with self.subTest(python=python):
                code = "import sys\nsys.path.insert(0, sys.argv[1])\n" + __import__("textwrap").dedent(USE)
                done = subprocess.run([python, "-c", code, package], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.stdout.strip(), done.stderr), ("True", ""), done)

    def test_the_wheel_is_for_every_python(self):
        [info] = Path(strongroom.__file__).resolve().parents[1].glob("strongroom-*.dist-info")
        tags = [line for line in (info / "WHEEL").read_text().splitlines() if line.startswith("Tag:")]
        self.assertEqual(len(tags), 1)
        self.assertRegex(tags[0], r"^Tag: py3-none-(manylinux|linux)")
        self.assertNotIn("Requires-Dist", (info / "METADATA").read_text())
        self.assertIn(f"Version: {strongroom.__version__}\n", (info / "METADATA").read_text())
        connection = strongroom.connect(":memory:")
        self.assertEqual(connection.execute("SELECT strongroom_version()").fetchone(), (strongroom.__version__,))
        connection.close()


if __name__ == "__main__":
    unittest.main()
