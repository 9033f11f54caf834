"""The API of the studio: one table of operations, from which come both the routes and their OpenAPI
description."""

import asyncio
import re
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from stepline.library.corrections import ConflictError, Correction, Edit, PersonName
from stepline.library.search import Moment, SearchIndex, open_index
from stepline.limits import parse_json
from stepline.outputs import OUTPUTS
from stepline.pipeline.sources import is_link
from stepline.records import FrozenModel
from stepline.storage import to_json
from stepline.studio import media
from stepline.studio.access import HEADER
from stepline.studio.annotation import AuditView
from stepline.studio.events import Broadcast
from stepline.studio.jobs import JobRunner
from stepline.studio.live import follow_log, live_log, live_logs
from stepline.studio.sharing import share, write_output
from stepline.studio.store import Studio, Upload, VideoCard, video_id
from stepline.studio.uploads import PIECE, UploadBody, Uploads
from stepline.studio.worker import JobOptions
from stepline.version import __version__
from stepline.web.local_server import file_response

LARGEST = 2**20  # bytes of what may be sent, but for the pieces of uploads
LOOK = 2.0  # s between two looks of the search for records that changed
MOST_ANSWERS = 100  # moments of a search

Model = TypeVar("Model", bound=BaseModel)
Priority: TypeAlias = Annotated[int, Field(ge=-1000, le=1000)]
Endpoint: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


class CorrectionBody(FrozenModel):
    """What a page sends to correct a video. id: the client's own, so that what is sent twice counts
    once."""

    by: PersonName
    base: Annotated[int, Field(ge=0)]
    edits: tuple[Edit, ...] = ()
    undoes: str | None = None
    id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    window: Annotated[str, Field(max_length=80)] = ""


class ShareBody(FrozenModel):
    """Which videos are shared, and the folder: in the library, or below one that is allowed."""

    ids: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    out: Annotated[str, Field(min_length=1, max_length=1000)] = "share"


class VideoBody(FrozenModel):
    """A video that is to be understood: a path, in the library or below a folder that is allowed,
    or a link."""

    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    link: Annotated[str, Field(max_length=4096)] | None = None
    options: JobOptions = JobOptions()
    priority: Priority = 0

    @model_validator(mode="after")
    def _one_of_both(self) -> "VideoBody":
        if (self.path is None) == (self.link is None):
            raise ValueError("a path or a link")
        if self.link is not None and not is_link(self.link):
            raise ValueError("a link begins with http:// or https://")
        return self


class PriorityBody(FrozenModel):
    """How soon a job's turn comes: the highest first."""

    priority: Priority


@dataclass(frozen=True)
class Operation:
    """A row of the API. parameters: those of the query, with what they mean. body: the model of
    what is sent."""

    method: Literal["GET", "POST", "HEAD", "PATCH"]
    path: str
    endpoint: Endpoint
    summary: str
    parameters: dict[str, str] = field(default_factory=dict)
    body: type[BaseModel] | None = None


