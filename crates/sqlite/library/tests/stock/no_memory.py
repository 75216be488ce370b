"""Where SQLite has no memory left as a database is opened, it says so: no defect of the sealing VFS's, and no other error."""
import ctypes

from support import fresh_last_error, last_error, main, make, uri

sqlite = ctypes.CDLL("libsqlite3.so.0")
sqlite.sqlite3_hard_heap_limit64.argtypes = [ctypes.c_int64]
sqlite.sqlite3_hard_heap_limit64.restype = ctypes.c_int64
sqlite.sqlite3_memory_used.restype = ctypes.c_int64

OK, NOMEM = 0, 7
READ_WRITE_CREATE_URI = 0x2 | 0x4 | 0x40


def opened(name, limit):
    """The result code of opening a database while SQLite may take `limit` bytes more than it has."""
    db = ctypes.c_void_p()
    sqlite.sqlite3_hard_heap_limit64(sqlite.sqlite3_memory_used() + limit)
    rc = sqlite.sqlite3_open_v2(name.encode(), ctypes.byref(db), READ_WRITE_CREATE_URI, None)
    sqlite.sqlite3_hard_heap_limit64(0)
    sqlite.sqlite3_close(db)
    return rc


def test_opening_with_less_and_less_memory():
    make("there.db")
    for name in (uri("there.db", key_env="K"), uri("new.db", key_env="K", page_size=8192), uri("plain.db")):
        fresh_last_error()
        seen = set()
        for limit in range(1, 160_000, 331):
            rc = opened(name, limit)
            seen.add(rc)
            assert rc in (OK, NOMEM), (name, limit, rc, last_error())
            assert "SR-9001" not in (last_error() or ""), (name, limit, last_error())
        assert seen == {OK, NOMEM}, seen


main()
