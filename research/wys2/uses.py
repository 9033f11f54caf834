"""The uses of WYS2 among its tables (`--table summaries`, `--table alignability`): run what is lacking, write them.

What WYS2's features are worth elsewhere: summaries (section 4.4) and alignability (section 4.3), simulated.

The detector learns from some videos of a world (SS labels), summarizers and heads from others, on its features or on
raw ones; both are scored on videos that neither has seen.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import TypeAlias

import numpy as np

from research.simulate import Sample, SimulationSettings, World, make_world, stream, write_samples
from research.wys2.alignability import TRAINING as HEAD_TRAINING
from research.wys2.alignability import AlignabilityHead, Told, alignability, embed_seconds, embed_sentences, train_head
from research.wys2.trials import SS, Clips, Wys2Corpus, Wys2Size, alike, clips_of, resolved, train_on
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import score as total
from stepline.records import FeatureSequence, Matrix
from stepline.settings import Count, Settings
from stepline.storage import write_atomic
from stepline.training.batches import Mask
from stepline.training.settings import TrainSettings
from stepline.wys2.detector import Detector
from stepline.wys2.settings import LabelSettings
from stepline.wys2.summarizer import (
    SegmentedVideo,
    SummarizerSettings,
    predict_importance,
    segment_video,
    train_summarizer,
)
from stepline.wys2.summarizer.dataset import shown_seconds
from stepline.wys2.summarizer.settings import TRAINING as SUMMARIZER_TRAINING
from stepline.wys2.summarizer.train import score_summaries

Scores: TypeAlias = Mapping[str, Mapping[str, float]]  # row -> measure -> value

VERSION = 1  # of what a run does; another makes all runs new
TITLES = {
    "summaries": "Summaries, IV-Sum's form: raw features beside the detector's; held-out videos",
    "alignability": "Alignability: a head on raw features and on the detector's; `stepline evaluate htm-align`",
}
PUBLISHED = {  # WYS2, tables 3 and 2
    "pictures alone, raw features": "65.2, .095, .202",
    "with speech, raw features": "67.3, .101, .212",
    "with speech, the detector's features": "68.9, .106, .218",
    "head on the detector's features": "77.0",
}


class UsesSize(Settings):
    """How large the experiment is."""

    labelled: Count = 400  # videos with key-steps, from which the detector learns
    lessons: Count = 100  # further videos, from which summarizers and heads learn
    tests: Count = 60  # further videos, on which both are scored
    detector_steps: Count = 300
    summarizer_epochs: Count = 20
    head_epochs: Count = 8


@dataclass(frozen=True)
class UsesPlan:
    """What is run. tables: by name. report: told how many of how many runs are done."""

    folder: Path
    seeds: Sequence[int]
    tables: Sequence[str]
    size: UsesSize = field(default_factory=UsesSize)
    report: Callable[[int, int], None] | None = None

    def run(self) -> dict[str, list[Scores]]:
        """Run what is not in the folder yet, write uses.json and uses.md there; return scores a seed of each table."""
        found: dict[str, list[Scores]] = {table: [] for table in self.tables}
        done = 0
        for table in self.tables:
            for seed in self.seeds:
                if self.report is not None:
                    self.report(done, len(self.tables) * len(self.seeds))
                found[table].append(self._scores(table, seed))
                done += 1
        tree = {"seeds": list(self.seeds), "size": self.size.model_dump(mode="json"), "tables": found}
        write_atomic(self.folder / "uses.json", json.dumps(tree, indent=1) + "\n")
        write_atomic(self.folder / "uses.md", "\n".join(as_markdown(table, found[table]) for table in self.tables))
        return found

    def _scores(self, table: str, seed: int) -> Scores:
        named = f"{VERSION} {table} {seed} {self.size.model_dump_json()}"
        key = hashlib.sha256(named.encode()).hexdigest()[:20]
        path = self.folder / "uses" / f"{key}.json"
        if not path.exists():
            scores = RUNS[table](seed, self.size, self.folder / "uses" / key)
            write_atomic(path, json.dumps({"table": table, "seed": seed, "scores": scores}, indent=1) + "\n")
        kept: Scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
        return kept


def as_markdown(table: str, seeds: Sequence[Scores]) -> str:
    """Return one table: of each row and measure the mean, and from least to most where there are several seeds."""
    measures = list(next(iter(seeds[0].values())))
    rows = [
        [row, PUBLISHED.get(row, "–"), *(_spread(measure, [scores[row][measure] for scores in seeds])
                                          for measure in measures)]
        for row in seeds[0]
    ]  # fmt: skip
    lines = [["row", "paper", *measures], ["---"] * (len(measures) + 2), *rows]
    return f"### {TITLES[table]}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _spread(measure: str, values: Sequence[float]) -> str:
    if measure == "CPU s":
        return f"{mean(values):.0f}"
    scale, digits = (1, ".3f") if measure in ("tau", "rho") else (100, ".1f")
    middle, least, most = (format(scale * value, digits) for value in (mean(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


RAW, OURS = "raw features", "the detector's features"
FEW = 20  # videos of a head that has little to learn from


@dataclass(frozen=True)
class Uses:
    """A trained detector, and videos that it has not seen: `lessons` to learn another thing from, `tests` to score."""

    world: World
    detector: Detector
    lessons: tuple[Sample, ...]
    tests: tuple[Sample, ...]


def prepare(seed: int, size: UsesSize, folder: Path) -> Uses:
    """Return a detector trained on a world's first videos, and the videos after them."""
    count = size.labelled + size.lessons + size.tests
    settings = SimulationSettings(videos=count, held_out=size.tests / count)
    videos = stream(seed, settings, count=count)
    known = clips_of(islice(videos, size.labelled))
    trial = alike(SS, seed=seed, size=Wys2Size(steps=size.detector_steps))
    nothing = Clips(())
    detector, _, _ = train_on(trial, Wys2Corpus(known, nothing, nothing, nothing), folder / "detector")
    lessons, tests = tuple(islice(videos, size.lessons)), tuple(videos)
    return Uses(make_world(seed, settings), detector, lessons, tests)


