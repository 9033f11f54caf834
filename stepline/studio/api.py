"""The API of the studio: one table of operations, from which both the routes and their OpenAPI
description are made."""

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from stepline.errors import StoreError
from stepline.library.card_filter import matching_record_files
from stepline.library.corrected_library import video_id
from stepline.library.search import Moment, SearchIndex, open_index
from stepline.pages.web.local_server import is_whole_number
from stepline.records import FrozenModel
from stepline.studio.events import Broadcast
from stepline.studio.job_api import JobApi
from stepline.studio.jobs import JobRunner
from stepline.studio.live import follow_log, live_log, live_logs
from stepline.studio.metrics import METRICS_TYPE, RequestCounts, studio_metrics
from stepline.studio.operations import Operation, in_video_thread, not_found, openapi, read_body
from stepline.studio.sharing import share, share_file
from stepline.studio.store import Studio
from stepline.studio.video_api import LABEL_PARAMETERS, VideoApi, card_filter, known_id

log = logging.getLogger(__name__)

MAX_INDEX_AGE_SECONDS = 2.0  # then the search looks for records that changed
MAX_MOMENTS = 100  # of a search
MAX_QUERY_CHARS = 500


class ShareBody(FrozenModel):
    """Which videos are shared. videos: whether the videos themselves are copied.

    out: a folder outside of the library, below one that is allowed, or None for one file as the
    reply.
    """

    ids: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    videos: bool = False
    out: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class StudioApi:
    """The operations of one library."""

    def __init__(
        self, studio: Studio, broadcast: Broadcast, jobs: JobRunner, counts: RequestCounts
    ) -> None:
        self._studio = studio
        self._broadcast = broadcast
        self._count_ignoring_case = counts
        self._videos = VideoApi(studio, jobs)
        # Whoever follows a video learns that it is gone.
        self._videos.on_removal = lambda id: broadcast.publish("video", {"id": id, "removed": True})
        self._jobs = JobApi(studio, jobs)
        self.is_stopping: Callable[[], bool] = lambda: False  # whether the server ends
        # SQLite's connection belongs to one thread.
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._index: SearchIndex | None = None
        self._indexed = -MAX_INDEX_AGE_SECONDS

    def operations(self) -> list[Operation]:
        """Return the table of operations."""
        # Each row is a method, a path, the function that answers, and what the description says.
        query = {"q": "what is done", "most": f"answers, 1 to {MAX_MOMENTS}"} | LABEL_PARAMETERS
        return [
            Operation("GET", "/api/library", self.library, "The library's id."),
            *self._videos.operations(),
            *self._jobs.operations(),
            Operation("GET", "/api/search", self.search, "The moments that answer a query.", query),
            Operation(
                "GET", "/api/live", self.live_runs, "The live runs whose logs are in the library."
            ),
            Operation(
                "GET",
                "/api/live/{name}/events",
                self.live_events,
                "The events of a live run, from the first on, as server-sent events.",
            ),
            Operation(
                "POST",
                "/api/share",
                self.share,
                "One file, or a folder, that needs no server.",
                body=ShareBody,
            ),
            Operation("GET", "/api/events", self.events, "What happens, as server-sent events."),
            Operation("GET", "/api/openapi.json", self.openapi, "This description."),
            Operation(
                "GET", "/health", self.health, "Whether the studio can work; needs no token."
            ),
            Operation("GET", "/metrics", self.metrics, "Its figures, as OpenMetrics."),
        ]

    def library(self, _: Request) -> Response:
        """Return the library's id."""
        return JSONResponse({"id": self._studio.database.identity})

    async def search(self, request: Request) -> Response:
        """Return moments. Without the weights of MiniLM they are found by their words alone."""
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
        self, query: str, most: int, names: frozenset[str] | None
    ) -> list[dict[str, JsonValue]]:
        # The index is opened by the first search, in the thread that keeps its connection.
        if self._index is None:
            self._index = open_index(self._studio.library.folder, self._studio.library)
        if time.monotonic() > self._indexed + MAX_INDEX_AGE_SECONDS:
            self._index.update()
            self._indexed = time.monotonic()
        return [_moment(moment) for moment in self._index.search(query, most, names)]

    async def share(self, request: Request) -> Response:
        """Return one file that holds the videos' steps. With `out`, write a folder of them."""
        body = await read_body(request, ShareBody)
        library = self._studio.library
        ids = [known_id(library, id) for id in body.ids]
        # A folder on this machine, where one is named. Else one file that the browser saves.
        if body.out is not None:
            write_share = partial(share, with_videos=body.videos)
            index = await in_video_thread(write_share, library, ids, Path(body.out))
            return JSONResponse({"index": str(index)})
        write_share = partial(share_file, with_videos=body.videos)
        path = await in_video_thread(write_share, library, ids)
        # The temporary folder goes after its file was sent.
        cleaning = BackgroundTask(shutil.rmtree, path.parent, ignore_errors=True)
        return FileResponse(path, filename=path.name, background=cleaning)

    async def events(self, _: Request) -> Response:
        """Return the events from now on."""
        return _event_stream(self._broadcast.listen(self.is_stopping))

    def live_runs(self, _: Request) -> Response:
        """Return the live runs."""
        return JSONResponse({"runs": live_logs(self._studio.library.folder)})

    async def live_events(self, request: Request) -> Response:
        """Return the events of a live run."""
        folder = self._studio.library.folder
        with not_found("no such live run"):
            path = await run_in_threadpool(live_log, folder, request.path_params["name"])
        return _event_stream(follow_log(path, self.is_stopping))

    def openapi(self, _: Request) -> Response:
        """Return the table of operations as OpenAPI 3.1."""
        return JSONResponse(openapi(self.operations()))

    def health(self, _: Request) -> Response:
        """Return that the database answers. The error 503 says that it does not, without the
        reason, since anyone may ask."""
        try:
            self._studio.database.row("SELECT 1 FROM library")
        except StoreError as error:
            log.warning("health: %s", error)
            reply = {"error": "the library's database cannot be read; the studio's log says why"}
            return JSONResponse(reply, HTTPStatus.SERVICE_UNAVAILABLE)
        return JSONResponse({"status": "ok"})

    def metrics(self, _: Request) -> Response:
        """Return the figures of the studio as OpenMetrics."""
        return Response(
            studio_metrics(self._studio, self._count_ignoring_case), media_type=METRICS_TYPE
        )

    def close(self) -> None:
        """Close the index of the search."""
        if self._index is not None:
            self._searching.submit(self._index.close)
        self._searching.shutdown()


def _event_stream(events: AsyncIterator[str]) -> Response:
    # X-Accel-Buffering makes nginx pass each event on when it comes.
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _moment(moment: Moment) -> dict[str, JsonValue]:
    id = video_id(moment.file)
    tree: dict[str, JsonValue] = asdict(moment)
    if moment.start is None:
        return tree | {"id": id, "picture": None, "link": f"/video/{id}"}
    # The link opens the video at the moment, and the picture is of its first second.
    picture = f"/api/videos/{id}/pictures/{moment.start:.1f}.jpg"
    return tree | {"id": id, "picture": picture, "link": f"/video/{id}#t={moment.start:g}"}
