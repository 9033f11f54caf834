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
from stepline.files.atomic_files import write_atomic
from stepline.models.training.settings import TrainSettings
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.settings import SummarizerSettings
from stepline.models.wys2.summarizer import (
    SegmentedVideo,
    predict_importance,
    score_summaries,
    segment_video,
    shown_seconds,
    train_summarizer,
)
from stepline.records import Matrix
from stepline.settings import Count

LABEL_COUNTS = (16, 64, 250, 1000, 4000)
INPUT_NAMES = ("raw", "detector", "score", "raw and score", "detector and score")
CODE_BINS = 8  # of a score's code
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
    truth = [shown_seconds(video.record, video.duration) for video in uses.tests]
    lessons = inputs_of(uses.lessons, uses)
    tests = inputs_of(uses.tests, uses)
    rows = []
    for name in INPUT_NAMES:
        for labels in LABEL_COUNTS:
            scores = []
            for draw in range(size.draws if labels <= size.few else 1):
                rng = np.random.default_rng([seed, draw])
                samples = first_labels(lessons[name], labels, rng)
                network = _trained(samples, size, draw)
                importances = [predict_importance(network, sample) for sample in tests[name]]
                scores.append(score_summaries(importances, truth))
            row = {
                "input": name,
                "labels": labels,
                "F": mean(score.f or 0.0 for score in scores),
                "tau": mean(score.tau or 0.0 for score in scores),
                "rho": mean(score.rho or 0.0 for score in scores),
            }
            rows.append(row)
    return rows


def inputs_of(videos: Sequence[SimulatedVideo], uses: HeldOutWorld) -> dict[str, Segments]:
    """Return the segmented videos by their input."""
    inputs: dict[str, Segments] = {
        "raw": _segments(videos, None),
        "detector": _segments(videos, uses.detector),
        "score": [],
        "raw and score": [],
        "detector and score": [],
    }
    for index, code in enumerate(score_codes(videos, uses.detector)):
        raw = inputs["raw"][index]
        detector = inputs["detector"][index]
        inputs["score"].append(replace(raw, pictures=code))
        inputs["raw and score"].append(replace(raw, speech=code))
        inputs["detector and score"].append(replace(detector, speech=code))
    return inputs


def _segments(videos: Sequence[SimulatedVideo], detector: Detector | None) -> Segments:
    segments = []
    for video in videos:
        features, _ = features_of(video, detector)
        settings = SummarizerSettings(video_width=features.values.shape[1], text_width=0)
        segments.append(segment_video(video.record, features, None, settings))
    return segments


def score_codes(videos: Sequence[SimulatedVideo], detector: Detector) -> list[Matrix]:
    """Return each segment's cross-modal score as `CODE_BINS` membership numbers, zeros where no one
    speaks: (S, CODE_BINS).

    Bins are quantiles of all scores. A single number would be lost in the summarizer's norm of its
    inputs.
    """
    scores = [segment_scores(video, detector) for video in videos]
    all_scores = np.concatenate(scores)
    spoken_scores = all_scores[np.isfinite(all_scores)]
    middles = np.quantile(spoken_scores, (np.arange(CODE_BINS) + 0.5) / CODE_BINS)
    width = float(np.mean(np.diff(middles)))
    codes = []
    for video_scores in scores:
        distance = (video_scores[:, None] - middles) / width  # (S, CODE_BINS)
        code = np.exp(-0.5 * distance**2)
        is_spoken = np.isfinite(video_scores[:, None])
        codes.append(np.where(is_spoken, code, 0.0).astype(np.float32))
    return codes


def segment_scores(video: SimulatedVideo, detector: Detector) -> Matrix:
    """Return the greatest score of each segment and a sentence that is said in it, -inf where
    no one speaks: (S,)."""
    features, _ = features_of(video, detector)
    sentences = embed_sentences(detector, video.vectors("narration"))
    similarity = sentences @ features.values.T  # (sentences, T)
    length = SummarizerSettings().seconds
    segments = int(np.ceil(features.duration / length - 1e-9))
    scores = np.full(segments, -np.inf, dtype=np.float32)
    for row, sentence in enumerate(video.record.sentences):
        first = int(sentence.span.start // length)
        stop = min(int(sentence.span.end // length) + 1, segments)
        for segment in range(first, stop):
            first_row = int(segment * length * features.rate)
            stop_row = int((segment + 1) * length * features.rate)
            best = float(similarity[row, first_row:stop_row].max())
            scores[segment] = max(scores[segment], best)
    return scores


def first_labels(samples: Segments, count: int, rng: np.random.Generator) -> Segments:
    """Return videos in random order until they hold that many segments, the last one cut. All where
    there are fewer."""
    lessons: Segments = []
    rest = count
    for index in rng.permutation(len(samples)).tolist():
        if rest <= 0:
            break
        sample = samples[index]
        lesson = replace(
            sample,
            pictures=sample.pictures[:rest],
            speech=sample.speech[:rest],
            matters=sample.matters[:rest],
        )
        lessons.append(lesson)
        rest -= len(lesson.pictures)
    return lessons


def _trained(samples: Segments, size: CurveSize, seed: int) -> Any:
    video_width = samples[0].pictures.shape[1]
    text_width = samples[0].speech.shape[1]
    settings = SummarizerSettings(video_width=video_width, text_width=text_width)
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
    tree: dict[str, Any] = {"worlds": {}}
    if result.exists():
        tree = json.loads(result.read_text(encoding="utf-8"))
    for seed in seeds:
        if str(seed) in tree["worlds"]:
            continue
        with TemporaryDirectory() as folder:
            tree["worlds"][str(seed)] = curves(seed, size, Path(folder))
        tree |= {"command": command, "size": size.model_dump(mode="json")}
        write_atomic(result, json.dumps(tree, indent=1) + "\n")
