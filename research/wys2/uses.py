"""What WYS2's features are worth elsewhere, in the simulated world: summaries (section 4.4),
alignability (4.3).

`python -m research wys2-tables --table summaries --table alignability`. The detector learns from
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

from research.simulate import (
    SimulatedVideo,
    SimulationSettings,
    World,
    make_world,
    stream,
    write_videos,
)
from research.study import Outcome, Row, Study, Trial, TrialStore
from research.wys2.alignability import (
    HEAD_TRAINING,
    AlignabilityHead,
    AlignabilitySample,
    embed_seconds,
    embed_sentences,
    predict_alignability,
    train_head,
)
from research.wys2.corpus import Clips, Wys2Corpus, clips_of, resolved_embeddings
from research.wys2.rows import SS, Wys2Size
from research.wys2.trials import train_on
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import point_estimate as total
from stepline.records import FeatureSequence, Matrix
from stepline.settings import Count, Settings
from stepline.training.batches import Mask
from stepline.training.settings import TrainSettings
from stepline.wys2.detector import Detector
from stepline.wys2.settings import SUMMARIZER_TRAINING, LabelSettings
from stepline.wys2.summarizer import (
    SegmentedVideo,
    SummarizerSettings,
    predict_importance,
    segment_video,
    train_summarizer,
)
from stepline.wys2.summarizer.dataset import shown_seconds
from stepline.wys2.summarizer.train import score_summaries

Scores: TypeAlias = Mapping[str, Mapping[str, float]]  # row -> measure -> value

CPU = "CPU s"  # a measure of every row: of its own training
RAW, OURS = "raw features", "the detector's features"
FEW = 20  # videos of a head that has little to learn from
PUBLISHED = {  # WYS2, tables 3 and 2
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
        scores = {
            f"{row}: {measure}": value
            for row, values in rows.items()
            for measure, value in values.items()
        }
        return Outcome(scores, time.process_time() - began)


@dataclass(frozen=True)
class UsesStudy(Study[Row[UsesTrial], UsesTrial]):
    """Both tables, or the chosen one."""

    size: UsesSize = field(default_factory=UsesSize)

    file_name: ClassVar[str] = "uses"
    titles: ClassVar[Mapping[str, str]] = {
        "summaries": "Summaries, IV-Sum's form: raw features beside the detector's; held-out videos",
        "alignability": "Alignability: a head on raw features and on the detector's; `stepline evaluate htm-align`",
    }
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
        few = [f", {FEW} videos"] if self.size.lessons > FEW else []
        names = {
            "summaries": [
                "every second",
                "chance",
                *(
                    f"{given}, {features}"
                    for features in (RAW, OURS)
                    for given in ("pictures alone", "with speech")
                ),
            ],
            "alignability": [
                name
                for features in (RAW, OURS)
                for name in (
                    f"best cosine, {features}",
                    *(f"head on {features}{count}" for count in (*few, "")),
                )
            ],
        }
        return [
            Row(table, name, UsesTrial.model_validate({"table": table}), PUBLISHED.get(name, {}))
            for table in self.tables or names
            for name in names[table]
        ]

    def sized(self, trial: UsesTrial, seed: int) -> UsesTrial:
        """Return a table's trial with this seed, of this study's size."""
        return trial.changed(seed=seed, size=self.size)

    def outcome(self, row: Row[UsesTrial], seed: int) -> Outcome:
        """Return the measures of one row of a trial, and the CPU seconds of its own training."""
        scores = super().outcome(row, seed).scores
        own = {
            name.removeprefix(f"{row.name}: "): score
            for name, score in scores.items()
            if name.startswith(f"{row.name}: ")
        }
        return Outcome(own, own.pop(CPU))


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
    known = clips_of(islice(videos, size.labelled))
    trial = SS.changed(seed=seed, size=Wys2Size(steps=size.detector_steps))
    nothing = Clips(())
    detector, _, _ = train_on(
        trial, Wys2Corpus(known, nothing, nothing, nothing), folder / "detector"
    )
    lessons, tests = tuple(islice(videos, size.lessons)), tuple(videos)
    return HeldOutWorld(make_world(seed, settings), detector, lessons, tests)


def features_of(video: SimulatedVideo, detector: Detector | None) -> tuple[FeatureSequence, Matrix]:
    """Return a video's features and the vectors of its narration: raw, or as a detector embeds
    them."""
    features, vectors = video.features(), video.vectors("narration")
    if detector is None:
        return features, vectors
    return embed_seconds(detector, features), embed_sentences(detector, vectors)


def summaries(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return F, tau and rho of summarizers on raw and on the detector's features, and of what
    learns nothing."""
    uses = prepare(seed, size, folder)
    shown = [shown_seconds(video.record, video.duration) for video in uses.tests]
    rng = np.random.default_rng(seed)
    rows: dict[str, Mapping[str, float]] = {
        "every second": _summary_scores(
            [np.ones(len(one), dtype=np.float32) for one in shown], shown, 0.0
        ),
        "chance": _summary_scores(
            [rng.random(len(one)).astype(np.float32) for one in shown], shown, 0.0
        ),
    }
    training = SUMMARIZER_TRAINING.model_copy(
        update={"seed": seed, "epochs": size.summarizer_epochs}
    )
    for words, detector in ((RAW, None), (OURS, uses.detector)):
        for speech in (False, True):
            began = time.process_time()
            taught, held = (
                _segments(videos, detector, speech=speech) for videos in (uses.lessons, uses.tests)
            )
            settings = _summarizer_settings(taught[0])
            network = train_summarizer(
                taught, folder / f"{words} {speech}", summarizer=settings, settings=training
            )
            given = [predict_importance(network, sample) for sample in held]
            name = f"{'with speech' if speech else 'pictures alone'}, {words}"
            rows[name] = _summary_scores(given, shown, time.process_time() - began)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _segments(
    videos: Sequence[SimulatedVideo], detector: Detector | None, *, speech: bool
) -> list[SegmentedVideo]:
    made = []
    for video in videos:
        features, vectors = features_of(video, detector)
        width = vectors.shape[1] if speech else 0
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=width)
        made.append(segment_video(video.record, features, vectors if speech else None, settings))
    return made


