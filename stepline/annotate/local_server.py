"""A web application that is served to this machine alone.

Only requests to localhost by name are answered, so no other site's page can reach it by rebinding a name; what another
site's page asks for is refused, and what is sent must carry a header that another site's form cannot send.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from pathlib import Path

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

from stepline.errors import SteplineError

HOST = "127.0.0.1"
LARGEST = 4096  # bytes of what may be sent
CONNECTIONS = 64  # at a time; a browser opens six
READING = 10.0  # s in which a request must come whole
PATIENCE = 3  # s that requests in work have to end once the server stops


def local_application(routes: Sequence[BaseRoute], *, token: str, policy: str) -> Starlette:
    """Return an application that refuses other hosts' names, other sites' pages and what is sent without its token.

    token: what the header X-Stepline of a POST must say. policy: the Content-Security-Policy of every reply, in no
    other page's frame.
    A SteplineError of a route is a reply of its message (409); what makes no sense of a request, as ValueError or
    LookupError, one that says so (400).
    """

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        length = request.headers.get("Content-Length", "")
        if request.headers.get("Host", "").rpartition(":")[0] not in ("localhost", HOST):
            response = _error(HTTPStatus.FORBIDDEN, f"ask for {HOST} by that name")
        elif _is_of_another_site(request):
            response = _error(HTTPStatus.FORBIDDEN, "only the page of this server may ask")
        elif request.method == "POST" and (
            request.headers.get("X-Stepline") != token or not length.isdecimal() or int(length) > LARGEST
        ):
            response = _error(HTTPStatus.BAD_REQUEST, "not an answer of this page")
        else:
            response = await call_next(request)
        response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    async def conflict(_: Request, error: Exception) -> Response:
        return _error(HTTPStatus.CONFLICT, str(error))

    async def senseless(_: Request, __: Exception) -> Response:
        return _error(HTTPStatus.BAD_REQUEST, "that request makes no sense here; load the page again")

    async def unknown(_: Request, error: Exception) -> Response:
        return _error(error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND, "no such page")

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


def _is_of_another_site(request: Request) -> bool:
    """Tell whether a page of another site asks, other than by a link that somebody followed to this one."""
    headers = request.headers
    if headers.get("Origin", f"http://{headers['Host']}") != f"http://{headers['Host']}":
        return True
    followed = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
    own = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
    return not (own or (followed and request.method == "GET"))


ONE_RANGE = re.compile(rb"bytes=(\d+-\d*|-\d+)")
DIGITS = re.compile(rb"\d{19,}")  # more than any file has bytes


def file_response(request: Request, path: Path, media_type: str) -> Response:
    """Return a file, or the one range of it that is asked for: 416 where the file does not have it.

    What is no such range (of several, of another unit, or reversed) is passed over and the whole file given, as
    RFC 9110, section 14.2 allows.
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
    """HTTP over connections of which each must send its requests in time, and of which there are never too many.

    For one too many, the oldest that waits is closed: for a request, or for its client to read.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]   # as the event loop gives it
        self._since = self.loop.time()
        self._limit_reading()
        if len(self.connections) > CONNECTIONS:
            ours = (connection for connection in self.connections if isinstance(connection, LimitedProtocol))
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
        return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused


class LocalServer:
    """An application on a port of this machine, which is taken at once. Raises OSError where it is not free."""

    def __init__(self, application: Starlette, port: int = 0) -> None:
        self._socket = socket.create_server((HOST, port))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"http://{HOST}:{self.port}/"
        config = uvicorn.Config(
            application, http=LimitedProtocol, ws="none", loop="asyncio", lifespan="off", log_config=None,
            server_header=False, timeout_graceful_shutdown=PATIENCE,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop` is called; Ctrl-C raises KeyboardInterrupt, requests in work answered first."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Have `run` return."""
        self._server.should_exit = True
