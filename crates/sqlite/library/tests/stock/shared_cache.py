"""Connections that share a cache, closed in every order, while other databases are opened: the sealing VFS keeps no connection
that is gone. The process ends by a signal where it does (use after free; memory is overwritten to make it certain)."""
import itertools
import sqlite3

from support import at, connect, main, make, uri


def shared(name, **parameters):
    parameters = parameters or {"key_env": "K"}
    return sqlite3.connect(uri(name, cache="shared", **parameters), uri=True, isolation_level=None)


def churn():
    """Takes what was freed, so that a connection that is used after its end is nonsense."""
    return [bytes([0x5A]) * size for size in range(256, 4096, 16) for _ in range(8)]


def test_one_that_shared_a_cache_is_closed_and_another_database_is_opened():
    make("shared.db")
    for number, order in enumerate(itertools.permutations(range(3))):
        connections = [shared("shared.db") for _ in range(3)]
        for one in connections:
            assert one.execute("select count(*) from t").fetchone() == (300,)
        for which in order:
            connections[which].close()
            kept = churn()
            # A database that is made asks which statement is running on which connection.
            other = connect("other-%d-%d.db" % (number, which), key_env="K")
            other.execute("create table x(a)")
            other.execute("vacuum into '%s'" % uri("copy-%d-%d.db" % (number, which), key_env="K2"))
            other.close()
            del kept
            for left in order[order.index(which) + 1:]:
                assert connections[left].execute("select count(*) from t").fetchone() == (300,)


def test_attached_databases_share_a_cache_too():
    make("attached.db")
    for _ in range(10):
        first, second = shared("attached.db"), connect("own.db", key_env="K")
        second.execute("attach '%s' as a" % uri("attached.db", cache="shared", key_env="K"))
        assert second.execute("select count(*) from a.t").fetchone() == (300,)
        second.close()
        kept = churn()
        connect("more.db", key_env="K").close()
        assert first.execute("select count(*) from t").fetchone() == (300,)
        first.close()
        del kept


def test_pragmas_on_a_shared_cache_find_the_connection_that_asks():
    make("rekeyed.db", rows=20)
    first, second = shared("rekeyed.db"), shared("rekeyed.db")
    first.close()
    kept = churn()
    assert second.execute("pragma rekey=\"x'%s'\"" % ("33" * 32)).fetchone()[0].startswith("ok")
    assert second.execute("select count(*) from t").fetchone() == (20,)
    second.close()
    del kept


main()
