"""A forward proxy in this process for FFmpeg's http(s) requests (against SSRF).

FFmpeg follows redirects and playlists without a check of their addresses. The proxy connects only to
public addresses, unless `links.private` allows others. The host that the user named, such as a
camera, may be private if it was private at the first connection. The address is checked when the
connection is made. Requests by https stay encrypted.
"""

import contextlib
import http.client
import http.server
import os
import select
import socket
import threading
from typing import Self, cast
from urllib.parse import urlsplit

from stepline.errors import MediaError
from stepline.files.remote.addresses import NamedHost, connect_checked
from stepline.media.http import CHUNK_BYTES, MAX_HEAD_BYTES
from stepline.media.settings import LinkSettings


class ForwardProxy(http.server.ThreadingHTTPServer):
    """An HTTP proxy on this machine that runs while its context is open.

    Attributes:
        user_host: host of the URL that the user named, which may be private.
        settings: timeout, and whether private addresses are allowed.
        address: URL of the proxy.
        last_refusal: why the last refused request was refused, "" if no request was.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, named: NamedHost, settings: LinkSettings) -> None:
        """Open a free port of this machine.

        Args:
            named: host of the URL that the user named.
            settings: timeout, and whether private addresses are allowed.
        """
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.user_host = named
        self.settings = settings
        self.last_refusal = ""
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        # FFmpeg uses no proxy for the hosts in this variable. Other libraries read the other spelling
        # as well.
        if (names := os.environ.pop("no_proxy", None)) is not None:
            os.environ.setdefault("NO_PROXY", names)
        threading.Thread(
            target=self.serve_forever, args=[0.05], name="forward proxy", daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _ProxyHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        """Open a tunnel, and relay bytes in both directions."""
        host, _, port = self.path.rpartition(":")
        server = self._connect(host.strip("[]"), port)
        if server is None:
            return
        with server:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay({self.connection: server, server: self.connection})

    def do_GET(self) -> None:
        """Send a request to its server in origin form, and relay the response."""
        parts = urlsplit(self.path)
        if parts.scheme != "http" or not parts.hostname:
            self.send_error(400, "a proxy is asked for a whole http address")
            return
        server = self._connect(parts.hostname, str(parts.port or http.client.HTTP_PORT))
        if server is None:
            return
        # A request to a proxy names a whole URL, a request to a server only its path.
        _, _, path = self.path.partition(parts.netloc)
        head = f"{self.command} {path or '/'} HTTP/1.1\r\nConnection: close\r\n"
        for name, value in self.headers.items():
            if name.lower() not in PROXY_HEADERS:
                head += f"{name}: {value}\r\n"
        with server:
            server.sendall(f"{head}\r\n".encode())
            with contextlib.suppress(OSError):
                self._relay_head(server)
            self._relay({server: self.connection})

    def _relay_head(self, server: socket.socket) -> None:
        """Relay the status and headers of a response, with "Connection: close".

        Without this header FFmpeg sends its next request on a connection that is already closed, and
        takes the failure for the end of the video.

        server: connection to the server.
        """
        head = b""
        while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
            received = server.recv(CHUNK_BYTES)
            if not received:
                break
            head += received
        # The proxy's own Connection header replaces the server's.
        status, separator, headers = head.partition(b"\r\n")
        for line in headers.partition(b"\r\n\r\n")[0].split(b"\r\n"):
            if line.partition(b":")[0].strip().lower() in (b"connection", b"keep-alive"):
                headers = headers.replace(line + b"\r\n", b"", 1)
        if separator:
            headers = b"Connection: close\r\n" + headers
        self.connection.sendall(status + separator + headers)

    def _connect(self, host: str, port: str) -> socket.socket | None:
        """Return a connection to a server. On failure, send an error response and return None.

        Args:
            host: name or IP address of the server.
            port: its TCP port, as text.
        """
        # No second request is read from this connection.
        self.close_connection = True
        proxy = cast(ForwardProxy, self.server)
        try:
            return connect_checked(
                (host, int(port)),
                proxy.settings.seconds,
                private=proxy.settings.private,
                named=proxy.user_host,
            )
        except MediaError as error:
            # FFmpeg reports only a failure, so the reason is stored for the user.
            proxy.last_refusal = str(error)
            self.send_error(403)
        except (OSError, ValueError):
            self.send_error(502)
        return None

    def _relay(self, targets: dict[socket.socket, socket.socket]) -> None:
        """Relay bytes until a connection ends, or no byte comes for `links.seconds`.

        targets: socket to read from -> socket to write to.
        """
        timeout_seconds = cast(ForwardProxy, self.server).settings.seconds
        with contextlib.suppress(OSError):
            while readable_sockets := select.select(list(targets), [], [], timeout_seconds)[0]:
                for source_socket in readable_sockets:
                    data = source_socket.recv(CHUNK_BYTES)
                    if not data:
                        return
                    targets[source_socket].sendall(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


# headers of the connection between FFmpeg and the proxy
PROXY_HEADERS = ("connection", "proxy-connection", "proxy-authorization")
