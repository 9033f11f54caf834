"""What WYS2's features are worth elsewhere, in the simulated world: summaries (section 4.4),
alignability (4.3).

`python -m lab wys2-tables --table summaries --table alignability`. The detector learns from
some videos of a world (SS labels). Summarizers and heads learn from others, on its features or on
raw ones. Both are scored on videos that neither has seen.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from lab.simulate import SimulatedVideo, SimulationSettings, World, make_world, stream, write_videos
from lab.study import Outcome, Row, Study, Trial, TrialStore
from lab.wys2.alignability import (
    HEAD_TRAINING,
    AlignabilitySample,
    embed_seconds,
    embed_sentences,
    predict_alignability,
    train_head,
)
from lab.wys2.corpus import Clips, Wys2Corpus, clips_of, resolved_embeddings
from lab.wys2.rows import SS_TRIAL, Wys2Size
from lab.wys2.trials import train_on
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import point_estimate as total
from stepline.models.training.batches import Mask
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.settings import SUMMARIZER_TRAINING, SummarizerSettings
from stepline.models.wys2.summarizer import (
    SegmentedVideo,
    predict_importance,
    score_summaries,
    segment_video,
    shown_seconds,
    train_summarizer,
)
from stepline.records import FeatureSequence, Matrix
from stepline.settings import Count, Settings

Scores: TypeAlias = Mapping[str, Mapping[str, float]]  # row -> measure -> value

CPU_MEASURE = "CPU s"  # a measure of every row: of its own training
RAW_NAME = "raw features"
DETECTOR_NAME = "the detector's features"
FEW_VIDEOS = 20  # videos of a head that has little to learn from
PUBLISHED_SCORES = {  # WYS2, tables 3 and 2
    "pictures alone, raw features": {"F": 65.2, "tau": 0.095, "rho": 0.202},
    "with speech, raw features": {"F": 67.3, "tau": 0.101, "rho": 0.212},
    "with speech, the detector's features": {"F": 68.9, "tau": 0.106, "rho": 0.218},
    "head on the detector's features": {"ROC-AUC": 77.0},
}


class UsesSize(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps, from which the detector learns
    lessons: Count = 100  # further videos, from which summarizers and heads learn
    tests: Count = 60  # further videos, on which both are scored
    detector_steps: Count = 300
    summarizer_epochs: Count = 20
    head_epochs: Count = 8


class UsesTrial(Trial):
    """All trainings of one table."""

    VERSION: ClassVar[int] = 2
    table: Literal["summaries", "alignability"]
    size: UsesSize = UsesSize()


@dataclass(frozen=True)
class UsesTrials(TrialStore[UsesTrial]):
    """Trials kept as scores named `row: measure`."""

    def run(self, trial: UsesTrial, folder: Path) -> Outcome:
        """Train and score all that a table compares."""
        began = time.process_time()
        make = summaries if trial.table == "summaries" else alignabilities
        rows = make(trial.seed, trial.size, folder)
        scores = {}
        for row, values in rows.items():
            for measure, value in values.items():
                scores[f"{row}: {measure}"] = value
        return Outcome(scores, time.process_time() - began)


USES_TITLES = {
    "summaries": "Summaries, IV-Sum's form: raw features beside the detector's; held-out videos",
    "alignability": (
        "Alignability: a head on raw features and on the detector's; `stepline evaluate htm-align`"
    ),
}


@dataclass(frozen=True)
class UsesStudy(Study[Row[UsesTrial], UsesTrial]):
    """Both tables, or the chosen one."""

    size: UsesSize = field(default_factory=UsesSize)

    file_name: ClassVar[str] = "uses"
    titles: ClassVar[Mapping[str, str]] = USES_TITLES
    columns: ClassVar[Sequence[str]] = ("F", "tau", "rho")
    own_columns: ClassVar[Mapping[str, Sequence[str]]] = {"alignability": ("ROC-AUC",)}
    published_names: ClassVar[Sequence[str]] = ("F", "tau", "rho", "ROC-AUC")
    published_form: ClassVar[str] = "g"
    scale: ClassVar[float] = 100.0
    forms: ClassVar[Mapping[str, tuple[float, str]]] = {"tau": (1.0, ".3f"), "rho": (1.0, ".3f")}

    @property
    def store(self) -> UsesTrials:
        """A folder in the study's."""
        return UsesTrials(self.folder / "uses")

    def rows(self) -> list[Row[UsesTrial]]:
        """Return the rows of the chosen tables. Heads on few videos only where there are more."""
        names = {"summaries": ["every second", "chance"], "alignability": []}
        for features in (RAW_NAME, DETECTOR_NAME):
            names["summaries"] += [f"pictures alone, {features}", f"with speech, {features}"]
            names["alignability"].append(f"best cosine, {features}")
            if self.size.lessons > FEW_VIDEOS:
                names["alignability"].append(f"head on {features}, {FEW_VIDEOS} videos")
            names["alignability"].append(f"head on {features}")
        rows = []
        for table in self.tables or names:
            trial = UsesTrial.model_validate({"table": table})
            for name in names[table]:
                rows.append(Row(table, name, trial, PUBLISHED_SCORES.get(name, {})))
        return rows

    def sized(self, trial: UsesTrial, seed: int) -> UsesTrial:
        """Return a table's trial with this seed, of this study's size."""
        return trial.changed(seed=seed, size=self.size)

    def outcome(self, row: Row[UsesTrial], seed: int) -> Outcome:
        """Return the measures of one row of a trial, and the CPU seconds of its own training."""
        prefix = f"{row.name}: "
        measures = {}
        for name, score in super().outcome(row, seed).scores.items():
            if name.startswith(prefix):
                measures[name.removeprefix(prefix)] = score
        return Outcome(measures, measures.pop(CPU_MEASURE))


