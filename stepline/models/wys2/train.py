"""Training of the detector of visual narrations (WYS2, sections 3.1 and 3.2), optionally with
pseudo-labels.

run.json               settings, counts, every round's threshold and ROC-AUC, why videos were left out
videos.json            videos of training, validation and test. Test videos are never read
round-N/               checkpoint and log of each training, from which a killed run resumes
detector.safetensors   the last round's network
s3d_wys2.pth           of a detector of frames: its S3D in the released form, with its s3d_dict.npy
detector.shown.json    the regression from scores to P(shown), where there are enough validation clips

Pseudo-labels (WYS2, section 3.1): a detector labels unlabelled clips, and a new one is trained on
all clips.

For instance, `choose_threshold` by best F1, of 4 validation clips sorted by score:

    score    label       F1 if clips from here up count as positive
    0.9      positive    2 x 1 / (1 + 2) = 0.67
    0.7      other       2 x 1 / (2 + 2) = 0.5
    0.6      positive    2 x 2 / (3 + 2) = 0.8      the best, so the threshold is 0.6
    0.4      other       2 x 2 / (4 + 2) = 0.67
    unlabelled clips with 0.8 and 0.5: the first is kept as positive, the second is not

The paper leaves open when V(v, t) = 1. Here the threshold is the score that best separates labelled
validation clips, or the one that keeps a fraction of the unlabelled clips.

Unlabelled clips are read one video after the other (`ClipStream`), so that no pass holds all of them
in memory. HowTo100M has 136 million clips, whose features and vectors take a terabyte. A pass makes
the clips of each video from its record, its stored features, and the stored vectors of its
sentences. It keeps a reference of 28 bytes per chosen clip, from which training reads the clip again.

Letters: N validation clips, U unlabelled clips.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from stepline.datasets.excluded import ExcludedVideos, read_excluded
from stepline.datasets.record_builder import strip_id_prefix
from stepline.errors import DatasetError, SettingsError
from stepline.evaluate.ranking import roc_auc
from stepline.features import FeatureStore, open_video_store
from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.models.training.batches import LazySamples, Mask, join_samples
from stepline.models.training.distributed import require_single_process
from stepline.models.training.loop import Loss, Progress, TrainingTask, train_network
from stepline.models.training.run import TrainingRun, claim_run_folder, run_training
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import (
    ExcludedIds,
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
    NarratedClip,
    VideoFrames,
    collate_pairs,
    count_clip_rows,
    make_clip_source,
    split_videos,
)
from stepline.models.wys2.dataset import (
    ClipDataset,
    gather_clips,
    infer_labels,
    iterate_narrated_videos,
)
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
from stepline.models.wys2.settings import (
    DETECTOR_TRAINING,
    ClipSettings,
    ContrastSettings,
    DetectorSettings,
    PseudoSettings,
    Wys2Settings,
)
from stepline.networks.device import device_of
from stepline.records import Matrix, Record, Rejected, Span, count_reasons

log = logging.getLogger(__name__)

References = npt.NDArray[Any]  # one per clip: a row number, or of the columns below
Block = tuple[References, Sequence[ClipTextPair]]
NarratedVideo = tuple[Record, list[NarratedClip]]
CLIP_COLUMNS = np.dtype(
    {"names": ["video", "sentence", "start", "end"], "formats": ["i4", "i4", "f8", "f8"]}
)
CLIPS_PER_BLOCK = 512  # that are scored together


class UnlabelledClips(Protocol):
    """Clips without labels that can be read in order, and read again by reference."""

    def __len__(self) -> int: ...
    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all clips in blocks, in the same order each time. A block is the references of n
        clips, which `get_pairs` takes, and the n clips with their texts."""
        ...

    def get_pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips with the given references. Each may be read only when it is accessed."""
        ...


class ClipStream:
    """Clips of narrated videos, each with the sentence spoken in it. To save memory, each pass over
    the clips cuts the videos again.

    Attributes:
        omitted: videos that were left out, with the reasons. A video that occurs twice is used
            once.
    """

    def __init__(
        self,
        records: Iterable[Record],
        features: FeatureStore | VideoFrames,
        store: Callable[[Iterable[LabelledTexts]], FeatureStore],
        settings: ClipSettings,
        *,
        excluded: ExcludedIds = frozenset(),
    ) -> None:
        """Read all records once, and store the vectors of their sentences.

        Args:
            records: narrated videos. Each iteration must give the same videos.
            features: a feature store, or video files for clips of frames.
            store: stores the vectors of all sentences on disk and returns their feature store, such
                as `store_text_vectors`.
            settings: length and spacing of the clips.
            excluded: ids of videos to leave out.
        """
        # only labels need resolved pronouns and other candidates
        own_text_only = {"resolve": False, "candidates": 1}
        self._settings = settings.model_copy(update=own_text_only)
        self._records = records
        self._source = make_clip_source(features)
        self._excluded = excluded
        self.omitted: list[Rejected] = []
        self._videos: list[str] = []
        self._count = 0
        self._vectors: FeatureStore | None = None
        narrations = self._iterate_narrations()
        first = next(narrations, None)
        if first is not None:
            self._vectors = store(chain([first], narrations))

    def __len__(self) -> int:
        return self._count

    def _iterate_videos(self, omitted: list[Rejected]) -> Iterator[NarratedVideo]:
        return iterate_narrated_videos(
            self._records, self._source, self._settings, omitted, excluded=self._excluded, once=True
        )

    def _iterate_narrations(self) -> Iterator[LabelledTexts]:
        """Yield the sentences of each video as texts to embed.

        The video is also added to `_videos`, its number of clips to `_count`, and what is left out to
        `omitted`.
        """
        for record, clips in self._iterate_videos(self.omitted):
            self._videos.append(record.video.id)
            self._count += len(clips)
            yield LabelledTexts(record.video.id, "narration", _get_sentence_texts(record), ())

    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all clips in blocks: the references of n clips, (n,) rows of CLIP_COLUMNS, and the n clips
        with their texts. The features of each video are read once.

        Raises DatasetError if the records have changed since the stream was created.
        """
        references: list[References] = []
        pairs: list[ClipTextPair] = []
        for number, (record, clips) in enumerate(self._iterate_videos([])):
            self._check_unchanged(number, record)
            rows = [(number, clip.sentence_index, clip.span.start, clip.span.end) for clip in clips]
            references.append(np.array(rows, dtype=CLIP_COLUMNS))
            vectors = self._require_vectors().matrix(record.video.id)
            for clip in clips:
                text = vectors[clip.sentence_index : clip.sentence_index + 1]
                pairs.append(self._source.make_pair(record.video.id, clip.span, text))
            if len(pairs) >= CLIPS_PER_BLOCK:
                yield np.concatenate(references), pairs
                references = []
                pairs = []
        if pairs:
            yield np.concatenate(references), pairs

    def _check_unchanged(self, number: int, record: Record) -> None:
        video = record.video.id
        if self._videos[number : number + 1] != [video]:
            raise DatasetError(
                f"{record.id}: the unlabelled videos have changed during the run; "
                "start the command again"
            )
        # The stored vectors are of these very sentences.
        lines = self._require_vectors().texts(video)
        if lines is None or lines.texts != _get_sentence_texts(record):
            raise DatasetError(
                f"{record.id}: its stored vectors are of other sentences; give another --out"
            )

    def _require_vectors(self) -> FeatureStore:
        if self._vectors is None:
            raise DatasetError(f"no unlabelled clip; left out: {format_reasons(self.omitted)}")
        return self._vectors

    def get_pairs(self, references: References) -> LazySamples[ClipTextPair]:
        """Return the referenced clips with their texts. Each is read when it is accessed.

        references: (N,) rows of CLIP_COLUMNS, from `iterate_blocks`.
        """
        lengths = []
        shards = []
        for number, _, start, end in references.tolist():
            video = self._videos[number]
            lengths.append(self._source.count_rows(video, Span(start, end)))
            shards.append(self._source.find_shard(video))

        def read(index: int) -> ClipTextPair:
            number, row, start, end = references[index].tolist()
            video = self._videos[number]
            text = self._require_vectors().matrix(video, slice(row, row + 1))
            return self._source.make_pair(video, Span(start, end), text)

        return LazySamples(read, lengths, shards)


