"""A web application for this machine only, unless its caller allows others.

Only requests with localhost as their host are answered (against DNS rebinding). Requests from pages
of other sites are refused. A request that sends something must carry a header that no form of
another site can send (against CSRF).
"""

import asyncio
import re
import shutil
import socket
import sqlite3
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from stepline.errors import NotFoundError, SettingsError, SteplineError
from stepline.pages.layout import base_style, content_security_policy, page_html
from stepline.pages.web.connections import MAX_WAITING_CLIENTS, LimitedProtocol

Model = TypeVar("Model", bound=BaseModel)

# of a route, for a request that does not fit what it asks for
INVALID_REQUEST_ERRORS = (ValueError, LookupError, TypeError, OverflowError)
LOCAL_HOST = "127.0.0.1"
# The Host header of a request to this machine.
THIS_MACHINE = re.compile(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII)
MAX_BODY_BYTES = 4096  # of a request
MAX_LENGTH_DIGITS = 18  # digits of a number of bytes. No file needs more
MAX_STOPPING_SECONDS = 3  # timeout of open requests once the server stops
ASSET_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
# Template of the page that a browser shows for an error.
ERROR_PAGE = """{% extends "layout.html" %}
{% block title %}{{ status }} - Stepline{% endblock %}
{% block body %}
<header class="top"><h1>{{ reason }}</h1></header>
<main><p><a href="/">All videos</a></p></main>
{% endblock %}
"""


def is_this_machine(host: str) -> bool:
    """Return whether the Host header of a request (name and port) names this machine."""
    return THIS_MACHINE.fullmatch(host) is not None


