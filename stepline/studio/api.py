"""The studio's API: one table of operations, from which the routes and the OpenAPI description are made."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from stepline.errors import StoreError
from stepline.library.card_filter import matching_record_files
from stepline.library.corrected_library import video_id
from stepline.library.search import Moment, SearchIndex, open_index
from stepline.pages.web.local_server import TemporaryFileResponse, is_whole_number
from stepline.records import FrozenModel
from stepline.studio.events import Broadcast
from stepline.studio.job_api import JobApi
from stepline.studio.jobs import JobRunner
from stepline.studio.live import find_live_log, follow_log, list_live_logs
from stepline.studio.operations import (
    Operation,
    in_video_thread,
    openapi,
    parse_body,
    raise_not_found,
)
from stepline.studio.sharing import write_share_file
from stepline.studio.store import Studio
from stepline.studio.video_api import LABEL_PARAMETERS, VideoApi, card_filter, require_video_id

log = logging.getLogger(__name__)

MAX_INDEX_AGE_SECONDS = 2.0  # then the search looks for records that changed
MAX_MOMENTS = 100  # of a search
MAX_QUERY_CHARS = 500
# Open event streams: half of the connections of the server, the rest is for other requests.
MAX_STREAMS = 200


@dataclass(eq=False)
class OpenStream:
    """An open event stream.

    Attributes:
        user: name of the key of the program. Empty for people.
        events: yields the events.
        ended: done if the stream has to end, because there are too many.
    """

    user: str
    events: AsyncIterator[str]
    ended: "asyncio.Future[None]"

    async def next_event(self) -> str | None:
        """Return the next event, None at the end. It does not wait longer once `ended` is done."""
        event = asyncio.ensure_future(anext(self.events, None))
        try:
            await asyncio.wait((event, self.ended), return_when=asyncio.FIRST_COMPLETED)
            return event.result() if event.done() else None
        finally:
            event.cancel()


class ShareBody(FrozenModel):
    """Request body that asks for a file with the pages of videos.

    Attributes:
        ids: the ids of the videos.
        videos: whether the file also contains the video files.
    """

    ids: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    videos: bool = False


class StudioApi:
    """The HTTP operations on the library as a whole: search, sharing and event streams."""

    def __init__(self, studio: Studio, broadcast: Broadcast, jobs: JobRunner) -> None:
        self._studio = studio
        self._broadcast = broadcast
        self._videos = VideoApi(studio, jobs)
        # Whoever follows a video learns that it is gone.
        self._videos.on_removal = lambda id: broadcast.publish("video", {"id": id, "removed": True})
        self._jobs = JobApi(studio, jobs)
        self.is_stopping: Callable[[], bool] = lambda: False  # whether the server ends
        # SQLite's connection belongs to one thread.
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._index: SearchIndex | None = None
        self._streams: list[OpenStream] = []
        self._indexed = -MAX_INDEX_AGE_SECONDS

    def operations(self) -> list[Operation]:
        """Return all operations."""
        # Each row is a method, a path, the function that answers, and what the description says.
        query = {"q": "what is done", "most": f"answers, 1 to {MAX_MOMENTS}"} | LABEL_PARAMETERS
        return [
            Operation("GET", "/api/library", self.get_library_id, "The library's id."),
            *self._videos.operations(),
            *self._jobs.operations(),
            Operation(
                "GET", "/api/search", self.search_moments, "The moments that answer a query.", query
            ),
            Operation(
                "GET",
                "/api/live",
                self.list_live_runs,
                "The live runs whose logs are in the library.",
            ),
            Operation(
                "GET",
                "/api/live/{name}/events",
                self.stream_live_events,
                "The events of a live run, from the first on, as server-sent events.",
            ),
            Operation(
                "POST",
                "/api/share",
                self.share_videos,
                "A file of pages that need no server.",
                body=ShareBody,
            ),
            Operation(
                "GET", "/api/events", self.stream_events, "What happens, as server-sent events."
            ),
            Operation("GET", "/api/openapi.json", self.get_openapi, "This description."),
            Operation(
                "GET", "/health", self.check_health, "Whether the studio can work; needs no token."
            ),
        ]

    @property
    def open_stream_count(self) -> int:
        """Number of open event streams."""
        return len(self._streams)

    def get_library_id(self, _: Request) -> Response:
        """Return the library's id."""
        return JSONResponse({"id": self._studio.database.identity})

    async def search_moments(self, request: Request) -> Response:
        """Return the moments that answer a query.

        Without the weights of MiniLM, only words are matched.
        """
        query = request.query_params.get("q", "")
        most = request.query_params.get("most", "10")
        is_count = is_whole_number(most) and 1 <= int(most) <= MAX_MOMENTS
        if not is_count or len(query) > MAX_QUERY_CHARS:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST,
                f"most is 1 to {MAX_MOMENTS}, q at most {MAX_QUERY_CHARS} characters",
            )
        # Labels are matched in the library first. The search then looks only at those videos.
        labels = card_filter(request)
        names = None
        if not labels.is_empty:
            names = await run_in_threadpool(matching_record_files, self._studio.library, labels)
        search = self._searching.submit(self._search, query, int(most), names)
        return JSONResponse({"moments": await asyncio.wrap_future(search)})

    def _search(
        self, query: str, max_moments: int, names: frozenset[str] | None
    ) -> list[dict[str, JsonValue]]:
        # The index is opened by the first search, in the thread that keeps its connection.
        if self._index is None:
            self._index = open_index(self._studio.library.folder, self._studio.library)
        if time.monotonic() > self._indexed + MAX_INDEX_AGE_SECONDS:
            self._index.update()
            self._indexed = time.monotonic()
        return [_moment_json(moment) for moment in self._index.search(query, max_moments, names)]

    async def share_videos(self, request: Request) -> Response:
        """Return a file with the pages of videos, or the page of one video."""
        body = await parse_body(request, ShareBody)
        library = self._studio.library
        ids = [require_video_id(library, id) for id in body.ids]
        write_share = partial(write_share_file, with_videos=body.videos)
        return TemporaryFileResponse(await in_video_thread(write_share, library, ids))

    async def stream_events(self, request: Request) -> Response:
        """Return the events from now on, as server-sent events."""
        return self._event_stream(request, self._broadcast.listen)

    def list_live_runs(self, _: Request) -> Response:
        """Return the live runs whose logs are in the library."""
        return JSONResponse({"runs": list_live_logs(self._studio.library.folder)})

    async def stream_live_events(self, request: Request) -> Response:
        """Return the events of a live run, as server-sent events."""
        folder = self._studio.library.folder
        with raise_not_found("no such live run"):
            path = await run_in_threadpool(find_live_log, folder, request.path_params["name"])
        return self._event_stream(request, partial(follow_log, path))

    def _event_stream(
        self, request: Request, events: Callable[[Callable[[], bool]], AsyncIterator[str]]
    ) -> Response:
        """Return a response of server-sent events.

        Args:
            request: the request, whose user counts.
            events: yields the events until the function that it is given returns True.
        """
        ended = asyncio.get_running_loop().create_future()
        stream = OpenStream(request.state.user, events(self.is_stopping), ended)
        # X-Accel-Buffering makes nginx pass each event on when it comes.
        return StreamingResponse(
            self._stream(stream),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(self, stream: OpenStream) -> AsyncIterator[str]:
        self._streams.append(stream)
        if len(self._streams) > MAX_STREAMS:
            # The oldest stream of the user with the most streams ends. A browser connects again.
            users = Counter(other.user for other in self._streams)
            busiest_user, _ = users.most_common(1)[0]
            oldest = next(other for other in self._streams if other.user == busiest_user)
            oldest.ended.set_result(None)
            self._streams.remove(oldest)
        try:
            while (event := await stream.next_event()) is not None:
                yield event
        finally:
            if not stream.ended.done():
                self._streams.remove(stream)

    def get_openapi(self, _: Request) -> Response:
        """Return the operations as OpenAPI 3.1."""
        return JSONResponse(openapi(self.operations()))

    def check_health(self, _: Request) -> Response:
        """Return 200 while the database can be read, else 503.

        The reason is only logged, since anyone may ask.
        """
        try:
            self._studio.database.row("SELECT 1 FROM library")
        except StoreError as error:
            log.warning("health: %s", error)
            reply = {"error": "the library's database cannot be read; the studio's log says why"}
            return JSONResponse(reply, HTTPStatus.SERVICE_UNAVAILABLE)
        return JSONResponse({"status": "ok"})

    def close(self) -> None:
        """Close the search index."""
        if self._index is not None:
            self._searching.submit(self._index.close)
        self._searching.shutdown()


def _moment_json(moment: Moment) -> dict[str, JsonValue]:
    id = video_id(moment.file)
    tree: dict[str, JsonValue] = asdict(moment)
    if moment.start is None:
        return tree | {"id": id, "picture": None, "link": f"/video/{id}"}
    # The link opens the video at the moment, and the picture is of its first second.
    picture = f"/api/videos/{id}/pictures/{moment.start:.1f}.jpg"
    return tree | {"id": id, "picture": picture, "link": f"/video/{id}#t={moment.start:g}"}
