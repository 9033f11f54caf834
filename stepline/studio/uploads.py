"""Uploads of videos in chunks. Each chunk is on disk before it is answered, so an upload can resume.

An upload ends in two steps: first its end and its job are stored in one transaction, then the file
is moved. The next start moves a file that was not moved.
"""

import contextlib
import itertools
import logging
import os
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from stepline.files.atomic_files import check_plain_file, check_writable, open_plain_file
from stepline.outputs.text import MAX_STEM_BYTES, one_line
from stepline.pipeline.sources import VIDEO_SUFFIXES
from stepline.records import FrozenModel
from stepline.studio.jobs import JobRunner
from stepline.studio.store import Studio, Upload
from stepline.studio.worker import JobOptions

log = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 16 * 2**20  # of one request
MAX_FILE_BYTES = 2**40
MIN_FREE_BYTES = 2**30  # that stay free on the disk
MAX_OPEN_UPLOADS = 100  # that are not whole
MAX_IDLE_SECONDS = 7 * 86400.0  # without a piece, after which an upload is ended
# without a piece, after which an upload makes room for a new one where there are too many
MAX_IDLE_SECONDS_IF_FULL = 600.0
BLOCK_BYTES = 2**20  # that are written at a time
PARTIAL_FOLDER = ".stepline-uploads"  # in the library: files that are not whole
VIDEOS_FOLDER = "videos"  # in the library: whole files
FORBIDDEN_CHARACTERS = '\\/:*?"<>|'  # in file names, on one system or another


class UploadBody(FrozenModel):
    """Request body that begins an upload.

    Attributes:
        name: name of the file.
        size: size of the file in bytes.
        options: options of the job that begins when the file is complete.
    """

    name: Annotated[str, Field(min_length=1, max_length=255)]
    size: Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
    options: JobOptions = JobOptions()