@dataclass(frozen=True)
class HeldOutWorld:
    """A trained detector, and videos that it has not seen: `lessons` to learn another thing from,
    `tests` to score."""

    world: World
    detector: Detector
    lessons: tuple[SimulatedVideo, ...]
    tests: tuple[SimulatedVideo, ...]


def prepare(seed: int, size: UsesSize, folder: Path) -> HeldOutWorld:
    """Return a detector trained on a world's first videos, and the videos after them."""
    count = size.labelled + size.lessons + size.tests
    settings = SimulationSettings(videos=count, held_out=size.tests / count)
    videos = stream(seed, settings, count=count)
    no_clips = Clips(())
    labelled_clips = clips_of(islice(videos, size.labelled))
    corpus = Wys2Corpus(labelled_clips, no_clips, no_clips, no_clips)
    trial = SS_TRIAL.changed(seed=seed, size=Wys2Size(steps=size.detector_steps))
    detector, _, _ = train_on(trial, corpus, folder / "detector")
    lessons = tuple(islice(videos, size.lessons))
    return HeldOutWorld(make_world(seed, settings), detector, lessons, tests=tuple(videos))


def features_of(video: SimulatedVideo, detector: Detector | None) -> tuple[FeatureSequence, Matrix]:
    """Return a video's features and the vectors of its narration: raw, or as a detector embeds
    them."""
    features = video.features()
    vectors = video.vectors("narration")
    if detector is None:
        return features, vectors
    return embed_seconds(detector, features), embed_sentences(detector, vectors)


