"""A plain HTTP client for tests of the local servers, and a port for them."""

import contextlib
import http.client
import secrets
import socket


def ask(server, method, path, body=None, **headers):
    """Return the reply to a request, and its body. A header's name has _ for -."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request(
        method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply, data


def status_of(server, method, path, body=None, **headers):
    return ask(server, method, path, body, **headers)[0].status


def free_port():
    """A free port of this machine, below those that the system gives to others meanwhile."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", 20_000 + secrets.randbelow(12_000)))
            return probe.getsockname()[1]