def _get_sentence_texts(record: Record) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in record.sentences)


# pairs and round, 0 without pseudo-labels
TrainOnPairs = Callable[[Sequence[ClipTextPair], int], Detector]


@dataclass(frozen=True)
class ValidationClips:
    """Labelled clips that are not used for training.

    Attributes:
        pairs: N clips, each with the sentence spoken in it.
        positive: (N,), True if the clip is labelled as a visual narration.
    """

    pairs: Sequence[ClipTextPair]
    positive: Mask

    def compute_auc(self, network: Detector) -> float:
        """Return the area under the ROC curve of a detector's scores, by the validation labels."""
        return roc_auc(self.positive.astype(np.float64), score_pairs(network, self.pairs))


@dataclass(frozen=True)
class TrainingRound:
    """Report of one round of training with pseudo-labels.

    Attributes:
        number: number of the round. Round 0 uses no pseudo-labels.
        pairs: number of training clips.
        pseudo_labelled: number of training clips with a pseudo-label.
        scored_count: number of unlabelled clips that the detector scored.
        threshold: least detector score of a pseudo-labelled clip. None: round 0.
        auc: area under the ROC curve on the validation clips.
        precision: fraction of the pseudo-labelled clips that are true positives. None: true labels
            are unknown.
    """

    number: int
    pairs: int
    pseudo_labelled: int
    scored_count: int
    threshold: float | None
    auc: float
    precision: float | None = None

    def as_row(self) -> dict[str, float | None]:
        """Return the round as an entry of run.json."""
        return {
            "number": self.number,
            "pairs": self.pairs,
            "kept": self.pseudo_labelled,
            "of": self.scored_count,
            "threshold": self.threshold,
            "auc": self.auc,
            "precision": self.precision,
        }


