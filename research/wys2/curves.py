"""Summaries by the number of labels: raw features, the detector's, and its cross-modal score (WYS2,
section 4.4).

A label says of one segment of 4 s how much of it a summary keeps. The detector learns from
key-steps of other videos (SS labels). A summarizer of IV-Sum's form learns from that many labels of
`lessons`, and is scored on `tests`. The score of a segment is the greatest of the detector's scores
of the segment and each sentence that is said in it. Letters: S segments, N labels, D numbers of a
code.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from research.simulate import SimulatedVideo
from research.wys2.alignability import embed_sentences
from research.wys2.uses import HeldOutWorld, UsesSize, features_of, prepare
from stepline.atomic_files import write_atomic
from stepline.records import Matrix
from stepline.settings import Count
from stepline.training.settings import TrainSettings
from stepline.wys2.detector import Detector
from stepline.wys2.summarizer import (
    SegmentedVideo,
    SummarizerSettings,
    predict_importance,
    segment_video,
    train_summarizer,
)
from stepline.wys2.summarizer.dataset import shown_seconds
from stepline.wys2.summarizer.train import score_summaries

LABELS = (16, 64, 250, 1000, 4000)
INPUTS = ("raw", "detector", "score", "raw and score", "detector and score")
BINS = 8  # of a score's code
Segments: TypeAlias = list[SegmentedVideo]


class CurveSize(UsesSize):
    """How large the experiment is. 131 videos have about 4,000 segments."""

    lessons: Count = 135
    tests: Count = 40
    steps: Count = 60  # of every training of a summarizer
    batch: Count = 8  # videos
    draws: Count = 1  # of videos, where labels are few
    few: Count = 250  # labels


def curves(seed: int, size: CurveSize, folder: Path) -> list[dict[str, Any]]:
    """Return F, tau and rho of each input and number of labels, the mean over draws."""
    uses = prepare(seed, size, folder)
    shown = [shown_seconds(video.record, video.duration) for video in uses.tests]
    rows = []
    taught, held = (inputs_of(videos, uses) for videos in (uses.lessons, uses.tests))
    for name in INPUTS:
        for labels in LABELS:
            found = []
            for draw in range(size.draws if labels <= size.few else 1):
                samples = first_labels(taught[name], labels, np.random.default_rng([seed, draw]))
                network = _trained(samples, size, draw)
                found.append(
                    score_summaries([predict_importance(network, one) for one in held[name]], shown)
                )
            rows.append(
                {
                    "input": name,
                    "labels": labels,
                    "F": mean(one.f or 0.0 for one in found),
                    "tau": mean(one.tau or 0.0 for one in found),
                    "rho": mean(one.rho or 0.0 for one in found),
                }
            )
    return rows


def inputs_of(videos: Sequence[SimulatedVideo], uses: HeldOutWorld) -> dict[str, Segments]:
    """Return the segmented videos by their input."""
    raw, detector = (_segments(videos, network) for network in (None, uses.detector))
    codes = score_codes(videos, uses.detector)
    joined = list(zip(raw, detector, codes, strict=True))
    return {
        "raw": raw,
        "detector": detector,
        "score": [replace(one, pictures=code) for one, _, code in joined],
        "raw and score": [replace(one, speech=code) for one, _, code in joined],
        "detector and score": [replace(one, speech=code) for _, one, code in joined],
    }


def _segments(videos: Sequence[SimulatedVideo], detector: Detector | None) -> Segments:
    found = []
    for video in videos:
        features, _ = features_of(video, detector)
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=0)
        found.append(segment_video(video.record, features, None, settings))
    return found


def score_codes(videos: Sequence[SimulatedVideo], detector: Detector) -> list[Matrix]:
    """Return each segment's cross-modal score as `BINS` membership numbers, zeros where no one
    speaks: (S, BINS).

    Bins are quantiles of all scores. A single number would be lost in the summarizer's norm of its
    inputs.
    """
    scores = [segment_scores(video, detector) for video in videos]
    spoken = np.concatenate(scores)
    middles = np.quantile(spoken[np.isfinite(spoken)], (np.arange(BINS) + 0.5) / BINS)
    width = float(np.mean(np.diff(middles)))
    codes = [np.exp(-0.5 * ((one[:, None] - middles) / width) ** 2) for one in scores]  # (S, BINS)
    return [
        np.where(np.isfinite(one[:, None]), code, 0.0).astype(np.float32)
        for one, code in zip(scores, codes, strict=True)
    ]


def segment_scores(video: SimulatedVideo, detector: Detector) -> Matrix:
    """Return the greatest score of each segment and a sentence that is said in it, -inf where
    no one speaks: (S,)."""
    features, _ = features_of(video, detector)
    sentences = embed_sentences(detector, video.vectors("narration"))
    fit = sentences @ features.values.T  # (sentences, T)
    length = SummarizerSettings().seconds
    found = np.full(int(np.ceil(features.duration / length - 1e-9)), -np.inf, dtype=np.float32)
    for row, sentence in enumerate(video.record.sentences):
        for part in range(
            int(sentence.span.start // length),
            min(int(sentence.span.end // length) + 1, len(found)),
        ):
            rows = slice(
                int(part * length * features.rate), int((part + 1) * length * features.rate)
            )
            found[part] = max(found[part], float(fit[row, rows].max()))
    return found


def first_labels(samples: Segments, count: int, rng: np.random.Generator) -> Segments:
    """Return videos in random order until they hold that many segments, the last one cut. All where
    there are fewer."""
    found: Segments = []
    for index in rng.permutation(len(samples)).tolist():
        left = count - sum(len(one.pictures) for one in found)
        if left <= 0:
            break
        one = samples[index]
        found.append(
            replace(
                one,
                pictures=one.pictures[:left],
                speech=one.speech[:left],
                matters=one.matters[:left],
            )
        )
    return found


def _trained(samples: Segments, size: CurveSize, seed: int) -> Any:
    settings = SummarizerSettings(
        video_width=samples[0].pictures.shape[1], text_width=samples[0].speech.shape[1]
    )
    batches = int(np.ceil(len(samples) / size.batch))
    training = TrainSettings(
        epochs=max(1, round(size.steps / batches)),
        batch=size.batch,
        learning_rate=1e-3,
        seed=seed,
        readers=0,
        save_every=1_000_000,
        device="cpu",
    )
    with TemporaryDirectory() as folder:
        return train_summarizer(samples, Path(folder), summarizer=settings, settings=training)


def run_curves(seeds: Sequence[int], size: CurveSize, result: Path, command: str) -> None:
    """Add the curves of each seed that is lacking to a JSON file."""
    tree = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {"worlds": {}}
    for seed in seeds:
        if str(seed) in tree["worlds"]:
            continue
        with TemporaryDirectory() as folder:
            tree["worlds"][str(seed)] = curves(seed, size, Path(folder))
        tree |= {"command": command, "size": size.model_dump(mode="json")}
        write_atomic(result, json.dumps(tree, indent=1) + "\n")
