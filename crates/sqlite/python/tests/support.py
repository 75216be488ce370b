"""What the tests share: a directory of their own, keys in the environment, processes of their own.

Run by ../test with the wheel installed. Must not: skip anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import strongroom

RAW = "11" * 32
OTHER = "22" * 32
NEEDLE = "CANARY-TEXT"
TREE = Path(__file__).resolve().parents[4]
os.environ["K"] = RAW
os.environ["K2"] = OTHER


class Case(unittest.TestCase):
    """Each test in an empty directory, which is the current one."""

    def setUp(self) -> None:
        before = os.getcwd()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(os.chdir, before)
        os.chdir(directory.name)
        self.directory = Path(directory.name).resolve()

    def fails(self, code, call, *arguments, kind=strongroom.Error, **options):
        """`call` fails with `code`, and nothing that is raised holds a key."""
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        error = caught.exception
        self.assertEqual(error.code, code, str(error))
        self.assertTrue(str(error).startswith(code + ": "), str(error))
        self.assertTrue(error.advice, "says what to do")
        self.assertNotIn(RAW, str(error))
        return error

    def make(self, name="a.db", rows=300, **options):
        """A sealed database with rows whose text can be looked for; closed again."""
        options = options or {"key_env": "K"}
        connection = strongroom.connect(name, **options)
        connection.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
        connection.executemany("INSERT INTO t(b) VALUES (?)", [(NEEDLE * 10,)] * rows)
        connection.commit()
        connection.close()
        return name

    def no_plaintext(self):
        """No file of the directory holds the rows' text. Returns the files looked at."""
        found = [path for path in self.directory.rglob("*") if path.is_file()]
        for path in found:
            self.assertNotIn(NEEDLE.encode(), path.read_bytes(), path)
        return found


def count(connection, table="t"):
    """Rows of a table."""
    return connection.execute("SELECT count(*) FROM " + table).fetchone()[0]


def child(*code, **environment):
    """What `code` prints in a new process of this Python; it must end well."""
    script = "import os, sqlite3, sys\n" + "".join(textwrap.dedent(part) for part in code)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise AssertionError(f"{done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def documented():
    """The rows of docs/reference/errors.md: code to (what, what to do)."""
    page = (TREE / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| (SR-\d{4}) \| [^|]+ \| \d+ \| (.*?) \| (.*?) \|$", page, re.M)
    return {code: (what, advice) for code, what, advice in rows}
