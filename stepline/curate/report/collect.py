"""All that a report shows of a dataset, collected in one pass over its records.

Counts grow by a few numbers a video; what needs texts together works on random samples of bounded
size:

    near-duplicates   steps that say the same in several videos, and videos made of the same steps
    keywords          verbs and objects of the steps, for the word cloud (NaSVA, figure 5c)
    task map          one task's steps in the plane, those of alike meaning together (NaSVA, figure 6b)
    task steps        aligned steps of each task beside those that a text base has of it (NaSVA, figure 6a)
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.curate.audit.sample import AuditSample, AuditSampler
from stepline.curate.sampling import ReservoirSample
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import FailureKind, StageFailure
from stepline.errors import ModelError
from stepline.records import Matrix, Record, Step, Transcript
from stepline.text_base.deduplicate import near_duplicates
from stepline.text_base.documents import Document
from stepline.text_base.near_duplicates import normal_words, sketch

LONG = 40  # words a step, seconds a step and steps a video from which all share the last bar
MINUTE = 60.0  # s
FAST = 400  # words a minute from which all share the last bar
PACE = 20  # words a minute that a bar of speech rate is wide
HALF = 30  # s that a bar of video durations is wide


@dataclass
class ScoreSums:
    """Of each kept video: how many texts have a calibrated score, and the sum of those scores;
    lists of V numbers."""

    texts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, scores: Iterable[float | None]) -> None:
        """Count a video's texts; those without a score are left out."""
        known = [score for score in scores if score is not None]
        if known:
            self.texts.append(len(known))
            self.sums.append(sum(known))


