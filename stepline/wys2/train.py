"""Training the detector of visual narrations (WYS2, sections 3.1 and 3.2), with pseudo-labels where
asked.

run.json               settings, counts, every round's threshold and ROC-AUC, why videos were left out
videos.json            which videos were for training, validation and test; test videos are never looked at
round-N/               checkpoint and log of each training, from which a killed run goes on
detector.safetensors   the last round's network
s3d_wys2.pth           of a detector of frames: its S3D in the released form, beside its s3d_dict.npy
detector.shown.json    what turns its scores into P(shown), fitted to the validation clips; not where they are few

Pseudo-labels: the detector labels clips that nobody labelled and is trained anew on all. The paper
leaves open when V(v, t) = 1; here the threshold is the one that tells labelled validation clips
apart best, or keeps a fraction of the unlabelled clips.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from stepline.atomic_files import write_atomic
from stepline.device import device_of
from stepline.errors import DatasetError, SettingsError
from stepline.evaluate.ranking import roc_auc
from stepline.records import Matrix, count_reasons
from stepline.training.batches import LazySamples, Mask
from stepline.training.distributed import one_process, start_processes
from stepline.training.gather import reasons_in_words
from stepline.training.loop import Loss, Progress, TrainingTask, fit
from stepline.training.run_folder import RUN, claim_run_folder
from stepline.training.settings import TrainSettings
from stepline.weights import sha256
from stepline.wys2.clips import ClipTextPair, FrameClip, collate_pairs, split_videos
from stepline.wys2.dataset import ClipDataset, infer_labels
from stepline.wys2.detector import (
    DETECTOR,
    Detector,
    S3DTower,
    contrastive_loss,
    score_pairs,
    write_detector,
)
from stepline.wys2.predict import (
    NEEDED,
    DetectorCalibration,
    calibrate,
    calibration_path,
    write_calibration,
)
from stepline.wys2.settings import (
    SETTINGS_FILE,
    TRAINING,
    ContrastSettings,
    DetectorSettings,
    PseudoSettings,
    Wys2Settings,
)
from stepline.wys2.unlabelled import ClipStream, References, Reservoir, UnlabelledClips

log = logging.getLogger(__name__)

VIDEOS = "videos.json"
TRAINED_S3D = "s3d_wys2.pth"
# pairs and round, 0 without pseudo-labels
TrainOnPairs: TypeAlias = Callable[[Sequence[ClipTextPair], int], Detector]


@dataclass(frozen=True)
class ValidationClips:
    """Clips kept back: positive as their labels say, the rest not known to be. positive: (N,)
    bool."""

    pairs: Sequence[ClipTextPair]
    positive: Mask


@dataclass(frozen=True)
class TrainingRound:
    """What one training saw and gave.

    pairs: how many it was trained on; kept: of these, pseudo-labelled; of: unlabelled clips;
    threshold: None in round 0; auc: on the validation clips' labels; precision: of the
    pseudo-labels, where the truth is known.
    """

    number: int
    pairs: int
    kept: int
    of: int
    threshold: float | None
    auc: float
    precision: float | None = None


@dataclass(frozen=True)
class TrainedDetector:
    """A detector at rest after the last round, and the report of every round."""

    detector: Detector
    rounds: tuple[TrainingRound, ...]


@dataclass(frozen=True)
class DetectorRun(TrainedDetector):
    """A run's detector, its rounds, and its calibration; None where the validation clips were too
    few."""

    calibration: DetectorCalibration | None
    validation: int
    positive: int

    @property
    def calibration_report(self) -> str:
        """How far the stated P lies from what is so, or why nothing can be stated."""
        clips = f"{self.validation} validation clips, {self.positive} of them positive"
        if self.calibration is None:
            return f"not calibrated, so no judge: {clips}; {NEEDED} of either kind are needed"
        return f"expected calibration error {self.calibration.error:.3f} on {clips}"


def train_detector_run(
    labelled: ClipDataset,
    gather_unlabelled: Callable[[], ClipStream] | None,
    folder: Path,
    settings: Wys2Settings,
    *,
    video: str = "",
    text: str = "",
    s3d: Path | None = None,
    report: Callable[[Progress], None] | None = None,
) -> DetectorRun:
    """Train on clips with key-steps, and in rounds on those without; write the folder and return
    what came out.

    gather_unlabelled: called once the labelled clips are known to do, since it may take hours.
    video, text: what gave features and vectors, kept in the detector's file. s3d: released weights
    from which a detector of frames begins.
    Raises DatasetError when no clip is left or validation holds one class of clips only,
    SettingsError when the folder holds a run with other settings.
    """
    if not labelled.clips:
        raise DatasetError(f"no clip to train on; left out: {reasons_in_words(labelled.omitted)}")
    one_process("train wys2")
    begin = {} if s3d is None else {"s3d": sha256(s3d)}
    claim_run_folder(folder, settings.model_dump(mode="json") | begin, file=SETTINGS_FILE)
    parts = split_videos([clip.video for clip in labelled.clips], settings.train.seed)
    train, held_out = (labelled.of_videos(part) for part in parts[:2])
    names = ("train", "validation", "test")
    write_atomic(
        folder / VIDEOS,
        json.dumps(dict(zip(names, map(sorted, parts), strict=True)), indent=1) + "\n",
    )
    positive = infer_labels(train, settings.labels)
    validation = ValidationClips(
        held_out.pairs_of_own_text(), infer_labels(held_out, settings.labels)
    )
    detector = _fitting_settings(settings.detector, train.pairs[0])

    def train_round(pairs: Sequence[ClipTextPair], number: int) -> Detector:
        return train_detector(
            pairs,
            folder / f"round-{number}",
            detector=detector,
            contrast=settings.contrast,
            settings=settings.train,
            start=None if s3d is None else _detector_on_s3d(detector, s3d, settings.train.seed),
            report=report,
        )

    unlabelled = None if gather_unlabelled is None else gather_unlabelled()
    trained = _train(train.positive(positive), unlabelled, validation, train_round, settings.pseudo)
    write_detector(trained.detector, folder / DETECTOR, video=video, text=text)
    if s3d is not None and isinstance(trained.detector.video, S3DTower):
        from stepline.vision.s3d import write_s3d

        write_s3d(trained.detector.video.s3d, s3d, folder / TRAINED_S3D)
    shown = validation.positive
    calibration = calibrate(score_pairs(trained.detector, validation.pairs), shown)
    if calibration is None:  # none of another run stays
        calibration_path(folder / DETECTOR).unlink(missing_ok=True)
    else:
        write_calibration(calibration, folder / DETECTOR)
    run = DetectorRun(trained.detector, trained.rounds, calibration, len(shown), int(shown.sum()))
    tree = {
        "settings": settings.model_dump(mode="json"),
        "counts": {
            "clips": len(train.clips),
            "positive": int(positive.sum()),
            "validation": len(held_out.clips),
        },
        "omitted": {
            "labelled": count_reasons(labelled.omitted),
            "unlabelled": count_reasons(unlabelled.omitted) if unlabelled else {},
        },
        "rounds": [asdict(trained_round) for trained_round in run.rounds],
        "calibration": run.calibration_report,
    }
    write_atomic(folder / RUN, json.dumps(tree, indent=1) + "\n")
    return run


def _train(
    pairs: Sequence[ClipTextPair],
    unlabelled: ClipStream | None,
    validation: ValidationClips,
    train_round: TrainOnPairs,
    settings: PseudoSettings,
) -> TrainedDetector:
    """Train on labelled pairs once, or in rounds with pseudo-labelled ones where there are clips
    without key-steps."""
    if unlabelled is not None:
        return train_with_pseudo_labels(pairs, unlabelled, validation, train_round, settings)
    known = validation.positive
    if known.all() or not known.any():
        raise DatasetError(
            f"all {len(known)} validation clips are of one class; give more videos, or other labels"
        )
    network = train_round(pairs, 0)
    return TrainedDetector(
        network, (TrainingRound(0, len(pairs), 0, 0, None, _auc(network, validation)),)
    )


def _fitting_settings(detector: DetectorSettings, pair: ClipTextPair) -> DetectorSettings:
    """Return the settings with the widths of a pair, where they name none. Raises SettingsError for
    the other tower."""
    found: dict[str, object] = {"text_width": pair.text.shape[1]}
    tower = "s3d" if isinstance(pair.video, FrameClip) or pair.video.ndim == 4 else "head"
    if "video" in detector.model_fields_set and detector.video != tower:
        cure = "give --videos" if tower == "head" else "give --features"
        raise SettingsError(
            f"detector.video={detector.video} is not trained on what is given; {cure}, or leave it out"
        )
    found["video"] = tower
    if not isinstance(pair.video, FrameClip):
        found["video_width"] = pair.video.shape[-1]
    kept = detector.model_fields_set
    return detector.model_copy(
        update={name: value for name, value in found.items() if name not in kept}
    )


def _detector_on_s3d(settings: DetectorSettings, weights: Path, seed: int) -> Detector:
    """Return a fresh detector of frames whose S3D has released weights. Raises ModelError for
    another file."""
    from stepline.vision.s3d import DICTIONARY, read_dictionary, read_s3d

    torch.manual_seed(seed)
    detector = Detector(settings)
    if not isinstance(detector.video, S3DTower):
        raise SettingsError(f"{weights}: S3D's weights are for detector.video=s3d; give --videos")
    dictionary = read_dictionary(weights.parent / DICTIONARY)
    detector.video.s3d.load_state_dict(read_s3d(weights, dictionary.size)[0].state_dict())
    return detector


def train_detector(
    pairs: Sequence[ClipTextPair],
    folder: Path,
    *,
    detector: DetectorSettings,
    contrast: ContrastSettings | None = None,
    settings: TrainSettings = TRAINING,
    start: Detector | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Detector:
    """Return a detector trained on positive pairs, from fresh weights or on from those of `start`,
    at rest.

    A run in `folder` that was killed is taken up. Raises DatasetError for fewer than two pairs,
    which cannot be contrasted.
    """
    if len(pairs) < 2:
        raise DatasetError(
            f"{len(pairs)} positive clips; contrast needs two or more: loosen the labels, add videos"
        )
    torch.manual_seed(settings.seed)  # of fresh weights
    network = start or Detector(detector)
    network.to(start_processes(settings.device))
    fit(network, detector_task(pairs, contrast or ContrastSettings()), settings, folder, report)
    return network


def detector_task(
    pairs: Sequence[ClipTextPair], settings: ContrastSettings
) -> TrainingTask[ClipTextPair]:
    """Return what training learns; a batch that is left with one pair, the last of an epoch,
    teaches nothing."""

    def losses(network: nn.Module, batch: Sequence[ClipTextPair]) -> list[Loss]:
        collated = collate_pairs(batch).to(device_of(network))
        scores = network(collated)
        if len(batch) < 2:
            # what is not padding, so that the gradient is finite
            return [Loss(0 * scores[scores.isfinite()].sum(), scores.new_zeros(()))]
        return [contrastive_loss(scores, settings)]

    def augment(batch: Sequence[ClipTextPair], rng: np.random.Generator) -> list[ClipTextPair]:
        # frames are read ahead of the step
        return [batch[index].read() for index in rng.permutation(len(batch))]

    lengths, shards = (
        (pairs.lengths, pairs.shards) if isinstance(pairs, LazySamples) else (None, ())
    )
    return TrainingTask(pairs, lambda pair: len(pair.video), augment, losses, lengths, shards)


def train_with_pseudo_labels(
    labelled: Sequence[ClipTextPair],
    unlabelled: UnlabelledClips,
    validation: ValidationClips,
    train: TrainOnPairs,
    settings: PseudoSettings | None = None,
    truth: Mask | None = None,
) -> TrainedDetector:
    """Return the detector trained on labelled and pseudo-labelled pairs, after `settings.rounds`
    rounds.

    Each round goes through the unlabelled clips once. truth: (len(unlabelled),) bool, of listed
    clips, for the report alone. Raises DatasetError without unlabelled clips, when the validation
    clips are of one class, or when no clip reaches the threshold.
    """
    settings = settings or PseudoSettings()
    if not len(unlabelled):
        raise DatasetError("no unlabelled clip; pseudo-labels need videos without key-steps")
    network = train(labelled, 0)
    rounds = [TrainingRound(0, len(labelled), 0, len(unlabelled), None, _auc(network, validation))]
    for number in range(1, settings.rounds + 1):
        threshold, kept = choose_clips(
            network, unlabelled, validation, settings, np.random.default_rng(number)
        )
        if not len(kept):
            raise DatasetError(
                f"none of {len(unlabelled)} unlabelled clips reaches {threshold:.3g}; take pseudo.threshold=share"
            )
        log.info("round %d: %d of %d unlabelled clips kept", number, len(kept), len(unlabelled))
        network = train(_joined(labelled, unlabelled.pairs(kept)), number)
        precision = None if truth is None else float(truth[kept].mean())
        auc = _auc(network, validation)
        rounds.append(
            TrainingRound(
                number,
                len(labelled) + len(kept),
                len(kept),
                len(unlabelled),
                threshold,
                auc,
                precision,
            )
        )
    return TrainedDetector(network, tuple(rounds))


def choose_clips(
    network: Detector,
    clips: UnlabelledClips,
    validation: ValidationClips,
    settings: PseudoSettings,
    rng: np.random.Generator,
) -> tuple[float, References]:
    """Return the score from which a clip counts as positive, and the references of the clips that
    reach it.

    Of a share of the clips the threshold is known only after the last one, so at most `most` of all
    are drawn before; else at most so many of those that reach it.
    """
    held, sample, threshold = (
        score_pairs(network, validation.pairs),
        Reservoir(settings.most, rng),
        -np.inf,
    )
    none = np.zeros(0, np.float32)
    if settings.threshold != "share":
        threshold = choose_threshold(none, held, validation.positive, settings)
    for references, pairs in clips.blocks():
        scores = score_pairs(network, pairs)
        reached = scores >= threshold
        sample.add(scores[reached], references[reached])
    scores, found = sample.columns or (none, none)
    if settings.threshold == "share":
        threshold = choose_threshold(scores, held, validation.positive, settings)
    return threshold, found[scores >= threshold]


def _joined(
    labelled: Sequence[ClipTextPair], kept: Sequence[ClipTextPair]
) -> Sequence[ClipTextPair]:
    """Return both; labelled clips, which are in memory, come evenly with the others of each window
    of shards."""
    if not isinstance(kept, LazySamples):
        return [*labelled, *kept]
    count, lengths = len(labelled), [*(len(pair.video) for pair in labelled), *kept.lengths]
    shards = (
        [*np.resize(np.array(kept.shards), count).tolist(), *kept.shards] if kept.shards else []
    )
    return LazySamples(lambda at: labelled[at] if at < count else kept[at - count], lengths, shards)


def choose_threshold(
    scores: Matrix, validation: Matrix, positive: Mask, settings: PseudoSettings
) -> float:
    """Return the score from which a clip counts as positive.

    scores: (U,) of unlabelled clips; validation: (N,) of validation clips, labelled by `positive`.
    """
    if settings.threshold == "share":
        return float(np.quantile(scores, 1 - settings.share))
    if not positive.any() or positive.all():
        only = "no" if not positive.any() else "nothing but a"
        raise DatasetError(
            f"{only} positive among {len(positive)} validation clips; a threshold needs both classes"
        )
    order = np.argsort(-validation, kind="stable")
    right = np.cumsum(positive[order])
    f1 = 2 * right / (np.arange(1, len(validation) + 1) + positive.sum())
    # of equal scores, all are above the threshold or none
    last = np.append(np.diff(validation[order]) != 0, True)
    return float(validation[order][int(np.where(last, f1, -1.0).argmax())])


def _auc(network: Detector, validation: ValidationClips) -> float:
    """Return the ROC-AUC of the network's scores on the validation clips' labels."""
    return roc_auc(validation.positive.astype(np.float64), score_pairs(network, validation.pairs))