class StudioApi:
    """The operations of one library."""

    def __init__(
        self, studio: Studio, broadcast: Broadcast, jobs: JobRunner, audit: AuditView
    ) -> None:
        self.studio, self.broadcast, self.jobs, self.audit = studio, broadcast, jobs, audit
        self.uploads = Uploads(studio, jobs)
        self.stops: Callable[[], bool] = lambda: False  # whether the server ends
        # SQLite's connection is of one thread
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._index: SearchIndex | None = None
        self._indexed = -LOOK

    def operations(self) -> list[Operation]:
        """Return the table."""
        video = "/api/videos/{id}"
        return [
            Operation(
                "GET",
                "/api/library",
                self.library,
                "The library's id, and whether a dataset can be audited.",
            ),
            Operation(
                "GET",
                "/api/videos",
                self.videos,
                "The videos as cards.",
                {
                    "q": "words of the title",
                    "state": "new or corrected",
                    "sort": "title, newest or duration",
                },
            ),
            Operation(
                "POST", "/api/videos", self.process, "Have a video understood.", body=VideoBody
            ),
            Operation("GET", video, self.video, "One video."),
            Operation(
                "GET",
                f"{video}/record",
                self.record,
                "The corrected record, and what the machine had said.",
                {"part": "steps: those of the record alone"},
            ),
            Operation(
                "GET",
                f"{video}/steps",
                self.steps,
                "An output of the corrected record.",
                {"format": f"one of {', '.join(OUTPUTS)}"},
            ),
            Operation(
                "GET", f"{video}/history", self.history, "The corrections, the oldest first."
            ),
            Operation(
                "POST",
                f"{video}/corrections",
                self.correct,
                "Take a correction in, or undo one.",
                body=CorrectionBody,
            ),
            Operation("GET", f"{video}/media", self.media, "The video file, whole or a range."),
            Operation(
                "GET",
                f"{video}/pictures/{{second}}.jpg",
                self.picture,
                "What is on screen at a second.",
            ),
            Operation(
                "GET",
                f"{video}/waveform",
                self.waveform,
                "The peaks of the sound, 0 to 255, in equal parts.",
            ),
            Operation(
                "GET",
                "/api/jobs",
                self.list_jobs,
                "The jobs: those that run, that wait, that ended.",
            ),
            Operation(
                "POST",
                "/api/jobs/{id:int}/cancel",
                partial(self.change_job, "cancel"),
                "End a job.",
            ),
            Operation(
                "POST",
                "/api/jobs/{id:int}/retry",
                partial(self.change_job, "retry"),
                "Begin it again.",
            ),
            Operation(
                "POST",
                "/api/jobs/{id:int}/priority",
                self.prioritise,
                "Change the turn of a job that waits.",
                body=PriorityBody,
            ),
            Operation(
                "POST", "/api/uploads", self.begin_upload, "Begin an upload.", body=UploadBody
            ),
            Operation(
                "HEAD",
                "/api/uploads/{id}",
                self.upload,
                "How much of an upload is there: Upload-Offset.",
            ),
            Operation(
                "PATCH",
                "/api/uploads/{id}",
                self.take_piece,
                f"Add a piece, at most {PIECE} bytes, at the header Upload-Offset; the last one begins the job.",
            ),
            Operation(
                "GET",
                "/api/search",
                self.search,
                "The moments that answer a query.",
                {"q": "what is done", "most": f"answers, 1 to {MOST_ANSWERS}"},
            ),
            Operation(
                "GET", "/api/live", self.live_runs, "The live runs whose logs lie in the library."
            ),
            Operation(
                "GET",
                "/api/live/{name}/events",
                self.live_events,
                "What a live run tells, from its first event on, as server-sent events.",
            ),
            Operation(
                "POST",
                "/api/share",
                self.share,
                "Write a folder that needs no server.",
                body=ShareBody,
            ),
            Operation("GET", "/api/events", self.events, "What happens, as server-sent events."),
            Operation("GET", "/api/openapi.json", self.openapi, "This description."),
        ]

    # ---------------------------------------------------------------- videos

    def library(self, _: Request) -> Response:
        """Return what tells this library from others, and whether there is a dataset to audit."""
        return JSONResponse({"id": self.studio.identity, "audit": self.audit.has_dataset})

    def videos(self, request: Request) -> Response:
        """Return the cards that a query asks for."""
        query = request.query_params
        words, state, sort = (
            query.get("q", "").casefold().split(),
            query.get("state"),
            query.get("sort", "title"),
        )
        order: dict[str, Callable[[VideoCard], Any]] = {
            "title": lambda card: card.title.casefold(),
            "newest": lambda card: -card.made,
            "duration": lambda card: card.duration or 0.0,
        }
        if sort not in order:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"sort is one of {', '.join(order)}")
        cards = [
            card
            for card in self.studio.videos()
            if all(word in card.title.casefold() for word in words)
        ]
        chosen = sorted(
            (card for card in cards if state in (None, "", card.state)), key=order[sort]
        )
        return JSONResponse({"videos": [card.model_dump(mode="json") for card in chosen]})

    def video(self, request: Request) -> Response:
        """Return a card, the library's id, the outputs, whether the file is there, and its pictures
        a second."""
        id = self._id(request)
        path = self.studio.media(id, self.studio.record(id))
        rate = media.frame_rate(path, media.file_stamp(path)) if path is not None else None
        more = {"media": path is not None, "frame_rate": rate, "formats": list(OUTPUTS)}
        card = self.studio.card(id).model_dump(mode="json")
        return JSONResponse(card | more | {"library": self.studio.identity})

    def record(self, request: Request) -> Response:
        """Return the record as people have corrected it, or its steps alone."""
        found = self.studio.corrected(self._id(request))
        alone = request.query_params.get("part") == "steps"
        record = found.record.model_copy(update={"transcript": None}) if alone else found.record
        tree = parse_json(to_json(record))
        told = {"steps": tree["steps"]} if alone else tree
        return JSONResponse({"record": told, "machine": found.machine, "revision": found.revision})

    def steps(self, request: Request) -> Response:
        """Return one output, to be kept as a file."""
        id, name = self._id(request), request.query_params.get("format", "json")
        record = self.studio.corrected(id).record
        path = write_output(record, name, self.studio.media(id, self.studio.record(id)))
        cleaning = BackgroundTask(shutil.rmtree, path.parent, ignore_errors=True)
        return FileResponse(path, filename=path.name, background=cleaning)

    def history(self, request: Request) -> Response:
        """Return the corrections."""
        corrections = self.studio.corrections(self._id(request))
        return JSONResponse({"corrections": [each.model_dump(mode="json") for each in corrections]})

    async def correct(self, request: Request) -> Response:
        """Take a correction in; 409 tells who changed the same meanwhile, and what."""
        id, body = self._id(request), await read_body(request, CorrectionBody)
        try:
            correction = Correction(
                video=id, when=time.time(), **dict(body) | {"id": body.id or uuid.uuid4().hex}
            )
        except ValidationError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, _first(error)) from error
        try:
            revision = await run_in_threadpool(self.studio.correct, id, correction)
        except ConflictError as conflict:
            edits = [
                edit.model_dump(mode="json") for each in conflict.theirs for edit in each.edits
            ]
            told = {"error": str(conflict), "by": conflict.theirs[-1].by, "edits": edits}
            return JSONResponse(told | {"revision": self.studio.revision(id)}, HTTPStatus.CONFLICT)
        return JSONResponse({"revision": revision, "id": correction.id})

    # ---------------------------------------------------------------- what is seen and heard

    def media(self, request: Request) -> Response:
        """Return the video, or the range of it that is asked for."""
        path = self._file(self._id(request))
        return file_response(request, path, media.media_type(path))

    def picture(self, request: Request) -> Response:
        """Return a picture as JPEG."""
        id = self._id(request)
        try:
            second = round(float(request.path_params["second"]), 1)
        except ValueError:
            second = -1.0
        duration = self.studio.card(id).duration
        if not 0.0 <= second <= (duration if duration is not None else second):  # so it is not NaN
            raise HTTPException(HTTPStatus.NOT_FOUND, "no second of this video")
        path = self._file(id)
        data = media.picture(path, media.file_stamp(path), second)
        return Response(
            data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"}
        )

    def waveform(self, request: Request) -> Response:
        """Return the peaks of the sound."""
        id = self._id(request)
        path = self._file(id)
        stamp = media.file_stamp(path)
        if (kept := self.studio.waveform(id, stamp)) is None:
            kept = media.peaks(path)
            self.studio.keep_waveform(id, stamp, kept)
        return JSONResponse({"peaks": list(kept), "duration": self.studio.card(id).duration})

    # ---------------------------------------------------------------- jobs and uploads

    async def process(self, request: Request) -> Response:
        """Begin a job."""
        body = await read_body(request, VideoBody)
        options = self._allowed_options(body.options)
        source = body.link or str(self.studio.inside(Path(body.path or "")))
        job = await run_in_threadpool(self.jobs.add, source, options, body.priority)
        return JSONResponse({"job": job.id})

    def list_jobs(self, _: Request) -> Response:
        """Return the jobs with how far each is."""
        return JSONResponse({"jobs": [self.jobs.told(job) for job in self.studio.jobs()]})

    def change_job(self, verb: Literal["cancel", "retry"], request: Request) -> Response:
        """Cancel a job, or try it again."""
        return self._told_job(request, self.jobs.cancel if verb == "cancel" else self.jobs.retry)

    async def prioritise(self, request: Request) -> Response:
        """Change a job's turn."""
        body = await read_body(request, PriorityBody)
        return await run_in_threadpool(
            self._told_job, request, lambda id: self.jobs.prioritise(id, body.priority)
        )

    def _told_job(self, request: Request, change: Callable[[int], bool]) -> Response:
        id = request.path_params["id"]
        try:
            state = self.studio.job(id).state
        except LookupError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such job") from error
        if not change(id):
            raise HTTPException(HTTPStatus.CONFLICT, f"the job is {state}")
        return JSONResponse(self.jobs.told(self.studio.job(id)))

    async def begin_upload(self, request: Request) -> Response:
        """Begin an upload."""
        body = await read_body(request, UploadBody)
        body = body.model_copy(update={"options": self._allowed_options(body.options)})
        upload = await run_in_threadpool(self.uploads.begin, body)
        return JSONResponse({"upload": upload.id, "offset": 0}, HTTPStatus.CREATED)

    def upload(self, request: Request) -> Response:
        """Tell how much of an upload is there."""
        upload = self._upload(request)
        told = {
            "Upload-Offset": str(self.uploads.offset(upload)),
            "Upload-Length": str(upload.size),
        }
        return Response(headers=told)

    async def take_piece(self, request: Request) -> Response:
        """Add a piece to an upload."""
        upload = await run_in_threadpool(self._upload, request)
        offset, length = (
            request.headers.get("Upload-Offset", ""),
            int(request.headers["Content-Length"]),
        )
        if not (offset.isascii() and offset.isdecimal() and len(offset) < 19):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "Upload-Offset: the bytes that are there")
        try:
            upload = await self.uploads.take(upload, int(offset), length, request.stream())
        except ClientDisconnect:  # what came is kept; nobody hears this
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        there = self.uploads.offset(upload)
        return JSONResponse(
            {"offset": there, "job": upload.job}, headers={"Upload-Offset": str(there)}
        )

    def _upload(self, request: Request) -> Upload:
        try:
            return self.studio.upload(request.path_params["id"])
        except LookupError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such upload") from error

    def _allowed_options(self, options: JobOptions) -> JobOptions:
        if options.captions is None:
            return options
        return options.model_copy(
            update={"captions": str(self.studio.inside(Path(options.captions)))}
        )

    # ---------------------------------------------------------------- the library as a whole

    async def search(self, request: Request) -> Response:
        """Return moments; words alone are searched where the weights of MiniLM are missing."""
        query, most = request.query_params.get("q", ""), request.query_params.get("most", "10")
        if not (
            most.isascii()
            and most.isdecimal()
            and 1 <= int(most[:4]) <= MOST_ANSWERS
            and len(query) <= 500
        ):
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"most is 1 to {MOST_ANSWERS}, q at most 500 characters"
            )
        found = await asyncio.wrap_future(self._searching.submit(self._search, query, int(most)))
        return JSONResponse({"moments": found})

    def _search(self, query: str, most: int) -> list[dict[str, JsonValue]]:
        if self._index is None:
            self._index = open_index(self.studio.folder, self.studio)
        if time.monotonic() > self._indexed + LOOK:
            self._index.update()
            self._indexed = time.monotonic()
        return [
            _moment(moment, video_id(moment.file)) for moment in self._index.search(query, most)
        ]

    async def share(self, request: Request) -> Response:
        """Write a share folder."""
        body = await read_body(request, ShareBody)
        index = await run_in_threadpool(
            share, self.studio, [self._known(id) for id in body.ids], Path(body.out)
        )
        return JSONResponse({"index": str(index)})

    async def events(self, _: Request) -> Response:
        """Return the events from now on."""
        return _event_stream(self.broadcast.listen(self.stops))

    def live_runs(self, _: Request) -> Response:
        """Return the live runs."""
        return JSONResponse({"runs": live_logs(self.studio.folder)})

    async def live_events(self, request: Request) -> Response:
        """Return the events of a live run."""
        try:
            path = await run_in_threadpool(
                live_log, self.studio.folder, request.path_params["name"]
            )
        except LookupError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such live run") from error
        return _event_stream(follow_log(path, self.stops))

    def openapi(self, _: Request) -> Response:
        """Return the table of operations as OpenAPI 3.1 has it."""
        return JSONResponse(openapi(self.operations()))

    def close(self) -> None:
        """Close the index of the search."""
        if self._index is not None:
            self._searching.submit(self._index.close)
        self._searching.shutdown()

    # ---------------------------------------------------------------- helpers of several operations

    def _id(self, request: Request) -> str:
        return self._known(request.path_params["id"])

    def _known(self, id: str) -> str:
        try:
            return self.studio.video(id).id
        except LookupError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no such video") from error

    def _file(self, id: str) -> Path:
        path = self.studio.media(id, self.studio.record(id))
        if path is None:
            told = (
                "the video's file is not in the library nor in a folder of --allow, or has changed"
            )
            raise HTTPException(HTTPStatus.NOT_FOUND, told)
        return path


