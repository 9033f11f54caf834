"""The pages that ask people about videos, as views of the studio that keep the answers in the
library's database.

`/annotate/` asks whether a clip of the library shows the words that are spoken in it (WYS2, section
4). `stepline annotate vnd` does so with its own files. `/audit/` lets people check a sample of a
dataset, as `stepline curate audit` does (NaSVA, section 4.5).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from starlette.concurrency import run_in_threadpool
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from stepline.library.corrected_library import LibraryVideo
from stepline.records import Video
from stepline.review import AnnotationClip, AnnotationQueue, Answer, AnswerLog
from stepline.review.clips import clips_of
from stepline.review.server import annotation_routes
from stepline.studio.store import Studio

if TYPE_CHECKING:
    from stepline.curate.audit.sample import AuditSample

ANNOTATORS_PER_CLIP = 2  # agreement needs two, and a household or an office has no seven
CLIPS_FOLDER = ".stepline-annotate"  # in the library: the clips that were watched


class View(ABC):
    """An ASGI application for all paths below `at`. Its routes are made again when their subject
    has changed."""

    at: ClassVar[str]

    def __init__(self) -> None:
        self._router: Router | None = None
        self._lock = Lock()

    def route(self) -> Route:
        """Return the route to this view."""
        return Route(self.at + "{rest:path}", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the routes."""
        router = self._router
        # Its subject is looked at again when a page opens, and where it asks what is next.
        if router is None or scope["path"] in (self.at, f"{self.at}next"):
            router = await run_in_threadpool(self._current_router)
        await router(scope, receive, send)

    def _current_router(self) -> Router:
        with self._lock:
            routes = self._changed_routes()
            if self._router is None or routes is not None:
                self._router = Router(routes or ())
            return self._router

    @abstractmethod
    def _changed_routes(self) -> list[Route] | None:
        """Return the routes. None where their subject has not changed."""


class AnnotationView(View):
    """A clip for each sentence of the library's videos whose files are found, in one queue for all
    annotators."""

    at = "/annotate/"

    def __init__(self, studio: Studio) -> None:
        super().__init__()
        self._studio = studio
        self._clips: list[AnnotationClip] = []
        # by the version of a record, so that a visit reads only new ones
        self._clips_of: dict[LibraryVideo, tuple[Video, list[AnnotationClip]]] = {}

    def library_clips(self) -> list[AnnotationClip]:
        """Return the clips of all videos. ids: the video's, and the sentence's."""
        library = self._studio.library
        clips = []
        for card in library.videos():
            version = library.video(card.id)
            if version not in self._clips_of:
                # Answers are kept under the library's id of a video, not the record's own.
                record = library.record(card.id).model_copy(update={"id": card.id})
                self._clips_of[version] = (record.video, list(clips_of(record)))
            video, clips_of_video = self._clips_of[version]
            media = library.media_file(card.id, video)
            if media is not None:
                clips += [clip.model_copy(update={"video": str(media)}) for clip in clips_of_video]
        return clips

    def _changed_routes(self) -> list[Route] | None:
        library = self._studio.library
        clips = self.library_clips()
        if clips == self._clips:
            return None
        self._clips = clips
        # Another set of clips gets a folder of its own, named by what is in it.
        text = "\n".join(clip.model_dump_json() for clip in clips)
        folder = (
            library.resolve_allowed(Path(CLIPS_FOLDER)) / sha256(text.encode()).hexdigest()[:12]
        )
        queue = AnnotationQueue(clips, self._studio.answers, annotators=ANNOTATORS_PER_CLIP)
        return annotation_routes(queue, folder, self.at)


class StoredVerdicts:
    """The verdicts on a sample, in the library's database and in the file of `stepline curate
    audit`, which its reports read.

    Verdicts of that command are taken in. The file gets a verdict first. What is lost of the file,
    the database restores.
    """

    def __init__(self, studio: Studio, log: AnswerLog, sample: "AuditSample") -> None:
        self._stored = studio.verdicts
        self._log = log
        ids = {text.id for text in sample.texts}
        logged = {(verdict.item, verdict.annotator) for verdict in log}
        # What the file lost comes back from the database.
        for verdict in self._stored:
            if verdict.item in ids and (verdict.item, verdict.annotator) not in logged:
                log.add(verdict)

    def __iter__(self) -> Iterator[Answer]:
        """Yield the verdicts in the order first given."""
        # What the command added since goes to the database.
        stored = set(self._stored)
        logged = list(self._log)
        for verdict in logged:
            if verdict not in stored:
                self._stored.add(verdict)
        return iter(logged)

    def add(self, entry: Answer) -> None:
        """Keep a verdict."""
        self._log.add(entry)
        self._stored.add(entry)


class AuditView(View):
    """The report of the dataset in `out`, with the audit, by the settings of its recipe."""

    at = "/audit/"

    def __init__(self, studio: Studio, out: Path) -> None:
        super().__init__()
        self._studio = studio
        self._out = out
        self._shards: list[tuple[str, int, int]] | None = None

    @property
    def has_dataset(self) -> bool:
        """Whether there is a dataset to check."""
        return bool(self._dataset())

    def _dataset(self) -> list[tuple[str, int, int]]:
        """Return the name, time of change and bytes of each file of the dataset."""
        from stepline.curate.stage import DATASET_FOLDER

        shards = []
        # Names, times and sizes change with the dataset, and cost no reading.
        for path in sorted((self._out / DATASET_FOLDER / "data").glob("*.parquet")):
            state = path.stat()
            shards.append((path.name, state.st_mtime_ns, state.st_size))
        return shards

    def _changed_routes(self) -> list[Route] | None:
        from stepline.curate.audit.verdicts import audit_routes
        from stepline.curate.report.write import local_verdicts, make_report, report_recipe
        from stepline.files.remote import RemotePath

        shards = self._dataset()
        if shards == self._shards:
            return None
        recipe = report_recipe(RemotePath(str(self._out)))
        folder = RemotePath(str(self._out), recipe.remote)
        report = make_report(folder, recipe.report)
        sample = report.findings.sample
        verdicts = StoredVerdicts(self._studio, local_verdicts(folder), sample)
        self._shards = shards
        return audit_routes(lambda: report.html(list(verdicts)), sample, verdicts, self.at)
