"""An operation of the studio's API: its route, and its description as OpenAPI."""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, TypeAlias, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stepline.pages.web.local_server import is_whole_number
from stepline.studio.access import HEADER_VALUE
from stepline.studio.keys import needed_role
from stepline.version import __version__

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
SyncEndpoint: TypeAlias = Callable[[Request], Response]
Endpoint: TypeAlias = Callable[[Request], Response | Awaitable[Response]]

# The threads of requests that read videos: all other requests have threads of their own.
VIDEO_THREADS = CapacityLimiter(8)
# the one form of every error
ERROR_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "what is wrong, in a line"}},
    "required": ["error"],
}
ERROR_RESPONSE: dict[str, JsonValue] = {
    "description": "an error, in a line",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
MAX_PAGE_ITEMS = 1000  # of a list, in one reply
PAGE_PARAMETERS = {
    "from": "items that are left out at the beginning, 0 without it",
    "most": f"items of the reply, 1 to {MAX_PAGE_ITEMS}; all without it",
}


@dataclass(frozen=True)
class Operation:
    """An operation of the HTTP API.

    Attributes:
        method: the HTTP method.
        path: the URL path, with parameters in braces.
        endpoint: function that answers a request.
        summary: one sentence for the OpenAPI description.
        parameters: query parameter -> its meaning.
        body: pydantic model of the request body. None: the request has no JSON body.
        reads_video: whether the operation reads a video file, and so may take long. Then it runs in
            one of the VIDEO_THREADS.
    """

    method: Literal["GET", "POST", "HEAD", "PATCH", "DELETE"]
    path: str
    endpoint: Endpoint
    summary: str
    parameters: dict[str, str] = field(default_factory=dict)
    body: type[BaseModel] | None = None
    reads_video: bool = False

    def route(self) -> Route:
        """Return the route of Starlette."""
        endpoint = self.endpoint
        if self.reads_video:
            endpoint = partial(_in_video_thread, cast(SyncEndpoint, endpoint))
        return Route(self.path, endpoint, methods=[self.method])

    def description(self) -> dict[str, Any]:
        """Return the description as OpenAPI has it."""
        # The parts of the path, then the query.
        parameters: list[dict[str, Any]] = []
        for name in re.findall(r"{(\w+)", self.path):
            parameters.append(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            )
        for name, meaning in self.parameters.items():
            parameters.append(
                {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
            )
        description: dict[str, Any] = {
            "summary": self.summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "done"},
                "4XX": {"$ref": "#/components/responses/Error"},
            },
            "x-role": needed_role(self.method, self.path),
        }
        # What is sent, as the schema of its model.
        if self.body is not None:
            schema = {"$ref": f"#/components/schemas/{self.body.__name__}"}
            content = {"application/json": {"schema": schema}}
            description["requestBody"] = {"required": True, "content": content}
        return description


async def in_video_thread(handler: Callable[..., Result], *arguments: object) -> Result:
    """Call a function that reads videos in one of the VIDEO_THREADS, and return its result."""
    return await to_thread.run_sync(handler, *arguments, limiter=VIDEO_THREADS)


async def _in_video_thread(endpoint: SyncEndpoint, request: Request) -> Response:
    return await in_video_thread(endpoint, request)


def openapi(operations: Sequence[Operation]) -> dict[str, JsonValue]:
    """Return the OpenAPI 3.1 description of operations."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for operation in operations:
        # OpenAPI does not know the converters of Starlette's paths.
        path = operation.path.replace(":int", "")
        paths.setdefault(path, {})[operation.method.lower()] = operation.description()
        if operation.body is not None:
            schema = operation.body.model_json_schema(ref_template="#/components/schemas/{model}")
            # Models inside a model move to the document's schemas, where references lead.
            schemas |= schema.pop("$defs", {})
            schemas[operation.body.__name__] = schema

    # the document around them
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stepline studio",
            "version": __version__,
            "description": f"What is sent needs the header `X-Stepline: {HEADER_VALUE}`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas | {"Error": ERROR_SCHEMA},
            "responses": {"Error": ERROR_RESPONSE},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def requested_page(request: Request) -> slice:
    """Return the slice of a list that a request asks for by `from` and `most`.

    Raises HTTPException (400) for an invalid `from` or `most`.
    """
    first = request.query_params.get("from", "0")
    most = request.query_params.get("most")
    if not is_whole_number(first):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "from is a whole number of items")
    if most is None:
        return slice(int(first), None)
    if not is_whole_number(most) or not 1 <= int(most) <= MAX_PAGE_ITEMS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"most is 1 to {MAX_PAGE_ITEMS}")
    return slice(int(first), int(first) + int(most))


async def parse_body(request: Request, kind: type[Model]) -> Model:
    """Return the body of a request. Raises HTTPException (400) if it does not fit the model."""
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise bad_request_error(error) from error


@contextmanager
def raise_not_found(reason: str) -> Iterator[None]:
    """Turn a LookupError inside this context into an HTTPException (404)."""
    try:
        yield
    except LookupError as error:
        raise HTTPException(HTTPStatus.NOT_FOUND, reason) from error


def bad_request_error(error: ValidationError) -> HTTPException:
    """Return the exception (400) that names the first fault of a body."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, fault["loc"])) or "body"
    return HTTPException(HTTPStatus.BAD_REQUEST, f"{where}: {fault['msg']}")