def _event_stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _moment(moment: Moment, id: str) -> dict[str, JsonValue]:
    told: dict[str, JsonValue] = asdict(moment)
    told["id"] = id
    told["picture"] = (
        None if moment.start is None else f"/api/videos/{id}/pictures/{moment.start:.1f}.jpg"
    )
    told["link"] = f"/video/{id}" + ("" if moment.start is None else f"#t={moment.start:g}")
    return told


async def read_body(request: Request, kind: type[Model]) -> Model:
    """Return what a request sends. Raises HTTPException (400) where it is none of that kind."""
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, _first(error)) from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"


def openapi(operations: Sequence[Operation]) -> dict[str, JsonValue]:
    """Return the OpenAPI 3.1 description of operations."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for row in operations:
        in_path = [
            re.split("[:}]", part[1:])[0] for part in row.path.split("/") if part.startswith("{")
        ]
        parameters: list[dict[str, Any]] = [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in in_path
            ),
            *(
                {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
                for name, meaning in row.parameters.items()
            ),
        ]
        told: dict[str, Any] = {
            "summary": row.summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "done"},
                "4XX": {"description": "an error, in a line"},
            },
        }
        if row.body is not None:
            schema = row.body.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {}) | {row.body.__name__: schema}
            reference = {"$ref": f"#/components/schemas/{row.body.__name__}"}
            told["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": reference}},
            }
        paths.setdefault(row.path.replace(":int", ""), {})[row.method.lower()] = told
    security: dict[str, JsonValue] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stepline studio",
            "version": __version__,
            "description": f"What is sent needs the header `X-Stepline: {HEADER}`.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security},
        "security": [{"token": []}],
    }
