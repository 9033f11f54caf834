"""Files that come in pieces, each piece on disk before it is answered, so that an upload goes on
after any end.

The order of a finish: the job and the upload's end in one transaction, then the file takes its
place; a start puts right what came between the two.
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

PIECE = 16 * 2**20  # bytes of one request at most
LARGEST = 2**40  # bytes of a file
SPARE = 2**30  # bytes that stay free on the disk
MOST = 100  # uploads that are not whole
KEPT = 7 * 86400.0  # s that one is kept that is not whole
PIECES, VIDEOS = ".stepline-uploads", "videos"  # folders in the library


class UploadBody(FrozenModel):
    """What begins an upload. size: bytes. options: of the job that its end begins."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    size: Annotated[int, Field(ge=1, le=LARGEST)]
    options: JobOptions = JobOptions()


class Uploads:
    """The uploads of a library; one that is whole becomes a job."""

    def __init__(self, studio: Studio, jobs: JobRunner) -> None:
        self._studio, self._jobs = studio, jobs
        self._busy: set[str] = set()
        for upload in studio.uploads():
            if upload.job is not None:
                self._place(upload, Path(studio.job(upload.job).source))
            elif upload.made < time.time() - KEPT:
                self._pieces(upload).unlink(missing_ok=True)
                studio.forget_upload(upload.id)

    def begin(self, body: UploadBody) -> Upload:
        """Return a new upload. Raises HTTPException for what is no video, too many at once, and a
        disk too small."""
        if Path(body.name).suffix.lower() not in VIDEO_SUFFIXES:
            told = f"no video by its name; known: {', '.join(sorted(VIDEO_SUFFIXES))}"
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, told)
        if sum(upload.job is None for upload in self._studio.uploads()) >= MOST:
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{MOST} uploads are not whole; end some of them first",
            )
        if shutil.disk_usage(self._studio.folder).free < body.size + SPARE:
            raise HTTPException(
                HTTPStatus.INSUFFICIENT_STORAGE, "the disk of the library has no room for it"
            )
        return self._studio.add_upload(body.name, body.size, body.options.model_dump(mode="json"))

    def offset(self, upload: Upload) -> int:
        """Return how many bytes of an upload are on disk."""
        if upload.job is not None:
            return upload.size
        path = self._pieces(upload)
        return path.stat().st_size if path.exists() else 0

    async def take(
        self, upload: Upload, offset: int, length: int, parts: AsyncIterator[bytes]
    ) -> Upload:
        """Add a piece of so many bytes at an offset, and return the upload, with its job where it
        is whole now.

        What came of a piece that breaks off stays. Raises HTTPException (409) for another offset
        than what is there, or a second piece at the same time, (413) for more than the upload has.
        """
        if upload.id in self._busy:
            raise HTTPException(HTTPStatus.CONFLICT, "another piece of this upload is on its way")
        self._busy.add(upload.id)
        try:
            there = self.offset(upload)
            if offset != there:
                told = f"{there} bytes are there, not {offset}"
                raise HTTPException(HTTPStatus.CONFLICT, told, {"Upload-Offset": str(there)})
            if offset + length > upload.size:
                raise HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"more than the {upload.size} bytes announced",
                )
            path = self._pieces(upload)
            check_writable(path.parent)
            path.parent.mkdir(exist_ok=True)
            try:
                with path.open("ab") as file:
                    try:
                        async for part in parts:
                            file.write(part)
                    finally:
                        file.flush()
                        await run_in_threadpool(os.fsync, file.fileno())
            except OSError as error:
                told = f"the piece cannot be kept ({error.strerror}); free some space, then go on"
                raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, told) from error
            if self.offset(upload) == upload.size:
                return await run_in_threadpool(self._finish, upload)
            return upload
        finally:
            self._busy.discard(upload.id)

    def _finish(self, upload: Upload) -> Upload:
        with self._jobs.paused():
            target = self._free_place(upload.name)
            job = self._studio.finish_upload(upload.id, str(target))
            self._place(upload, target)
        self._jobs.wake(job)
        return self._studio.upload(upload.id)

    def _free_place(self, name: str) -> Path:
        """Return a path in the library that no file has, of this name or one like it."""
        folder, stem, suffix = (
            self._studio.folder / VIDEOS,
            safe_stem(Path(name).stem),
            Path(name).suffix.lower(),
        )
        folder.mkdir(exist_ok=True)
        taken = {Path(job.source) for job in self._studio.jobs()}
        number, place = 1, folder / f"{stem}{suffix}"
        while place.exists() or place in taken:
            number += 1
            place = folder / f"{stem}-{number}{suffix}"
        return place

    def _place(self, upload: Upload, target: Path) -> None:
        """Put the file of an upload that is whole in its place, if it is not there yet."""
        pieces = self._pieces(upload)
        if pieces.exists():
            pieces.replace(target)

    def _pieces(self, upload: Upload) -> Path:
        return self._studio.folder / PIECES / upload.id
