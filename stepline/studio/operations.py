"""What the operations of the studio's API share: context, route, errors, bodies, pages and threads.

An operation is a function below the decorator of its module's router, which names its path. FastAPI
checks requests by the types of its parameters, and describes it as OpenAPI.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Body, Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stepline.errors import format_error_line
from stepline.library.file_digests import FileDigests
from stepline.records import FrozenModel
from stepline.storage import record_schema
from stepline.studio.access import HEADER_VALUE
from stepline.studio.events import Broadcast, EventStreams
from stepline.studio.jobs import JobRunner
from stepline.studio.keys import needed_role
from stepline.studio.search import LibrarySearch
from stepline.studio.store import Studio
from stepline.studio.uploads import Uploads
from stepline.version import __version__

Model = TypeVar("Model")
Result = TypeVar("Result")
P = ParamSpec("P")
Schema = dict[str, Any]
Responses = dict[int | str, Schema]

# The threads of requests that read videos: all other requests have threads of their own.
VIDEO_THREADS = CapacityLimiter(8)
BYTES_SCHEMA = {"type": "string", "format": "binary"}
MAX_PAGE_ITEMS = 1000  # of a list, in one reply


class ErrorReply(FrozenModel):
    """The reply of every request that is refused or fails.

    Attributes:
        error: what is wrong and what helps, in one line.
    """

    error: str


@dataclass(eq=False)
class StudioApi:
    """What the operations work on.

    Attributes:
        studio: the library with its jobs and uploads.
        broadcast: sends events to all open event streams.
        jobs: runs the jobs.
        uploads: the unfinished uploads.
        search: searches the library.
        digests: the sha256 of video files, by which they are compared with their records.
        streams: the open event streams.
    """

    studio: Studio
    broadcast: Broadcast
    jobs: JobRunner
    uploads: Uploads
    search: LibrarySearch
    digests: FileDigests
    streams: EventStreams


async def _studio_api(request: Request) -> StudioApi:
    api: StudioApi = request.app.state.api
    return api


Api = Annotated[StudioApi, Depends(_studio_api)]


def _known_video(id: str, api: Api) -> str:
    return api.studio.library.video(id).id


VideoId = Annotated[str, Depends(_known_video)]  # of a video of the library, else 404


async def _requested_page(
    first: Annotated[
        int, Query(alias="from", ge=0, description="items that are left out at the beginning")
    ] = 0,
    most: Annotated[
        int | None, Query(ge=1, le=MAX_PAGE_ITEMS, description="items of the reply; all without it")
    ] = None,
) -> slice:
    return slice(first, None if most is None else first + most)


Page = Annotated[slice, Depends(_requested_page)]  # of a list, that a request asks for


class _JsonBytes:
    """Has pydantic read a body from its bytes: strict models accept JSON, not what Python reads."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.json_schema(handler(kind))

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        content: Schema = handler(schema)["contentSchema"]
        return content


JsonBody = Annotated[Model, _JsonBytes(), Body()]  # a body of JSON, whatever its header


class _BytesRequest(Request):
    """A request of which FastAPI gets the bytes of the body, for `JsonBody`."""

    async def json(self) -> bytes:
        return await self.body()


class ApiRoute(APIRoute):
    """A route with the role that it needs in OpenAPI, and with errors in the API's form.

    As with Starlette, a GET also answers HEAD.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        (self.method,) = options["methods"]
        role = needed_role(self.method, self.path_format)
        self.openapi_extra = {"x-role": role, **(self.openapi_extra or {})}
        if self.method == "GET":
            self.methods = {"GET", "HEAD"}

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the function that answers a request."""
        handle = super().get_route_handler()

        async def handle_bytes(request: Request) -> Response:
            try:
                return await handle(_BytesRequest(request.scope, request.receive))
            except RequestValidationError as error:
                fault = error.errors()[0]
                where = ".".join(map(str, fault["loc"]))
                is_plain = isinstance(fault["input"], str | int | float)
                value = f", not {fault['input']!r}" if is_plain else ""
                message = fault["msg"].removeprefix("Value error, ")
                reason = f"{where}: {message}{value}; /api/docs shows what it takes"
                raise HTTPException(HTTPStatus.BAD_REQUEST, format_error_line(reason)) from error

        return handle_bytes


def reply_docs(*errors: int, media_type: str = "", files: Sequence[int] = (200,)) -> Responses:
    """Return the description of replies for OpenAPI, by status.

    Args:
        errors: statuses of errors.
        media_type: media type of the files that are sent, "" for an operation that sends JSON.
        files: statuses of the files.
    """
    docs: Responses = {status: {"model": ErrorReply} for status in errors}
    if media_type:
        content = {media_type: {"schema": BYTES_SCHEMA}}
        docs |= {status: {"content": content} for status in files}
    return docs


def api_router() -> APIRouter:
    """Return a router for operations that need a token or key."""
    return APIRouter(
        route_class=ApiRoute,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
        # "4XX" also takes the place of the 422 that FastAPI would describe.
        responses={**reply_docs(400, 401, 403, 409, 500, 503), "4XX": {"model": ErrorReply}},
        strict_content_type=False,
        generate_unique_id_function=lambda route: route.name,
    )


def in_video_thread(handler: Callable[P, Result]) -> Callable[P, Awaitable[Result]]:
    """Return a function that reads videos as one that runs in one of the VIDEO_THREADS."""

    @functools.wraps(handler)
    async def run(*arguments: P.args, **options: P.kwargs) -> Result:
        call = functools.partial(handler, *arguments, **options)
        return await to_thread.run_sync(call, limiter=VIDEO_THREADS)

    return run


class StudioApplication(FastAPI):
    """A web application that describes its operations as OpenAPI."""

    def openapi(self) -> Schema:
        """Return the OpenAPI description of the operations."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        described = []
        for route in self.routes:
            if isinstance(route, ApiRoute):
                route = copy(route)
                route.methods = {route.method}
                described.append(route)
        tree = get_openapi(
            title="Stepline studio",
            version=__version__,
            description=f"What a browser sends needs the header X-Stepline: {HEADER_VALUE}.",
            routes=described,
        )
        # A record is JSON already when it is sent: its schema is that of `stepline schema record`.
        record = record_schema("#/components/schemas/{model}")
        tree["components"]["schemas"] |= record.pop("$defs") | {"Record": record}
        self.openapi_schema = tree
        return tree
