"""Connections of a local server: limited in number and in time, by TLS too, with requests that
every server reads the same way.

A request states the bytes of its body by one Content-Length. Whatever would let a proxy in front
see another request than this server is refused with 400, on every path. That is a second length,
any Transfer-Encoding, folded lines, bare line ends.
"""

import asyncio
import re
import ssl
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64  # at a time. A browser opens six
# in which a TLS handshake and a request must have come whole
MAX_READING_SECONDS = 10.0
MAX_CLOSING_SECONDS = 3.0  # in which a client must answer the end of TLS
MAX_HEAD_BYTES = 65536  # of a request's line and headers
MAX_WAITING_CLIENTS = 128  # that the system queues, and that are taken in together

END_OF_HEAD = re.compile(rb"\n\r?\n")
# As a header that frames the body may be spelled: others read an underscore as a hyphen.
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
    """A server's side of HTTP that takes no request with two framings."""

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
    """HTTP over a limited number of connections. Each must send its requests in time.

    When there is one too many, the oldest one that waits is closed. It may wait for its TLS
    handshake, for a request, or for its client to read.
    """

    most: int | None = None  # connections; None: MAX_CONNECTIONS
    tls: ssl.SSLContext | None = None  # for https
    _deadline: asyncio.TimerHandle | None = None
    _handshake: "asyncio.Task[None] | None" = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        # what came behind a handshake before HTTP began. None: HTTP has begun
        self._early: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and begin to wait for a handshake or a request."""
        assert isinstance(transport, asyncio.Transport)  # as the event loop gives it
        self.transport = transport
        self.connections.add(self)
        self._since = self.loop.time()
        self._limit_reading()
        self._close_excess_client()
        if self not in self.connections:  # all others are busy
            return
        if self.tls is None:
            self._begin_http(transport)
        else:
            self._handshake = self.loop.create_task(self._shake_hands(transport, self.tls))

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Start HTTP over TLS. A client that does not speak TLS is disconnected."""
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
            self._end_limit()
            transport.abort()
            return
        self._begin_http(encrypted)

    def _begin_http(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        early = self._early
        self._early = None
        if early:
            self.data_received(early)

    def _close_excess_client(self) -> None:
        most = MAX_CONNECTIONS if self.most is None else self.most
        if len(self.connections) > most:
            own_connections = [
                other for other in self.connections if isinstance(other, LimitedProtocol)
            ]
            # One that is not busy, and of these the oldest.
            oldest = min(own_connections, key=lambda other: (other._is_busy(), other._since))
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, or hold them until the TLS handshake is complete."""
        if self._early is None:
            super().data_received(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._end_limit()

    def handle_events(self) -> None:
        """Process received bytes, and check whether a request is still incomplete."""
        super().handle_events()
        self._limit_reading()

    def _limit_reading(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_limit()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(MAX_READING_SECONDS, self.transport.abort)

    def _end_limit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_busy(self) -> bool:
        if self.cycle is None or self.cycle.response_complete:
            return False
        return not self.flow.write_paused
