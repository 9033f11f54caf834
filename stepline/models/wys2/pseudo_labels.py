"""Pseudo-labels (WYS2, section 3.1): a detector labels unlabelled clips, and a new one is trained on
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

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.features import FeatureStore
from stepline.models.training.batches import LazySamples, Mask, join_samples
from stepline.models.training.sources import ExcludedIds, LabelledTexts, format_reasons
from stepline.models.wys2.clips import (
    ClipTextPair,
    NarratedClip,
    VideoFrames,
    count_clip_rows,
    make_clip_source,
)
from stepline.models.wys2.dataset import iterate_narrated_videos
from stepline.models.wys2.detector import Detector, score_pairs
from stepline.models.wys2.settings import ClipSettings, PseudoSettings
from stepline.records import Matrix, Record, Rejected, Span

log = logging.getLogger(__name__)

References: TypeAlias = npt.NDArray[Any]  # one per clip: a row number, or of the columns below
Block: TypeAlias = tuple[References, Sequence[ClipTextPair]]
NarratedVideo: TypeAlias = tuple[Record, list[NarratedClip]]
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
        settings: ClipSettings | None = None,
        *,
        excluded: ExcludedIds = frozenset(),
    ) -> None:
        """Read all records once, and store the vectors of their sentences.

        Args:
            records: narrated videos. Each iteration must give the same videos.
            features: a feature store, or video files for clips of frames.
            store: stores the vectors of all sentences on disk and returns their feature store, such
                as `store_text_vectors`.
            settings: length and spacing of the clips. None: defaults.
            excluded: ids of videos to leave out.
        """
        # only labels need resolved pronouns and other candidates
        own_text_only = {"resolve": False, "candidates": 1}
        self._settings = (settings or ClipSettings()).model_copy(update=own_text_only)
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
        """Yield the sentences of each video, and add its clips to the number of clips."""
        for record, clips in self._iterate_videos(self.omitted):
            self._videos.append(record.video.id)
            self._count += len(clips)
            yield LabelledTexts(record.video.id, "narration", _get_sentence_texts(record), ())

    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all clips in blocks: the references of n clips, which `get_pairs` takes, and the n
        clips with their texts. The features of each video are read once.

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
        lines = None if self._vectors is None else self._vectors.texts(video)
        if lines is None or lines.texts != _get_sentence_texts(record):
            raise DatasetError(
                f"{record.id}: its stored vectors are of other sentences; give another --out"
            )

    def _require_vectors(self) -> FeatureStore:
        if self._vectors is None:
            raise DatasetError(f"no unlabelled clip; left out: {format_reasons(self.omitted)}")
        return self._vectors

    def get_pairs(self, references: References) -> LazySamples[ClipTextPair]:
        """Return the clips with the given references. Each is read when it is accessed."""
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
TrainOnPairs: TypeAlias = Callable[[Sequence[ClipTextPair], int], Detector]


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
