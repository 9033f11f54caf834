"""A forward proxy in this process, through which FFmpeg asks http(s): it connects to no private
address by itself.

FFmpeg follows redirects and playlists without looking where they lead. The host that the user named
may be private, a camera's say, if it was so from the first connection on. Any other must be public,
unless `links.private` allows others. An address is looked at as the connection is made. Bytes pass
as they are. What FFmpeg asks by https stays between it and the server.
"""

import contextlib
import http.client
import http.server
import os
import select
import socket
import threading
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

from stepline.errors import MediaError
from stepline.files.remote.addresses import NamedHost, connect_checked
from stepline.media.http import CHUNK_BYTES, MAX_HEAD_BYTES
from stepline.media.settings import LinkSettings


class ForwardProxy(http.server.ThreadingHTTPServer):
    """Serves at `address` while it is entered. refused: why the last request was not passed on, ""
    where none was."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, named: NamedHost, settings: LinkSettings) -> None:
        """named: the host of the URL that the user named."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.named = named
        self.settings = settings
        self.refused = ""
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        # FFmpeg goes past every proxy to the hosts of this variable. Other libraries read its other
        # spelling as well.
        if (names := os.environ.pop("no_proxy", None)) is not None:
            os.environ.setdefault("NO_PROXY", names)
        threading.Thread(
            target=self.serve_forever, args=[0.05], name="forward proxy", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_CONNECT(self) -> None:
        """Pass bytes both ways."""
        host, _, port = self.path.rpartition(":")
        server = self._connect(host.strip("[]"), port)
        if server is None:
            return
        with server:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay({self.connection: server, server: self.connection})

    def do_GET(self) -> None:
        """Send the request in origin form, and relay the server's answer until it ends."""
        parts = urlsplit(self.path)
        if parts.scheme != "http" or not parts.hostname:
            self.send_error(400, "a proxy is asked for a whole http address")
            return
        port = parts.port or http.client.HTTP_PORT
        server = self._connect(parts.hostname, str(port))
        if server is None:
            return
        # A proxy is asked for a whole address, a server for its path alone.
        _, _, path = self.path.partition(parts.netloc)
        lines = [f"{self.command} {path or '/'} HTTP/1.1", "Connection: close"]
        for name, value in self.headers.items():
            if name.lower() not in PROXY_HEADERS:
                lines.append(f"{name}: {value}")
        lines += ["", ""]
        with server:
            server.sendall("\r\n".join(lines).encode())
            with contextlib.suppress(OSError):
                self._relay_head(server)
            self._relay({server: self.connection})

    def _relay_head(self, server: socket.socket) -> None:
        """Pass on an answer's status and headers, and that the connection ends after this answer.

        Without that FFmpeg sends its next request down a connection that is closed by then, and
        takes the failure for the end of the video.
        """
        head = b""
        while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
            received = server.recv(CHUNK_BYTES)
            if not received:
                break
            head += received
        # What the server says about the connection gives way to what this proxy says.
        status, separator, rest = head.partition(b"\r\n")
        for line in rest.partition(b"\r\n\r\n")[0].split(b"\r\n"):
            if line.partition(b":")[0].strip().lower() in (b"connection", b"keep-alive"):
                rest = rest.replace(line + b"\r\n", b"", 1)
        if separator:
            rest = b"Connection: close\r\n" + rest
        self.connection.sendall(status + separator + rest)

    def _connect(self, host: str, port: str) -> socket.socket | None:
        """Return a connection. Where none can be made, send an answer that says so, and return None."""
        # No second request is read from this connection.
        self.close_connection = True
        proxy = cast(ForwardProxy, self.server)
        try:
            return connect_checked(
                (host, int(port)),
                proxy.settings.seconds,
                private=proxy.settings.private,
                named=proxy.named,
            )
        except MediaError as error:
            # FFmpeg learns only that it failed. The reason is kept for the user.
            proxy.refused = str(error)
            self.send_error(403)
        except (OSError, ValueError):
            self.send_error(502)
        return None

    def _relay(self, to: dict[socket.socket, socket.socket]) -> None:
        """Relay bytes both ways until a connection ends or is silent for too long."""
        timeout_seconds = cast(ForwardProxy, self.server).settings.seconds
        with contextlib.suppress(OSError):
            while readable_sockets := select.select(list(to), [], [], timeout_seconds)[0]:
                for source_socket in readable_sockets:
                    data = source_socket.recv(CHUNK_BYTES)
                    if not data:
                        return
                    to[source_socket].sendall(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


# headers that are between FFmpeg and the proxy
PROXY_HEADERS = ("connection", "proxy-connection", "proxy-authorization")
