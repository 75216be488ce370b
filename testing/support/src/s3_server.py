"""An S3 store in memory for tests: moto, on a free port of the loopback address, which it prints; one request after another.

moto looks whether a condition holds and then writes; what S3 does at once is made so here by a lock.
"""

import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

application = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def one_at_a_time(environ, start_response):
    with lock:
        return list(application(environ, start_response))


server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
print(server.port, flush=True)
server.serve_forever()
