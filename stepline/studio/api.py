"""The operations of the API on the library as a whole, and the routes of all operations."""

import logging
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from stepline.errors import StoreError
from stepline.library.card_filter import matching_record_files
from stepline.library.corrected_library import video_id
from stepline.library.search import Moment
from stepline.pages.web.local_server import TemporaryFileResponse
from stepline.records import FrozenModel
from stepline.studio import job_api, video_api
from stepline.studio.live import LiveRun, find_live_log, follow_log, list_live_logs
from stepline.studio.operations import Api, JsonBody, api_router, in_video_thread, reply_docs
from stepline.studio.sharing import write_share_file
from stepline.studio.video_api import CardLabels

log = logging.getLogger(__name__)

MAX_MOMENTS = 100  # of a search
MAX_QUERY_CHARS = 500

router = api_router()


class LibraryReply(FrozenModel):
    """The library that is served.

    Attributes:
        id: the library's id.
    """

    id: str


class ShareBody(FrozenModel):
    """Request body that asks for a file with the pages of videos.

    Attributes:
        ids: the ids of the videos.
        videos: whether the file also contains the video files.
    """

    ids: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    videos: bool = False


@dataclass(frozen=True, kw_only=True)
class FoundMoment(Moment):
    """A moment of the library that answers a query.

    Attributes:
        id: id of the video in the library.
        picture: URL path of the picture at its first second, None without a second.
    """

    id: str
    picture: str | None


class MomentsReply(FrozenModel):
    """The answers of a search, the best first."""

    moments: tuple[FoundMoment, ...]


class LiveRunsReply(FrozenModel):
    """The live runs of a library, the newest first."""

    runs: tuple[LiveRun, ...]


class HealthReply(FrozenModel):
    """The reply of a studio that can work.

    Attributes:
        status: "ok".
    """

    status: str


@router.get("/api/library")
def get_library_id(api: Api) -> LibraryReply:
    """The library's id."""
    return LibraryReply(id=api.studio.database.identity)


@router.get("/api/search")
async def search_moments(
    api: Api,
    labels: CardLabels,
    q: Annotated[str, Query(max_length=MAX_QUERY_CHARS, description="what is done")] = "",
    most: Annotated[int, Query(ge=1, le=MAX_MOMENTS, description="answers")] = 10,
) -> MomentsReply:
    """The moments that answer a query."""
    # Labels are matched in the library first. The search then looks only at those videos.
    names = await run_in_threadpool(matching_record_files, api.studio.library, labels)
    return MomentsReply(moments=tuple(map(_found_moment, await api.search.search(q, most, names))))


@router.post("/api/share", response_class=Response, responses=reply_docs(404, media_type="*/*"))
@in_video_thread
def share_videos(api: Api, body: JsonBody[ShareBody]) -> Response:
    """A file with the pages of videos, which need no server: one page, or a zip of several."""
    library = api.studio.library
    ids = [library.video(id).id for id in body.ids]
    return TemporaryFileResponse(write_share_file(library, ids, with_videos=body.videos))


@router.get("/api/live")
def list_live_runs(api: Api) -> LiveRunsReply:
    """The live runs whose logs are in the library."""
    return LiveRunsReply(runs=tuple(list_live_logs(api.studio.library.folder)))


@router.get(
    "/api/live/{name}/events",
    response_class=Response,
    responses=reply_docs(404, media_type="text/event-stream"),
)
async def stream_live_events(name: str, request: Request, api: Api) -> Response:
    """The events of a live run, from the first on, as server-sent events."""
    path = await run_in_threadpool(find_live_log, api.studio.library.folder, name)
    return api.streams.response(request.state.user, partial(follow_log, path))


@router.get(
    "/api/events", response_class=Response, responses=reply_docs(media_type="text/event-stream")
)
async def stream_events(request: Request, api: Api) -> Response:
    """What happens from now on, as server-sent events."""
    return api.streams.response(request.state.user, api.broadcast.listen)


@router.get("/health")
def check_health(api: Api) -> HealthReply:
    """Whether the studio can work: 503 if its database cannot be read. It needs no token."""
    try:
        api.studio.database.row("SELECT 1 FROM library")
    except StoreError as error:
        # Anyone may ask, so the reason is only logged.
        log.warning("health: %s", error)
        raise HTTPException(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the library's database cannot be read; the studio's log says why",
        ) from error
    return HealthReply(status="ok")


def api_routes() -> list[BaseRoute]:
    """Return the routes of all operations."""
    return [*router.routes, *video_api.router.routes, *job_api.router.routes]


def _found_moment(moment: Moment) -> FoundMoment:
    id = video_id(moment.file)
    link = f"/video/{id}"
    picture = None
    # The link opens the video at the moment, and the picture is of its first second.
    if moment.start is not None:
        picture = f"/api/videos/{id}/pictures/{moment.start:.1f}.jpg"
        link += f"#t={moment.start:g}"
    return FoundMoment(**asdict(moment) | {"id": id, "picture": picture, "link": link})