@dataclass(frozen=True)
class TrainedDetector:
    """Result of training with pseudo-labels.

    Attributes:
        detector: detector after the last round, in evaluation mode.
        rounds: report of every round.
    """

    detector: Detector
    rounds: tuple[TrainingRound, ...]


def train_with_pseudo_labels(
    labelled: Sequence[ClipTextPair],
    unlabelled: UnlabelledClips | None,
    validation: ValidationClips,
    train: TrainOnPairs,
    settings: PseudoSettings = PseudoSettings(),
    truth: Mask | None = None,
) -> TrainedDetector:
    """Train a detector on labelled clips, then in rounds on labelled and pseudo-labelled clips.

    Args:
        labelled: positive clips.
        unlabelled: clips without labels, read once per round. None: there are no rounds of
            pseudo-labels.
        validation: labelled clips for the choice of the threshold and the report of each round.
        train: function that trains a detector on pairs, given the number of the round.
        settings: number of rounds, and rule for the threshold.
        truth: (U,), True for unlabelled clips that are positive. It is used for the report only.
            None: unknown.

    Raises DatasetError when there is no unlabelled clip, when all validation clips have the same
    label, or when no clip reaches the threshold.
    """
    count = 0 if unlabelled is None else len(unlabelled)
    if unlabelled is not None and not count:
        raise DatasetError("no unlabelled clip; pseudo-labels need videos without key-steps")
    clip_count = len(validation.positive)
    if unlabelled is None and int(validation.positive.sum()) in (0, clip_count):
        raise DatasetError(
            f"all {clip_count} validation clips are of one class; give more videos, or other labels"
        )
    # Round 0: the labelled clips alone.
    network = train(labelled, 0)
    rounds = [TrainingRound(0, len(labelled), 0, count, None, validation.compute_auc(network))]
    if unlabelled is None:
        return TrainedDetector(network, tuple(rounds))
    # The last network labels clips, and a new one is trained on all.
    for number in range(1, settings.rounds + 1):
        threshold, positive = choose_pseudo_labelled_clips(
            network, unlabelled, validation, settings
        )
        if not len(positive):
            raise DatasetError(
                f"none of {count} unlabelled clips reaches {threshold:.3g}; take "
                "pseudo.threshold=share"
            )
        log.info("round %d: %d of %d unlabelled clips kept", number, len(positive), count)
        pairs = join_samples(labelled, unlabelled.get_pairs(positive), count_clip_rows)
        network = train(pairs, number)
        precision = None if truth is None else float(truth[positive].mean())
        auc = validation.compute_auc(network)
        rounds.append(
            TrainingRound(number, len(pairs), len(positive), count, threshold, auc, precision)
        )
    return TrainedDetector(network, tuple(rounds))


