"""An S3 store in memory for tests: moto, on a port of the loopback address, one request after another.

moto looks whether a condition holds and then writes; what S3 does at once is made so here by a lock.
"""

import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def one_at_a_time(environ, start_response):
    with lock:
        return list(application(environ, start_response))


run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