def summaries(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return F, tau and rho of summarizers on raw and on the detector's features, and of what
    learns nothing."""
    uses = prepare(seed, size, folder)
    truth = [shown_seconds(video.record, video.duration) for video in uses.tests]
    rows: dict[str, Mapping[str, float]] = {}

    # what learns nothing
    rng = np.random.default_rng(seed)
    everything = [np.ones(len(seconds), dtype=np.float32) for seconds in truth]
    chance = [rng.random(len(seconds)).astype(np.float32) for seconds in truth]
    rows["every second"] = _summary_scores(everything, truth, 0.0)
    rows["chance"] = _summary_scores(chance, truth, 0.0)

    changes = {"seed": seed, "epochs": size.summarizer_epochs}
    training = SUMMARIZER_TRAINING.model_copy(update=changes)
    for features, detector in ((RAW_NAME, None), (DETECTOR_NAME, uses.detector)):
        for speech in (False, True):
            began = time.process_time()
            lessons = _segments(uses.lessons, detector, speech=speech)
            tests = _segments(uses.tests, detector, speech=speech)
            network = train_summarizer(
                lessons,
                folder / f"{features} {speech}",
                summarizer=_summarizer_settings(lessons[0]),
                settings=training,
            )
            importances = [predict_importance(network, sample) for sample in tests]
            seconds = time.process_time() - began
            inputs = "with speech" if speech else "pictures alone"
            rows[f"{inputs}, {features}"] = _summary_scores(importances, truth, seconds)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _segments(
    videos: Sequence[SimulatedVideo], detector: Detector | None, *, speech: bool
) -> list[SegmentedVideo]:
    segments = []
    for video in videos:
        features, vectors = features_of(video, detector)
        width = vectors.shape[1] if speech else 0
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=width)
        speech_vectors = vectors if speech else None
        segments.append(segment_video(video.record, features, speech_vectors, settings))
    return segments


def _summarizer_settings(sample: SegmentedVideo) -> SummarizerSettings:
    return SummarizerSettings(
        video_width=sample.pictures.shape[1], text_width=sample.speech.shape[1]
    )


def _summary_scores(
    importances: Sequence[Matrix], truth: Sequence[Mask], seconds: float
) -> Mapping[str, float]:
    scores = asdict(score_summaries(importances, truth))
    return {"F": scores["f"], "tau": scores["tau"], "rho": scores["rho"], CPU_MEASURE: seconds}


def alignabilities(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return the ROC-AUC of heads on raw and on the detector's features, and of the best cosine
    without a head."""
    uses = prepare(seed, size, folder)
    write_videos(uses.world, uses.tests, folder / "world")
    changes = {"seed": seed, "epochs": size.head_epochs}
    training = HEAD_TRAINING.model_copy(update=changes)
    labels = similar_sentences(uses.lessons)
    rows: dict[str, Mapping[str, float]] = {}
    for name, detector in ((RAW_NAME, None), (DETECTOR_NAME, uses.detector)):
        tests = [features_of(video, detector) for video in uses.tests]
        cosines = [(sentences @ features.values.T).max(1) for features, sentences in tests]
        rows[f"best cosine, {name}"] = _alignability_scores(cosines, uses.tests, folder, 0.0)

        # heads that learn from few videos and from all of them
        samples = _head_samples(uses.lessons, detector, labels)
        for count in sorted({min(FEW_VIDEOS, len(samples)), len(samples)}):
            began = time.process_time()
            head = train_head(samples[:count], folder / f"{name}{count}", settings=training)
            logits = []
            for features, sentences in tests:
                logits.append(predict_alignability(head, features.values, sentences))
            row = f"head on {name}"
            if count < len(samples):
                row += f", {count} videos"
            seconds = time.process_time() - began
            rows[row] = _alignability_scores(logits, uses.tests, folder, seconds)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _head_samples(
    videos: Sequence[SimulatedVideo], detector: Detector | None, labels: Sequence[Mask]
) -> list[AlignabilitySample]:
    samples = []
    for video, alignable in zip(videos, labels, strict=True):
        features, sentences = features_of(video, detector)
        samples.append(AlignabilitySample(video.id, features.values, sentences, alignable))
    return samples


SIMILAR_FRACTION = 0.35  # of sentences that SS labels take


def similar_sentences(videos: Sequence[SimulatedVideo]) -> list[Mask]:
    """Return which sentences are like some key-step of their video: SS labels of sentences, the
    most similar 35 %."""
    similarity = []
    for video in videos:
        shown_rows = [row for row, step in enumerate(video.record.reference) if step.spans]
        key_steps = video.embeddings("recipe")[shown_rows]
        cosines = resolved_embeddings(video) @ key_steps.T
        similarity.append(cosines.max(1, initial=-1.0))
    least = np.quantile(np.concatenate(similarity), 1 - SIMILAR_FRACTION)
    return [np.asarray(video_similarity >= least) for video_similarity in similarity]


def _alignability_scores(
    logits: Sequence[Matrix], videos: Sequence[SimulatedVideo], folder: Path, seconds: float
) -> Mapping[str, float]:
    """Return the ROC-AUC that `stepline evaluate htm-align` gives."""
    tree = {}
    for video, scores in zip(videos, logits, strict=True):
        tree[video.id] = {"alignability": scores.tolist()}
    predictions = folder / "predictions.json"
    predictions.write_text(json.dumps(tree))
    evaluation = evaluate("htm-align", predictions, folder / "world" / "htm_align.json")
    area = total(evaluation.statistics["ROC-AUC alignable"])
    return {"ROC-AUC": area, CPU_MEASURE: seconds}
