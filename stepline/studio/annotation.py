"""What people are asked about videos, as views of the studio that keep what they say in its one
store.

`/annotate/` asks whether a clip of the library shows what is said in it, as `stepline annotate vnd`
does with files of its own (WYS2, section 4). `/audit/` has people check a sample of a dataset, as
`stepline curate audit` does (NaSVA, section 4.5).
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

from stepline.annotate import AnnotationClip, AnnotationQueue, Answer
from stepline.annotate.clips import clips_of
from stepline.annotate.server import annotation_routes
from stepline.studio.store import Studio

if TYPE_CHECKING:
    from stepline.curate.audit.sample import AuditSample
    from stepline.curate.audit.verdicts import Verdict, Verdicts

ASKED = 2  # people a clip: agreement needs two, and a household or an office has no seven
CUT = ".stepline-annotate"  # in the library: the clips that were watched


class StoredAnswers:
    """The answers in a library's store, as `stepline annotate vnd` keeps them in a file."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def __iter__(self) -> Iterator[Answer]:
        """Yield the answers in the order first given."""
        return iter(self._studio.answers())

    def add(self, entry: Answer) -> None:
        """Keep an answer."""
        self._studio.keep_answer(entry)


def library_clips(studio: Studio) -> list[AnnotationClip]:
    """Return a clip a sentence of the library's videos whose files are there; ids: the video's, and
    the sentence's."""
    found = []
    for card in studio.videos():
        record = studio.record(card.id)
        media = studio.media(card.id, record)
        if media is not None:
            video = record.video.model_copy(update={"path": str(media)})
            named = record.model_copy(update={"id": card.id, "video": video})
            found += list(clips_of(named))
    return found


class View(ABC):
    """An ASGI application of all below the path `at`, whose routes are made anew where what they
    ask about changed."""

    at: ClassVar[str]

    def __init__(self) -> None:
        self._router: Router | None = None
        self._lock = Lock()

    def route(self) -> Route:
        """Return the route that leads here."""
        return Route(self.at + "{rest:path}", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the routes."""
        router = self._router
        if router is None or scope["path"] in (self.at, f"{self.at}next"):
            router = await run_in_threadpool(self._look)
        await router(scope, receive, send)

    def _look(self) -> Router:
        with self._lock:
            routes = self._changed_routes()
            if self._router is None or routes is not None:
                self._router = Router(routes or ())
            return self._router

    @abstractmethod
    def _changed_routes(self) -> list[Route] | None:
        """Return the routes; None where what they ask about is as before."""


class AnnotationView(View):
    """The clips of the library, a queue of them for all annotators."""

    at = "/annotate/"

    def __init__(self, studio: Studio) -> None:
        super().__init__()
        self._studio = studio
        self._clips: list[AnnotationClip] = []

    def _changed_routes(self) -> list[Route] | None:
        clips = library_clips(self._studio)
        if clips == self._clips:
            return None
        told = "\n".join(clip.model_dump_json() for clip in clips)
        folder = self._studio.folder / CUT / sha256(told.encode()).hexdigest()[:12]
        self._clips = clips
        return annotation_routes(
            AnnotationQueue(clips, StoredAnswers(self._studio), asked=ASKED), folder, self.at
        )


class StoredVerdicts:
    """The verdicts on a sample in a library's store, each in the file of `stepline curate audit`
    too, for its reports.

    What that command took meanwhile is taken in. The file has it first: whatever is lost of it, the
    store gives back.
    """

    def __init__(self, studio: Studio, exported: "Verdicts", sample: "AuditSample") -> None:
        self._studio, self._exported = studio, exported
        asked = {text.id for text in sample.texts}
        there = {(verdict.asked, verdict.annotator) for verdict in exported}
        for verdict in studio.verdicts():
            if verdict.asked in asked and (verdict.asked, verdict.annotator) not in there:
                exported.add(verdict)

    def __iter__(self) -> "Iterator[Verdict]":
        """Yield the verdicts in the order first given."""
        known, there = set(self._studio.verdicts()), list(self._exported)
        for verdict in there:
            if verdict not in known:
                self._studio.keep_verdict(verdict)
        return iter(there)

    def add(self, entry: "Verdict") -> None:
        """Keep a verdict."""
        self._exported.add(entry)
        self._studio.keep_verdict(entry)


class AuditView(View):
    """The report of the dataset below `out`, with the audit in it, by the settings of its
    recipe."""

    at = "/audit/"

    def __init__(self, studio: Studio, out: Path) -> None:
        super().__init__()
        self._studio, self._out = studio, out
        self._shards: list[tuple[str, int, int]] | None = None

    @property
    def has_dataset(self) -> bool:
        """Whether there is a dataset to check."""
        return bool(self._dataset())

    def _dataset(self) -> list[tuple[str, int, int]]:
        """Return the name, time of change and bytes of each file of the dataset."""
        from stepline.curate.stage import DATASET_FOLDER

        states = [
            (path.name, path.stat())
            for path in sorted((self._out / DATASET_FOLDER / "data").glob("*.parquet"))
        ]
        return [(name, state.st_mtime_ns, state.st_size) for name, state in states]

    def _changed_routes(self) -> list[Route] | None:
        from stepline.curate.audit.verdicts import audit_routes
        from stepline.curate.report.write import local_verdicts, make_report, report_recipe
        from stepline.remote import RemotePath

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
