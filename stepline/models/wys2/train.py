"""Training of the detector of visual narrations (WYS2, sections 3.1 and 3.2), optionally with
pseudo-labels.

run.json               settings, counts, every round's threshold and ROC-AUC, why videos were left out
videos.json            videos of training, validation and test. Test videos are never read
round-N/               checkpoint and log of each training, from which a killed run resumes
detector.safetensors   the last round's network
s3d_wys2.pth           of a detector of frames: its S3D in the released form, with its s3d_dict.npy
detector.shown.json    the regression from scores to P(shown), where there are enough validation clips
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stepline.datasets.excluded import read_excluded
from stepline.errors import DatasetError, SettingsError
from stepline.features import FeatureStore, open_video_store
from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.models.training.distributed import require_single_process
from stepline.models.training.loop import Loss, Progress, TrainingTask, train_network
from stepline.models.training.run import TrainingRun, claim_run_folder, run_training
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import (
    LabelledTexts,
    NarratedRecords,
    explain_empty_source,
    format_reasons,
    load_text_encoder,
    read_records,
    store_text_vectors,
)
from stepline.models.wys2.clips import (
    ClipTextPair,
    FrameClip,
    VideoFrames,
    collate_pairs,
    count_clip_rows,
    split_videos,
)
from stepline.models.wys2.dataset import ClipDataset, gather_clips, infer_labels
from stepline.models.wys2.detector import (
    NETWORK,
    Detector,
    S3DTower,
    contrastive_loss,
    score_pairs,
    write_detector,
)
from stepline.models.wys2.predict import (
    NEEDED_CLIPS,
    DetectorCalibration,
    calibrate,
    calibration_path,
    write_calibration,
)
from stepline.models.wys2.pseudo_labels import (
    ClipStream,
    TrainedDetector,
    ValidationClips,
    train_with_pseudo_labels,
)
from stepline.models.wys2.settings import (
    DETECTOR_TRAINING,
    ContrastSettings,
    DetectorSettings,
    Wys2Settings,
)
from stepline.networks.device import device_of
from stepline.records import Rejected, count_reasons

VIDEOS_FILE = "videos.json"
TRAINED_S3D = "s3d_wys2.pth"


@dataclass(frozen=True)
class DetectorRun(TrainedDetector):
    """Result of a training run of the detector.

    Attributes:
        calibration: regression from scores to P(shown). None: too few validation clips.
        counts: number of training clips ("clips"), of positive ones ("positive"), and of validation
            clips ("validation").
        validation_positive: number of positive validation clips.
        unlabelled_omitted: unlabelled videos that were left out, with the reasons.
    """

    calibration: DetectorCalibration | None
    counts: Mapping[str, int]
    validation_positive: int
    unlabelled_omitted: Sequence[Rejected]

    @property
    def calibration_report(self) -> str:
        """The calibration error in words, or the reason why there is no calibration."""
        count = self.counts["validation"]
        clips = f"{count} validation clips, {self.validation_positive} of them positive"
        if self.calibration is None:
            return f"not calibrated, so no judge: {clips}; {NEEDED_CLIPS} of either kind are needed"
        return f"expected calibration error {self.calibration.error:.3f} on {clips}"


@dataclass(frozen=True)
class DetectorClips:
    """Training clips of a run.

    Attributes:
        labelled: clips of videos with key-steps.
        gather_unlabelled: returns the clips of videos without key-steps, which can take hours.
            None: training without pseudo-labels.
        video_encoder: name of the feature extractor, stored in the detector's file.
        text_encoder: name of the text encoder, stored in the detector's file.
        s3d_weights: file of released S3D weights, from which a detector of frames starts. None: fresh
            weights.
    """

    labelled: ClipDataset
    gather_unlabelled: Callable[[], ClipStream] | None = None
    video_encoder: str = ""
    text_encoder: str = ""
    s3d_weights: Path | None = None


@dataclass(frozen=True)
class DetectorSources:
    """Input data of a training run. Either `features` or `videos` is set.

    Attributes:
        key_steps: sources of videos with key-steps, as `read_records` takes them.
        features: path or URL of a feature store.
        videos: video files by id, for a detector of frames.
        narrations: sources of transcripts for videos whose source has none.
        unlabelled: sources of narrated videos without key-steps.
        text_encoder: name of the text encoder, as `load_text_encoder` takes it.
        s3d_weights: file of released S3D weights. None: fresh weights.
        excluded: files with ids of videos to leave out, written by `stepline curate excluded`.
    """

    key_steps: tuple[str, ...]
    features: Path | str | None = None
    videos: Mapping[str, Path] | None = None
    narrations: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = ()
    text_encoder: str = "minilm"
    s3d_weights: Path | None = None
    excluded: tuple[Path, ...] = ()

    def prepare_clips(
        self, folder: Path, settings: Wys2Settings, on_omitted: Callable[[Mapping[str, int]], None]
    ) -> DetectorClips:
        """Return the training clips of a run.

        Args:
            folder: folder of the run.
            settings: settings of the run.
            on_omitted: called with the number of omitted videos by reason.

        Raises SettingsError unless exactly one of features and videos is given, and the errors of
        the sources.
        """
        # clips with key-steps
        features = self._open_features(settings)
        encode = load_text_encoder(self.text_encoder)
        excluded = read_excluded(self.excluded)
        labelled = gather_clips(
            self._read_records(self.key_steps), features, encode, settings.clips, excluded=excluded
        )
        on_omitted(count_reasons(labelled.omitted))
        self._require_each_source(labelled)
        # clips without, which are read only where they are used
        vectors_folder = folder / "vectors" / "narration"

        def store_vectors(texts: Iterable[LabelledTexts]) -> FeatureStore:
            return store_text_vectors(texts, encode, vectors_folder, name=self.text_encoder)

        def gather_unlabelled() -> ClipStream:
            clips = ClipStream(
                self._read_records(self.unlabelled),
                features,
                store_vectors,
                settings.clips,
                excluded=excluded,
            )
            on_omitted(count_reasons(clips.omitted))
            return clips

        return DetectorClips(
            labelled,
            gather_unlabelled if self.unlabelled else None,
            features.backbone if isinstance(features, FeatureStore) else "",
            self.text_encoder,
            self.s3d_weights,
        )

    def _require_each_source(self, labelled: ClipDataset) -> None:
        """Raise DatasetError if one of several sources of key-steps gives no clip."""
        if len(self.key_steps) == 1 or not labelled.clips:
            return
        with_clips = {clip.video for clip in labelled.clips}
        for source in self.key_steps:
            videos = {record.video.id for record in read_records(source)}
            if not videos & with_clips:
                omitted = [row for row in labelled.omitted if row.id in videos]
                raise DatasetError(f"{source}: {explain_empty_source(omitted)}")

    def _open_features(self, settings: Wys2Settings) -> FeatureStore | VideoFrames:
        if (self.features is None) == (self.videos is None):
            raise SettingsError(
                "give --features or --videos: one of them is what the detector sees"
            )
        if self.videos is not None:
            return VideoFrames(self.videos, settings.detector.frames, settings.detector.side)
        if self.s3d_weights is not None:
            raise SettingsError("--weights is S3D's, which is trained on --videos; leave it out")
        return open_video_store(str(self.features))

    def _read_records(self, sources: Sequence[str]) -> NarratedRecords:
        return NarratedRecords(partial(read_records, *sources), self.narrations)


def train_detector_run(
    clips: DetectorClips,
    folder: Path,
    settings: Wys2Settings,
    *,
    report: Callable[[Progress], None] | None = None,
) -> DetectorRun:
    """Train a detector on clips with key-steps, then in rounds on clips without, and write the run
    folder.

    Args:
        clips: training clips.
        folder: folder of the run.
        settings: settings of the run.
        report: called with the progress after each update.

    Raises DatasetError when no clip is left or all validation clips have the same label,
    SettingsError when the folder holds a run with other settings.
    """
    labelled = clips.labelled
    if not labelled.clips:
        raise DatasetError(f"no clip to train on; left out: {format_reasons(labelled.omitted)}")
    require_single_process("train wys2")

    def write(result: DetectorRun, path: Path) -> None:
        write_detector(result.detector, path, video=clips.video_encoder, text=clips.text_encoder)

    identity: dict[str, Any] = {"settings": settings.model_dump(mode="json")}
    if clips.s3d_weights is not None:
        identity["s3d"] = sha256(clips.s3d_weights)
    run = TrainingRun(folder, NETWORK, identity, write)
    result = run_training(run, lambda _: _train_on_clips(clips, folder, settings, report))

    # The files next to the detector's own.
    if clips.s3d_weights is not None and isinstance(result.detector.video, S3DTower):
        from stepline.vision.s3d import write_s3d

        write_s3d(result.detector.video.s3d, clips.s3d_weights, folder / TRAINED_S3D)
    file = folder / NETWORK.file_names[-1]
    if result.calibration is None:  # a calibration of another run must not stay
        calibration_path(file).unlink(missing_ok=True)
    else:
        write_calibration(result.calibration, file)
    facts = {
        "counts": result.counts,
        "omitted": {
            "labelled": count_reasons(labelled.omitted),
            "unlabelled": count_reasons(result.unlabelled_omitted),
        },
        "rounds": [training_round.as_row() for training_round in result.rounds],
        "calibration": result.calibration_report,
    }
    claim_run_folder(folder, identity, facts)
    return result


def _train_on_clips(
    clips: DetectorClips,
    folder: Path,
    settings: Wys2Settings,
    report: Callable[[Progress], None] | None,
) -> DetectorRun:
    """Return a detector trained on the training split of the videos, calibrated on the validation
    split. Rounds with pseudo-labels follow the first training if there are unlabelled clips.

    Args:
        clips: training clips.
        folder: folder of the run.
        settings: settings of the run.
        report: called with the progress after each update.
    """
    # the videos of each split
    labelled = clips.labelled
    splits = split_videos([clip.video for clip in labelled.clips], settings.train.seed)
    names = ("train", "validation", "test")
    videos = {name: sorted(split) for name, split in zip(names, splits, strict=True)}
    write_atomic(folder / VIDEOS_FILE, json.dumps(videos, indent=1) + "\n")
    # their clips and labels
    training = labelled.select_videos(splits[0])
    held_out = labelled.select_videos(splits[1])
    is_positive = infer_labels(training, settings.labels)
    validation = ValidationClips(
        held_out.get_pairs_with_own_text(), infer_labels(held_out, settings.labels)
    )
    detector = _match_settings_to_input(settings.detector, training.pairs[0])

    def train_round(pairs: Sequence[ClipTextPair], number: int) -> Detector:
        start = None
        if clips.s3d_weights is not None:
            start = _make_detector_on_s3d(detector, clips.s3d_weights, settings.train.seed)
        return train_detector(
            pairs,
            folder / f"round-{number}",
            detector=detector,
            contrast=settings.contrast,
            settings=settings.train,
            start=start,
            report=report,
        )

    unlabelled = clips.gather_unlabelled() if clips.gather_unlabelled is not None else None
    trained = train_with_pseudo_labels(
        training.select_positive_pairs(is_positive),
        unlabelled,
        validation,
        train_round,
        settings.pseudo,
    )
    positive = validation.positive
    return DetectorRun(
        trained.detector,
        trained.rounds,
        calibrate(score_pairs(trained.detector, validation.pairs), positive),
        {
            "clips": len(training.clips),
            "positive": int(is_positive.sum()),
            "validation": len(held_out.clips),
        },
        int(positive.sum()),
        unlabelled.omitted if unlabelled is not None else (),
    )


def _match_settings_to_input(detector: DetectorSettings, pair: ClipTextPair) -> DetectorSettings:
    """Return the settings with the clip encoder and widths that fit a pair, if the user has not set
    them.

    Raises SettingsError if the user has set the encoder for the other kind of clip.
    """
    of_frames = isinstance(pair.video, FrameClip) or pair.video.ndim == 4
    tower = "s3d" if of_frames else "head"
    if "video" in detector.model_fields_set and detector.video != tower:
        cure = "give --features" if of_frames else "give --videos"
        raise SettingsError(
            f"detector.video={detector.video} is not trained on what is given; {cure}, or leave it "
            "out"
        )
    # What the pair itself says, where no setting does.
    fitting = {"text_width": pair.text.shape[1], "video": tower}
    if not isinstance(pair.video, FrameClip):
        fitting["video_width"] = pair.video.shape[-1]
    for name in detector.model_fields_set & fitting.keys():
        del fitting[name]
    return detector.model_copy(update=fitting)


def _make_detector_on_s3d(settings: DetectorSettings, weights: Path, seed: int) -> Detector:
    """Return a fresh detector of frames with released S3D weights.

    Args:
        settings: sizes and forms of the network.
        weights: file of the S3D weights.
        seed: seed of the random weights of all other layers.

    Raises ModelError for a file without S3D weights, SettingsError for a detector of features.
    """
    from stepline.vision.s3d import DICTIONARY_FILE, read_dictionary, read_s3d

    torch.manual_seed(seed)
    detector = Detector(settings)
    if not isinstance(detector.video, S3DTower):
        raise SettingsError(f"{weights}: S3D's weights are for detector.video=s3d; give --videos")
    dictionary = read_dictionary(weights.parent / DICTIONARY_FILE)
    detector.video.s3d.load_state_dict(read_s3d(weights, dictionary.size)[0].state_dict())
    return detector


def train_detector(
    pairs: Sequence[ClipTextPair],
    folder: Path,
    *,
    detector: DetectorSettings,
    contrast: ContrastSettings | None = None,
    settings: TrainSettings = DETECTOR_TRAINING,
    start: Detector | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Detector:
    """Return a detector trained on positive pairs, in evaluation mode. An interrupted run in
    `folder` is resumed.

    Args:
        pairs: clips, each with the sentence spoken in it.
        folder: folder of checkpoint and log.
        detector: settings of a fresh detector.
        contrast: form of the loss. None: defaults.
        settings: length and learning rate of the training.
        start: detector to train further. None: a fresh detector.
        report: called with the progress after each update.

    Raises DatasetError for fewer than two pairs, which leave no negatives.
    """
    # One pair has no other that it could be contrasted with.
    if len(pairs) < 2:
        raise DatasetError(
            f"{len(pairs)} positive clips; contrast needs two or more: loosen the labels, add "
            "videos"
        )
    return train_network(
        lambda: start or Detector(detector),
        make_detector_task(pairs, contrast or ContrastSettings()),
        settings,
        folder,
        report,
    )


def make_detector_task(
    pairs: Sequence[ClipTextPair], settings: ContrastSettings
) -> TrainingTask[ClipTextPair]:
    """Return the training task (losses and augmentation) of the detector. The last batch of an
    epoch can hold one pair, and then has a loss of 0.

    Args:
        pairs: positive clips, each with its texts.
        settings: form of the loss.
    """

    def losses(network: nn.Module, batch: Sequence[ClipTextPair]) -> list[Loss]:
        scores = network(collate_pairs(batch).to(device_of(network)))
        if len(batch) < 2:
            # Padding is left out, so that the gradient is finite.
            return [Loss(0 * scores[scores.isfinite()].sum(), scores.new_zeros(()))]
        return [contrastive_loss(scores, settings)]

    def augment(batch: Sequence[ClipTextPair], rng: np.random.Generator) -> list[ClipTextPair]:
        # frames are read ahead of the step
        return [batch[index].load_frames() for index in rng.permutation(len(batch))]

    return TrainingTask(pairs, count_clip_rows, augment, losses)
