"""Forwards connections from a port of the loopback to a Unix socket: forward.py SOCKET PORTFILE.

For drivers whose tests want a host and a port. It writes the port to PORTFILE and runs until it is
killed. Must not: listen on anything but the loopback.
"""

import asyncio
import os
import sys


async def pass_on(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def forward(reader, writer):
    try:
        there = await asyncio.open_unix_connection(sys.argv[1])
    except OSError:
        writer.close()
        return
    await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))


async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with open(sys.argv[2] + ".new", "w") as file:
        file.write(str(port))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    await server.serve_forever()


asyncio.run(main())