@dataclass
class DatasetCounts:
    """The counts of a dataset; steps and sentences are those of kept videos, `left_out` has the
    others.

    Histograms map the lower end of a bar, as text, to how many lie in it.
    """

    videos: int = 0
    kept: int = 0
    hours: float = 0.0  # of kept videos whose duration is known
    sentences: int = 0  # heard in kept videos
    cited: int = 0  # of them, sentences that a kept step rests on
    steps: int = 0
    step_words: int = 0
    step_seconds: float = 0.0
    placed: int = 0  # steps with a span
    neighbours: int = 0  # pairs of placed steps, one written after the other
    out_of_order: int = 0  # of them, pairs of which the later is shown first
    left_out: Counter[str] = field(default_factory=Counter)  # videos by reason
    dropped_sentences: Counter[str] = field(default_factory=Counter)  # by reason
    dropped_steps: Counter[str] = field(default_factory=Counter)  # by reason
    statuses: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)  # kept videos
    licences: Counter[str] = field(default_factory=Counter)  # steps of a text base
    recognisers: Counter[str] = field(default_factory=Counter)  # kept videos
    tasks: Counter[str] = field(default_factory=Counter)  # kept videos
    task_steps: Counter[str] = field(default_factory=Counter)  # placed steps
    steps_a_video: Counter[str] = field(default_factory=Counter)
    words_a_step: Counter[str] = field(default_factory=Counter)
    seconds_a_step: Counter[str] = field(default_factory=Counter)
    words_a_minute: Counter[str] = field(default_factory=Counter)  # kept videos with speech
    durations: Counter[str] = field(default_factory=Counter)  # kept videos
    warnings: Counter[str] = field(default_factory=Counter)
    # the judge's P(shown) of each sentence
    narration_shown: ScoreSums = field(default_factory=ScoreSums)
    # the aligner's P(shown at all) of each step
    steps_shown: ScoreSums = field(default_factory=ScoreSums)

    def add(self, record: Record) -> bool:
        """Count a record; return whether its video is in the dataset."""
        self.videos += 1
        out = [dropped.reason for dropped in record.dropped if dropped.what == "video"]
        if out:
            self.left_out[out[0]] += 1
            return False
        self.kept += 1
        video = record.video
        if video.duration is not None:
            self.hours += video.duration / 3600
            self.durations[str(int(video.duration / HALF))] += 1
        if video.task is not None:
            self.tasks[video.task] += 1
        self.warnings.update(record.warnings)
        self.dropped_sentences.update(
            dropped.reason for dropped in record.dropped if dropped.what == "sentence"
        )
        self.dropped_steps.update(
            dropped.reason for dropped in record.dropped if dropped.what == "step"
        )
        self._add_speech(record)
        for step in record.steps:
            self._add_step(step, video.task)
        starts = [step.spans[0].start for step in record.steps if step.spans]
        self.neighbours += max(0, len(starts) - 1)
        self.out_of_order += sum(later < earlier for earlier, later in itertools.pairwise(starts))
        self.steps_a_video[str(min(LONG, len(record.steps)))] += 1
        self.steps_shown.add(step.score for step in record.steps)
        return True

    def _add_speech(self, record: Record) -> None:
        transcript, sentences = record.transcript or Transcript(), record.sentences
        self.languages[transcript.language or "not known"] += 1
        self.recognisers[transcript.recogniser or "none"] += 1
        self.sentences += len(sentences)
        self.cited += len({source for step in record.steps for source in step.sources})
        self.narration_shown.add(sentence.shown for sentence in sentences)
        if sentences:
            spoken = sum(len(sentence.text.split()) for sentence in sentences)
            talked = max(sentence.span.end for sentence in sentences) - sentences[0].span.start
            self.words_a_minute[str(min(FAST, int(MINUTE * spoken / talked)) // PACE)] += 1

    def _add_step(self, step: Step, task: str | None) -> None:
        words = len(step.text.split())
        self.steps += 1
        self.step_words += words
        self.words_a_step[str(min(LONG, words))] += 1
        self.statuses[step.status or "not judged"] += 1
        if step.source_text is not None:
            self.licences[step.licence or "not stated"] += 1
        if step.spans:
            self.placed += 1
            self.step_seconds += step.spans[0].duration
            self.seconds_a_step[str(min(LONG, int(step.spans[0].duration)))] += 1
            if task is not None:
                self.task_steps[task] += 1


ALIKE = 0.7  # Jaccard likeness of word pairs from which two steps say the same
SAME = 0.6  # of two videos' sets of steps from which they are near-duplicates
COMMON = 50  # videos that may share a step before it tells nothing of their being copies
FEWEST_REPEATS = 3  # steps of a video that can be called a copy
MEMORY = 256 << 20  # bytes to sort hashes in


@dataclass(frozen=True)
class RepeatedText:
    """Steps that say the same: the earliest wording, in how many videos, and how many other
    wordings."""

    text: str
    videos: int
    wordings: int


@dataclass(frozen=True)
class RepeatedSteps:
    """Near-duplicates among so many videos and steps; groups of videos, each sorted, the largest
    first."""

    videos: int
    steps: int
    repeated: int  # steps whose text is in another video too
    texts: tuple[RepeatedText, ...]  # by the number of videos
    groups: tuple[tuple[str, ...], ...]


def find_repeated_steps(steps: Mapping[str, Sequence[str]]) -> RepeatedSteps:
    """Return the near-duplicates among videos (id -> texts of its steps)."""
    owners = [video for video, texts in steps.items() for _ in texts]
    texts = [text for own in steps.values() for text in own]
    if not texts:
        return RepeatedSteps(len(steps), 0, 0, (), ())
    # of each step, the earliest alike
    first_alike = near_duplicates([sketch(texts)], 0, ALIKE, MEMORY).tolist()
    videos: dict[int, set[str]] = defaultdict(set)
    wordings: dict[int, set[str]] = defaultdict(set)
    for owner, text, first in zip(owners, texts, first_alike, strict=True):
        videos[first].add(owner)
        wordings[first].add(text)
    shared = sorted(
        (row for row in videos if len(videos[row]) > 1),
        key=lambda row: (-len(videos[row]), texts[row]),
    )
    repeated = sum(len(videos[first]) > 1 for first in first_alike)
    rows = tuple(
        RepeatedText(texts[row], len(videos[row]), len(wordings[row]) - 1) for row in shared
    )
    return RepeatedSteps(len(steps), len(texts), repeated, rows, _video_groups(videos.values()))


def _video_groups(owners: Collection[set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of videos that are near-duplicates of one another, directly or through
    others.

    owners: of each distinct step, the videos that have it.
    """
    sizes: Counter[str] = Counter(video for videos in owners for video in videos)
    common: Counter[tuple[str, str]] = Counter()
    for videos in owners:
        if 1 < len(videos) <= COMMON:
            common.update(itertools.combinations(sorted(videos), 2))
    parents: dict[str, str] = {}

    def root(video: str) -> str:
        while video in parents:
            video = parents[video]
        return video

    for (one, other), both in sorted(common.items()):
        alike = both >= SAME * (sizes[one] + sizes[other] - both)
        if alike and min(sizes[one], sizes[other]) >= FEWEST_REPEATS:
            first, second = sorted((root(one), root(other)))
            if first != second:
                parents[second] = first
    members: dict[str, list[str]] = defaultdict(list)
    for video in sorted(sizes):
        members[root(video)].append(video)
    groups = [tuple(group) for group in members.values() if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


# what is acted on, in spaCy's labels
OBJECTS = frozenset({"dobj", "obj", "pobj", "nsubjpass", "conj"})


def keywords(steps: Sequence[str], notes: list[str]) -> dict[str, Counter[str]]:
    """Return how often each verb and each object (lower-case lemmas) is in some steps' texts.

    A missing English parser becomes a note. Words of other languages are counted as it takes them.
    """
    from stepline.writing.extractive.english import parse

    try:
        documents = parse(list(steps))
    except ModelError as error:
        notes.append(f"No keyword cloud: {error}")
        return {}
    verbs: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    for token in itertools.chain.from_iterable(documents):
        word = str(token.lemma_).lower()
        if len(word) < 3 or not word.isalpha():
            continue
        if token.pos_ == "VERB":
            verbs[word] += 1
        elif token.pos_ in ("NOUN", "PROPN") and token.dep_ in OBJECTS:
            objects[word] += 1
    return {"verbs": verbs, "objects": objects}


FEWEST_TASKS = 6  # steps below which nothing is drawn
PERPLEXITY = 30.0  # scikit-learn's default; at most a third of the steps
SEED = 0


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
        raise ModelError(
            "scikit-learn: not installed, and t-SNE needs it; pip install 'stepline[report]'"
        ) from error
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    reduced = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1).fit_transform(
        vectors
    )
    return np.asarray(reduced, dtype=np.float64)


_HOW_TO = re.compile(r"^\s*how\s+to\s+", re.IGNORECASE)
TOP = 20  # tasks shown


@dataclass(frozen=True)
class TaskSteps:
    """Of one task: steps of the dataset with a time, and the steps of the text base's documents of
    that title."""

    task: str
    aligned: int
    in_documents: int
    documents: int


def task_steps(aligned: Mapping[str, int], documents: Iterable[Document]) -> list[TaskSteps]:
    """Return the tasks that the text base has a document of, those with most steps there first, at
    most TOP.

    A document is of a task when its title has the same normal words, "how to" left out.
    """
    tasks = {_title_words(task): task for task in sorted(aligned)}
    steps: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for document in documents:
        if (task := tasks.get(_title_words(document.title))) is not None:
            steps[task] += len(document.steps)
            count[task] += 1
    rows = [TaskSteps(task, aligned[task], steps[task], count[task]) for task in steps]
    return sorted(rows, key=lambda row: (-row.in_documents, row.task))[:TOP]


def _title_words(text: str) -> tuple[str, ...]:
    return normal_words(_HOW_TO.sub("", text))


NAMED = 3  # videos named beside a reason
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class ReasonRow:
    """Why videos have no result of a stage; numbers in the reason read as #. videos: ids of the
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
    tasks: tuple[TaskSteps, ...]
    sample: AuditSample
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

    failures: as the run noted them, which tells a hang from an error. documents: of a text base to
    compare tasks with.
    provenance: lines that say where the dataset comes from. stages: of the recipe, in its order.
    """
    counts = DatasetCounts()
    sampler = AuditSampler(
        videos=settings.audit_videos, texts=settings.audit_texts, seed=settings.seed
    )
    steps: ReservoirSample[str] = ReservoirSample(settings.steps_read, seed=settings.seed)
    videos: ReservoirSample[tuple[str, ...]] = ReservoirSample(
        settings.videos_compared, seed=settings.seed
    )
    by_task: _StepsByTask = {}
    noted = {(failure.id, failure.stage): failure.kind for failure in failures}
    left_out: list[StageFailure] = []
    for record in records:
        if not counts.add(record):
            left_out.append(_failure(record, noted))
        else:
            sampler.add(record)
            videos.add(record.id, tuple(step.text for step in record.steps))
            _add_by_task(by_task, record, settings)
            for number, step in enumerate(record.steps):
                steps.add(f"{record.id} {number}", step.text)
    notes: list[str] = []
    words, repeated = keywords(steps.values(), notes), find_repeated_steps(dict(videos.items()))
    plane = _task_map(by_task, counts, settings.task, notes)
    return ReportFindings(
        counts=counts,
        reasons=_reason_rows(left_out, stages),
        keywords=words,
        repeated_steps=repeated,
        task_map=plane,
        tasks=tuple(task_steps(counts.task_steps, documents)),
        sample=sampler.sample(),
        notes=tuple(notes),
        provenance=provenance or {},
        stages=stages,
    )


# Of each task, (text, order in its video) of steps that may be drawn in the plane: at most
# `points`.
_StepsByTask: TypeAlias = dict[str, ReservoirSample[tuple[str, float]]]


def _add_by_task(by_task: _StepsByTask, record: Record, settings: ReportSettings) -> None:
    """Take the steps of a record in, where its task may be chosen."""
    task = record.video.task
    if task is None or settings.task not in (None, task):
        return
    placed = sorted(
        (step for step in record.steps if step.spans), key=lambda step: step.spans[0].start
    )
    sample = by_task.setdefault(task, ReservoirSample(settings.points, seed=settings.seed))
    for number, step in enumerate(placed):
        sample.add(f"{record.id} {number:05d}", (step.text, number / max(1, len(placed) - 1)))


def _task_map(
    by_task: _StepsByTask, counts: DatasetCounts, chosen: str | None, notes: list[str]
) -> TaskMap | None:
    """Return the map of the chosen task, else of the task with most steps; why there is none
    becomes a note."""
    task = chosen or min(
        counts.task_steps, key=lambda task: (-counts.task_steps[task], task), default=None
    )
    if task is None:
        notes.append("No step map: no video names its task.")
        return None
    steps = by_task[task].values() if task in by_task else []
    if len(steps) < FEWEST_TASKS:
        return None
    from stepline.text import embed

    texts, order = zip(*steps, strict=True)
    try:
        return TaskMap(task, texts, order, tsne(embed(texts)))
    except ModelError as error:
        notes.append(f"No step map: {error}")
        return None


def _failure(record: Record, noted: Mapping[tuple[str, str], FailureKind]) -> StageFailure:
    """Return why a left-out record is one; its `dropped` names the stage as text."""
    dropped = next(dropped for dropped in record.dropped if dropped.what == "video")
    stage = dropped.text or "the dataset"
    reason = dropped.reason.removeprefix(f"{stage}: ")
    return StageFailure(record.id, stage, noted.get((record.id, stage), "left out"), reason)


def _reason_rows(
    failures: Sequence[StageFailure], stages: tuple[str, ...]
) -> tuple[ReasonRow, ...]:
    """Return the failures by stage (in the recipe's order), kind and reason, the commonest first in
    each stage."""
    rank = {stage: number for number, stage in enumerate(stages)}
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for failure in failures:
        groups[failure.stage, failure.kind, without_numbers(failure.reason)].append(failure.id)
    rows = [
        ReasonRow(stage, kind, reason, len(ids), tuple(sorted(ids)[:NAMED]))
        for (stage, kind, reason), ids in groups.items()
    ]
    return tuple(
        sorted(
            rows,
            key=lambda row: (rank.get(row.stage, len(rank)), row.stage, -row.count, row.reason),
        )
    )


def without_numbers(reason: str) -> str:
    """Return a reason that is equal for all that it happened to: its numbers read as #."""
    return _NUMBER.sub("#", reason)
