"""Goal: the guide's example runs, with pandas, and leaves no plaintext but the file that it says. Also a pandas round trip."""

import os
import secrets
import subprocess
import sys
import unittest
from pathlib import Path

import pandas

import strongroom
from support import NEEDLE, TREE, Case

EXAMPLE = TREE / "crates/sqlite/python/examples/orders.py"


class Example(Case):
    def test_the_example(self):
        environment = {**os.environ, "ORDERS_KEY": secrets.token_hex(32)}
        done = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLE), str(self.directory)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Grace Example", done.stdout)
        self.assertIn("SR-2002", done.stdout)
        holds = [path.name for path in self.directory.iterdir() if b"Grace Example" in path.read_bytes()]
        self.assertEqual(holds, ["customers-plain.db"])

    def test_the_guide_shows_what_runs(self):
        guide = (TREE / "docs/guides/python.md").read_text()
        blocks = [block for block in guide.split("\n\n") if block.startswith("    ") and "example:" not in block]
        self.assertTrue(blocks)
        for line in ("strongroom.connect(", "pandas.read_sql("):
            self.assertIn(line, guide)

    def test_frames_come_back_as_they_were(self):
        frame = pandas.DataFrame({"a": range(1000), "b": [NEEDLE] * 1000, "c": [value / 7 for value in range(1000)]})
        with strongroom.connect("a.db", key_env="K") as connection:
            frame.to_sql("t", connection, index=False)
        back = pandas.concat(pandas.read_sql("SELECT * FROM t ORDER BY a", connection, chunksize=300))
        pandas.testing.assert_frame_equal(back.reset_index(drop=True), frame)
        connection.close()
        self.assertEqual([path.name for path in self.no_plaintext()], ["a.db"])
        self.assertTrue(Path("a.db").exists())


if __name__ == "__main__":
    unittest.main()
