"""All that a report shows of a dataset, collected in one pass over its records.

Counts grow by a few numbers for each video (counts.py). What needs texts together works on random
samples of bounded size:

    near-duplicates   steps that say the same in several videos, and videos made of the same steps (repeated_steps.py)
    keywords          verbs and objects of the steps, for the word cloud (NaSVA, figure 5c)
    task map          one task's steps in the plane, those of alike meaning together (NaSVA, figure 6b)
    task steps        aligned steps of each task, and those that a text base has of it (NaSVA, figure 6a)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.audit.sample import AuditSample, AuditSampler
from stepline.curate.report.counts import DatasetCounts
from stepline.curate.report.examples import ExampleVideo, example_video
from stepline.curate.report.repeated_steps import RepeatedSteps, find_repeated_steps
from stepline.curate.sampling import ReservoirSample
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import FailureKind, StageFailure
from stepline.errors import ModelError
from stepline.records import Matrix, Record, Step
from stepline.sieve_swap.text_base.documents import Document
from stepline.sieve_swap.text_base.near_duplicates import normal_words

MIN_WORD_CHARS = 3  # of a keyword
# What is acted on, in spaCy's labels.
OBJECT_LABELS = frozenset({"dobj", "obj", "pobj", "nsubjpass", "conj"})


def keywords(steps: Sequence[str], notes: list[str]) -> dict[str, Counter[str]]:
    """Return how often each verb and each object (lower-case lemmas) is in some steps' texts.

    A missing English parser becomes a note. Words of other languages are counted as it reads them.
    """
    from stepline.writing.extractive.english import parse

    try:
        documents = parse(list(steps))
    except ModelError as error:
        notes.append(f"No keyword cloud: {error}")
        return {}
    verbs: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    # Lemmas of verbs, and of nouns that something is done to.
    for token in chain.from_iterable(documents):
        word = str(token.lemma_).lower()
        if len(word) < MIN_WORD_CHARS or not word.isalpha():
            continue
        if token.pos_ == "VERB":
            verbs[word] += 1
        elif token.pos_ in ("NOUN", "PROPN") and token.dep_ in OBJECT_LABELS:
            objects[word] += 1
    return {"verbs": verbs, "objects": objects}


MIN_MAP_STEPS = 6  # below which nothing is drawn
MAX_PERPLEXITY = 30.0  # scikit-learn's default; at most a third of the steps
TSNE_SEED = 0


@dataclass(frozen=True)
class TaskMap:
    """The steps of a task in the plane. points: (N, 2). order: of each step in its video, 0 first,
    1 last."""

    task: str
    texts: tuple[str, ...]
    order: tuple[float, ...]
    points: npt.NDArray[np.floating]


def tsne(vectors: Matrix) -> npt.NDArray[np.floating]:
    """Return the t-SNE (N, 2) of vectors (N, D), from their first principal components and with a
    fixed seed."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        what = "scikit-learn: not installed, and t-SNE needs it"
        raise ModelError(f"{what}; pip install 'stepline[report]'") from error
    # scikit-learn needs more points than the perplexity.
    neighbours = len(vectors) - 1
    perplexity = min(MAX_PERPLEXITY, neighbours / 3)
    reducer = TSNE(perplexity=perplexity, init="pca", random_state=TSNE_SEED, n_jobs=1)
    points = reducer.fit_transform(vectors)
    return np.asarray(points, dtype=np.float64)


HOW_TO_PATTERN = re.compile(r"^\s*how\s+to\s+", re.IGNORECASE)
MAX_TASKS = 20  # shown


@dataclass(frozen=True)
class TaskStepCounts:
    """Of one task: steps of the dataset with a time, and the steps of the text base's documents of
    that title."""

    task: str
    aligned: int
    in_documents: int
    documents: int


