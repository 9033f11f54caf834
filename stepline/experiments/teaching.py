"""From the lessons of a corpus and labels to training samples, as a trial's plan says."""

from collections.abc import Sequence

import numpy as np

from stepline.batches import Flags, LazySamples
from stepline.errors import DatasetError
from stepline.experiments.corpus import Lesson
from stepline.experiments.trial import LabelPlan
from stepline.nasva.coarse import coarse_spans
from stepline.nasva.labels import Places, alikeness, refine
from stepline.nasva.selftrain_settings import RefineSettings
from stepline.nasva.settings import CoarseSettings
from stepline.nasva.written import Written, step_samples, written
from stepline.records import Span

VIDEO_LABELS = RefineSettings(threshold=0.0, position="center", seconds=None)  # grown around the likest second


def first_labels(lessons: Sequence[Lesson], plan: LabelPlan) -> tuple[Places, ...]:
    """Return the labels of the written steps before any network is trained.

    Raises DatasetError when the planted truth is asked for where there is none.
    """
    if plan.first == "video":
        likeness = [alikeness(lesson.features.values, lesson.step_vectors) for lesson in lessons]
        return refine([likeness], [lesson.features.rate for lesson in lessons], VIDEO_LABELS)
    if plan.first == "planted":
        return tuple(planted(lesson, lesson.truth) for lesson in lessons)
    return tuple(_said(lesson, CoarseSettings(floor=plan.floor)) for lesson in lessons)


def planted(lesson: Lesson, truth: Flags | None) -> Places:
    """Return the first window in which each text is really shown."""
    if truth is None:
        raise DatasetError(f"{lesson.id}: no planted truth; only simulated videos have it")
    return tuple(_first_window(row, lesson.features.rate) for row in truth)


def lessons_written(lessons: Sequence[Lesson]) -> list[Written]:
    """Return the lessons' written steps, none of them placed."""
    return [written(one.id, one.features, one.step_vectors, (None,) * len(one.steps)) for one in lessons]


def narration_samples(lessons: Sequence[Lesson], *, really: bool) -> LazySamples:
    """Return the sentences as samples, each labelled where it is spoken, or where it is really shown."""
    places = [
        planted(one, one.sentence_truth) if really else tuple(each.span for each in one.sentences) for one in lessons
    ]
    said = [written(one.id, one.features, one.sentence_vectors, (None,) * len(one.sentences)) for one in lessons]
    return step_samples(said, places)


def _said(lesson: Lesson, settings: CoarseSettings) -> Places:
    """Return where each step is said, by its likeness to the narration (Step-ASR)."""
    duration = len(lesson.features.values) / lesson.features.rate
    kept, _ = coarse_spans(lesson.steps, lesson.sentences, lesson.likeness, duration=duration, settings=settings)
    said = {step.id: step.said for step in kept}
    return tuple(said.get(step.id) for step in lesson.steps)


def _first_window(row: Flags, rate: float) -> Span | None:
    shown = np.flatnonzero(row)
    if not len(shown):
        return None
    gaps = np.flatnonzero(np.diff(shown) > 1)
    last = shown[gaps[0]] if len(gaps) else shown[-1]
    return Span(float(shown[0] / rate), float((last + 1) / rate))
