"""NaSVA's training samples: texts with labels, their vectors, and the features of their videos,
read from disk when asked for.

A label is the span of a text in seconds. It becomes the feature rows that count as showing the
text: Y of NaSVA, section 3.2 (`make_label_matrix`). What does not fit is left out with its reason and
never replaced. Letters: K texts, T feature rows, C width of a row.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.features import FeatureLocation, FeatureStore
from stepline.features.store import text_digest
from stepline.grounding.settings import LabelRule
from stepline.models.nasva.settings import AlignerDataSettings
from stepline.models.training.batches import GatheredSamples, Mask, Sample
from stepline.models.training.network import FeatureSpace
from stepline.models.training.settings import TextKind
from stepline.models.training.sources import (
    ExcludedIds,
    LabelledTexts,
    OmitReason,
    TrainingVideoFilter,
    format_reasons,
)
from stepline.records import FeatureSequence, Matrix, Rejected, Span


def make_labelled_sample(
    name: str, features: FeatureSequence, vectors: Matrix, spans: Sequence[Sequence[Span]]
) -> Sample:
    """Return a video with its texts, in spoken order, as a training sample.

    Args:
        name: name of the sample, for messages.
        features: feature rows of the video.
        vectors: (K, C) text vectors.
        spans: for each text, the spans of its label in seconds. Empty for a text without a label.

    Raises ShapeError when they do not fit together.
    """
    if len(spans) != len(vectors):
        raise ShapeError(
            f"{name}: {len(vectors)} text vectors need as many lists of spans, not {len(spans)}"
        )
    return Sample(name, features.values, vectors, make_label_matrix(spans, features), ordered=True)


def make_label_matrix(
    spans: Sequence[Sequence[Span]], features: FeatureSequence, rule: LabelRule = "covering"
) -> Mask:
    """Return the label matrix Y (K, T): in which feature rows each text is shown.

    Args:
        spans: of each text, the spans of its label.
        features: of the video.
        rule: "covering": every row that a span touches, at least one. "inclusive", the released
            code's: rows whose start is in the closed span, which may be none. A span of 8 whole
            seconds then labels 9 rows.

    Past the end of the video no row is labelled.
    """
    labels = np.zeros((len(spans), len(features.values)), dtype=np.bool_)
    for row, places in zip(labels, spans, strict=True):
        for span in places:
            row[find_labelled_rows(span, features, rule)] = True
    return labels


def find_labelled_rows(span: Span, features: FeatureSequence, rule: LabelRule) -> slice:
    """Return the slice of feature rows that a span labels, by a rule of `make_label_matrix`. The
    slice is empty, or after the last row, where the span labels none."""
    if rule == "inclusive":
        last = math.floor(span.end * features.rate)
        return slice(math.ceil(span.start * features.rate), last + 1)
    rows = features.rows(span)
    # At least one row, however short the span.
    return slice(rows.start, max(rows.stop, rows.start + 1))


RowIndices = npt.NDArray[np.int32]
SmallIndices = npt.NDArray[np.int16] | npt.NDArray[np.int32]

OTHER_TEXTS = "the features of its texts are of other texts"
NO_TEXT = "it has no text"
NO_LABEL = "none of its texts has a label"
LABELS_OUTSIDE = "all its labels are outside of what is seen"


@dataclass(frozen=True, slots=True)
class _PendingSample:
    """A sample before its features are read.

    Attributes:
        video: id of the video.
        kind: of its texts.
        labels: (N, 3) index of the text, first row, end row of each labelled span.
        rows: (K,) index of the stored vector of each text.
        length: number of feature rows that are used.
    """

    video: str
    kind: TextKind
    labels: SmallIndices
    rows: SmallIndices
    length: int


class AlignerSamples(GatheredSamples[_PendingSample, Sample]):
    """Training samples of stored features, each read from disk when it is asked for.

    Attributes:
        texts: number of texts of all samples.
        labelled: number of texts with a label.
        kinds: of the texts.
    """

    def __init__(
        self,
        parts: Sequence[_PendingSample],
        features: FeatureStore,
        vectors: Mapping[TextKind, FeatureStore],
        settings: AlignerDataSettings,
        omitted: Sequence[Rejected] = (),
        *,
        as_asked: bool = False,
    ) -> None:
        """Make the list of samples, without reading features.

        Args:
            parts: videos with the indices of their texts and labels.
            features: store of the videos' features.
            vectors: for each kind of text, the store of the text vectors.
            settings: which videos and texts become samples.
            omitted: videos and texts that were left out.
            as_asked: True to give only narrations an order, as benchmarks do. False: steps too.
        """
        shards = [features[part.video].shard for part in parts]
        super().__init__(self._read_sample, [part.length for part in parts], shards, parts, omitted)
        self._features = features
        self._vectors = vectors
        self._settings = settings
        self._as_asked = as_asked
        self.texts = sum(len(part.rows) for part in parts)
        self.labelled = sum(len(np.unique(part.labels[:, 0])) for part in parts)
        self.kinds = frozenset(part.kind for part in parts)

    def _read_sample(self, index: int) -> Sample:
        part = self.parts[index]
        video = self._features.matrix(part.video, slice(part.length))  # (T, C)
        vectors = self._vectors[part.kind].matrix(part.video)[part.rows]  # (K, C)
        positive = np.zeros((len(vectors), len(video)), dtype=np.bool_)
        for text, start, stop in part.labels.tolist():
            positive[text, start:stop] = True
        # Steps are in no order where a benchmark asks for them so.
        ordered = part.kind == "narration" or not self._as_asked
        return Sample(f"{part.video} ({part.kind})", video, vectors, positive, ordered)

    def get_widths(self) -> tuple[int, int]:
        """Return the widths of video feature rows and of text vectors. Raises ShapeError without
        any sample."""
        video, text = self._get_first_stored()
        return video.width, text.width

    def get_space(self) -> FeatureSpace:
        """Return the feature space of the samples. Raises ShapeError without any sample."""
        video, text = self._get_first_stored()
        return FeatureSpace(video.backbone, text.backbone, video.rate)

    def _get_first_stored(self) -> tuple[FeatureLocation, FeatureLocation]:
        if not self.parts:
            reasons = format_reasons(self.omitted)
            raise ShapeError(
                f"no sample is left of {len(self.omitted)}: {reasons}; fix the sources"
            )
        part = self.parts[0]
        return self._features[part.video], self._vectors[part.kind][part.video]

    def split(self, fraction: float) -> tuple["AlignerSamples", "AlignerSamples"]:
        """Return the samples to train on, and at most MAX_HELD_OUT held-out samples of a fraction
        of the videos, chosen by video id."""
        training, held_out = self.split_parts(fraction)
        stores = (self._features, self._vectors, self._settings)
        return (
            AlignerSamples(training, *stores, self.omitted),
            AlignerSamples(held_out, *stores, as_asked=True),
        )


def gather_samples(
    texts: Iterable[LabelledTexts],
    features: FeatureStore,
    vectors: Mapping[TextKind, FeatureStore],
    settings: AlignerDataSettings = AlignerDataSettings(),
    *,
    excluded: ExcludedIds = frozenset(),
) -> AlignerSamples:
    """Return the training samples of labelled texts: one per video and kind of text.

    Args:
        texts: labelled texts, one item per video and kind.
        features: store of the videos' features.
        vectors: for each kind, a store of text vectors by video id. A video whose stored vectors are
            of other texts is left out.
        settings: which videos and texts become samples.
        excluded: ids of videos that are left out, such as a benchmark's.
    """
    join = TrainingVideoFilter(features, slack=settings.slack, excluded=excluded)
    parts = []
    for labelled in texts:
        video = labelled.video
        store = vectors[labelled.kind]
        part: _PendingSample | OmitReason | None = join.reason_to_omit(
            video,
            labelled.duration,
            key=(video, labelled.kind),
            missing=None if labelled.texts else NO_TEXT,
            vectors=store,
        )
        if part is None:
            part = _prepare_sample(labelled, features[video], store, settings)
        if isinstance(part, _PendingSample):
            parts.append(part)
        else:
            join.omit(labelled.kind, video, part)
    # The stores' texts were for matching alone.
    for store in vectors.values():
        store.forget_texts()
    return AlignerSamples(parts, features, vectors, settings, join.omitted)


def omitted_to_row(row: Rejected) -> dict[str, str]:
    """Return an item that was left out of training as a row of omitted.jsonl."""
    return {"video": row.id, "kind": row.what, "reason": row.reason, "value": row.value}


def _prepare_sample(
    labelled: LabelledTexts,
    stored: FeatureLocation,
    vectors: FeatureStore,
    settings: AlignerDataSettings,
) -> _PendingSample | OmitReason:
    """Return the texts of a video with the rows that label them, or why they cannot be trained
    on."""
    # Which vectors are those of the texts.
    rows = match_vector_rows(labelled, vectors)
    if rows is None:
        return explain_other_texts(labelled, vectors)
    length = min(stored.rows, settings.longest)
    # which rows each span labels follows from the rate and their count alone
    blank = np.zeros((length, 1), dtype=np.float32)
    seen_rows = FeatureSequence(blank, stored.rate, stored.backbone)
    label_rows = []
    # A text that ends at or after the cut is no text of what is used, as in the released code.
    cut = settings.longest / stored.rate
    ends = [min((span.end for span in spans), default=0.0) for spans in labelled.spans]
    kept = [text for text, end in enumerate(ends) if end < cut]
    for text in kept:
        for span in labelled.spans[text]:
            part = find_labelled_rows(span, seen_rows, settings.label_rule)
            if part.start < min(part.stop, length):
                label_rows.append((text, part.start, part.stop))
    # No row would learn anything.
    if not label_rows:
        if any(labelled.spans):
            return LABELS_OUTSIDE, f"{length / stored.rate:g} s"
        return NO_LABEL, ""
    labels = np.array(label_rows, dtype=np.int32)  # (N, 3)
    # What is left is numbered again.
    if settings.unlabelled == "drop":
        kept = np.unique(labels[:, 0]).tolist()
    labels[:, 0] = np.searchsorted(kept, labels[:, 0])
    rows = rows[kept]
    return _PendingSample(
        labelled.video, labelled.kind, _shrink_indices(labels), _shrink_indices(rows), length
    )


def _shrink_indices(indices: RowIndices) -> SmallIndices:
    """Return indices as 16-bit integers if all fit, to save memory: a dataset has 100 million."""
    return indices if indices.max() > np.iinfo(np.int16).max else indices.astype(np.int16)


def explain_other_texts(labelled: LabelledTexts, vectors: FeatureStore) -> OmitReason:
    """Return the reason that the stored vectors are of other texts than a video's."""
    return OTHER_TEXTS, f"{len(labelled.texts)} texts, {vectors[labelled.video].rows} vectors"


def match_vector_rows(labelled: LabelledTexts, vectors: FeatureStore) -> RowIndices | None:
    """Return the row of each text's vector in a store, (K,), or None where the store holds other
    texts.

    A reader may have left out texts that the store still holds, so the texts need only come in the
    same order.
    """
    digests = vectors.text_digests(labelled.video)
    # Without stored texts their number is all that can be compared.
    if digests is None:
        count = len(labelled.texts)
        is_same = vectors[labelled.video].rows == count
        return np.arange(count, dtype=np.int32) if is_same else None
    rows: list[int] = []
    stored = enumerate(digests.tolist())
    for text in labelled.texts:
        digest = text_digest(text)
        # resumes after the row of the text before
        row = next((number for number, other in stored if other == digest), None)
        if row is None:
            return None
        rows.append(row)
    return np.array(rows, dtype=np.int32)