def task_steps(aligned: Mapping[str, int], documents: Iterable[Document]) -> list[TaskStepCounts]:
    """Return the tasks that the text base has a document of, those with most steps there first, at
    most `MAX_TASKS`.

    A document is of a task when its title has the same normal words, "how to" left out.
    """
    # Tasks and documents meet by the normal words of their titles.
    tasks = {}
    for name in sorted(aligned):
        title = _title_words(name)
        tasks[title] = name
    steps: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for document in documents:
        title = _title_words(document.title)
        task = tasks.get(title)
        if task is not None:
            steps[task] += len(document.steps)
            counts[task] += 1
    rows = []
    for task, in_documents in steps.items():
        row = TaskStepCounts(task, aligned[task], in_documents, counts[task])
        rows.append(row)
    rows.sort(key=_most_steps_first)
    return rows[:MAX_TASKS]


def _most_steps_first(row: TaskStepCounts) -> tuple[int, str]:
    return -row.in_documents, row.task


def _title_words(text: str) -> tuple[str, ...]:
    title = HOW_TO_PATTERN.sub("", text)
    return normal_words(title)


MAX_NAMED_VIDEOS = 3  # of a reason
NUMBER_PATTERN = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class ReasonRow:
    """Why videos have no result of a stage. Numbers in the reason read as #. videos: ids of the
    first few."""

    stage: str
    kind: str
    reason: str
    count: int
    videos: tuple[str, ...]


