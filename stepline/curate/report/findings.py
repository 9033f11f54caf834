"""All that a report shows of a run, found in one pass over its dataset."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepline.curate.audit.sample import Drawing, Sample
from stepline.curate.report.counts import Counts
from stepline.curate.report.task_map import TaskMap, task_map
from stepline.curate.report.task_steps import TaskSteps, task_steps
from stepline.curate.report.twins import Twins, twins
from stepline.curate.report.words import keywords
from stepline.curate.report_settings import ReportSettings
from stepline.curate.some import Some
from stepline.curate.stage import Failure, FailureKind
from stepline.errors import ModelError
from stepline.records import Record, Step
from stepline.sieve_swap.text_base.lines import Document

NAMED = 3  # videos named beside a reason

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Reason:
    """Why videos have no result of a stage; numbers in the reason read as #. videos: ids of the first few."""

    stage: str
    kind: str
    reason: str
    count: int
    videos: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """What was found. notes: parts of the report that could not be made, and why."""

    counts: Counts
    reasons: tuple[Reason, ...]
    keywords: Mapping[str, Counter[str]]
    twins: Twins
    plane: TaskMap | None
    tasks: tuple[TaskSteps, ...]
    sample: Sample
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[str, ...] = ()

    def with_notes(self, notes: Sequence[str]) -> "Findings":
        """Return the same with more notes."""
        return replace(self, notes=(*self.notes, *notes))


def find(
    records: Iterable[Record],
    settings: ReportSettings,
    *,
    failures: Sequence[Failure] = (),
    documents: Iterable[Document] = (),
    provenance: Mapping[str, str] | None = None,
    stages: tuple[str, ...] = (),
) -> Findings:
    """Return what a report shows of some records, kept and left out.

    failures: as the run noted them, which tells a hang from an error. documents: of a text base to compare tasks with.
    provenance: lines that say where the dataset comes from. stages: of the recipe, in its order.
    """
    counts = Counts()
    drawing = Drawing(videos=settings.audit_videos, texts=settings.audit_texts, seed=settings.seed)
    steps: Some[str] = Some(settings.steps_read, seed=settings.seed)
    videos: Some[tuple[str, ...]] = Some(settings.videos_compared, seed=settings.seed)
    placed = _Placed(settings)
    noted = {(failure.id, failure.stage): failure.kind for failure in failures}
    lost: list[Failure] = []
    for record in records:
        if not counts.add(record):
            lost.append(_loss(record, noted))
        else:
            drawing.add(record)
            videos.add(record.id, tuple(step.text for step in record.steps))
            placed.add(record)
            for number, step in enumerate(record.steps):
                steps.add(f"{record.id} {number}", step.text)
    notes: list[str] = []
    return Findings(
        counts=counts,
        reasons=_reasons(lost, stages),
        keywords=_keywords([text for _, text in steps.chosen()], notes),
        twins=twins(dict(videos.chosen())),
        plane=_plane(placed, counts, settings, notes),
        tasks=tuple(task_steps(counts.task_steps, documents)),
        sample=drawing.sample(),
        notes=tuple(notes),
        provenance=provenance or {},
        stages=stages,
    )


def _loss(record: Record, noted: Mapping[tuple[str, str], FailureKind]) -> Failure:
    """Return why a left-out record is one; its `dropped` names the stage as text."""
    dropped = next(dropped for dropped in record.dropped if dropped.what == "video")
    stage = dropped.text or "the dataset"
    reason = dropped.reason.removeprefix(f"{stage}: ")
    return Failure(record.id, stage, noted.get((record.id, stage), "left out"), reason)


class _Placed:
    """The steps of each task that may be drawn in the plane, with their order in their video: at most `points` each."""

    def __init__(self, settings: ReportSettings) -> None:
        self._settings = settings
        self._held: dict[str, Some[tuple[str, float]]] = {}

    def add(self, record: Record) -> None:
        """Take the steps of a record in, where its task may be chosen."""
        task = record.video.task
        if task is None or self._settings.task not in (None, task):
            return
        placed = [step for step in record.steps if step.spans]
        held = self._held.setdefault(task, Some(self._settings.points, seed=self._settings.seed))
        for number, step in enumerate(sorted(placed, key=_start)):
            held.add(f"{record.id} {number:05d}", (step.text, number / max(1, len(placed) - 1)))

    def of(self, task: str) -> list[tuple[str, float]]:
        """Return (text, order) of the task's steps."""
        return [thing for _, thing in self._held[task].chosen()] if task in self._held else []


def _start(step: Step) -> float:
    return step.spans[0].start


def _plane(placed: _Placed, counts: Counts, settings: ReportSettings, notes: list[str]) -> TaskMap | None:
    ordered = sorted(counts.task_steps.items(), key=lambda pair: (-pair[1], pair[0]))
    task = settings.task or (ordered[0][0] if ordered else None)
    if task is None:
        notes.append("No step map: no video names its task.")
        return None
    points = placed.of(task)
    try:
        return task_map(task, [text for text, _ in points], [order for _, order in points])
    except ModelError as error:
        notes.append(f"No step map: {error}")
        return None


def _keywords(steps: Sequence[str], notes: list[str]) -> Mapping[str, Counter[str]]:
    try:
        return keywords(steps)
    except ModelError as error:
        notes.append(f"No keyword cloud: {error}")
        return {}


def _reasons(failures: Sequence[Failure], stages: tuple[str, ...]) -> tuple[Reason, ...]:
    """Return the failures by stage (in the recipe's order), kind and reason, the commonest first in each stage."""
    place = {stage: number for number, stage in enumerate(stages)}
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for failure in failures:
        groups[failure.stage, failure.kind, plain(failure.reason)].append(failure.id)
    rows = [
        Reason(stage, kind, reason, len(ids), tuple(sorted(ids)[:NAMED]))
        for (stage, kind, reason), ids in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (place.get(row.stage, len(place)), row.stage, -row.count, row.reason)))


def plain(reason: str) -> str:
    """Return a reason that is equal for all that it happened to: its numbers read as #."""
    return _NUMBER.sub("#", reason)
