"""A web application that is served to this machine alone, unless it is told otherwise.

Only requests to localhost by name are answered, so no other site's page can reach it by rebinding a
name; what another site's page asks for is refused, and what is sent must carry a header that
another site's form cannot send.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepline.errors import SettingsError, SteplineError

HOST = "127.0.0.1"
# as the Host of a request says it
THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII)
LARGEST = 4096  # bytes of what may be sent
CONNECTIONS = 64  # at a time; a browser opens six
READING = 10.0  # s in which a request must come whole
PATIENCE = 3  # s that requests in work have to end once the server stops


def is_this_machine(host: str) -> bool:
    """Tell whether what a request says it asks, name and port, is this machine."""
    return THIS_MACHINE.fullmatch(host) is not None


def local_application(
    routes: Sequence[BaseRoute],
    *,
    token: str,
    policy: str,
    answers_to: Callable[[str], bool] = is_this_machine,
    largest: Callable[[Request], int] = lambda _: LARGEST,
    refuse: Callable[[Request], Response | None] = lambda _: None,
) -> Starlette:
    """Return an application that refuses other hosts' names, other sites' pages and what is sent
    without its token.

    token: what the header X-Stepline must say of what sends something. policy: the
    Content-Security-Policy of every reply that has none of its own, in no other page's frame.
    answers_to: the hosts as which it may be asked. largest: bytes that a request may send. refuse:
    a reply instead of the route's, to who may not ask. A SteplineError of a route is a reply of its
    message (409); what makes no sense of a request, as ValueError or LookupError, one that says so
    (400).
    """

    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response: Response | None
        if not answers_to(request.headers.get("Host", "")):
            response = _error(HTTPStatus.FORBIDDEN, f"ask for {HOST} by that name")
        elif _is_of_another_site(request):
            response = _error(HTTPStatus.FORBIDDEN, "only the page of this server may ask")
        elif request.method not in ("GET", "HEAD") and (
            request.headers.get("X-Stepline") != token or not is_length(request, largest(request))
        ):
            response = _error(HTTPStatus.BAD_REQUEST, "not an answer of this page")
        elif (response := refuse(request)) is None:
            response = await call_next(request)
        own = response.headers.get("Content-Security-Policy", policy)
        response.headers["Content-Security-Policy"] = f"{own}; frame-ancestors 'none'"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def conflict(_: Request, error: Exception) -> Response:
        return _error(HTTPStatus.CONFLICT, str(error))

    async def senseless(_: Request, __: Exception) -> Response:
        return _error(
            HTTPStatus.BAD_REQUEST, "that request makes no sense here; load the page again"
        )

    async def unknown(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return _error(HTTPStatus.NOT_FOUND, "no such page")
        told = (
            error.detail if error.detail != HTTPStatus(error.status_code).phrase else "no such page"
        )
        return JSONResponse({"error": told}, error.status_code, error.headers)

    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={
            **dict.fromkeys((ValueError, LookupError, TypeError), senseless),
            SteplineError: conflict,
            HTTPException: unknown,
        },
    )


def post(path: str, take: Callable[[bytes], None]) -> Route:
    """Return the route that gives a POST's body to `take`, and then an empty reply."""

    async def endpoint(request: Request) -> Response:
        await run_in_threadpool(take, await request.body())
        return JSONResponse({})

    return Route(path, endpoint, methods=["POST"])


def is_length(request: Request, largest: int) -> bool:
    """Tell whether a request says how many bytes it sends, and that they are not too many."""
    length = request.headers.get("Content-Length", "")
    return length.isascii() and length.isdecimal() and len(length) < 19 and int(length) <= largest


def _is_of_another_site(request: Request) -> bool:
    """Tell whether a page of another site asks, other than by a link that somebody followed to this
    one."""
    headers = request.headers
    own_origin = f"{request.scope['scheme']}://{headers['Host']}"
    if headers.get("Origin", own_origin) != own_origin:
        return True
    followed = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == (
        "navigate",
        "document",
    )
    own = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
    return not (own or (followed and request.method == "GET"))


