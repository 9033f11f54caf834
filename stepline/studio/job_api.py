"""The operations of the API on jobs, and on uploads that become jobs."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from stepline.pages.web.local_server import is_whole_number
from stepline.studio.jobs import JobRunner, resolve_job_options
from stepline.studio.operations import (
    PAGE_PARAMETERS,
    Operation,
    parse_body,
    raise_not_found,
    requested_page,
)
from stepline.studio.store import Studio, Upload
from stepline.studio.uploads import MAX_CHUNK_BYTES, UploadBody, Uploads


class JobApi:
    """The HTTP operations on the jobs and uploads of one library."""

    def __init__(self, studio: Studio, jobs: JobRunner) -> None:
        self._library = studio.library
        self._stored_jobs = studio.jobs
        self._stored_uploads = studio.uploads
        self._jobs = jobs
        self._uploads = Uploads(studio, jobs)

    def operations(self) -> list[Operation]:
        """Return the operations."""
        # Jobs, then the uploads that become jobs.
        job = "/api/jobs/{id:int}"
        upload = "/api/uploads/{id}"
        piece = f"Add a piece, at most {MAX_CHUNK_BYTES} bytes, at the header Upload-Offset"
        return [
            Operation(
                "GET",
                "/api/jobs",
                self.list_jobs,
                "The jobs: those that run, that wait, that ended.",
                PAGE_PARAMETERS,
            ),
            Operation("GET", job, self.get_job, "One job, with its progress."),
            Operation("DELETE", job, self.remove_job, "Remove a job that has ended from the list."),
            Operation(
                "POST", f"{job}/cancel", partial(self.change_job, self._jobs.cancel), "End a job."
            ),
            Operation(
                "POST",
                f"{job}/retry",
                partial(self.change_job, self._jobs.retry),
                "Begin it again.",
            ),
            Operation(
                "POST", "/api/uploads", self.begin_upload, "Begin an upload.", body=UploadBody
            ),
            Operation(
                "GET",
                "/api/uploads",
                self.list_uploads,
                "The uploads that are not whole, oldest first.",
            ),
            Operation(
                "HEAD",
                upload,
                self.get_upload_offset,
                "How much of an upload is there: Upload-Offset.",
            ),
            Operation("DELETE", upload, self.cancel_upload, "End an upload that is not whole."),
            Operation("PATCH", upload, self.append_chunk, f"{piece}; the last one begins the job."),
        ]

    def list_jobs(self, request: Request) -> Response:
        """Return a page of the jobs with their progress, and the total number."""
        page = requested_page(request)
        stored = self._stored_jobs.list_jobs()
        jobs = list(map(self._jobs.as_json, stored[page]))
        return JSONResponse({"jobs": jobs, "total": len(stored)})

    def get_job(self, request: Request) -> Response:
        """Return one job."""
        with raise_not_found("no such job"):
            job = self._stored_jobs.get(request.path_params["id"])
        return JSONResponse(self._jobs.as_json(job))

    def remove_job(self, request: Request) -> Response:
        """Remove a job from the list. The error is 409 for one that waits or runs."""
        id = request.path_params["id"]
        with raise_not_found("no such job"):
            state = self._stored_jobs.get(id).state
        if not self._stored_jobs.remove(id):
            raise HTTPException(HTTPStatus.CONFLICT, f"the job is {state}; cancel it first")
        return JSONResponse({"job": id})

    def change_job(self, change: Callable[[int], bool], request: Request) -> Response:
        """Change the state of a job, and return the job. The status is 409 if its state forbids it.

        Args:
            change: function that changes the job of an id, and returns whether it did.
            request: names the job.
        """
        id = request.path_params["id"]
        # Read first for the words of the error. The change itself checks the state again.
        with raise_not_found("no such job"):
            state = self._stored_jobs.get(id).state
        if not change(id):
            raise HTTPException(HTTPStatus.CONFLICT, f"the job is {state}")
        return JSONResponse(self._jobs.as_json(self._stored_jobs.get(id)))

    async def begin_upload(self, request: Request) -> Response:
        """Begin an upload. Its options are checked before any byte is sent."""
        body = await parse_body(request, UploadBody)
        # Options are checked before a byte is sent, so that no upload ends in a refused job.
        options = resolve_job_options(self._library, body.options)
        body = body.model_copy(update={"options": options})
        upload = await run_in_threadpool(self._uploads.begin, body)
        return JSONResponse({"upload": upload.id, "offset": 0}, HTTPStatus.CREATED)

    def list_uploads(self, _: Request) -> Response:
        """Return the unfinished uploads."""
        uploads = [
            {
                "upload": upload.id,
                "name": upload.name,
                "size": upload.size,
                "offset": self._uploads.received_bytes(upload),
            }
            for upload in self._stored_uploads.list_unfinished()
        ]
        return JSONResponse({"uploads": uploads})

    def cancel_upload(self, request: Request) -> Response:
        """Cancel an upload and remove its file."""
        upload = self._find_upload(request)
        self._uploads.cancel(upload)
        return JSONResponse({"upload": upload.id})

    def get_upload_offset(self, request: Request) -> Response:
        """Return how many bytes of an upload were received, as a header."""
        upload = self._find_upload(request)
        headers = {
            "Upload-Offset": str(self._uploads.received_bytes(upload)),
            "Upload-Length": str(upload.size),
        }
        return Response(headers=headers)

    async def append_chunk(self, request: Request) -> Response:
        """Append a chunk to an upload."""
        upload = await run_in_threadpool(self._find_upload, request)
        headers = request.headers
        offset = headers.get("Upload-Offset", "")
        length = int(headers.get("Content-Length", "0"))
        if not is_whole_number(offset):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "Upload-Offset: the bytes that are there")
        try:
            upload = await self._uploads.append_chunk(upload, int(offset), length, request.stream())
        except ClientDisconnect:  # what came is kept, and no client reads this reply
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        end = self._uploads.received_bytes(upload)
        reply = {"offset": end, "job": upload.job}
        return JSONResponse(reply, headers={"Upload-Offset": str(end)})

    def _find_upload(self, request: Request) -> Upload:
        with raise_not_found("no such upload"):
            return self._stored_uploads.get(request.path_params["id"])
