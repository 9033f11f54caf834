"""Texts, their vectors and the features of their videos as samples, each read from disk when it is looked at.

What does not fit is left out and told with its reason; nothing ever takes the place of something else.

From where a text is placed, in seconds, to the rows that training counts as showing it: Y of NaSVA section 3.2.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.excluded import Excluded
from stepline.errors import ShapeError
from stepline.features import FeatureLocation, FeatureStore
from stepline.grounding.settings import LabelRule
from stepline.nasva.checkpoint import FeatureSpace
from stepline.nasva.network_settings import DataSettings
from stepline.records import FeatureSequence, Matrix, Rejected, Span, count_reasons
from stepline.training.batches import LazySamples, Mask, Sample
from stepline.training.settings import TextKind
from stepline.training.sources import LabelledTexts


def labelled_sample(
    name: str,
    features: FeatureSequence,
    vectors: Matrix,
    spans: Sequence[Sequence[Span]],
    *,
    ordered: bool,
    rule: LabelRule = "covering",
) -> Sample:
    """Return a video with its texts as a training sample.

    vectors: (K, C) sentence vectors. spans: where each text is placed, empty where it is not.
    Raises ShapeError when they do not fit together.
    """
    if len(spans) != len(vectors):
        raise ShapeError(f"{name}: {len(vectors)} text vectors need as many lists of spans, not {len(spans)}")
    return Sample(name, features.values, vectors, targets(spans, features, rule), ordered)


def targets(spans: Sequence[Sequence[Span]], features: FeatureSequence, rule: LabelRule = "covering") -> Mask:
    """Return Y (K, T): in which feature rows each text is shown.

    covering: every row that a span touches, at one row a second [floor(start), max(floor(start) + 1, ceil(end)));
    never empty inside the video. inclusive: start <= t <= end where row t starts, both ends in, as the released loss
    has it; empty for a span between two rows, and 9 rows for one of 8 whole seconds. Past the video: no row.
    """
    labels = np.zeros((len(spans), len(features.values)), dtype=np.bool_)
    for row, places in zip(labels, spans, strict=True):
        for span in places:
            row[labelled_rows(span, features, rule)] = True
    return labels


def labelled_rows(span: Span, features: FeatureSequence, rule: LabelRule = "covering") -> slice:
    """Return the rows that a span labels; past the last row, or empty, where it labels none."""
    if rule == "inclusive":
        return slice(math.ceil(span.start * features.rate), math.floor(span.end * features.rate) + 1)
    rows = features.rows(span)
    return slice(rows.start, max(rows.stop, rows.start + 1))


Rows: TypeAlias = npt.NDArray[np.int32]

NO_VIDEO = "there are no features of its video"
NO_VECTORS = "there are no features of its texts"
OTHER_TEXTS = "the features of its texts are of other texts"
OTHER_LENGTH = "its video and its features differ in length"
OTHER_WIDTH = "its features have another width"
OTHER_BACKBONE = "its features come from another network"
TWICE = "the video came before"
EXCLUDED = "it is excluded"
NO_TEXT = "it has no text"
NO_LABEL = "none of its texts has a label"
PAST = "all its labels lie outside of what is seen"


@dataclass(frozen=True, slots=True)
class _Part:
    """A sample that is not read yet. labels: (N, 3) of text, first row, row after the last; rows: of its vectors."""

    video: str
    kind: TextKind
    labels: Rows
    rows: Rows
    length: int


class AlignerSamples(LazySamples):
    """Samples that are read from disk when they are asked for.

    omitted: what is no sample, and why; labelled: texts with a label.
    asked: the texts come as a benchmark asks them, narrations in their order, steps in none; else all are in order.
    """

    def __init__(
        self,
        parts: Sequence[_Part],
        features: FeatureStore,
        vectors: Mapping[TextKind, FeatureStore],
        settings: DataSettings,
        omitted: Sequence[Rejected] = (),
        *,
        asked: bool = False,
    ) -> None:
        super().__init__(self._read, [part.length for part in parts])
        self._parts, self._features, self._vectors, self._settings = parts, features, vectors, settings
        self._asked = asked
        self.omitted = tuple(omitted)
        self.texts = sum(len(part.rows) for part in parts)
        self.labelled = sum(len(np.unique(part.labels[:, 0])) for part in parts)
        self.videos = tuple(dict.fromkeys(part.video for part in parts))

    def _read(self, index: int) -> Sample:
        """Return a sample as it lies on disk now."""
        part = self._parts[index]
        video = self._features.matrix(part.video)[: part.length]  # (T, C)
        vectors = self._vectors[part.kind].matrix(part.video)[part.rows]  # (K, C)
        positive = np.zeros((len(vectors), len(video)), dtype=np.bool_)
        for text, start, stop in part.labels.tolist():
            positive[text, start:stop] = True
        ordered = part.kind == "narration" or not self._asked
        return Sample(f"{part.video} ({part.kind})", video, vectors, positive, ordered)

    def widths(self) -> tuple[int, int]:
        """Return the widths of the video features and of the text vectors. Raises ShapeError without any sample."""
        if not self._parts:
            raise ShapeError(f"no sample is left of {len(self.omitted)}: {_told(self.reasons())}; mend the sources")
        part = self._parts[0]
        return self._features[part.video].width, self._vectors[part.kind][part.video].width

    def space(self) -> FeatureSpace:
        """Return whose features these are. Raises ShapeError without any sample."""
        self.widths()
        part = self._parts[0]
        stored = self._features[part.video]
        return FeatureSpace(stored.backbone, self._vectors[part.kind][part.video].backbone, stored.rate)

    def reasons(self) -> dict[str, int]:
        """Return how many were left out for each reason, the most frequent first."""
        return count_reasons(self.omitted)

    def split(self, share: float) -> tuple["AlignerSamples", "AlignerSamples"]:
        """Return the samples to train on and those held out: a share of the videos, chosen by their ids alone.

        Of those held out, the first `held_out_most`, as a benchmark asks them.
        """
        held = {video for video in self.videos if zlib.crc32(video.encode()) < share * 2**32}
        kept, out = ([part for part in self._parts if (part.video in held) is side] for side in (False, True))
        given = (self._features, self._vectors, self._settings)
        out = out[: self._settings.held_out_most]
        return AlignerSamples(kept, *given, self.omitted), AlignerSamples(out, *given, asked=True)


def gather_samples(
    told: Iterable[LabelledTexts],
    features: FeatureStore,
    vectors: Mapping[TextKind, FeatureStore],
    settings: DataSettings | None = None,
    *,
    excluded: Excluded | frozenset[str] = frozenset(),
) -> AlignerSamples:
    """Return what can be trained on: a sample a video and kind of text, so that a video may come twice an epoch.

    vectors: of each kind, a store keyed by the videos' ids; one that keeps its texts must hold those that are told, one
    that does not as many. excluded: ids of videos that are left out (a benchmark's own).
    """
    settings = settings or DataSettings()
    gathering = _Gathering(features, vectors, settings, excluded)
    for each in told:
        gathering.take(each)
    return AlignerSamples(gathering.parts, features, vectors, settings, gathering.omitted)


def omitted_row(row: Rejected) -> dict[str, str]:
    """Return the texts of a video that are no sample as a line of `omitted.jsonl`."""
    return {"video": row.id, "kind": row.what, "reason": row.reason, "value": row.value}


class _Gathering:
    def __init__(
        self,
        features: FeatureStore,
        vectors: Mapping[TextKind, FeatureStore],
        settings: DataSettings,
        excluded: Excluded | frozenset[str],
    ) -> None:
        self._features, self._vectors, self._settings, self._excluded = features, vectors, settings, excluded
        self._seen: set[tuple[str, TextKind]] = set()
        self._first: dict[str, FeatureLocation] = {}  # the first video's features, and the first texts'
        self.parts: list[_Part] = []
        self.omitted: list[Rejected] = []

    def take(self, told: LabelledTexts) -> None:
        """Add the texts of a video, or note why not."""
        flaw = self._flaw(told)
        if flaw is None:
            rows = matching_rows(told, self._vectors[told.kind])
            if rows is None:
                flaw = OTHER_TEXTS, f"{len(told.texts)} texts, {self._vectors[told.kind][told.video].rows} vectors"
            else:
                flaw = self._add(told, rows)
        if flaw is not None:
            reason, value = flaw
            self.omitted.append(Rejected(told.kind, reason, id=told.video, value=value))

    def _flaw(self, told: LabelledTexts) -> tuple[str, str] | None:
        key = told.video, told.kind
        if key in self._seen:
            return TWICE, ""
        self._seen.add(key)
        if told.video in self._excluded:
            return EXCLUDED, ""
        if not told.texts:
            return NO_TEXT, ""
        if told.video not in self._features:
            return NO_VIDEO, ""
        if told.video not in self._vectors[told.kind]:
            return NO_VECTORS, ""
        stored = self._features[told.video]
        seconds = stored.rows / stored.rate
        if told.duration is not None and abs(told.duration - seconds) > self._settings.slack:
            return OTHER_LENGTH, f"{told.duration:g} s and {seconds:g} s"
        return self._unlike("video", stored) or self._unlike("text", self._vectors[told.kind][told.video])

    def _unlike(self, name: str, stored: FeatureLocation) -> tuple[str, str] | None:
        """Return how features differ from the first ones, which a network for both could not tell apart."""
        return unlike(name, stored, self._first.setdefault(name, stored))

    def _add(self, told: LabelledTexts, rows: Rows) -> tuple[str, str] | None:
        stored = self._features[told.video]
        length = min(stored.rows, self._settings.longest)
        seen = FeatureSequence(np.zeros((length, 1), dtype=np.float32), stored.rate, stored.backbone)
        found = [
            (text, labelled_rows(span, seen, self._settings.label_rule))
            for text, spans in enumerate(told.spans)
            for span in spans
        ]
        kept = [(text, rows.start, rows.stop) for text, rows in found if rows.start < min(rows.stop, length)]
        if not kept:
            return (PAST, f"{length / stored.rate:g} s") if found else (NO_LABEL, "")
        labels = np.array(kept, dtype=np.int32)  # (N, 3)
        if self._settings.unlabelled == "drop":
            labelled, labels[:, 0] = np.unique(labels[:, 0], return_inverse=True)
            rows = rows[labelled]
        self.parts.append(_Part(told.video, told.kind, labels, rows, length))
        return None


def unlike(name: str, stored: FeatureLocation, first: FeatureLocation) -> tuple[str, str] | None:
    """Return how features differ from the first ones, as a reason and what was found; None where they do not."""
    if stored.width != first.width:
        return OTHER_WIDTH, f"{name} {stored.width}, not {first.width}"
    if stored.backbone != first.backbone:
        return OTHER_BACKBONE, f"{name} {stored.backbone}, not {first.backbone}"
    return None


def matching_rows(told: LabelledTexts, vectors: FeatureStore) -> Rows | None:
    """Return which stored vector is that of each text, (K,); None where they are of other texts.

    A reader may have left out texts that the store still holds, so the texts need only come in the same order.
    """
    lines = vectors.lines(told.video)
    if lines is None:
        return np.arange(len(told.texts), dtype=np.int32) if vectors[told.video].rows == len(told.texts) else None
    rows: list[int] = []
    stored = enumerate(text.strip() for text in lines.texts)
    for text in told.texts:
        row = next((number for number, known in stored if known == text.strip()), None)
        if row is None:
            return None
        rows.append(row)
    return np.array(rows, dtype=np.int32)


def _told(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in reasons.items()) or "nothing was given"