@dataclass(frozen=True)
class RequestGuards:
    """Checks of every request to an application, and security headers of every response.

    Attributes:
        token: value that the header X-Stepline must have in requests except GET and HEAD.
        policy: Content-Security-Policy of the responses that set none.
        is_own_host: returns whether a Host header names this server.
        max_bytes: returns the maximal bytes of a request's body.
        refuse: returns the response to a user without access, None for a user with access.
        sets_header: whether the error for a missing header contains the token, which is then not
            secret.
    """

    token: str
    policy: str
    is_own_host: Callable[[str], bool] = is_this_machine
    max_bytes: Callable[[Request], int] = lambda _: MAX_BODY_BYTES
    refuse: Callable[[Request], Response | None] = lambda _: None
    sets_header: bool = False

    async def guard(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Return the route's response, or a refusal, with security headers."""
        response = self._refusal(request)
        if response is None:
            response = await call_next(request)
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            size = response.headers["Content-Range"].partition("/")[2]
            response = error_response(
                request, response.status_code, f"no byte of this range; the file has {size}"
            )
            response.headers["Content-Range"] = f"bytes */{size}"
        headers = response.headers
        own_policy = headers.get("Content-Security-Policy", self.policy)
        headers["Content-Security-Policy"] = f"{own_policy}; frame-ancestors 'none'"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Referrer-Policy"] = "no-referrer"
        headers["X-Content-Type-Options"] = "nosniff"
        headers.setdefault("Cache-Control", "no-store")
        return response

    def _refusal(self, request: Request) -> Response | None:
        # In a DNS rebinding attack, the Host header is the name of another site.
        if not self.is_own_host(request.headers.get("Host", "")):
            return error_response(
                request, HTTPStatus.FORBIDDEN, f"ask for {LOCAL_HOST} by that name"
            )
        if _is_cross_site(request):
            return error_response(
                request, HTTPStatus.FORBIDDEN, "only the page of this server may ask"
            )
        # Who may not ask learns so, whatever else is wrong with the request.
        response = self.refuse(request)
        if response is not None:
            return response
        reason = self._body_error(request)
        return None if reason is None else error_response(request, HTTPStatus.BAD_REQUEST, reason)

    def _body_error(self, request: Request) -> str | None:
        """Return why the token or the body of a request is refused, None if it is accepted."""
        headers = request.headers
        # The protocol has refused bodies without a length, and lengths that are not numbers.
        length = int(headers.get("Content-Length", "0"))
        if request.method in ("GET", "HEAD"):  # they need no token
            return "a GET has no body" if length else None
        if headers.get("X-Stepline") != self.token and not self._has_bearer(headers):
            if not self.sets_header:
                return "not an answer of this page"
            return f"a request that sends something needs the header `X-Stepline: {self.token}`"
        limit = self.max_bytes(request)
        if length > limit:
            return f"a body of {length} bytes is too long; the limit here is {limit}"
        return None

    def _has_bearer(self, headers: Headers) -> bool:
        """Return whether a program sends a key, which `refuse` has checked.

        No page of another site can make a browser send this header.
        """
        return self.sets_header and headers.get("Authorization", "").startswith("Bearer ")


def application_options(routes: Sequence[BaseRoute], guards: RequestGuards) -> dict[str, Any]:
    """Return the options of a Starlette application with these routes behind the guards.

    A SteplineError of a route becomes a response with its message: 400 for a SettingsError, as the
    request asked for something unknown, 503 for an error of the database, which may pass, else 409.
    So does a NotFoundError (404). Any of INVALID_REQUEST_ERRORS becomes a response that says that
    the request is invalid (400).
    """
    return {
        "routes": routes,
        "middleware": [Middleware(BaseHTTPMiddleware, dispatch=guards.guard)],
        "exception_handlers": {
            **dict.fromkeys((SteplineError, *INVALID_REQUEST_ERRORS, Exception), _failure_response),
            HTTPException: _http_error_response,
        },
    }


async def _failure_response(request: Request, error: Exception) -> Response:
    reason = str(error)
    if isinstance(error, NotFoundError):
        status = HTTPStatus.NOT_FOUND
    elif isinstance(error, SettingsError):
        status = HTTPStatus.BAD_REQUEST
    elif isinstance(error.__cause__, sqlite3.Error):
        # A full or locked disk, for example: the same request may succeed later.
        status = HTTPStatus.SERVICE_UNAVAILABLE
    elif isinstance(error, SteplineError):
        status = HTTPStatus.CONFLICT
    elif isinstance(error, INVALID_REQUEST_ERRORS):
        status = HTTPStatus.BAD_REQUEST
        reason = "that request makes no sense here; load the page again"
    else:
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        reason = f"a fault of Stepline itself ({type(error).__name__}); its log has the trace"
    return error_response(request, status, reason)


async def _http_error_response(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return error_response(request, HTTPStatus.NOT_FOUND, "no such page")
    reason = error.detail
    if reason == HTTPStatus(error.status_code).phrase:
        reason = "no such page"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            reason = f"{request.method} is not a method of this address"
    response = error_response(request, error.status_code, reason)
    response.headers.update(error.headers or {})
    return response


def error_response(request: Request, status: int, reason: str) -> Response:
    """Return the response of an error: a page where a browser opens an address, else JSON.

    reason: the message.
    """
    if request.headers.get("Sec-Fetch-Dest") != "document":
        return JSONResponse({"error": reason}, status)
    page = page_html(ERROR_PAGE, style="", footer="", status=int(status), reason=reason)
    # the server's own policy allows no style inside a page
    return HTMLResponse(
        page, status, {"Content-Security-Policy": content_security_policy(base_style())}
    )


def post_route(path: str, model_type: type[Model], handle: Callable[[Model], None]) -> Route:
    """Return a POST route whose response is an empty JSON object.

    Args:
        path: path of the route.
        model_type: pydantic class of the request's body.
        handle: called with the parsed body.
    """

    async def endpoint(request: Request) -> Response:
        body = await request.body()
        await run_in_threadpool(lambda: handle(model_type.model_validate_json(body)))
        return JSONResponse({})

    return Route(path, endpoint, methods=["POST"])


def asset_response(file: Traversable) -> Response:
    """Return a file of the package, with the media type of its suffix."""
    return Response(file.read_bytes(), media_type=ASSET_TYPES[PurePath(file.name).suffix])


def _is_cross_site(request: Request) -> bool:
    """Return whether another site's page sent a request, except by a link that a person followed."""
    headers = request.headers
    own_origin = f"{request.scope['scheme']}://{headers['Host']}"
    if headers.get("Origin", own_origin) != own_origin:
        return True
    # Browsers say where a request comes from, other clients do not.
    if headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        return False
    # A link that a person followed may open a page.
    is_link = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == (
        "navigate",
        "document",
    )
    return not (is_link and request.method == "GET")


ONE_RANGE = re.compile(rb"bytes=(\d+-\d*|-\d+)")
LONG_NUMBER = re.compile(rb"\d{19,}")  # more than any file has bytes


def file_response(request: Request, path: Path, media_type: str) -> Response:
    """Return a file, or a part of it if the request has a Range header with one range of bytes.

    A range beyond the file gives status 416. Several ranges, reversed ranges and other units are
    ignored, and the whole file is sent, as RFC 9110, section 14.2 allows.
    """
    # A range that is not understood is dropped, so that the whole file is sent.
    headers = []
    for name, value in request.scope["headers"]:
        if name == b"range":
            if not ONE_RANGE.fullmatch(value):
                continue
            value = LONG_NUMBER.sub(b"9" * MAX_LENGTH_DIGITS, value)
            first, _, last = value.removeprefix(b"bytes=").partition(b"-")
            if first and last and int(first) > int(last):
                continue
        headers.append((name, value))
    request.scope["headers"] = headers
    return FileResponse(path, media_type=media_type)


class TemporaryFileResponse(FileResponse):
    """A file in a temporary folder of its own, as a download. The folder is removed afterwards."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, filename=path.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole file, whatever range of bytes the request names."""
        headers = [pair for pair in scope["headers"] if pair[0] not in (b"range", b"if-range")]
        try:
            await super().__call__({**scope, "headers": headers}, receive, send)
        finally:
            shutil.rmtree(Path(self.path).parent, ignore_errors=True)


@dataclass(frozen=True)
class Certificate:
    """Files of a TLS certificate.

    Attributes:
        certfile: PEM of the certificate chain, the server's own certificate first.
        keyfile: PEM of its private key, None where certfile holds it.

    Raises SettingsError where a file is not PEM, or the key does not fit.
    """

    certfile: Path
    keyfile: Path | None = None

    def __post_init__(self) -> None:
        self.tls_context()

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
            context.load_cert_chain(self.certfile, self.keyfile, password="")
        except OSError as error:  # SSLError too
            raise SettingsError(
                f"{self.certfile}, {self.keyfile or 'its own key'}: {error}; give --certfile a "
                "PEM of the certificate, and --keyfile its key, without a password"
            ) from error
        return context


class _ClosingServer(uvicorn.Server):
    """A server that closes all connections as it stops, also those whose client reads no further."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop. sockets: those on which it listens."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # an aborted connection is closed in the next turn of the loop


class LocalServer:
    """A server of an application on a port of this machine."""

    def __init__(
        self,
        application: Starlette,
        port: int = 0,
        *,
        host: str = LOCAL_HOST,
        max_connections: int | None = None,
        certificate: Certificate | None = None,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        """Open the port.

        Args:
            application: the application to serve.
            port: number of the port, 0 for any free port.
            host: network address on which to listen.
            max_connections: maximal number of simultaneous connections, None: MAX_CONNECTIONS.
            certificate: TLS certificate for https, None for http.
            lifespan: "on" to run the application's startup and shutdown functions.

        Raises OSError if the port is in use.
        """
        is_ipv6 = ":" in host
        family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        scheme = "http" if certificate is None else "https"
        self.address = f"{scheme}://{f'[{host}]' if is_ipv6 else host}:{self.port}/"
        tls = None if certificate is None else certificate.tls_context()
        # TLS is the protocol's own, so that a connection counts before its handshake.
        limits = {"max_connections": max_connections, "tls": tls}
        config = uvicorn.Config(
            application,
            http=type("Protocol", (LimitedProtocol,), limits),
            ws="none",
            loop="asyncio",
            lifespan=lifespan,
            log_config=None,
            access_log=False,  # its lines would hold the token of the address that is opened
            backlog=MAX_WAITING_CLIENTS,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=MAX_STOPPING_SECONDS,
        )
        self._server = _ClosingServer(config)

    def run(self) -> None:
        """Serve until `stop` is called. Ctrl-C raises KeyboardInterrupt after open requests."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `run` return."""
        self._server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """Whether `run` is about to return, so that streaming responses must end."""
        return self._server.should_exit


def serve_page(routes: Sequence[BaseRoute], port: int, *, token: str, policy: str) -> LocalServer:
    """Return a server of one page on this machine.

    Args:
        routes: routes of the page.
        port: number of the port, 0 for any free port.
        token: value that the header X-Stepline must have in requests except GET and HEAD.
        policy: Content-Security-Policy of the page.
    """
    guards = RequestGuards(token, policy)
    return LocalServer(Starlette(**application_options(routes, guards)), port)
