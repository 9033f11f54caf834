"""HTTP connections of a local server: limited in number and time, with or without TLS.

A request must state the length of its body by one Content-Length. Requests that a proxy in front
could read otherwise (request smuggling) are refused with status 400. These have a second length, a
Transfer-Encoding, folded lines or bare line ends.
"""

import asyncio
import re
import ssl
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64  # at a time. A browser opens six
# timeout for a whole TLS handshake, and for a whole request without a long body
MAX_READING_SECONDS = 10.0
MIN_READ_BYTES = 65536  # in MAX_READING_SECONDS, by which a long body gets as much time again
MAX_CLOSING_SECONDS = 3.0  # timeout for a client's answer to the end of TLS
MAX_HEAD_BYTES = 65536  # of a request's line and headers
MAX_WAITING_CLIENTS = 128  # backlog of the socket

END_OF_HEAD = re.compile(rb"\n\r?\n")
# Other servers read an underscore in these names as a hyphen.
LENGTH_LINE = re.compile(rb"content[-_]length[ \t]*:(.*)", re.IGNORECASE)
TRANSFER_ENCODING_LINE = re.compile(rb"transfer[-_]encoding[ \t]*:", re.IGNORECASE)
ONE_LENGTH = re.compile(rb"[ \t]*[0-9]+[ \t]*")


def check_framing(head: bytes) -> None:
    """Raise h11.RemoteProtocolError for a request with ambiguous framing (request smuggling).

    head: the request's line and headers, without the empty line that ends them.
    """
    lines = head.split(b"\r\n")
    lengths = []
    for line in lines:
        if b"\r" in line or b"\n" in line:
            raise h11.RemoteProtocolError("a bare line end")
        if line.startswith((b" ", b"\t")):
            raise h11.RemoteProtocolError("a folded line")
        if TRANSFER_ENCODING_LINE.match(line):
            raise h11.RemoteProtocolError("a Transfer-Encoding; state a Content-Length")
        length = LENGTH_LINE.match(line)
        if length is not None:
            lengths.append(length[1])
    if len(lengths) > 1:
        raise h11.RemoteProtocolError("several lengths")
    if lengths and not ONE_LENGTH.fullmatch(lengths[0]):
        raise h11.RemoteProtocolError("a length that is not a number")


class StrictConnection(h11.Connection):
    """The server side of an HTTP connection that refuses requests with ambiguous framing."""

    def next_event(self) -> Any:
        """Return the next event, as h11 does. Raises h11.RemoteProtocolError for a request that is
        refused."""
        is_idle = self.their_state is h11.IDLE
        received = self.trailing_data[0] if is_idle else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            # h11 merges equal lengths, so they are counted in what came.
            check_framing(END_OF_HEAD.split(received, 1)[0].removesuffix(b"\r"))
        return event


class LimitedProtocol(H11Protocol):
    """HTTP protocol of one connection to a server with limits.

    A connection that does not complete its handshake or request in time is closed. If there are too
    many connections, the oldest idle one is closed.

    Attributes:
        max_connections: maximal number of connections to the server, None: MAX_CONNECTIONS.
        tls: TLS context for https, None for http.
    """

    max_connections: int | None = None
    tls: ssl.SSLContext | None = None
    _timeout: asyncio.TimerHandle | None = None
    _read_bytes = 0  # since the timeout began
    _handshake: "asyncio.Task[None] | None" = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        # bytes received before HTTP began. None: HTTP has begun
        self._early_data: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, and start the timeout of its handshake or request."""
        assert isinstance(transport, asyncio.Transport)  # as the event loop gives it
        self.transport = transport
        self.connections.add(self)
        self._start_time = self.loop.time()
        self._update_timeout()
        self._close_excess_connection()
        if self not in self.connections:  # closed, since all others are busy
            return
        if self.tls is None:
            self._begin_http(transport)
        else:
            self._handshake = self.loop.create_task(self._start_tls(transport, self.tls))

    async def _start_tls(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Do the TLS handshake, then begin HTTP. A client without TLS is disconnected."""
        try:
            encrypted = await self.loop.start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=MAX_READING_SECONDS,
                ssl_shutdown_timeout=MAX_CLOSING_SECONDS,
            )
        except OSError:  # of TLS, of the line, or out of time
            encrypted = None
        if encrypted is None or encrypted.is_closing() or self not in self.connections:
            self.connections.discard(self)
            self._cancel_timeout()
            transport.abort()
            return
        self._begin_http(encrypted)

    def _begin_http(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        early_data = self._early_data
        self._early_data = None
        if early_data:
            self.data_received(early_data)

    def _close_excess_connection(self) -> None:
        if len(self.connections) > (self.max_connections or MAX_CONNECTIONS):
            connections = [
                other for other in self.connections if isinstance(other, LimitedProtocol)
            ]
            oldest = min(connections, key=lambda other: (other._is_busy(), other._start_time))
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, or hold them until the TLS handshake is complete."""
        self._read_bytes += len(data)
        if self._early_data is None:
            super().data_received(data)
        else:
            self._early_data += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        super().connection_lost(exc)
        self._cancel_timeout()

    def handle_events(self) -> None:
        """Process received bytes, and start or cancel the timeout of a request."""
        super().handle_events()
        self._update_timeout()

    def _update_timeout(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel_timeout()
        elif self._timeout is None:
            self._timeout = self.loop.call_later(MAX_READING_SECONDS, self._end_slow_request)
            self._read_bytes = 0

    def _end_slow_request(self) -> None:
        if self._read_bytes < MIN_READ_BYTES:
            self.transport.abort()
        self._cancel_timeout()
        self._update_timeout()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _is_busy(self) -> bool:
        is_idle = self.cycle is None or self.cycle.response_complete
        return not (is_idle or self.flow.write_paused)
