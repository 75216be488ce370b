"""A real KMIP server (PyKMIP) for tests, and its owner, who makes and changes keys.

    python3 kmip_server.py DIRECTORY

DIRECTORY holds ca.pem, server.pem, server.key, client.pem, client.key. Prints the port. Then one command a line, one answer
a line: `create NAME [ENCRYPTION]` (inactive; answers the id), `activate ID`, `revoke ID`, `compromise ID`, `destroy ID`.
It ends with its standard input.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
import warnings

warnings.filterwarnings("ignore")


def serve(directory, port):
    from kmip.services.server import KmipServer

    # A group of its own: PyKMIP starts a further process.
    os.setsid()
    server = KmipServer(
        hostname="127.0.0.1",
        port=port,
        certificate_path=f"{directory}/server.pem",
        key_path=f"{directory}/server.key",
        ca_path=f"{directory}/ca.pem",
        auth_suite="TLS1.2",
        config_path=None,
        log_path=f"{directory}/server.log",
        policy_path=directory + "/policies",
        enable_tls_client_auth=True,
        database_path=f"{directory}/kmip.db",
        logging_level="INFO",
    )
    with server:
        server.serve()


def connected(directory, port, until):
    from kmip.pie.client import ProxyKmipClient

    while True:
        client = ProxyKmipClient(
            hostname="127.0.0.1",
            port=port,
            cert=f"{directory}/client.pem",
            key=f"{directory}/client.key",
            ca=f"{directory}/ca.pem",
            ssl_version="PROTOCOL_TLSv1_2",
        )
        try:
            client.open()
            return client
        except Exception:
            if time.time() > until:
                raise
            time.sleep(0.05)


def main():
    directory = sys.argv[1]
    os.makedirs(directory + "/policies", exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = multiprocessing.Process(target=serve, args=(directory, port))
    server.start()
    try:
        obey(directory, port)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.join()


def obey(directory, port):
    from kmip import enums

    client = connected(directory, port, time.time() + 120)
    mask = enums.CryptographicUsageMask
    print(port, flush=True)
    for line in sys.stdin:
        verb, name = line.split()
        answer = "done"
        if verb == "create":
            answer = client.create(
                enums.CryptographicAlgorithm.AES,
                256,
                name=name,
                cryptographic_usage_mask=[mask.ENCRYPT, mask.DECRYPT],
            )
        elif verb == "activate":
            client.activate(name)
        elif verb == "revoke":
            client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, name)
        elif verb == "compromise":
            client.revoke(
                enums.RevocationReasonCode.KEY_COMPROMISE,
                name,
                compromise_occurrence_date=int(time.time()),
            )
        elif verb == "destroy":
            client.destroy(name)
        else:
            answer = "unknown"
        print(answer, flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
