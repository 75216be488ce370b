"""Goal: the package's types are complete, and right for who uses them. Method: mypy --strict on it and on two users."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

import strongroom

HERE = Path(__file__).resolve().parent


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir=/dev/null", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE)


class Types(unittest.TestCase):
    def test_the_package_and_a_user(self):
        done = mypy("typed.py")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        package = Path(strongroom.__file__).resolve().parent
        self.assertTrue((package / "py.typed").exists())
        for version in ("3.10", "3.13"):
            files = sorted(str(path) for path in package.glob("*.py"))
            done = mypy("--python-version", version, *files)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_mistakes_are_found(self):
        lines = (HERE / "mistyped.py").read_text().splitlines()
        wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}
        done = mypy("mistyped.py")
        found = {int(number) for number in re.findall(r"mistyped\.py:(\d+): error", done.stdout)}
        self.assertEqual(found, wrong, done.stdout)


if __name__ == "__main__":
    unittest.main()
