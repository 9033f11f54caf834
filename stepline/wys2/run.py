"""A training run of the detector as one folder.

run.json               settings, counts, every round's threshold and ROC-AUC, why videos were left out
videos.json            which videos were for training, validation and test; test videos are never looked at
round-N/               checkpoint and log of each training, from which a killed run goes on
detector.safetensors   the last round's network
detector.shown.json    what turns its scores into P(shown), fitted to the validation clips; not where they are few
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.records import count_reasons
from stepline.storage import write_atomic
from stepline.training.batches import Mask
from stepline.training.gather import reasons_in_words
from stepline.training.loop import Progress
from stepline.training.run_folder import RUN, claim_run_folder
from stepline.wys2.clips import ClipTextPair, split_videos
from stepline.wys2.dataset import ClipDataset, infer_labels
from stepline.wys2.detector import Detector, write_detector
from stepline.wys2.predict import NEEDED, DetectorCalibration, calibrate, calibration_path, write_calibration
from stepline.wys2.run_files import DETECTOR, SETTINGS, VIDEOS
from stepline.wys2.settings import DetectorSettings, Wys2Settings
from stepline.wys2.train import (
    TrainedDetector,
    TrainingRound,
    ValidationClips,
    score_pairs,
    train_detector,
    train_with_pseudo_labels,
)


@dataclass(frozen=True)
class DetectorRun(TrainedDetector):
    """A run's detector, its rounds, and its calibration; None where the validation clips were too few."""

    calibrated: DetectorCalibration | None
    validation: int
    positive: int

    @property
    def told(self) -> str:
        """How far the stated P lies from what is so, or why nothing can be stated."""
        clips = f"{self.validation} validation clips, {self.positive} of them positive"
        if self.calibrated is None:
            return f"not calibrated, so no judge: {clips}; {NEEDED} of either kind are needed"
        return f"expected calibration error {self.calibrated.error:.3f} on {clips}"


def train_detector_run(
    labelled: ClipDataset,
    unlabelled: ClipDataset | None,
    folder: Path,
    settings: Wys2Settings,
    *,
    video: str = "",
    text: str = "",
    report: Callable[[Progress], None] | None = None,
) -> DetectorRun:
    """Train on clips with key-steps, and in rounds on those without; write the folder and return what came out.

    video, text: what gave features and vectors, kept in the detector's file. Raises DatasetError when no clip is left
    or validation holds one class of clips only, SettingsError when the folder holds a run with other settings.
    """
    if not labelled.clips:
        raise DatasetError(f"no clip to train on; left out: {reasons_in_words(labelled.omitted)}")
    claim_run_folder(folder, settings.model_dump(mode="json"), file=SETTINGS)
    parts = split_videos([clip.video for clip in labelled.clips], settings.train.seed)
    train, held = (labelled.of_videos(part) for part in parts[:2])
    names = ("train", "validation", "test")
    write_atomic(folder / VIDEOS, json.dumps(dict(zip(names, map(sorted, parts), strict=True)), indent=1) + "\n")
    positive = infer_labels(train, settings.labels)
    validation = ValidationClips([_own(pair) for pair in held.pairs], infer_labels(held, settings.labels))
    detector = _fitting(settings.detector, train.pairs)

    def taught(pairs: Sequence[ClipTextPair], number: int) -> Detector:
        place = folder / f"round-{number}"
        return train_detector(
            pairs, place, detector=detector, contrast=settings.contrast, settings=settings.train, report=report
        )

    made = _made(train.positive(positive), unlabelled, validation, taught, settings)
    write_detector(made.detector, folder / DETECTOR, video=video, text=text)
    trained = _calibrated(made, validation, folder / DETECTOR)
    counts = {"clips": len(train.clips), "positive": int(positive.sum()), "validation": len(held.clips)}
    omitted = {
        "labelled": count_reasons(labelled.omitted),
        "unlabelled": count_reasons(unlabelled.omitted) if unlabelled else {},
    }
    told = {"rounds": [asdict(one) for one in trained.rounds], "calibration": trained.told}
    tree = {"settings": settings.model_dump(mode="json"), "counts": counts, "omitted": omitted, **told}
    write_atomic(folder / RUN, json.dumps(tree, indent=1) + "\n")
    return trained


def _calibrated(made: TrainedDetector, held: ValidationClips, detector: Path) -> DetectorRun:
    """Fit scores to the validation clips' labels, and write the fit beside the detector; none of another stays."""
    found = calibrate(score_pairs(made.detector, held.pairs), held.positive)
    if found is None:
        calibration_path(detector).unlink(missing_ok=True)
    else:
        write_calibration(found, detector)
    return DetectorRun(made.detector, made.rounds, found, len(held.positive), int(held.positive.sum()))


def _made(
    positive: Sequence[ClipTextPair],
    unlabelled: ClipDataset | None,
    validation: ValidationClips,
    taught: Callable[[Sequence[ClipTextPair], int], Detector],
    settings: Wys2Settings,
) -> TrainedDetector:
    if unlabelled is not None:
        return train_with_pseudo_labels(
            positive, [_own(pair) for pair in unlabelled.pairs], validation, taught, settings.pseudo
        )
    known: Mask = validation.positive
    if known.all() or not known.any():
        raise DatasetError(f"all {len(known)} validation clips are of one class; give more videos, or other labels")
    network = taught(positive, 0)
    auc = roc_auc(known.astype(float), score_pairs(network, validation.pairs))
    return TrainedDetector(network, (TrainingRound(0, len(positive), 0, 0, None, auc),))


def _own(pair: ClipTextPair) -> ClipTextPair:
    """Return a clip with its own text alone."""
    return ClipTextPair(pair.id, pair.video, pair.text[:1])


def _fitting(settings: DetectorSettings, pairs: Sequence[ClipTextPair]) -> DetectorSettings:
    """Return the settings with the widths of the features, where the user did not set them."""
    widths = {"video_width": pairs[0].video.shape[-1], "text_width": pairs[0].text.shape[1]}
    return settings.model_copy(update={n: width for n, width in widths.items() if n not in settings.model_fields_set})