def features_of(video: Sample, detector: Detector | None) -> tuple[FeatureSequence, Matrix]:
    """Return a video's features and the vectors of its narration: raw, or as a detector embeds them."""
    features, vectors = video.features(), video.vectors("narration")
    if detector is None:
        return features, vectors
    return embed_seconds(detector, features), embed_sentences(detector, vectors)


def summaries(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return F, tau and rho of summarizers on raw and on the detector's features, and of what learns nothing."""
    uses = prepare(seed, size, folder)
    shown = [shown_seconds(video.record, video.duration) for video in uses.tests]
    chance = np.random.default_rng(seed)
    rows: dict[str, Mapping[str, float]] = {
        "every second": _summary([np.ones(len(one), dtype=np.float32) for one in shown], shown, 0.0),
        "chance": _summary([chance.random(len(one)).astype(np.float32) for one in shown], shown, 0.0),
    }
    training = SUMMARIZER_TRAINING.model_copy(update={"seed": seed, "epochs": size.summarizer_epochs})
    for words, detector in ((RAW, None), (OURS, uses.detector)):
        for speech in (False, True):
            began = time.process_time()
            taught, held = (_segments(videos, detector, speech=speech) for videos in (uses.lessons, uses.tests))
            settings = _widths(taught[0])
            network = train_summarizer(taught, folder / f"{words} {speech}", summarizer=settings, settings=training)
            given = [predict_importance(network, sample) for sample in held]
            name = f"{'with speech' if speech else 'pictures alone'}, {words}"
            rows[name] = _summary(given, shown, time.process_time() - began)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _segments(videos: Sequence[Sample], detector: Detector | None, *, speech: bool) -> list[SegmentedVideo]:
    made = []
    for video in videos:
        features, vectors = features_of(video, detector)
        width = vectors.shape[1] if speech else 0
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=width)
        made.append(segment_video(video.record, features, vectors if speech else None, settings))
    return made


def _widths(sample: SegmentedVideo) -> SummarizerSettings:
    return SummarizerSettings(video_width=sample.seen.shape[1], text_width=sample.said.shape[1])


def _summary(given: Sequence[Matrix], shown: Sequence[Mask], seconds: float) -> Mapping[str, float]:
    scores = asdict(score_summaries(given, shown))
    return {"F": scores["f"], "tau": scores["tau"], "rho": scores["rho"], "CPU s": seconds}


def alignabilities(seed: int, size: UsesSize, folder: Path) -> Scores:
    """Return the ROC-AUC of heads on raw and on the detector's features, and of the best cosine without a head."""
    uses = prepare(seed, size, folder)
    write_samples(uses.world, uses.tests, folder / "world")
    training = HEAD_TRAINING.model_copy(update={"seed": seed, "epochs": size.head_epochs})
    labels = similar_sentences(uses.lessons)
    rows: dict[str, Mapping[str, float]] = {}
    for words, detector in ((RAW, None), (OURS, uses.detector)):
        held = [features_of(video, detector) for video in uses.tests]
        best = [(sentences @ features.values.T).max(1) for features, sentences in held]
        rows[f"best cosine, {words}"] = _area(best, uses.tests, folder, 0.0)
        taught = [features_of(video, detector) for video in uses.lessons]
        for count in sorted({min(FEW, len(taught)), len(taught)}):
            began = time.process_time()
            head = _head(uses.lessons[:count], taught[:count], labels[:count], folder / f"{words}{count}", training)
            given = [alignability(head, features.values, sentences) for features, sentences in held]
            name = f"head on {words}" + ("" if count == len(taught) else f", {count} videos")
            rows[name] = _area(given, uses.tests, folder, time.process_time() - began)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _head(
    videos: Sequence[Sample],
    taught: Sequence[tuple[FeatureSequence, Matrix]],
    known: Sequence[Mask],
    folder: Path,
    training: TrainSettings,
) -> AlignabilityHead:
    samples = [
        Told(video.id, features.values, sentences, labels)
        for video, (features, sentences), labels in zip(videos, taught, known, strict=True)
    ]
    return train_head(samples, folder, settings=training)


def similar_sentences(videos: Sequence[Sample]) -> list[Mask]:
    """Return which sentences are like some key-step of their video: SS labels of sentences, the likest 35 %."""
    likeness = []
    for video in videos:
        shown = [row for row, step in enumerate(video.record.reference) if step.spans]
        likeness.append((resolved(video) @ video.embeddings("recipe")[shown].T).max(1, initial=-1.0))
    share = LabelSettings(quantile=0.35).quantile or 0.0
    least = np.quantile(np.concatenate(likeness), 1 - share)
    return [np.asarray(one >= least) for one in likeness]


def _area(given: Sequence[Matrix], videos: Sequence[Sample], folder: Path, seconds: float) -> Mapping[str, float]:
    """Return the ROC-AUC that `stepline evaluate htm-align` gives."""
    predictions = folder / "predictions.json"
    tree = {video.id: {"alignability": scores.tolist()} for video, scores in zip(videos, given, strict=True)}
    predictions.write_text(json.dumps(tree))
    scores = evaluate("htm-align", predictions, folder / "world" / "htm_align.json")
    return {"ROC-AUC": total(scores.statistics["ROC-AUC alignable"]), "CPU s": seconds}


RUNS: Mapping[str, Callable[[int, UsesSize, Path], Scores]] = {"summaries": summaries, "alignability": alignabilities}
