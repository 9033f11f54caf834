"""The page that annotators use, served on this machine alone.

`AnnotationQueue`: which clip each annotator watches next, and which answers count.

Qualifying questions come first, then the clips that lack answers (WYS2, section 4 and supplement
2).
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Literal

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from stepline.errors import DatasetError
from stepline.files.append_log import AppendLog
from stepline.pages.layout import BASE_STYLE, page_html
from stepline.pages.web.local_server import (
    LocalServer,
    asset_response,
    file_response,
    post_route,
    serve_page,
)
from stepline.records import FrozenModel
from stepline.review.answers import PAPER_RULE, AnnotatorName, Answer
from stepline.review.clips import AnnotationClip

Stage = Literal["qualify", "annotate", "done", "not qualified"]
MIN_RIGHT_ANSWERS = 6  # of nine qualifying questions. WYS2, supplement 2
CLOCK_TOLERANCE_SECONDS = 0.3  # by which a clip may seem to end too soon


@dataclass(frozen=True)
class AnnotationTask:
    """What an annotator does next.

    Attributes:
        stage: "qualify" (a question of the qualification test), "annotate", "done" or "not
            qualified".
        clip: clip to watch, None at the end.
        remaining_count: number of clips after this one.
    """

    stage: Stage
    clip: AnnotationClip | None = None
    remaining_count: int = 0


class AnnotationQueue:
    """Assigns clips to annotators and stores their answers. It is thread-safe.

    Attributes:
        clips: all clips by id, with those of the qualification test.
        to_annotate: the clips without those of the qualification test.

    Args:
        clips: clips to annotate.
        answers: log of the answers.
        qualifying: clips of the qualification test, whose right answers are known.
        right: number of right answers that the test needs.
        annotators: number of answers that each clip needs.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        clips: Sequence[AnnotationClip],
        answers: AppendLog[Answer],
        *,
        qualifying: Sequence[AnnotationClip] = (),
        right: int = MIN_RIGHT_ANSWERS,
        annotators: int = PAPER_RULE.annotators,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(qualifying) and right > len(qualifying):
            raise DatasetError(
                f"{right} right answers of {len(qualifying)} questions cannot be; lower --right"
            )
        # A qualifying answer would count as one about the clip.
        shared = {clip.id for clip in clips} & {clip.id for clip in qualifying}
        if shared:
            raise DatasetError(
                f"{sorted(shared)[0]!r} is a qualifying question and a clip to annotate; keep one"
            )
        self.clips = {clip.id: clip for clip in (*qualifying, *clips)}
        self.to_annotate = list(clips)
        self._qualifying = list(qualifying)
        self._right = right
        self._annotators = annotators
        self._answers = answers
        self._clock = clock
        self._lock = Lock()
        self._begun: dict[tuple[str, str], float] = {}  # by annotator and clip
        # by annotator, the id of a clip
        self._last: dict[str, str] = {}  # answered last
        self._taken_back: dict[str, str] = {}  # whose answer they give again
        self._current: dict[str, str] = {}  # in front of them, whatever others answer

    def next_task(self, annotator: str) -> AnnotationTask:
        """Return the next task of an annotator. Clips with the most answers come first.

        A clip stays assigned until the annotator answers it. annotator: name of the person.
        """
        with self._lock:
            task = self._choose_task(annotator)
            if task.clip is not None:
                self._current[annotator] = task.clip.id
            return task

    def _choose_task(self, annotator: str) -> AnnotationTask:
        # Their new task is worked out in any case, for the number that is left.
        task = self._choose_new_task(annotator)
        again = self._taken_back.get(annotator)
        if again is None:
            return task
        is_qualifying = any(clip.id == again for clip in self._qualifying)
        stage: Stage = "qualify" if is_qualifying else "annotate"
        return AnnotationTask(
            stage, self.clips[again], task.remaining_count + (task.clip is not None)
        )

    def _choose_new_task(self, annotator: str) -> AnnotationTask:
        # How many answers each clip has, and what this person has said.
        counts: Counter[str] = Counter()
        own = {}
        for answer in self._answers:
            counts[answer.item] += 1
            if answer.annotator == annotator:
                own[answer.item] = answer.shown
        # First the qualifying questions, which must be answered well enough ...
        questions = [clip for clip in self._qualifying if clip.id not in own]
        if questions:
            return AnnotationTask("qualify", questions[0], len(questions) - 1)
        right = sum(own[clip.id] == clip.shown for clip in self._qualifying)
        if self._qualifying and right < self._right:
            return AnnotationTask("not qualified")
        # ... then the clip in front of them, or the one nearest to having all its answers.
        current = self._current.get(annotator)
        clips = [
            clip
            for clip in self.to_annotate
            if clip.id not in own and (counts[clip.id] < self._annotators or clip.id == current)
        ]
        if not clips:
            return AnnotationTask("done")
        # Clips that are nearly complete come first, so that few are left without all answers.
        best = max(clips, key=lambda clip: (clip.id == current, counts[clip.id]))
        return AnnotationTask("annotate", best, len(clips) - 1)

    def start_clip(self, annotator: str, clip: str) -> None:
        """Note that an annotator starts to watch a clip.

        Args:
            annotator: name of the person.
            clip: id of the clip.
        """
        if clip not in self.clips:
            raise DatasetError(f"{clip!r}: no such clip; load the page again")
        with self._lock:
            self._begun.setdefault((annotator, clip), self._clock())

    def add_answer(self, answer: Answer) -> None:
        """Store an answer to the assigned clip, which must have been watched to its end.

        Raises DatasetError for any other answer.
        """
        if answer.confidence is None or answer.answer not in ("aligned", "not shown"):
            raise DatasetError("an answer is shown or not, and how sure; load the page again")
        with self._lock:
            # The answer has to be to the clip in front of them, watched long enough.
            clip = self._choose_task(answer.annotator).clip
            if clip is None or clip.id != answer.item:
                raise DatasetError(
                    f"{answer.item!r} is not the clip that was asked about; load the page again"
                )
            start_time = self._begun.get((answer.annotator, answer.item))
            watched_seconds = 0.0 if start_time is None else self._clock() - start_time
            if start_time is None or watched_seconds < clip.span.duration - CLOCK_TOLERANCE_SECONDS:
                raise DatasetError(
                    f"the clip was not watched to its end; it is {clip.span.duration:.1f} s long"
                )
            self._answers.add(answer.model_copy(update={"seconds": round(watched_seconds, 2)}))
            self._taken_back.pop(answer.annotator, None)
            self._last[answer.annotator] = answer.item

    def undo(self, annotator: str) -> None:
        """Assign the clip that an annotator answered last to this annotator again.

        The new answer replaces the old one. annotator: name of the person.

        Raises DatasetError if there is no such answer.
        """
        with self._lock:
            if annotator not in self._last:
                raise DatasetError("no answer can be taken back; only the last one can, once")
            self._taken_back[annotator] = self._last.pop(annotator)

    def annotations(self) -> list[Answer]:
        """Return the answers about the clips to annotate, without the qualification test."""
        ids = {clip.id for clip in self.to_annotate}
        return [answer for answer in self._answers if answer.item in ids]


CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; media-src 'self'; "
    "connect-src 'self'"
)
# by path
PAGE_FILES = {
    "page.js": files(__package__) / "page.js",
    "page.css": files(__package__) / "page.css",
    "base.css": BASE_STYLE,
}


class Annotator(FrozenModel):
    """Request of an annotator to take back the last answer."""

    annotator: AnnotatorName


class ClipStart(Annotator):
    """Request that reports when an annotator starts to watch a clip."""

    clip: str


def serve_annotation_page(queue: AnnotationQueue, folder: Path, port: int = 0) -> LocalServer:
    """Return a web server of the annotation page, for browsers on this machine.

    Args:
        queue: clips and answers.
        folder: folder for clips, which are cut when they are first watched.
        port: TCP port. 0 takes a free one.
    """
    return serve_page(
        annotation_routes(queue, folder), port, token="annotate", policy=CONTENT_POLICY
    )


def annotation_routes(queue: AnnotationQueue, folder: Path) -> list[Route]:
    """Return the routes of the annotation page.

    Args:
        queue: clips and answers.
        folder: folder for clips, which are cut when they are first watched.
    """
    # A clip is asked for by its number, so no path of a video reaches the page.
    clips = list(queue.clips.values())
    numbers = {clip.id: number for number, clip in enumerate(clips)}
    names = {f"{number}.mp4": number for number in range(len(clips))}
    cutting = Lock()

    template_text = (files(__package__) / "page.html").read_text(encoding="utf-8")
    html = page_html(template_text, style=None, sheets=("base.css", "page.css"), footer="")

    def page(_: Request) -> Response:
        return HTMLResponse(html)

    def file(name: str, _: Request) -> Response:
        return asset_response(PAGE_FILES[name])

    # the requests of the page
    def next_task(request: Request) -> Response:
        # raises ValidationError for a missing name
        sender = Annotator(annotator=request.query_params.get("annotator", ""))
        task = queue.next_task(sender.annotator)
        reply: dict[str, object] = {"stage": task.stage, "left": task.remaining_count}
        if task.clip is not None:
            media = f"/clip/{numbers[task.clip.id]}.mp4"
            reply |= {"clip": task.clip.id, "text": task.clip.text, "media": media}
        return JSONResponse(reply)

    def clip(request: Request) -> Response:
        from stepline.media import cut_clip

        number = names[request.path_params["name"]]
        path = folder / f"{number:05d}.mp4"
        # Two people may open a clip at the same time. It is cut once.
        with cutting:
            if not path.exists():
                cut_clip(Path(clips[number].video), clips[number].span, path)
        return file_response(request, path, "video/mp4")

    return [
        Route("/", page),
        *(Route(f"/{name}", partial(file, name)) for name in PAGE_FILES),
        Route("/next", next_task),
        Route("/clip/{name:path}", clip),
        post_route(
            "/begin", ClipStart, lambda start: queue.start_clip(start.annotator, start.clip)
        ),
        post_route("/undo", Annotator, lambda sender: queue.undo(sender.annotator)),
        post_route("/answer", Answer, queue.add_answer),
    ]
