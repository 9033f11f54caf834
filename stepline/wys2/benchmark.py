"""Benchmarks answered by a trained detector: sets of clips (VND) and the sentences of HTM-Align
(WYS2, 4.2 and 4.3).

    vnd         the score of each clip with its own words
    htm-align   of each sentence: the best clip of the video (`seconds`), its score (`alignability`), and, where a
                transcript says when it is spoken, the score of the clip in which it is (`shown`)

Scores are raw, as ROC-AUC takes them. Differs: the paper gives its features to TAN's alignability
head, which nobody released; here the best clip of the video decides, as in MIL-NCE's row of the
same table. Letters: K sentences, T feature rows.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from stepline.atomic_files import write_atomic
from stepline.device import current_device, device_of
from stepline.errors import DatasetError, ModelError, SteplineError
from stepline.media import probe
from stepline.records import FeatureSequence, Matrix, Span
from stepline.training.network_file import TrainedOn
from stepline.training.sources import TextEncoder, text_encoder
from stepline.wys2.clips import collate_pairs
from stepline.wys2.detector import (
    FILE,
    Detector,
    clips_at_once,
    read_detector,
    score_pairs,
    trained_on,
)
from stepline.wys2.judge import SHORTEST, judged_span
from stepline.wys2.predict import seen_pair

FRAME_CLIP_RATE = 1.0  # clips of frames a second of video, where the best is sought

Seen: TypeAlias = FeatureSequence | Path  # a video's features, or its file for a detector of frames
SeenReader: TypeAlias = Callable[[str], Seen]  # of a video's id


class LabelledClip(Protocol):
    """A clip of a set of visual narrations: seconds of a video's file, and the words spoken in
    them."""

    @property
    def id(self) -> str:
        """Its own id."""

    @property
    def video(self) -> str:
        """The path of the video, whose stem keys its features."""

    @property
    def span(self) -> Span:
        """Its seconds."""

    @property
    def text(self) -> str:
        """The words."""


@dataclass(frozen=True)
class DetectorForBenchmarks:
    """A detector with the encoder of its texts; it need not be calibrated."""

    network: Detector
    encode: TextEncoder
    video: str
    path: Path

    @property
    def sees_frames(self) -> bool:
        """Whether it takes the videos themselves, not their features."""
        return self.network.settings.video == "s3d"

    def check(self, features: Seen) -> None:
        """Raise ModelError where features are not those that it was trained on."""
        if isinstance(features, Path):
            return
        trained = TrainedOn(
            self.path, f"give features of {self.video or 'its backbone'}, or another --detector"
        )
        trained.check_width(self.network.settings.video_width, features)
        trained.check_source("features", self.video, features.backbone)


@dataclass(frozen=True)
class DetectorAnswer:
    """How many items the file holds, and by id why others are not in it."""

    count: int
    missing: dict[str, str]


def load_for_benchmarks(path: Path) -> DetectorForBenchmarks:
    """Return the detector in a file or in the folder of a run. Raises ModelError where it does not
    name its encoder."""
    file = FILE.find(path)
    network, (video, text) = read_detector(file), trained_on(file)
    if not text:
        raise ModelError(
            f"{file}: does not say what made its text vectors; train it by `stepline train wys2`"
        )
    return DetectorForBenchmarks(network, text_encoder(text), video, file)


def answer_clips(
    clips: Sequence[LabelledClip], loaded: DetectorForBenchmarks, read: SeenReader, out: Path
) -> DetectorAnswer:
    """Write {clip: score} of a set of clips. Raises DatasetError when none can be scored."""
    scores: dict[str, float] = {}
    missing: dict[str, str] = {}
    of_video: dict[str, list[LabelledClip]] = {}
    for clip in clips:
        of_video.setdefault(Path(clip.video).stem, []).append(clip)
    for video, own in of_video.items():
        try:
            features = read(video)
            loaded.check(features)
        except SteplineError as error:
            missing |= {clip.id: str(error) for clip in own}
            continue
        vectors = loaded.encode([clip.text for clip in own])
        pairs = [
            seen_pair(loaded.network, clip.id, features, clip.span, vectors[k : k + 1])
            for k, clip in enumerate(own)
        ]
        found = score_pairs(loaded.network, pairs).tolist()
        scores |= {clip.id: score for clip, score in zip(own, found, strict=True)}
    return _write(scores, missing, out)


def answer_sentences(
    texts: Mapping[str, Sequence[str]],
    spoken: Mapping[str, npt.NDArray[np.float64]],
    loaded: DetectorForBenchmarks,
    read: SeenReader,
    out: Path,
) -> DetectorAnswer:
    """Write HTM-Align's answer. texts: by video; spoken: (K, 2) seconds of a transcript, where
    there is one.

    Raises DatasetError when no video can be answered.
    """
    answers: dict[str, dict[str, list[float]]] = {}
    missing: dict[str, str] = {}
    for video, sentences in texts.items():
        try:
            features = read(video)
            loaded.check(features)
        except SteplineError as error:
            missing[video] = str(error)
            continue
        vectors = loaded.encode(sentences)
        scores = score_seconds(loaded.network, features, vectors)  # (K, T)
        rate = FRAME_CLIP_RATE if isinstance(features, Path) else features.rate
        answer = {"seconds": scores.argmax(1) / rate, "alignability": scores.max(1)}
        if video in spoken:
            spans = [judged_span(Span(*map(float, span)), SHORTEST) for span in spoken[video]]
            pairs = [
                seen_pair(loaded.network, video, features, span, vectors[k : k + 1])
                for k, span in enumerate(spans)
            ]
            answer["shown"] = score_pairs(loaded.network, pairs)
        answers[video] = {
            name: values.astype(np.float64).tolist() for name, values in answer.items()
        }
    return _write(answers, missing, out)


def score_seconds(network: Detector, features: Seen, vectors: Matrix) -> Matrix:
    """Return (K, T): how well the clip around each row, or each second of a file, shows each text
    (K, D)."""
    if isinstance(features, Path):
        rows, rate = max(1, math.floor(probe(features).duration * FRAME_CLIP_RATE)), FRAME_CLIP_RATE
    else:
        rows, rate = len(features.values), features.rate
    middles = (np.arange(rows) + 0.5) / rate
    around = [
        Span(max(0.0, middle - SHORTEST / 2), float(middle) + SHORTEST / 2) for middle in middles
    ]
    pairs = [seen_pair(network, "", features, span, vectors[:1]) for span in around]
    at_once = clips_at_once(network)
    device = device_of(network)
    network.eval()
    with torch.inference_mode(), current_device().autocast():
        texts = network.encode_texts(
            torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32)).to(device)
        )
        parts = []
        for first in range(0, len(pairs), at_once):
            clips = network.encode_clips(collate_pairs(pairs[first : first + at_once]).to(device))
            parts.append(network.compare(clips, texts))  # (B, K)
    scores: Matrix = torch.cat(parts).T.float().cpu().numpy()
    return scores


def _write(found: Mapping[str, object], missing: dict[str, str], out: Path) -> DetectorAnswer:
    if not found:
        id, reason = next(iter(missing.items()))
        raise DatasetError(
            f"none of {len(missing)} can be answered, the first, {id}, since: {reason}"
        )
    write_atomic(out, json.dumps(found, allow_nan=False) + "\n")
    return DetectorAnswer(len(found), missing)
