"""All that a report shows of a run, found in one pass over its dataset.

What a dataset holds, counted in one pass over its records; memory grows by a few numbers a video.

Steps that count are those of kept videos. "Left out" videos are records whose `dropped` names a video.

Near-duplicates across videos: steps that say the same in several videos, and videos made of the same steps.

The verbs and objects of steps, for the cloud of keywords (NaSVA, figure 5c).

One task's steps in the plane: those of alike meaning stand together (NaSVA, figure 6b).

How many aligned steps each task has, beside those that a text base tells of it (NaSVA, figure 6a).
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stepline.curate.audit.sample import Drawing, Sample
from stepline.curate.sampling import Some
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import FailureKind, StageFailure
from stepline.errors import ModelError
from stepline.records import Matrix, Record, Step
from stepline.text_base.deduplicate import near_duplicates
from stepline.text_base.documents import Document
from stepline.text_base.near_duplicates import normal_words, sketch

LONG = 40  # words a step, seconds a step and steps a video from which all share the last bar
MINUTE = 60.0  # s
FAST = 400  # words a minute from which all share the last bar
PACE = 20  # words a minute that a bar of speech rate is wide
HALF = 30  # s that a bar of video durations is wide


@dataclass
class Shares:
    """Of each kept video: how many texts have a calibrated score, and the sum of those scores; lists of V numbers."""

    videos: list[str] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)

    def add(self, video: str, scores: Iterable[float | None]) -> None:
        """Count a video's texts; those without a score are left out."""
        known = [score for score in scores if score is not None]
        if known:
            self.videos.append(video)
            self.texts.append(len(known))
            self.sums.append(sum(known))


@dataclass
class Counts:
    """The counts of a dataset. Histograms map the lower end of a bar, as text, to how many lie in it."""

    videos: int = 0
    kept: int = 0
    hours: float = 0.0  # of kept videos whose duration is known
    sentences: int = 0  # heard in kept videos
    told: int = 0  # of them, sentences that a kept step rests on
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
    narration_shown: Shares = field(default_factory=Shares)  # the judge's P(shown) of each sentence
    steps_shown: Shares = field(default_factory=Shares)  # the aligner's P(shown at all) of each step

    def add(self, record: Record) -> bool:
        """Count a record; return whether its video is in the dataset."""
        self.videos += 1
        out = [dropped.reason for dropped in record.dropped if dropped.what == "video"]
        if out:
            self.left_out[out[0]] += 1
            return False
        self.kept += 1
        self._add_video(record)
        self._add_speech(record)
        for step in record.steps:
            self._add_step(step, record.video.task)
        starts = [step.spans[0].start for step in record.steps if step.spans]
        self.neighbours += max(0, len(starts) - 1)
        self.out_of_order += sum(later < earlier for earlier, later in itertools.pairwise(starts))
        self.steps_a_video[str(min(LONG, len(record.steps)))] += 1
        self.steps_shown.add(record.id, (step.score for step in record.steps))
        return True

    def _add_video(self, record: Record) -> None:
        video = record.video
        if video.duration is not None:
            self.hours += video.duration / 3600
            self.durations[str(int(video.duration / HALF))] += 1
        if video.task is not None:
            self.tasks[video.task] += 1
        self.warnings.update(record.warnings)
        self.dropped_sentences.update(dropped.reason for dropped in record.dropped if dropped.what == "sentence")
        self.dropped_steps.update(dropped.reason for dropped in record.dropped if dropped.what == "step")

    def _add_speech(self, record: Record) -> None:
        sentences = record.transcript.sentences if record.transcript is not None else ()
        self.languages[(record.transcript.language if record.transcript else None) or "not known"] += 1
        self.recognisers[(record.transcript.recogniser if record.transcript else None) or "none"] += 1
        self.sentences += len(sentences)
        self.told += len({source for step in record.steps for source in step.sources})
        self.narration_shown.add(record.id, (sentence.shown for sentence in sentences))
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


ALIKE = 0.7  # Jaccard likeness of word pairs from which two lines say the same
SAME = 0.6  # of two videos' sets of steps from which they are near-duplicates
COMMON = 50  # videos that may share a step before it tells nothing of their being copies
FEWEST_REPEATS = 3  # steps of a video that can be called a copy
MEMORY = 256 << 20  # bytes to sort hashes in


@dataclass(frozen=True)
class Line:
    """Steps that say the same: the earliest wording, in how many videos, and how many other wordings."""

    text: str
    videos: int
    wordings: int


@dataclass(frozen=True)
class Twins:
    """What was found among so many videos and steps; groups of videos, each sorted, the largest first."""

    videos: int
    steps: int
    repeated: int  # steps whose line is in another video too
    lines: tuple[Line, ...]  # by the number of videos
    groups: tuple[tuple[str, ...], ...]


def twins(steps: Mapping[str, Sequence[str]]) -> Twins:
    """Return the near-duplicates among videos (id -> texts of its steps)."""
    owners = [video for video, texts in steps.items() for _ in texts]
    texts = [text for own in steps.values() for text in own]
    if not texts:
        return Twins(len(steps), 0, 0, (), ())
    stands = near_duplicates([sketch(texts)], 0, ALIKE, MEMORY).tolist()
    held: dict[int, set[str]] = defaultdict(set)
    wordings: dict[int, set[str]] = defaultdict(set)
    for owner, text, line in zip(owners, texts, stands, strict=True):
        held[line].add(owner)
        wordings[line].add(text)
    shared = sorted((line for line in held if len(held[line]) > 1), key=lambda line: (-len(held[line]), texts[line]))
    lines = tuple(Line(texts[line], len(held[line]), len(wordings[line]) - 1) for line in shared)
    repeated = sum(len(held[line]) > 1 for line in stands)
    return Twins(len(steps), len(texts), repeated, lines, _groups(held))


