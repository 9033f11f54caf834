"""A plain HTTP client for tests of the local servers."""

import http.client


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
