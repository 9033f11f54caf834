"""Files that come in pieces. Each piece is on disk before it is answered, so an upload continues
after any interruption.

An upload ends in two steps: its job and its end are kept in one transaction, then the file moves to
its place. The next start completes the second step where it is missing.
"""

import os
import shutil
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from stepline.atomic_files import check_writable
from stepline.outputs import safe_stem
from stepline.pipeline.sources import VIDEO_SUFFIXES
from stepline.records import FrozenModel
from stepline.studio.jobs import JobRunner
from stepline.studio.store import Studio, Upload
from stepline.studio.worker import JobOptions

MAX_PIECE_BYTES = 16 * 2**20  # of one request
MAX_FILE_BYTES = 2**40
MIN_FREE_BYTES = 2**30  # that stay free on the disk
MAX_OPEN_UPLOADS = 100  # that are not whole
MAX_OPEN_SECONDS = 7 * 86400.0  # that an upload is kept that is not whole
PIECES_FOLDER = ".stepline-uploads"  # in the library: files that are not whole
VIDEOS_FOLDER = "videos"  # in the library: whole files


class UploadBody(FrozenModel):
    """What begins an upload. size: bytes. options: of the job that its end begins."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    size: Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
    options: JobOptions = JobOptions()


class Uploads:
    """The uploads of a library; one that is whole becomes a job."""

    def __init__(self, studio: Studio, jobs: JobRunner) -> None:
        self._folder = studio.library.folder
        self._uploads = studio.uploads
        self._stored_jobs = studio.jobs
        self._jobs = jobs
        self._busy: set[str] = set()
        for upload in self._uploads.all():
            if upload.job is not None:
                self._place(upload, Path(self._stored_jobs.get(upload.job).source))
            elif upload.created < time.time() - MAX_OPEN_SECONDS:
                self._pieces(upload).unlink(missing_ok=True)
                self._uploads.remove(upload.id)

    def begin(self, body: UploadBody) -> Upload:
        """Return a new upload. Raises HTTPException for a file that is no video, too many open
        uploads, and a disk that is too small."""
        if Path(body.name).suffix.lower() not in VIDEO_SUFFIXES:
            reason = f"no video by its name; known: {', '.join(sorted(VIDEO_SUFFIXES))}"
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
        if sum(upload.job is None for upload in self._uploads.all()) >= MAX_OPEN_UPLOADS:
            reason = f"{MAX_OPEN_UPLOADS} uploads are not whole; end some of them first"
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, reason)
        if shutil.disk_usage(self._folder).free < body.size + MIN_FREE_BYTES:
            reason = "the disk of the library has no room for it"
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, reason)
        return self._uploads.add(body.name, body.size, body.options.model_dump(mode="json"))

    def offset(self, upload: Upload) -> int:
        """Return how many bytes of an upload are on disk."""
        if upload.job is not None:
            return upload.size
        path = self._pieces(upload)
        return path.stat().st_size if path.exists() else 0

    async def take(
        self, upload: Upload, offset: int, length: int, parts: AsyncIterator[bytes]
    ) -> Upload:
        """Add a piece of `length` bytes at an offset; return the upload, with its job once it is
        whole.

        The part of an interrupted piece that came is kept. Raises HTTPException (409) for an offset
        that is not the end of the file, or a second piece at the same time, (413) for more bytes
        than announced.
        """
        if upload.id in self._busy:
            raise HTTPException(HTTPStatus.CONFLICT, "another piece of this upload is on its way")
        self._busy.add(upload.id)
        try:
            end = self.offset(upload)
            if offset != end:
                reason = f"{end} bytes are there, not {offset}"
                raise HTTPException(HTTPStatus.CONFLICT, reason, {"Upload-Offset": str(end)})
            if offset + length > upload.size:
                reason = f"more than the {upload.size} bytes announced"
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            try:
                await self._append(self._pieces(upload), parts)
            except OSError as error:
                reason = f"the piece cannot be kept ({error.strerror}); free some space, then go on"
                raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, reason) from error
            if self.offset(upload) == upload.size:
                return await run_in_threadpool(self._finish, upload)
            return upload
        finally:
            self._busy.discard(upload.id)

    async def _append(self, path: Path, parts: AsyncIterator[bytes]) -> None:
        check_writable(path.parent)
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            try:
                async for part in parts:
                    file.write(part)
            finally:
                file.flush()
                await run_in_threadpool(os.fsync, file.fileno())

    def _finish(self, upload: Upload) -> Upload:
        with self._jobs.paused():
            target = self._free_path(upload.name)
            job = self._uploads.finish(upload.id, str(target))
            self._place(upload, target)
        self._jobs.wake(job)
        return self._uploads.get(upload.id)

    def _free_path(self, name: str) -> Path:
        """Return a path in the library that no file has, with this name or a numbered one."""
        folder = self._folder / VIDEOS_FOLDER
        folder.mkdir(exist_ok=True)
        stem = safe_stem(Path(name).stem)
        suffix = Path(name).suffix.lower()
        sources = {Path(job.source) for job in self._stored_jobs.all()}
        path = folder / f"{stem}{suffix}"
        number = 1
        while path.exists() or path in sources:
            number += 1
            path = folder / f"{stem}-{number}{suffix}"
        return path

    def _place(self, upload: Upload, target: Path) -> None:
        """Move the file of a whole upload to its place, if it is not there yet."""
        pieces = self._pieces(upload)
        if pieces.exists():
            pieces.replace(target)

    def _pieces(self, upload: Upload) -> Path:
        return self._folder / PIECES_FOLDER / upload.id
