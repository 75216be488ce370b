"""What a typed application writes: `mypy --strict` must accept it, and know the types. (Checked, not run.)"""

import getpass
import sqlite3
from pathlib import Path
from typing import Optional

import strongroom


class Mine(sqlite3.Connection):
    """A connection of the application's own."""


plain: strongroom.Connection = strongroom.connect("a.db", key_id="app")
standard: sqlite3.Connection = strongroom.connect(Path("a.db"), key=getpass.getpass, isolation_level=None, timeout=1.0)
mine: Mine = strongroom.connect("a.db", key_env="K", factory=Mine)
cipher: Optional[str] = plain.databases()[0].cipher
strongroom.encrypt("a", "b", key=lambda: b"bytes", page_size=8192)
try:
    plain.execute("SELECT 1").fetchall()
except strongroom.OperationalError as error:
    code: str = error.code
except sqlite3.DatabaseError as error:
    explained: Optional[strongroom.Error] = strongroom.explain(error)
