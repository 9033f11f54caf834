"""Judges by a trained detector: its scores of a video's sentences become P(shown) by a fitted
regression.

The regression is fitted to the validation clips of the training run and stored next to the
detector's file.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ModelError, SettingsError
from stepline.evaluate.calibration import (
    MIN_ITEMS,
    LogisticRegression,
    calibration_error,
    fit_logistic,
    read_logistic,
)
from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.limits import parse_json
from stepline.models.training.batches import Mask
from stepline.models.training.network import LoadedNetwork
from stepline.models.wys2.clips import ClipTextPair, FrameClip, make_feature_pair
from stepline.models.wys2.detector import NETWORK, Detector, read_detector, score_pairs
from stepline.records import FeatureSequence, Matrix, Sentence, Span
from stepline.text import embed

if TYPE_CHECKING:
    from stepline.vision import Backbone

CALIBRATION_KIND = "stepline.wys2.shown"
# text encoders that belong to a backbone (all others know texts alone)
BACKBONE_ENCODERS = ("conse", "clip", "internvideo", "s3d")
MIN_CLIP_SECONDS = 3.0  # of the clip in which a sentence is judged; WYS2, section 4
NEEDED_CLIPS = 2 * MIN_ITEMS  # validation clips of either kind: each half must bear a fit


@dataclass(frozen=True)
class LoadedDetector(LoadedNetwork):
    """A trained detector with its calibration.

    Attributes:
        network: the detector.
        logistic: logistic regression from scores to P(shown).
    """

    network: Detector
    logistic: LogisticRegression


@dataclass(frozen=True)
class DetectorCalibration:
    """Logistic regression from detector scores to P(shown).

    Attributes:
        logistic: the regression.
        error: expected calibration error by two-fold cross-validation over clips.
    """

    logistic: LogisticRegression
    error: float


def load_detector(path: Path) -> LoadedDetector:
    """Return the calibrated detector of a file or run folder, in evaluation mode. Raises ModelError
    if the file is no detector or has no calibration of its own."""
    file = path / NETWORK.file_names[0] if path.is_dir() else path
    space, network = read_detector(file)
    path = calibration_path(file)
    if not path.exists():
        raise ModelError(
            f"{file}: no {path.name} next to it, so its scores are not probabilities; train it "
            f"again with {NEEDED_CLIPS} validation clips of either kind or more"
        )
    # Only the regression of this very file makes its scores probabilities.
    digest = sha256(file)
    try:
        tree = parse_json(path.read_bytes())
        logistic = read_logistic(tree, 1)
        fitted_on = str(tree["detector"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path}: not a calibration ({error}); train the detector again"
        ) from error
    if fitted_on != digest:
        raise ModelError(
            f"{path}: fitted to another detector; give the one that was trained with it"
        )
    width = network.settings.video_width
    return LoadedDetector(file, digest, space, width, True, network, logistic)


def estimate_shown_by_detector(
    detector: LoadedDetector,
    sentences: Sequence[Sentence],
    video: FeatureSequence | Path,
    vectors: Matrix,
    seconds: float,
) -> tuple[Sentence, ...]:
    """Return the sentences with `shown`, P(the picture shows it while it is said), by a detector.

    Args:
        detector: the detector with its calibration.
        sentences: S sentences with times.
        video: features of the video, or its file for a detector of frames.
        vectors: (S, D) sentence vectors from the text encoder of the detector's training.
        seconds: least length of the clip in which a sentence is judged.

    Raises ShapeError when widths do not fit, MediaError if the file has no picture.
    """
    pairs = []
    for k, sentence in enumerate(sentences):
        span = widen_span(sentence.span, seconds)
        pairs.append(make_clip_pair(detector.network, str(k), video, span, vectors[k : k + 1]))
    scores = score_pairs(detector.network, pairs).astype(np.float64)
    p_shown = detector.logistic(scores[:, None]).tolist()
    return tuple(
        sentence.model_copy(update={"shown": round(p, 4)})
        for sentence, p in zip(sentences, p_shown, strict=True)
    )


def widen_span(span: Span, seconds: float = MIN_CLIP_SECONDS) -> Span:
    """Return a span widened around its middle to at least `seconds`: the clip in which a sentence
    is judged."""
    start = max(0.0, span.start - max(0.0, seconds - span.duration) / 2)
    return Span(start, max(span.end, start + seconds))


def make_clip_pair(
    network: Detector, id: str, video: FeatureSequence | Path, span: Span, text: Matrix
) -> ClipTextPair:
    """Return a clip with its texts, as frames if the network is a detector of frames, otherwise as
    feature rows.

    Args:
        network: the detector.
        id: id of the clip.
        video: features of the video, or its file for a detector of frames.
        span: start and end of the clip in seconds.
        text: (P, D) vectors of the candidate texts.
    """
    if isinstance(video, Path):
        settings = network.settings
        return ClipTextPair(id, FrameClip(video, span, settings.frames, settings.side), text)
    return make_feature_pair(id, video, span, text)


def calibrate(scores: Matrix, labels: Mask) -> DetectorCalibration | None:
    """Return the calibration of detector scores, or None if there are too few positive or negative
    clips.

    The error is cross-validated between the even and the odd clips, which come from the same
    videos.

    Args:
        scores: (N,) detector scores of clips.
        labels: (N,) whether each clip shows its text.
    """
    rows = scores[:, None].astype(np.float64)
    even, odd = ((rows[k::2], labels[k::2]) for k in (0, 1))
    for _, flags in (even, odd):
        if min(int(flags.sum()), int((~flags).sum())) < MIN_ITEMS:
            return None
    # The error is of fits to the other half. What is kept is fitted to both.
    p = np.concatenate([fit_logistic(*even)(odd[0]), fit_logistic(*odd)(even[0])])
    error = calibration_error(np.concatenate([odd[1], even[1]]), p)
    return DetectorCalibration(fit_logistic(rows, labels), error)


def calibration_path(detector: Path) -> Path:
    """Return the path of the calibration file of a detector's file."""
    return detector.with_name(f"{detector.stem}.shown.json")


def write_calibration(calibration: DetectorCalibration, detector: Path) -> None:
    """Write a calibration next to the detector that it was fitted to. detector: file of the
    detector, which must exist."""
    tree = {
        "kind": CALIBRATION_KIND,
        "detector": sha256(detector),
        "error": calibration.error,
        **asdict(calibration.logistic),
    }
    write_atomic(calibration_path(detector), json.dumps(tree, indent=1) + "\n")


def check_backbone(detector: LoadedNetwork, backbone: str) -> None:
    """Raise ModelError or SettingsError if features or text vectors are of another backbone than
    those of a network's training.

    Args:
        detector: the network.
        backbone: name of the backbone in use.
    """
    detector.check_space(backbone, rate=1.0)
    encoder = detector.space.text.partition(":")[0]  # without the folder of its weights
    if encoder in BACKBONE_ENCODERS and encoder != backbone:
        raise SettingsError(
            f"{detector.path}: trained on text vectors of {encoder!r}; "
            f"set vision.backbone to {encoder}"
        )


def encode_texts(name: str, backbone: "Backbone", texts: Sequence[str]) -> Matrix:
    """Return the vectors of N texts, (N, D).

    Args:
        name: name of the text encoder. "" or the name of a vision backbone: the encoder of
            `backbone`. Other names: a sentence encoder.
        backbone: vision backbone with a text encoder.
        texts: the texts.
    """
    if not name or name.partition(":")[0] in BACKBONE_ENCODERS:
        return backbone.encode_texts(texts)

    return embed(texts, model=name)