class Uploads:
    """The unfinished uploads of a library, and their files. A complete upload becomes a job.

    Raises StoreError if the folders of uploads are links that lead out of the allowed folders.
    """

    def __init__(self, studio: Studio, jobs: JobRunner) -> None:
        self._library = studio.library
        self._uploads = studio.uploads
        self._stored_jobs = studio.jobs
        self._jobs = jobs
        self._receiving: set[str] = set()
        # What a kill left unfinished, and what no one continues.
        self._finish_moves()
        self._cancel_idle_uploads(MAX_IDLE_SECONDS)

    def begin(self, body: UploadBody) -> Upload:
        """Return a new upload.

        Raises HTTPException for a file that is not a video, too many open uploads, or too little
        disk space.
        """
        suffix = Path(body.name).suffix
        if suffix.lower() not in VIDEO_SUFFIXES:
            name = suffix or "no ending"
            reason = f"not a video by its name ({name}); mp4, mkv, mov and webm are"
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
        # Old uploads make room, and more of them where there are too many.
        self._cancel_idle_uploads(MAX_IDLE_SECONDS)
        unfinished = self._uploads.list_unfinished()
        if len(unfinished) >= MAX_OPEN_UPLOADS:
            self._cancel_idle_uploads(MAX_IDLE_SECONDS_IF_FULL)
            unfinished = self._uploads.list_unfinished()
        if len(unfinished) >= MAX_OPEN_UPLOADS:
            reason = f"{MAX_OPEN_UPLOADS} uploads are not whole; end some of them first"
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, reason)
        # The others that are not whole will want their room too.
        missing_bytes = sum(
            max(0, upload.size - self.received_bytes(upload)) for upload in unfinished
        )
        needed_bytes = body.size + MIN_FREE_BYTES + missing_bytes
        if shutil.disk_usage(self._library.folder).free < needed_bytes:
            reason = "the disk of the library has no room for it"
            raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, reason)
        return self._uploads.add(body.name, body.size, body.options.model_dump(mode="json"))

    def cancel(self, upload: Upload) -> None:
        """Cancel an upload and remove its file.

        Raises HTTPException (409) for a complete one, or while a chunk is received.
        """
        if upload.job is not None:
            raise HTTPException(HTTPStatus.CONFLICT, "the upload is whole; cancel its job")
        if upload.id in self._receiving:
            raise HTTPException(HTTPStatus.CONFLICT, "a piece of this upload is on its way")
        self._uploads.remove(upload.id)
        self._partial_path(upload).unlink(missing_ok=True)

    def received_bytes(self, upload: Upload) -> int:
        """Return how many bytes of an upload are on disk."""
        if upload.job is not None:
            return upload.size
        try:
            return self._partial_path(upload).lstat().st_size
        except FileNotFoundError:
            return 0

    async def append_chunk(
        self, upload: Upload, offset: int, length: int, parts: AsyncIterator[bytes]
    ) -> Upload:
        """Append a chunk to an upload. Return the upload, with its job if it is now complete.

        Args:
            upload: the upload. A complete one is returned as it is.
            offset: position of the chunk in the file, in bytes. It must be the number of bytes
                received so far.
            length: length of the chunk in bytes.
            parts: the bytes of the chunk, as they arrive.

        The received bytes of an interrupted chunk are kept. Raises HTTPException: 409 for a wrong
        offset or two chunks at the same time, 413 for more bytes than announced, 410 for a broken
        file, which is removed.
        """
        if upload.id in self._receiving:
            raise HTTPException(HTTPStatus.CONFLICT, "another piece of this upload is on its way")

        # one piece at a time: the offset is checked while no other one is written
        self._receiving.add(upload.id)
        try:
            # A client that got no reply to the last chunk sends again.
            upload = await run_in_threadpool(self._uploads.get, upload.id)
            if upload.job is not None:
                return upload
            self._check_chunk(
                upload, offset, length, await run_in_threadpool(self.received_bytes, upload)
            )
            try:
                await self._append_parts(self._partial_path(upload), parts)
            except OSError as error:
                reason = f"the piece cannot be kept ({error.strerror}); free some space, then go on"
                raise HTTPException(HTTPStatus.INSUFFICIENT_STORAGE, reason) from error
            if await run_in_threadpool(self.received_bytes, upload) == upload.size:
                return await run_in_threadpool(self._finish, upload)
            return upload
        finally:
            self._receiving.discard(upload.id)

    def _check_chunk(self, upload: Upload, offset: int, length: int, end: int) -> None:
        # The file is longer than announced, so something else has written to it.
        if end > upload.size:
            self._uploads.remove(upload.id)
            self._partial_path(upload).unlink(missing_ok=True)
            reason = f"{end} bytes are there of {upload.size}; begin the upload again"
            raise HTTPException(HTTPStatus.GONE, reason)
        # The reply names where to go on.
        if offset != end:
            reason = f"{end} bytes are there, not {offset}"
            raise HTTPException(HTTPStatus.CONFLICT, reason, {"Upload-Offset": str(end)})
        if offset + length > upload.size:
            reason = f"more than the {upload.size} bytes announced"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)

    async def _append_parts(self, path: Path, parts: AsyncIterator[bytes]) -> None:
        # The disk may be slow, and the event loop waits for nothing.
        file = await run_in_threadpool(_open_partial_file, path)
        try:
            # what came is on disk, also where the rest does not come
            block = bytearray()
            try:
                async for part in parts:
                    block += part
                    if len(block) >= BLOCK_BYTES:
                        await run_in_threadpool(_write_all, file, bytes(block))
                        block.clear()
            finally:
                await run_in_threadpool(_write_all, file, bytes(block))
                await run_in_threadpool(os.fsync, file.fileno())
        finally:
            file.close()

    def _finish(self, upload: Upload) -> Upload:
        # No job begins before its file is in its place.
        with self._jobs.paused():
            target = self._unused_path(upload.name)
            job = self._uploads.finish(upload.id, str(target))
            self._partial_path(upload).replace(target)
        self._jobs.notify(job)
        return self._uploads.get(upload.id)

    def _unused_path(self, name: str) -> Path:
        """Return an unused path in the library for a file name, numbered if it is taken.

        The name becomes the video's title, so it keeps all that file systems take.
        """
        folder = self._videos_folder()
        suffix = Path(name).suffix.lower()
        # Some file systems return a name in another form than it was given.
        text = "".join(
            letter if letter.isprintable() and letter not in FORBIDDEN_CHARACTERS else " "
            for letter in unicodedata.normalize("NFC", Path(name).stem)
        )
        cut = text.encode()[:MAX_STEM_BYTES].decode(errors="ignore")
        stem = one_line(cut).strip(" .") or "video"
        path = folder / f"{stem}{suffix}"
        # A path that a job once had stays taken: its record may name that path.
        numbered_names = itertools.count(2)
        while os.path.lexists(path) or self._stored_jobs.has_source(str(path)):
            path = folder / f"{stem}-{next(numbered_names)}{suffix}"
        return path

    def _finish_moves(self) -> None:
        """Move the files of complete uploads that a killed process did not move."""
        folder = self._library.resolve_allowed(Path(PARTIAL_FOLDER))
        if not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):
            try:
                job = self._uploads.get(path.name).job
                if job is None:
                    continue
                target = Path(self._stored_jobs.get(job).source)
            except LookupError:  # a file of another
                continue
            check_plain_file(path)
            # A stranger's row could name any path. Only one that this code would choose counts.
            expected = self._videos_folder() / target.name
            if target != expected or os.path.lexists(target):
                log.warning("%s: no free place of an upload, which stays where it is", target)
            else:
                path.replace(target)

    def _cancel_idle_uploads(self, seconds: float) -> None:
        """Cancel uploads that received no chunk for so many seconds."""
        for upload in self._uploads.list_unfinished():
            # The last piece is the file's last change.
            last = upload.created
            with contextlib.suppress(FileNotFoundError):
                last = max(last, self._partial_path(upload).lstat().st_mtime)
            if last < time.time() - seconds and upload.id not in self._receiving:
                self.cancel(upload)

    def _partial_path(self, upload: Upload) -> Path:
        return self._library.resolve_allowed(Path(PARTIAL_FOLDER)) / upload.id

    def _videos_folder(self) -> Path:
        """Return the folder of whole files.

        It is made, and may not lead out of the allowed folders.
        """
        folder = self._library.resolve_allowed(Path(VIDEOS_FOLDER))
        folder.mkdir(exist_ok=True)
        return folder


def _open_partial_file(path: Path) -> BinaryIO:
    check_writable(path.parent)
    path.parent.mkdir(exist_ok=True)
    return open_plain_file(path, append=True)


def _write_all(file: BinaryIO, block: bytes) -> None:
    remaining_bytes = memoryview(block)
    # A raw file may write fewer bytes than it is given.
    while remaining_bytes:
        remaining_bytes = remaining_bytes[file.write(remaining_bytes) :]