@dataclass(frozen=True)
class ReportFindings:
    """All that a report shows. notes: parts of the report that could not be made, and why."""

    counts: DatasetCounts
    reasons: tuple[ReasonRow, ...]
    keywords: Mapping[str, Counter[str]]
    repeated_steps: RepeatedSteps
    task_map: TaskMap | None
    tasks: tuple[TaskStepCounts, ...]
    sample: AuditSample
    examples: tuple[ExampleVideo, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[str, ...] = ()


def collect(
    records: Iterable[Record],
    settings: ReportSettings,
    *,
    failures: Sequence[StageFailure] = (),
    documents: Iterable[Document] = (),
    provenance: Mapping[str, str] | None = None,
    stages: tuple[str, ...] = (),
) -> ReportFindings:
    """Return what a report shows of some records, kept and left out.

    failures: as the run noted them: a hang is not an error there. documents: of a text base to
    compare tasks with.
    provenance: lines that say where the dataset comes from. stages: of the recipe, in its order.
    """
    # What the one pass over the records fills.
    seed = settings.seed
    counts = DatasetCounts()
    sampler = AuditSampler(videos=settings.audit_videos, texts=settings.audit_texts, seed=seed)
    steps = ReservoirSample[str](settings.steps_read, seed=seed)
    videos = ReservoirSample[tuple[str, ...]](settings.videos_compared, seed=seed)
    examples = ReservoirSample[ExampleVideo](settings.examples, seed=seed)
    by_task: _StepsByTask = {}
    kinds: _KindsByStage = {}
    for failure in failures:
        kinds[failure.id, failure.stage] = failure.kind
    left_out: list[StageFailure] = []

    # One pass over the records.
    for record in records:
        if not counts.add(record):
            left_out.append(_failure(record, kinds))
            continue
        sampler.add(record)
        examples.add(record.id, example_video(record, settings.example_steps))
        texts = [step.text for step in record.steps]
        videos.add(record.id, tuple(texts))
        _add_by_task(by_task, record, settings)
        for number, text in enumerate(texts):
            steps.add(f"{record.id} {number}", text)

    # What needs the samples whole.
    notes: list[str] = []
    words = keywords(steps.values(), notes)
    repeated_steps = find_repeated_steps(dict(videos.items()))
    tasks = task_steps(counts.task_steps, documents)
    task_map = _task_map(by_task, counts, settings.task, notes)
    return ReportFindings(
        counts=counts,
        reasons=_reason_rows(left_out, stages),
        keywords=words,
        repeated_steps=repeated_steps,
        task_map=task_map,
        tasks=tuple(tasks),
        sample=sampler.sample(),
        examples=tuple(examples.values()),
        notes=tuple(notes),
        provenance=provenance or {},
        stages=stages,
    )


# Of each task, (text, order in its video) of steps that may be drawn in the plane: at most
# `points`.
_StepsByTask: TypeAlias = dict[str, ReservoirSample[tuple[str, float]]]


def _add_by_task(by_task: _StepsByTask, record: Record, settings: ReportSettings) -> None:
    """Take the steps of a record in, where its task may be drawn."""
    task = record.video.task
    if task is None or settings.task not in (None, task):
        return
    # Only steps with a place have an order in their video.
    steps = [step for step in record.steps if step.spans]
    steps.sort(key=_start)
    last = max(1, len(steps) - 1)
    if task not in by_task:
        by_task[task] = ReservoirSample(settings.points, seed=settings.seed)
    sample = by_task[task]
    for number, step in enumerate(steps):
        point = (step.text, number / last)
        sample.add(f"{record.id} {number:05d}", point)


def _start(step: Step) -> float:
    return step.spans[0].start


def _task_map(
    by_task: _StepsByTask, counts: DatasetCounts, task: str | None, notes: list[str]
) -> TaskMap | None:
    """Return the map of a task, else of the task with most steps. Why there is no map becomes a
    note."""
    sizes = counts.task_steps
    # The task that is asked for, else the one with most steps.
    if not task and not sizes:
        notes.append("No step map: no video names its task.")
        return None
    if not task:
        task = min(sizes, key=lambda name: (-sizes[name], name))
    steps = []
    if task in by_task:
        steps = by_task[task].values()
    if len(steps) < MIN_MAP_STEPS:
        return None
    from stepline.text import embed

    texts, order = zip(*steps, strict=True)
    try:
        points = tsne(embed(texts))
        return TaskMap(task, texts, order, points)
    except ModelError as error:
        notes.append(f"No step map: {error}")
        return None


# The kind of each failure, by the id of its video and its stage.
_KindsByStage: TypeAlias = dict[tuple[str, str], FailureKind]


def _failure(record: Record, kinds: _KindsByStage) -> StageFailure:
    """Return why a left-out record is one. Its `dropped` names the stage as text."""
    # A video that is left out has one such entry, with the stage in front of the reason.
    dropped_videos = [dropped for dropped in record.dropped if dropped.what == "video"]
    dropped = dropped_videos[0]
    stage = dropped.text or "the dataset"
    kind = kinds.get((record.id, stage), "left out")
    reason = dropped.reason.removeprefix(f"{stage}: ")
    return StageFailure(record.id, stage, kind, reason)


def _reason_rows(
    failures: Sequence[StageFailure], stages: tuple[str, ...]
) -> tuple[ReasonRow, ...]:
    """Return the failures by stage (in the recipe's order), kind and reason, the commonest first in
    each stage."""
    # Equal but for numbers, two reasons are one.
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for failure in failures:
        reason = without_numbers(failure.reason)
        key = (failure.stage, failure.kind, reason)
        groups[key].append(failure.id)
    rows = []
    for (stage, kind, reason), ids in groups.items():
        ids.sort()
        first_ids = ids[:MAX_NAMED_VIDEOS]
        row = ReasonRow(stage, kind, reason, len(ids), tuple(first_ids))
        rows.append(row)
    # By stage, and in it the commonest reason first.
    rows.sort(key=lambda row: (row.stage, -row.count, row.reason))

    # Stages that the recipe does not name come last.
    ranks = {}
    for rank, stage in enumerate(stages):
        ranks[stage] = rank
    last = len(ranks)
    rows.sort(key=lambda row: ranks.get(row.stage, last))
    return tuple(rows)


def without_numbers(reason: str) -> str:
    """Return a reason that is equal for all that it happened to: its numbers read as #."""
    return NUMBER_PATTERN.sub("#", reason)
