"""AWS KMS in memory for tests: moto, on a free port of the loopback address, which it prints."""

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
print(server.port, flush=True)
server.serve_forever()
