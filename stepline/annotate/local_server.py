"""A web application that is served to this machine alone.

Only requests to localhost by name are answered, so no other site's page can reach it by rebinding a name, and what is
sent must carry a header that another site's form cannot send.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from stepline.errors import SteplineError

HOST = "127.0.0.1"
LARGEST = 4096  # bytes of what may be sent
CONNECTIONS = 64  # at a time; a browser opens six
PATIENCE = 3  # s that requests in work have to end once the server stops


def local_application(routes: Sequence[BaseRoute], *, token: str, policy: str) -> Starlette:
    """Return an application that refuses other hosts' names and what is sent without its token.

    token: what the header X-Stepline of a POST must say. policy: the Content-Security-Policy of every reply.
    A SteplineError of a route is a reply of its message (409); what makes no sense of a request, as ValueError or
    LookupError, one that says so (400).
    """

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        length = request.headers.get("Content-Length", "")
        if request.headers.get("Host", "").rpartition(":")[0] not in ("localhost", HOST):
            response = _error(HTTPStatus.FORBIDDEN, f"ask for {HOST} by that name")
        elif request.method == "POST" and (
            request.headers.get("X-Stepline") != token or not length.isdecimal() or int(length) > LARGEST
        ):
            response = _error(HTTPStatus.BAD_REQUEST, "not an answer of this page")
        else:
            response = await call_next(request)
        response.headers["Content-Security-Policy"] = policy
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


def _error(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)


class LocalServer:
    """An application on a port of this machine, which is taken at once. Raises OSError where it is not free."""

    def __init__(self, application: Starlette, port: int = 0) -> None:
        self._socket = socket.create_server((HOST, port))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"http://{HOST}:{self.port}/"
        config = uvicorn.Config(
            application, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None, server_header=False,
            limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=PATIENCE,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop` is called; Ctrl-C raises KeyboardInterrupt, requests in work answered first."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Have `run` return."""
        self._server.should_exit = True
