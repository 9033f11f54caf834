"""Where the steps of narrated videos are taken to be: where they are said, refined by the picture,
or by the truth.

Refined: two towers learn by MIL-NCE which clips of 3 s go with which narration (WYS2's baseline, no
labels). A step moves to the `STEP_SECONDS` seconds near its speech that its sentences fit best. True: the
window that one of its sentences describes. A step that is not shown is left out. ProcX names
refined times as future work. Letters: K steps, S sentences, T feature rows, D width.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lab.simulate import SimulatedVideo
from lab.wys2.alignability import embed_seconds, embed_sentences
from lab.wys2.corpus import clips_of
from lab.wys2.rows import Wys2Size
from lab.wys2.trials import training
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.settings import ContrastSettings, DetectorSettings
from stepline.models.wys2.train import train_detector
from stepline.records import Record, Span, Step

STEP_SECONDS = 10.0  # length of a refined step
REACH_SECONDS = 15.0  # from the middle of its speech to its own middle, at most


def narration_towers(videos: Sequence[SimulatedVideo], seed: int) -> Detector:
    """Return two towers that compare clips and narrations, learnt without any label."""
    pairs = clips_of(videos).pairs
    first = pairs[0]
    shape = DetectorSettings(video_width=first.array().shape[1], text_width=first.text.shape[1])
    with TemporaryDirectory() as folder:
        return train_detector(
            pairs,
            Path(folder),
            detector=shape,
            contrast=ContrastSettings(objective="mil-nce"),
            settings=training(Wys2Size(), len(pairs), seed),
        )


def refined_record(
    video: SimulatedVideo,
    record: Record,
    towers: Detector,
    *,
    length: float = STEP_SECONDS,
    reach: float = REACH_SECONDS,
) -> Record:
    """Return the record with each step where its words fit the picture best, near its speech."""
    rows = embed_seconds(towers, video.features())
    sentences = embed_sentences(towers, video.vectors("narration"))  # (S, D)
    fit = sentences @ rows.values.T  # (S, T)

    # the mean fit of every window of `length` seconds, by its start: (S, T - width + 1)
    width = min(max(1, round(length * rows.rate)), fit.shape[1])
    kernel = np.ones(width) / width
    means = np.apply_along_axis(np.convolve, 1, fit, kernel, "valid")
    starts = np.arange(means.shape[1]) / rows.rate
    window_length = width / rows.rate

    steps = []
    for step in record.steps:
        speech = place_of(step)
        scores = means[list(step.sources)].mean(axis=0)
        near = np.abs(starts + window_length / 2 - speech.center) <= reach
        best = speech.start
        if near.any():
            best = float(starts[int(np.where(near, scores, -np.inf).argmax())])
        span = Span(best, min(best + window_length, rows.duration))
        steps.append(step.model_copy(update={"spans": (span,)}))
    return record.model_copy(update={"steps": tuple(steps)})


def true_record(video: SimulatedVideo, record: Record) -> Record:
    """Return the record with each step where it is shown. What is not shown is left out."""
    steps = []
    for step in record.steps:
        window = true_window(video, step)
        if window is not None:
            steps.append(step.model_copy(update={"spans": (window,)}))
    return record.model_copy(update={"steps": tuple(steps)})


def true_window(video: SimulatedVideo, step: Step) -> Span | None:
    """Return where a step's first sentence of something shown is shown. None without one."""
    for source in step.sources:
        window = int(video.narration.window[source])
        if window >= 0:
            start, end = video.timeline.windows[window]
            return Span(float(start), float(end))
    return None


def place_of(step: Step) -> Span:
    """Return the span of a swapped step, or of its speech where it has none."""
    if step.spans:
        return step.spans[0]
    if step.said is None:
        raise ValueError(f"{step.text!r} has no time")
    return step.said


def mean_agreement(videos: Sequence[SimulatedVideo], records: Sequence[Record]) -> float:
    """Return the mean IoU of steps with the windows that they describe, over steps that are
    shown."""
    overlaps = []
    for video, record in zip(videos, records, strict=True):
        for step in record.steps:
            window = true_window(video, step)
            if window is not None:
                overlaps.append(place_of(step).iou(window))
    return float(np.mean(overlaps))
