"""A trained detector as a judge: its scores of a video's sentences, turned into P(shown) by a
fitted regression.

The regression is fitted to the validation clips of the training run and lies beside the detector it
belongs to. Here is also which backbone gave the features and text vectors that a network takes, and
whether a video's are the same.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.atomic_files import write_atomic
from stepline.errors import ModelError, SettingsError
from stepline.evaluate.calibration import (
    LEAST,
    Logistic,
    calibration_error,
    fit_logistic,
    read_logistic,
)
from stepline.limits import parse_json
from stepline.records import FeatureSequence, Matrix, Sentence, Span
from stepline.training.batches import Mask
from stepline.weights import sha256
from stepline.wys2.clips import ClipTextPair, FrameClip, clip_text_pair
from stepline.wys2.detector import DETECTOR, Detector, read_detector, score_pairs, trained_on
from stepline.wys2.judge import judged_span

if TYPE_CHECKING:
    from stepline.vision import Backbone

KIND = "stepline.wys2.shown"
# text encoders that belong to a backbone; all others know texts alone
BACKBONE_ENCODERS = ("conse", "clip", "s3d")
NEEDED = 2 * LEAST  # validation clips of either kind: each half must bear a fit


@dataclass(frozen=True)
class LoadedDetector:
    """A detector, the backbones whose features and texts it takes ("": unknown), and its
    regression.

    path: its file, sha256: of that file.
    """

    network: Detector
    video: str
    text: str
    logistic: Logistic
    path: Path
    sha256: str


@dataclass(frozen=True)
class DetectorCalibration:
    """A regression and its expected calibration error, each half of the clips judged by a fit to
    the other."""

    logistic: Logistic
    error: float


def load_detector(path: Path) -> LoadedDetector:
    """Return a detector ready to judge. Raises ModelError for other files, and for one that was
    never calibrated."""
    file = path / DETECTOR if path.is_dir() else path
    network = read_detector(file)
    beside = calibration_path(file)
    if not beside.exists():
        cure = f"train it again with {NEEDED} validation clips of either kind or more"
        raise ModelError(
            f"{file}: no {beside.name} beside it, so its scores are no probabilities; {cure}"
        )
    digest = sha256(file)
    try:
        tree = parse_json(beside.read_bytes())
        logistic, fitted_on = read_logistic(tree, 1), str(tree["detector"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{beside}: not a calibration ({error}); train the detector again"
        ) from error
    if fitted_on != digest:
        raise ModelError(
            f"{beside}: fitted to another detector; give the one that was trained with it"
        )
    return LoadedDetector(network, *trained_on(file), logistic, file, digest)


def judge_by_detector(
    loaded: LoadedDetector,
    sentences: Sequence[Sentence],
    seen: FeatureSequence | Path,
    vectors: Matrix,
    seconds: float,
) -> tuple[float, ...]:
    """Return P(the picture shows it while it is said) of every sentence, (S,), in clips of at least
    `seconds`.

    seen: the video's features, or its file for a detector of frames. vectors: the sentences (S, D)
    by the text encoder that the detector was trained with. Raises ShapeError when widths do not
    fit, MediaError where the file shows nothing.
    """
    spans = [judged_span(sentence.span, seconds) for sentence in sentences]
    pairs = [
        seen_pair(loaded.network, str(k), seen, span, vectors[k : k + 1])
        for k, span in enumerate(spans)
    ]
    scores = score_pairs(loaded.network, pairs).astype(np.float64)
    return tuple(float(p) for p in loaded.logistic(scores[:, None]))


def seen_pair(
    network: Detector, id: str, seen: FeatureSequence | Path, span: Span, text: Matrix
) -> ClipTextPair:
    """Return a clip with its text as a detector takes it. seen: the video's features, or its
    file."""
    if isinstance(seen, Path):
        return ClipTextPair(
            id, FrameClip(seen, span, network.settings.frames, network.settings.side), text
        )
    return clip_text_pair(id, seen, span, text)


def calibrate(scores: Matrix, shown: Mask) -> DetectorCalibration | None:
    """Return the regression of scores (N,) on labels (N,); None where a half has too few clips of
    either kind.

    A half is every second clip, so that a video's clips lie in both: the error is that of other
    clips of known videos.
    """
    halves = [(scores[k::2, None].astype(np.float64), shown[k::2]) for k in (0, 1)]
    if any(min(int(known.sum()), int((~known).sum())) < LEAST for _, known in halves):
        return None
    stated = [fit_logistic(*fitted)(judged[0]) for fitted, judged in (halves, halves[::-1])]
    known = np.concatenate([halves[1][1], halves[0][1]])
    error = calibration_error(known, np.concatenate(stated))
    return DetectorCalibration(fit_logistic(scores[:, None].astype(np.float64), shown), error)


def calibration_path(detector: Path) -> Path:
    """Return where the regression of a detector's file lies."""
    return detector.with_name(f"{detector.stem}.shown.json")


def write_calibration(calibration: DetectorCalibration, detector: Path) -> None:
    """Write a calibration beside the detector's file that it was fitted with."""
    tree = {
        "kind": KIND,
        "detector": sha256(detector),
        "error": calibration.error,
        **asdict(calibration.logistic),
    }
    write_atomic(calibration_path(detector), json.dumps(tree, indent=1) + "\n")


def check_backbone(path: Path, trained: tuple[str, str], backbone: str) -> None:
    """Raise SettingsError where a video's features are of another backbone than a network was
    trained on.

    trained: names of what gave its features and its text vectors, "" where it does not say.
    """
    video, text = trained
    if video and video != backbone:
        raise SettingsError(
            f"{path}: trained on features of {video!r}, these are of {backbone!r}; set vision.backbone to {video}, "
            "or give another network"
        )
    encoder = text.partition(":")[0]  # without the folder of its weights
    if encoder in BACKBONE_ENCODERS and encoder != backbone:
        raise SettingsError(
            f"{path}: trained on text vectors of {encoder!r}; set vision.backbone to {encoder}"
        )


def encode_texts(name: str, backbone: "Backbone", texts: Sequence[str]) -> Matrix:
    """Return the vectors (N, D) of texts by the encoder of that name: the backbone's own, or one of
    texts alone."""
    if not name or name.partition(":")[0] in BACKBONE_ENCODERS:
        return backbone.encode_texts(texts)
    from stepline.text import embed

    return embed(texts, model=name)
