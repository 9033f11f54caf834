"""What WYS2's features are worth elsewhere: summaries (section 4.4) and alignability (section 4.3), simulated.

The detector learns from some videos of a world (SS labels), summarizers and heads from others, on its features or on
raw ones; both are scored on videos that neither has seen.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.batches import Flags
from stepline.evaluate.protocols import evaluate
from stepline.evaluate.statistics import score as total
from stepline.experiments.wys2_corpus import Clips, Wys2Corpus, clips_of, resolved
from stepline.experiments.wys2_trial import SS, Wys2Size, alike
from stepline.experiments.wys2_trials import train_on
from stepline.experiments.wys2_uses import Scores, UsesSize
from stepline.records import FeatureSequence, Matrix
from stepline.training_settings import TrainSettings
from stepline.world.simulate import Sample, SimulationSettings, World, make_world, stream, write_samples
from stepline.wys2.alignability import TRAINING as HEAD_TRAINING
from stepline.wys2.alignability import AlignabilityHead, Told, alignability, train_head
from stepline.wys2.embedding import embed_seconds, embed_sentences
from stepline.wys2.model import Detector
from stepline.wys2.settings import LabelSettings
from stepline.wys2.summarizer import Segmented, SummarizerSettings, importance, segmented, train_summarizer
from stepline.wys2.summarizer.score import score_summaries
from stepline.wys2.summarizer.segments import seconds_shown
from stepline.wys2.summarizer.settings import TRAINING as SUMMARIZER_TRAINING

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
    shown = [seconds_shown(video.record, video.duration) for video in uses.tests]
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
            given = [importance(network, sample) for sample in held]
            name = f"{'with speech' if speech else 'pictures alone'}, {words}"
            rows[name] = _summary(given, shown, time.process_time() - began)
    shutil.rmtree(folder, ignore_errors=True)
    return rows


def _segments(videos: Sequence[Sample], detector: Detector | None, *, speech: bool) -> list[Segmented]:
    made = []
    for video in videos:
        features, vectors = features_of(video, detector)
        width = vectors.shape[1] if speech else 0
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=width)
        made.append(segmented(video.record, features, vectors if speech else None, settings))
    return made


def _widths(sample: Segmented) -> SummarizerSettings:
    return SummarizerSettings(video_width=sample.seen.shape[1], text_width=sample.said.shape[1])


def _summary(given: Sequence[Matrix], shown: Sequence[Flags], seconds: float) -> Mapping[str, float]:
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
    known: Sequence[Flags],
    folder: Path,
    training: TrainSettings,
) -> AlignabilityHead:
    samples = [
        Told(video.id, features.values, sentences, labels)
        for video, (features, sentences), labels in zip(videos, taught, known, strict=True)
    ]
    return train_head(samples, folder, settings=training)


def similar_sentences(videos: Sequence[Sample]) -> list[Flags]:
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
