"""The operations of the API on jobs, and on uploads that become jobs."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stepline.errors import ModelError, WriterError
from stepline.plugins import BUILT_IN_NAMES, plugin_names
from stepline.records import FrozenModel
from stepline.studio.jobs import JobStatus, resolve_job_options
from stepline.studio.operations import (
    BYTES_SCHEMA,
    Api,
    JsonBody,
    Page,
    StudioApi,
    api_router,
    reply_docs,
)
from stepline.studio.store import Upload
from stepline.studio.uploads import UploadBody
from stepline.studio.worker import heard_languages, installed_recognisers
from stepline.writing import check_writer

router = api_router()

JOB_PATH = "/api/jobs/{id:int}"
UPLOAD_PATH = "/api/uploads/{id}"
COUNT_SCHEMA = {"schema": {"type": "integer", "minimum": 0}}
UPLOAD_HEADERS = {"Upload-Offset": COUNT_SCHEMA, "Upload-Length": COUNT_SCHEMA}


class JobsReply(FrozenModel):
    """A page of the jobs: those that run, that wait, that ended.

    Attributes:
        jobs: the jobs of the page.
        total: number of all jobs that are listed.
    """

    jobs: tuple[JobStatus, ...]
    total: int


class JobReply(FrozenModel):
    """The id of a job that was started or removed."""

    job: int


class ChoicesReply(FrozenModel):
    """What the options of a job may name on this machine.

    Attributes:
        languages: the codes of the languages that an installed recogniser hears.
        recognisers: the installed speech recognisers.
        writers: the writers of steps that are available.
    """

    languages: tuple[str, ...]
    recognisers: tuple[str, ...]
    writers: tuple[str, ...]


class UploadStart(FrozenModel):
    """An upload that has begun.

    Attributes:
        upload: id of the upload.
        offset: bytes that are there, 0.
    """

    upload: str
    offset: int = 0


class UploadEnd(FrozenModel):
    """The id of an upload that was cancelled."""

    upload: str


class UploadStatus(FrozenModel):
    """An upload that is not complete.

    Attributes:
        upload: id of the upload.
        name: name of the file.
        size: size of the complete file in bytes.
        offset: bytes that are there.
    """

    upload: str
    name: str
    size: int
    offset: int


class UploadsReply(FrozenModel):
    """The uploads that are not complete, the oldest first."""

    uploads: tuple[UploadStatus, ...]


class ChunkReply(FrozenModel):
    """An upload after a chunk was added.

    Attributes:
        offset: bytes that are there.
        job: id of the job that began. None while the upload is not complete.
    """

    offset: int
    job: int | None


def _known_upload(id: str, api: Api) -> Upload:
    return api.studio.uploads.get(id)


KnownUpload = Annotated[Upload, Depends(_known_upload)]


@router.get("/api/jobs")
def list_jobs(api: Api, page: Page) -> JobsReply:
    """The jobs with their progress: those that run, that wait, that ended."""
    stored = api.studio.jobs.list_jobs()
    return JobsReply(jobs=tuple(map(api.jobs.status, stored[page])), total=len(stored))


@router.get("/api/choices")
def list_choices(api: Api) -> ChoicesReply:
    """The languages, recognisers and writers that the options of a job may name here."""
    writers = api.jobs.settings.writing
    try:
        check_writer(writers.model_copy(update={"writer": "llm"}))
        names = BUILT_IN_NAMES["writers"]
    except (ModelError, WriterError):  # no language model is there
        names = ("extractive",)
    return ChoicesReply(
        languages=heard_languages(api.jobs.settings.asr),
        recognisers=installed_recognisers(),
        writers=(*names, *plugin_names("writers")),
    )


@router.get(JOB_PATH, responses=reply_docs(404))
def get_job(id: int, api: Api) -> JobStatus:
    """One job, with its progress."""
    return api.jobs.status(api.studio.jobs.get(id))


@router.delete(JOB_PATH, responses=reply_docs(404))
def remove_job(id: int, api: Api) -> JobReply:
    """Remove a job that has ended from the list."""
    _change_job(id, api, api.studio.jobs.remove, "; cancel it first")
    return JobReply(job=id)


@router.post(f"{JOB_PATH}/cancel", responses=reply_docs(404))
def cancel_job(id: int, api: Api) -> JobStatus:
    """End a job that waits or runs."""
    _change_job(id, api, api.jobs.cancel)
    return get_job(id, api)


@router.post(f"{JOB_PATH}/retry", responses=reply_docs(404))
def retry_job(id: int, api: Api) -> JobStatus:
    """Begin a job that has ended again."""
    _change_job(id, api, api.jobs.retry)
    return get_job(id, api)


@router.post("/api/uploads", status_code=201, responses=reply_docs(415, 429, 507))
def begin_upload(api: Api, body: JsonBody[UploadBody]) -> UploadStart:
    """Begin an upload."""
    # Options are checked before a byte is sent, so that no upload ends in a refused job.
    options = resolve_job_options(api.studio.library, body.options, api.jobs.settings)
    upload = api.uploads.begin(body.model_copy(update={"options": options}))
    return UploadStart(upload=upload.id)


@router.get("/api/uploads")
def list_uploads(api: Api) -> UploadsReply:
    """The uploads that are not whole, the oldest first."""
    return UploadsReply(
        uploads=tuple(
            UploadStatus(
                upload=upload.id,
                name=upload.name,
                size=upload.size,
                offset=api.uploads.received_bytes(upload),
            )
            for upload in api.studio.uploads.list_unfinished()
        )
    )


@router.head(
    UPLOAD_PATH,
    response_class=Response,
    responses={200: {"headers": UPLOAD_HEADERS}, **reply_docs(404)},
)
def get_upload_offset(upload: KnownUpload, api: Api) -> Response:
    """How much of an upload is there, in the header Upload-Offset."""
    offset = api.uploads.received_bytes(upload)
    return Response(headers={"Upload-Offset": str(offset), "Upload-Length": str(upload.size)})


@router.delete(UPLOAD_PATH, responses=reply_docs(404))
def cancel_upload(upload: KnownUpload, api: Api) -> UploadEnd:
    """End an upload that is not whole, and remove its file."""
    api.uploads.cancel(upload)
    return UploadEnd(upload=upload.id)


@router.patch(
    UPLOAD_PATH,
    responses=reply_docs(404, 410, 413, 507),
    openapi_extra={
        "requestBody": {"content": {"application/octet-stream": {"schema": BYTES_SCHEMA}}}
    },
)
async def append_chunk(
    request: Request,
    reply: Response,
    upload: KnownUpload,
    api: Api,
    offset: Annotated[
        int, Header(alias="Upload-Offset", ge=0, description="the bytes that are there")
    ],
) -> ChunkReply:
    """Add a chunk of at most 16 MiB. The last one begins the job."""
    length = int(request.headers.get("Content-Length", "0"))
    try:
        upload = await api.uploads.append_chunk(upload, offset, length, request.stream())
    except ClientDisconnect as error:  # what came is kept, and no client reads this reply
        raise HTTPException(HTTPStatus.BAD_REQUEST) from error
    end = api.uploads.received_bytes(upload)
    reply.headers["Upload-Offset"] = str(end)
    return ChunkReply(offset=end, job=upload.job)


def _change_job(id: int, api: StudioApi, change: Callable[[int], bool], cure: str = "") -> None:
    """Change a job. Raises HTTPException (409) if its state forbids it."""
    # Read first for the words of the error. The change itself checks the state again.
    state = api.studio.jobs.get(id).state
    if not change(id):
        raise HTTPException(HTTPStatus.CONFLICT, f"the job is {state}{cure}")