def _groups(held: Mapping[int, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of videos that are near-duplicates of one another, directly or through others."""
    sizes: Counter[str] = Counter(video for videos in held.values() for video in videos)
    together: Counter[tuple[str, str]] = Counter()
    for videos in held.values():
        if 1 < len(videos) <= COMMON:
            order = sorted(videos)
            together.update((one, other) for place, one in enumerate(order) for other in order[place + 1 :])
    head: dict[str, str] = {}
    for (one, other), both in sorted(together.items()):
        alike = both >= SAME * (sizes[one] + sizes[other] - both)
        if alike and min(sizes[one], sizes[other]) >= FEWEST_REPEATS:
            first, second = sorted((_head(head, one), _head(head, other)))
            head[second] = first
    found: dict[str, list[str]] = defaultdict(list)
    for video in sorted(sizes):
        found[_head(head, video)].append(video)
    groups = [tuple(group) for group in found.values() if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def _head(head: dict[str, str], video: str) -> str:
    """Return the first video of the group that a video is in."""
    while video in head and head[video] != video:
        video = head[video]
    return video


OBJECTS = frozenset({"dobj", "obj", "pobj", "nsubjpass", "conj"})  # what is acted on, in spaCy's labels


def keywords(steps: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how often each verb and each object (lower-case lemmas) is in some steps' texts.

    Raises ModelError when the English parser is missing. Words of other languages are counted as it takes them.
    """
    from stepline.writing.extractive.english import parse

    found: dict[str, Counter[str]] = {"verbs": Counter(), "objects": Counter()}
    for document in parse(list(steps)):
        for token in document:
            word = str(token.lemma_).lower()
            if len(word) < 3 or not word.isalpha():
                continue
            if token.pos_ == "VERB":
                found["verbs"][word] += 1
            elif token.pos_ in ("NOUN", "PROPN") and token.dep_ in OBJECTS:
                found["objects"][word] += 1
    return found


FEWEST_TASKS = 6  # steps below which nothing is drawn
PERPLEXITY = 30.0  # scikit-learn's default; at most a third of the steps
SEED = 0


@dataclass(frozen=True)
class TaskMap:
    """points: (N, 2). order: of each step in its video, 0 first, 1 last."""

    task: str
    texts: tuple[str, ...]
    order: tuple[float, ...]
    points: npt.NDArray[np.floating]


def task_map(task: str, texts: Sequence[str], order: Sequence[float]) -> TaskMap | None:
    """Return the steps of a task in the plane, None where there are too few. Raises ModelError without scikit-learn."""
    if len(texts) < FEWEST_TASKS:
        return None
    from stepline.text import embed

    return TaskMap(task, tuple(texts), tuple(order), plane(embed(list(texts))))


def plane(vectors: Matrix) -> npt.NDArray[np.floating]:
    """Return (N, 2) for (N, D) vectors by t-SNE from the first principal components, with a fixed seed."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ModelError("scikit-learn: not installed, and t-SNE needs it; pip install 'stepline[report]'") from error
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    reduced = TSNE(perplexity=perplexity, init="pca", random_state=SEED, n_jobs=1).fit_transform(vectors)
    return np.asarray(reduced, dtype=np.float64)


_HOW_TO = re.compile(r"^\s*how\s+to\s+", re.IGNORECASE)
TOP = 20  # tasks shown


@dataclass(frozen=True)
class TaskSteps:
    """Of one task: steps of the dataset with a time, and the steps of the base's documents of that title."""

    task: str
    aligned: int
    told: int
    documents: int


def task_steps(aligned: Mapping[str, int], documents: Iterable[Document]) -> list[TaskSteps]:
    """Return the tasks that the base has a document of, those with most steps in the base first, at most TOP.

    A document is of a task when its title has the same normal words, "how to" left out.
    """
    tasks = {_title(task): task for task in sorted(aligned)}
    told: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for document in documents:
        task = tasks.get(_title(document.title))
        if task is not None:
            told[task] += len(document.steps)
            count[task] += 1
    rows = [TaskSteps(task, aligned[task], told[task], count[task]) for task in told]
    return sorted(rows, key=lambda row: (-row.told, row.task))[:TOP]


def _title(text: str) -> tuple[str, ...]:
    return normal_words(_HOW_TO.sub("", text))


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
    failures: Sequence[StageFailure] = (),
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
    lost: list[StageFailure] = []
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


def _loss(record: Record, noted: Mapping[tuple[str, str], FailureKind]) -> StageFailure:
    """Return why a left-out record is one; its `dropped` names the stage as text."""
    dropped = next(dropped for dropped in record.dropped if dropped.what == "video")
    stage = dropped.text or "the dataset"
    reason = dropped.reason.removeprefix(f"{stage}: ")
    return StageFailure(record.id, stage, noted.get((record.id, stage), "left out"), reason)


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


def _reasons(failures: Sequence[StageFailure], stages: tuple[str, ...]) -> tuple[Reason, ...]:
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
