"""Texts or records joined with the stored features of their videos: what can be trained on, what is
left out and why.

Every trainer asks the same of a video. It did not come before and is not excluded (a benchmark's
own). It has features with rows in them, of the first video's kind, and a stated length that is
theirs. What it also asks, it adds with `omit`. Only the index of a feature store is read here.
Features are read when a sample is looked at.
"""

import math
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepline.datasets.excluded import ExcludedVideos
from stepline.features import FeatureStore
from stepline.records import FeatureSequence, Rejected, RejectedKind, count_reasons

ExcludedIds: TypeAlias = ExcludedVideos | frozenset[str]  # ids of videos that are left out
Features: TypeAlias = FeatureStore | Mapping[str, FeatureSequence]
# why something is left out, one of a few fixed wordings, and what was found
Flaw: TypeAlias = tuple[str, str]

SEEN_TWICE = "the video came before"
EXCLUDED_REASON = "it is excluded"
NO_FEATURES = "there are no features of its video"
NO_ROWS = "its features hold no row"
NO_VECTORS = "there are no features of its texts"
OTHER_LENGTH = "its video and its features differ in length"
OTHER_WIDTH = "its features have another width"
OTHER_BACKBONE = "its features come from another network"
OTHER_RATE = "its features have another rate"


@dataclass(frozen=True)
class FeatureSpec:
    """What features are of: their width, their backbone, and rows per second."""

    width: int
    backbone: str
    rate: float


class FeatureJoin:
    """Looks up the features of one video after another.

    omitted: what is left out, and why.
    slack: seconds that a video's stated length may differ from its features'.
    excluded: ids of videos that are left out.
    one_rate: whether all videos must have the first one's rows per second.
    specs: of the first video's features ("video"), and of the first texts' ("text").
    """

    def __init__(
        self,
        features: Features,
        *,
        slack: float = math.inf,
        excluded: ExcludedIds = frozenset(),
        one_rate: bool = False,
    ) -> None:
        self._features = features
        self._slack = slack
        self._excluded = excluded
        self._one_rate = one_rate
        self._seen: set[Hashable] = set()
        self.specs: dict[str, FeatureSpec] = {}
        self.omitted: list[Rejected] = []

    def flaw(
        self,
        video: str,
        duration: float | None = None,
        *,
        key: Hashable = None,
        lack: str | None = None,
        vectors: FeatureStore | None = None,
    ) -> Flaw | None:
        """Return why a video cannot be trained on, None where its features fit.

        duration: seconds, as its source states them.
        key: comes once. None: as often as it likes.
        lack: what its source lacks, None for nothing.
        vectors: a store that must hold the features of its texts.
        """
        # What its id and its source say.
        if key is not None:
            if key in self._seen:
                return SEEN_TWICE, ""
            self._seen.add(key)
        if video in self._excluded:
            return EXCLUDED_REASON, ""
        if lack is not None:
            return lack, ""
        # What the store's index says.
        if video not in self._features:
            return NO_FEATURES, ""
        if vectors is not None and video not in vectors:
            return NO_VECTORS, ""
        # What the features are of, and whether they cover the video.
        spec, rows = feature_spec(self._features, video)
        if not rows:
            return NO_ROWS, ""
        if duration is not None and abs(duration - rows / spec.rate) > self._slack:
            return OTHER_LENGTH, f"{duration:g} s and {rows / spec.rate:g} s"
        # What a network could not distinguish from the first video's.
        flaw = self._unlike("video", spec)
        if flaw is None and vectors is not None:
            flaw = self._unlike("text", feature_spec(vectors, video)[0])
        return flaw

    def omit(self, what: RejectedKind, video: str, flaw: Flaw, text: str = "") -> None:
        """Note what is left out, and why. text: of the step, where it is one."""
        reason, value = flaw
        self.omitted.append(Rejected(what, reason, text=text, id=video, value=value))

    def _unlike(self, name: str, spec: FeatureSpec) -> Flaw | None:
        """Return how features differ from the first ones. A network for both could not distinguish
        the two."""
        first = self.specs.setdefault(name, spec)
        if spec.width != first.width:
            return OTHER_WIDTH, f"{name} {spec.width}, not {first.width}"
        if spec.backbone != first.backbone:
            return OTHER_BACKBONE, f"{name} {spec.backbone}, not {first.backbone}"
        if self._one_rate and spec.rate != first.rate:
            return OTHER_RATE, f"{name} {spec.rate:g}, not {first.rate:g}"
        return None


def feature_spec(features: Features, video: str) -> tuple[FeatureSpec, int]:
    """Return what the features of a video are of, and how many rows they have, without reading
    them."""
    stored = features[video]
    if isinstance(stored, FeatureSequence):
        rows, width = stored.values.shape
    else:
        rows = stored.rows
        width = stored.width
    return FeatureSpec(width, stored.backbone, stored.rate), rows


def is_held_out(video: str, fraction: float) -> bool:
    """Tell whether a video is among the held-out fraction: its id alone decides, whatever else is
    in the source."""
    return zlib.crc32(video.encode()) < fraction * 2**32


SAME_ENCODER = "give features and vectors of the same encoder for all sources"
SOURCE_CURES = {
    OTHER_WIDTH: SAME_ENCODER,
    OTHER_BACKBONE: SAME_ENCODER,
    NO_FEATURES: "give a store with the features of its videos",
    NO_VECTORS: "give vectors of its texts",
    EXCLUDED_REASON: "leave it out of the sources, or its videos out of --exclude",
}


def source_flaw(omitted: Sequence[Rejected]) -> str:
    """Return why a source falls out whole and the cure of the most frequent reason, in one line."""
    if not omitted:
        return "no video is left to train on: it holds none; give another source"
    reason = next(iter(count_reasons(omitted)))
    # The commonest reason is shown with its first example.
    values = [row.value for row in omitted if row.reason == reason and row.value]
    example = ""
    if values:
        example = f" ({values[0]})"
    words = reasons_in_words(omitted).replace(reason, f"{reason}{example}", 1)
    cure = SOURCE_CURES.get(reason, "correct it, or leave it out")
    return f"nothing of it is left to train on: {words}; {cure}"


def reasons_in_words(omitted: Iterable[Rejected]) -> str:
    """Return "3 x it is excluded, 1 x ...", as an error says that nothing is left."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in count_reasons(omitted).items())
    return counted or "nothing was given"