def choose_pseudo_labelled_clips(
    network: Detector, clips: UnlabelledClips, validation: ValidationClips, settings: PseudoSettings
) -> tuple[float, References]:
    """Return the score threshold, and the references of the unlabelled clips that reach it.

    Args:
        network: the detector.
        clips: clips without labels.
        validation: labelled clips for the choice of the threshold.
        settings: rule for the threshold.
    """
    by_share = settings.threshold == "share"
    validation_scores = score_pairs(network, validation.pairs)
    scores = np.zeros(0, np.float32)  # of unlabelled clips
    threshold = -np.inf
    # The best F1 needs validation clips only.
    if not by_share:
        threshold = choose_threshold(scores, validation_scores, validation.positive, settings)
    # One pass over the unlabelled clips.
    parts = []
    for block, pairs in clips.iterate_blocks():
        block_scores = score_pairs(network, pairs)
        high = block_scores >= threshold
        parts.append((block_scores[high], block[high]))
    scores, references = (np.concatenate(column) for column in zip(*parts, strict=True))
    if by_share:
        threshold = choose_threshold(scores, validation_scores, validation.positive, settings)
    return threshold, references[scores >= threshold]


def choose_threshold(
    scores: Matrix, validation: Matrix, positive: Mask, settings: PseudoSettings
) -> float:
    """Return the least detector score of a clip that gets a positive pseudo-label.

    Args:
        scores: (U,) detector scores of the unlabelled clips, needed for a share of them.
        validation: (N,) detector scores of the validation clips, needed for the best F1.
        positive: (N,), True for positive validation clips.
        settings: rule for the threshold.

    Raises DatasetError if the best F1 is asked for and all validation clips have the same label.
    """
    if settings.threshold == "share":
        return float(np.quantile(scores, 1 - settings.share))
    if not positive.any() or positive.all():
        what = "nothing but a" if positive.any() else "no"
        raise DatasetError(
            f"{what} positive among {len(positive)} validation clips; a threshold needs both "
            "classes"
        )
    # F1 where the clips down to each one are positive: 2 hits / (selected + positive).
    order = np.argsort(-validation, kind="stable")
    ranked = validation[order]
    hits = np.cumsum(positive[order])
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + positive.sum())
    # of equal scores, all are above the threshold or none
    last_of_equals = np.append(np.diff(ranked) != 0, True)
    return float(ranked[int(np.where(last_of_equals, f1, -1.0).argmax())])


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
        gather_unlabelled: returns the clips of videos without key-steps, which can take hours, given
            the ids of the validation and test videos, which are left out. None: training without
            pseudo-labels.
        video_encoder: name of the feature extractor, stored in the detector's file.
        text_encoder: name of the text encoder, stored in the detector's file.
        s3d_weights: file of released S3D weights, from which a detector of frames starts. None: fresh
            weights.
    """

    labelled: ClipDataset
    gather_unlabelled: Callable[[frozenset[str]], ClipStream] | None = None
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
        if settings.labels.kind != "mc":
            self._require_key_steps()
        encode = load_text_encoder(self.text_encoder)
        excluded = read_excluded(self.excluded)
        labelled = gather_clips(
            self._read_records(self.key_steps), features, encode, settings.clips, excluded=excluded
        )
        on_omitted(count_reasons(labelled.omitted))
        self._require_each_source(labelled)
        # clips without, which are read only where they are used
        vectors_folder = folder / "vectors" / "narration"

        def gather_unlabelled(withheld: frozenset[str]) -> ClipStream:
            names = dict.fromkeys(map(strip_id_prefix, withheld), ("withheld",))
            clips = ClipStream(
                self._read_records(self.unlabelled),
                features,
                lambda texts: store_text_vectors(
                    texts, encode, vectors_folder, name=self.text_encoder
                ),
                settings.clips,
                excluded=ExcludedVideos({**excluded.datasets, **names}),
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

    def _require_key_steps(self) -> None:
        """Raise DatasetError if there are records, and none has key-steps by people."""
        count = 0
        for record in read_records(*self.key_steps):
            if record.reference:
                return
            count += 1
        if count:
            raise DatasetError(
                f"{', '.join(self.key_steps)}: no key-step by people in {count} records, and steps "
                "that Stepline found are none; train wys2 needs people's, such as COIN's "
                "(docs/wys2.md)"
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
    detector = _match_settings_to_input(settings.detector, labelled.pairs[0])
    settings = settings.model_copy(update={"detector": detector})

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
    detector = settings.detector

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

    # A video that judges is not learnt from, whatever source holds it too.
    gather = clips.gather_unlabelled
    unlabelled = gather(splits[1] | splits[2]) if gather is not None else None
    trained = train_with_pseudo_labels(
        list(compress(training.pairs, is_positive.tolist())),
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
    contrast: ContrastSettings = ContrastSettings(),
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
        contrast: form of the loss.
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
        make_detector_task(pairs, contrast),
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
