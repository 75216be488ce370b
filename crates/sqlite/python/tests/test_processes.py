"""Goal: threads, forks and spawned processes use sealed databases as they use plain ones.

Method: real ones, at once, on one file.
"""

import contextlib
import multiprocessing
import os
import sqlite3
import threading
import unittest

import strongroom
from support import RAW, Case, child, count


def reads(path):
    """What a worker does: opens for itself, with a key that its parent never registered."""
    with contextlib.closing(strongroom.connect(path, key=lambda: RAW)) as connection:
        return count(connection)


def inserts(path, number):
    with contextlib.closing(strongroom.connect(path, key=lambda: RAW, timeout=60)) as connection:
        for _ in range(20):
            with connection:
                connection.execute("INSERT INTO t(b) VALUES (?)", (str(number),))


class Processes(Case):
    def test_threads_with_callable_keys(self):
        self.make(rows=0)
        failures = []

        def work(number):
            try:
                inserts("a.db", number)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(reads("a.db"), 120)
        # No key stayed registered.
        self.fails("SR-2001", strongroom.connect, "a.db")

    def test_a_connection_stays_with_its_thread(self):
        self.make()
        connection = strongroom.connect("a.db", key_env="K")
        caught = []

        def use():
            try:
                count(connection)
            except sqlite3.ProgrammingError as error:
                caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(len(caught), 1)
        connection.close()

    def test_forked_and_spawned_workers(self):
        self.make()
        path = str(self.directory / "a.db")
        reads(path)  # The parent has the extension loaded, which a forked child inherits.
        for method, rows in (("fork", 300), ("spawn", 340)):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(reads, [path] * 4), [rows] * 4)
                pool.starmap(inserts, [(path, number) for number in range(2)])
        self.assertEqual(reads(path), 380)

    def test_a_fork_while_another_thread_holds_the_locks(self):
        self.make()
        inside, leave = threading.Event(), threading.Event()

        def slow():
            from strongroom import _connect, _loader

            with _connect._registration, _loader._lock:
                inside.set()
                leave.wait(60)

        thread = threading.Thread(target=slow)
        thread.start()
        inside.wait(60)
        pid = os.fork()
        if pid == 0:
            import signal

            signal.alarm(30)
            try:
                os._exit(0 if reads("a.db") == 300 else 1)
            except BaseException:
                os._exit(2)
        leave.set()
        thread.join()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_readers_beside_a_writer(self):
        self.make()
        writer = strongroom.connect("a.db", key_env="K")
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("DELETE FROM t")
        out = child('import strongroom\nprint(strongroom.connect("a.db", key_env="K").execute("SELECT count(*) FROM t").fetchone()[0])')
        self.assertEqual(out.strip(), "300")
        writer.commit()
        self.assertEqual(reads("a.db"), 0)
        writer.close()

    def test_a_killed_writer_loses_nothing_committed(self):
        self.make()
        code = """
            import signal, strongroom
            connection = strongroom.connect("a.db", key_env="K")
            connection.execute("PRAGMA cache_size=5")
            connection.execute("UPDATE t SET b = 'gone'")
            os.kill(os.getpid(), signal.SIGKILL)
        """
        with self.assertRaisesRegex(AssertionError, "^-9"):
            child(code)
        self.assertTrue(os.path.exists("a.db-journal"))
        with contextlib.closing(strongroom.connect("a.db", key_env="K")) as connection:
            self.assertEqual(connection.execute("SELECT count(*) FROM t WHERE b = 'gone'").fetchone(), (0,))
            self.assertEqual(connection.execute("PRAGMA integrity_check").fetchone(), ("ok",))


if __name__ == "__main__":
    unittest.main()
