"""The order of annotation: who watches what next, and which answers count.

Qualifying questions come first, then the clips that lack answers (WYS2, section 4 and supplement
2).
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeAlias

from stepline.annotate.answers import ASKED, Answer
from stepline.annotate.clips import AnnotationClip
from stepline.append_log import EntryStore
from stepline.errors import DatasetError

Stage: TypeAlias = Literal["qualify", "annotate", "done", "not qualified"]
RIGHT = 6  # of nine qualifying questions that must be right; WYS2, supplement 2
EARLY = 0.3  # s by which a clock may say that a clip ended too soon


@dataclass(frozen=True)
class AnnotationTask:
    """What an annotator does next; `left`: how many of this stage after it."""

    stage: Stage
    clip: AnnotationClip | None = None
    left: int = 0


class AnnotationQueue:
    """Hands out clips and takes answers, for any number of annotators at once. clock: seconds,
    never backwards."""

    def __init__(
        self,
        clips: Sequence[AnnotationClip],
        answers: EntryStore[Answer],
        *,
        qualifying: Sequence[AnnotationClip] = (),
        right: int = RIGHT,
        asked: int = ASKED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(qualifying) and right > len(qualifying):
            raise DatasetError(
                f"{right} right answers of {len(qualifying)} questions cannot be; lower --right"
            )
        shared = {clip.id for clip in clips} & {clip.id for clip in qualifying}
        if shared:
            raise DatasetError(
                f"{sorted(shared)[0]!r} is a qualifying question and a clip to annotate; keep one"
            )
        self.clips = {clip.id: clip for clip in (*qualifying, *clips)}
        self.to_annotate = list(clips)
        self._qualifying, self._right, self._asked = list(qualifying), right, asked
        self._answers, self._clock, self._lock = answers, clock, Lock()
        self._begun: dict[tuple[str, str], float] = {}
        self._last: dict[str, str] = {}  # the clip that each annotator answered last
        self._taken_back: dict[str, str] = {}  # the one whose answer they give anew
        # the clip that each annotator has before them, whatever others answer
        self._given: dict[str, str] = {}

    def next(self, annotator: str) -> AnnotationTask:
        """Return what the annotator does next. Clips nearest to having all their answers come
        first.

        A clip that was given stays theirs until they answer it.
        """
        with self._lock:
            task = self._next(annotator)
            if task.clip is not None:
                self._given[annotator] = task.clip.id
            return task

    def _next(self, annotator: str) -> AnnotationTask:
        following = self._following(annotator)
        again = self._taken_back.get(annotator)
        if again is None:
            return following
        stage: Stage = (
            "qualify" if any(clip.id == again for clip in self._qualifying) else "annotate"
        )
        return AnnotationTask(
            stage, self.clips[again], following.left + (following.clip is not None)
        )

    def _following(self, annotator: str) -> AnnotationTask:
        answers = list(self._answers)
        own = {answer.clip: answer.shown for answer in answers if answer.annotator == annotator}
        count = Counter(answer.clip for answer in answers)
        waiting = [clip for clip in self._qualifying if clip.id not in own]
        if waiting:
            return AnnotationTask("qualify", waiting[0], len(waiting) - 1)
        if (
            sum(own[clip.id] == clip.shown for clip in self._qualifying) < self._right
            and self._qualifying
        ):
            return AnnotationTask("not qualified")
        given = self._given.get(annotator)
        open_clips = [
            clip
            for clip in self.to_annotate
            if clip.id not in own and (count[clip.id] < self._asked or clip.id == given)
        ]
        if not open_clips:
            return AnnotationTask("done")
        chosen = max(open_clips, key=lambda clip: (clip.id == given, count[clip.id]))
        return AnnotationTask("annotate", chosen, len(open_clips) - 1)

    def begin(self, annotator: str, clip: str) -> None:
        """Note that the annotator starts to watch a clip."""
        if clip not in self.clips:
            raise DatasetError(f"{clip!r}: no such clip; load the page again")
        with self._lock:
            self._begun.setdefault((annotator, clip), self._clock())

    def answer(self, answer: Answer) -> None:
        """Keep an answer to the annotator's own next clip, once the clip can have been watched to
        its end.

        Raises DatasetError for any other answer.
        """
        with self._lock:
            clip = self._next(answer.annotator).clip
            if clip is None or clip.id != answer.clip:
                raise DatasetError(
                    f"{answer.clip!r} is not the clip that was asked about; load the page again"
                )
            begun = self._begun.get((answer.annotator, answer.clip))
            watched = 0.0 if begun is None else self._clock() - begun
            if begun is None or watched < clip.span.duration - EARLY:
                raise DatasetError(
                    f"the clip was not watched to its end; it is {clip.span.duration:.1f} s long"
                )
            self._answers.add(answer.model_copy(update={"seconds": round(watched, 2)}))
            self._taken_back.pop(answer.annotator, None)
            self._last[answer.annotator] = answer.clip

    def undo(self, annotator: str) -> None:
        """Ask an annotator anew about the clip that they answered last; the new answer takes the
        old one's place.

        Raises DatasetError where they have answered none since the page was served, or taken it
        back already.
        """
        with self._lock:
            if annotator not in self._last:
                raise DatasetError("no answer can be taken back; only the last one can, once")
            self._taken_back[annotator] = self._last.pop(annotator)

    def annotations(self) -> list[Answer]:
        """Return the answers about clips to annotate, by people who are qualified."""
        ids = {clip.id for clip in self.to_annotate}
        return [answer for answer in self._answers if answer.clip in ids]