ONE_RANGE = re.compile(rb"bytes=(\d+-\d*|-\d+)")
DIGITS = re.compile(rb"\d{19,}")  # more than any file has bytes


def file_response(request: Request, path: Path, media_type: str) -> Response:
    """Return a file, or the one range of it that is asked for: 416 where the file does not have it.

    What is no such range (of several, of another unit, or reversed) is passed over and the whole
    file given, as RFC 9110, section 14.2 allows.
    """
    headers = []
    for name, value in request.scope["headers"]:
        if name == b"range":
            if not ONE_RANGE.fullmatch(value):
                continue
            value = DIGITS.sub(b"9" * 18, value)
            first, _, last = value.removeprefix(b"bytes=").partition(b"-")
            if first and last and int(first) > int(last):
                continue
        headers.append((name, value))
    request.scope["headers"] = headers
    return FileResponse(path, media_type=media_type)


def _error(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)


class LimitedProtocol(H11Protocol):
    """HTTP over connections of which each must send its requests in time, and of which there are
    never too many.

    For one too many, the oldest that waits is closed: for a request, or for its client to read.
    """

    most: int | None = None  # connections; None: CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]   # as the event loop gives it
        self._since = self.loop.time()
        self._limit_reading()
        if len(self.connections) > (CONNECTIONS if self.most is None else self.most):
            ours = (
                connection
                for connection in self.connections
                if isinstance(connection, LimitedProtocol)
            )
            given_up = min(ours, key=lambda connection: (connection._is_busy(), connection._since))
            self.connections.discard(given_up)
            given_up.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._end_limit()

    def handle_events(self) -> None:
        """Take in what came, and note whether a request is still on its way."""
        super().handle_events()
        self._limit_reading()

    def _limit_reading(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_limit()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(READING, self.transport.abort)

    def _end_limit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_busy(self) -> bool:
        return (
            self.cycle is not None
            and not self.cycle.response_complete
            and not self.flow.write_paused
        )


@dataclass(frozen=True)
class Certificate:
    """What https needs: the certificates as PEM, the server's own first, and its key; None where
    both are in one file.

    Raises SettingsError where they are not that, or do not fit.
    """

    certfile: Path
    keyfile: Path | None = None

    def __post_init__(self) -> None:
        try:
            # A key that is encrypted would be asked for at the terminal, at each start.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                self.certfile, self.keyfile, password=""
            )
        except OSError as error:  # SSLError too
            told = "give --certfile a PEM of the certificate, and --keyfile its key, without a password"
            raise SettingsError(
                f"{self.certfile}, {self.keyfile or 'its own key'}: {error}; {told}"
            ) from error


class LocalServer:
    """An application on a port of this machine, which is taken at once. Raises OSError where it is
    not free.

    lifespan: whether the application begins and ends something of its own with the server. host: an
    address of this machine that others reach too. connections: that it has at a time. certificate:
    for https, None for http.
    """

    def __init__(
        self,
        application: Starlette,
        port: int = 0,
        *,
        host: str = HOST,
        connections: int | None = None,
        certificate: Certificate | None = None,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        self._socket = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        self.port: int = self._socket.getsockname()[1]
        self.address = f"http{'s' * (certificate is not None)}://{f'[{host}]' if ':' in host else host}:{self.port}/"
        protocol = type("Protocol", (LimitedProtocol,), {"most": connections})
        config = uvicorn.Config(
            application,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan=lifespan,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=PATIENCE,
            ssl_certfile=certificate.certfile if certificate is not None else None,
            ssl_keyfile=certificate.keyfile if certificate is not None else None,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop` is called; Ctrl-C raises KeyboardInterrupt, requests in work answered
        first."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Have `run` return."""
        self._server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """Whether `run` is about to return, so that replies without an end must end."""
        return self._server.should_exit
