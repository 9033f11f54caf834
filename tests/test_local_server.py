"""A server of pages on this machine."""

import gc
import itertools
import socket
import threading
import warnings

from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from stepline.pages.web import local_server
from stepline.pages.web.local_server import LocalServer


def test_no_connection_outlives_a_server_whose_client_reads_no_further(monkeypatch):
    monkeypatch.setattr(local_server, "MAX_STOPPING_SECONDS", 1)

    def endless(_):
        return StreamingResponse(itertools.repeat(b"x" * 65536))

    server = LocalServer(Starlette(routes=[Route("/", endless)]))
    thread = threading.Thread(target=server.run)
    thread.start()
    gc.collect()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        server.stop()
        thread.join()
        del server
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
    assert [str(warning.message) for warning in caught] == []