def _summarizer_settings(sample: SegmentedVideo) -> SummarizerSettings:
    return SummarizerSettings(
        video_width=sample.pictures.shape[1], text_width=sample.speech.shape[1]
    )


def _summary_scores(
    given: Sequence[Matrix], shown: Sequence[Mask], seconds: float
) -> Mapping[str, float]:
    scores = asdict(score_summaries(given, shown))
    return {"F": scores["f"], "tau": scores["tau"], "rho": scores["rho"], CPU: seconds}


def alignabilities(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return the ROC-AUC of heads on raw and on the detector's features, and of the best cosine
    without a head."""
    uses = prepare(seed, size, folder)
    write_videos(uses.world, uses.tests, folder / "world")
    training = HEAD_TRAINING.model_copy(update={"seed": seed, "epochs": size.head_epochs})
    labels = similar_sentences(uses.lessons)
    rows: dict[str, Mapping[str, float]] = {}
    for words, detector in ((RAW, None), (OURS, uses.detector)):
        held = [features_of(video, detector) for video in uses.tests]
        best = [(sentences @ features.values.T).max(1) for features, sentences in held]
        rows[f"best cosine, {words}"] = _alignability_scores(best, uses.tests, folder, 0.0)
        taught = [features_of(video, detector) for video in uses.lessons]
        for count in sorted({min(FEW, len(taught)), len(taught)}):
            began = time.process_time()
            head = _head(
                uses.lessons[:count],
                taught[:count],
                labels[:count],
                folder / f"{words}{count}",
                training,
            )
            given = [
                predict_alignability(head, features.values, sentences)
                for features, sentences in held
            ]
            name = f"head on {words}" + ("" if count == len(taught) else f", {count} videos")
            rows[name] = _alignability_scores(
                given, uses.tests, folder, time.process_time() - began
            )
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _head(
    videos: Sequence[SimulatedVideo],
    taught: Sequence[tuple[FeatureSequence, Matrix]],
    known: Sequence[Mask],
    folder: Path,
    training: TrainSettings,
) -> AlignabilityHead:
    samples = [
        AlignabilitySample(video.id, features.values, sentences, labels)
        for video, (features, sentences), labels in zip(videos, taught, known, strict=True)
    ]
    return train_head(samples, folder, settings=training)


LIKE = LabelSettings(quantile=0.35).quantile or 0.0  # fraction of sentences that SS labels take


def similar_sentences(videos: Sequence[SimulatedVideo]) -> list[Mask]:
    """Return which sentences are like some key-step of their video: SS labels of sentences, the
    most similar 35 %."""
    likeness = []
    for video in videos:
        shown = [row for row, step in enumerate(video.record.reference) if step.spans]
        likeness.append(
            (resolved_embeddings(video) @ video.embeddings("recipe")[shown].T).max(1, initial=-1.0)
        )
    least = np.quantile(np.concatenate(likeness), 1 - LIKE)
    return [np.asarray(one >= least) for one in likeness]


def _alignability_scores(
    given: Sequence[Matrix], videos: Sequence[SimulatedVideo], folder: Path, seconds: float
) -> Mapping[str, float]:
    """Return the ROC-AUC that `stepline evaluate htm-align` gives."""
    predictions = folder / "predictions.json"
    tree = {
        video.id: {"alignability": scores.tolist()}
        for video, scores in zip(videos, given, strict=True)
    }
    predictions.write_text(json.dumps(tree))
    scores = evaluate("htm-align", predictions, folder / "world" / "htm_align.json")
    return {"ROC-AUC": total(scores.statistics["ROC-AUC alignable"]), CPU: seconds}
