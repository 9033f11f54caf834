"""Where the clips of a video come from: its stored features, or the frames of its file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import MediaError
from stepline.features import FeatureStore
from stepline.records import FeatureSequence, Matrix, Span
from stepline.training.gather import EXCLUDED, FeatureJoin, Flaw
from stepline.wys2.clips import ClipTextPair, FrameClip, clip_id, clip_rows, clip_text_pair

NO_FILE = "there is no video of it"
NO_PICTURE = "its video has no picture"
UNREADABLE = "its video cannot be read"

SpannedTexts: TypeAlias = Sequence[tuple[Span, Matrix]]  # clips with the vectors of their texts


@dataclass(frozen=True)
class StoredClips:
    """Clips of stored features."""

    store: FeatureStore

    def pairs(self, video: str, clips: SpannedTexts) -> list[ClipTextPair]:
        """Return clips of a video, whose features are read once."""
        features = self.store.read(video)
        pairs = []
        for span, texts in clips:
            pairs.append(clip_text_pair(clip_id(video, span.start), features, span, texts))
        return pairs

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip; its own rows alone are read."""
        values = self.store.read(video, self._rows(video, span)).values
        return ClipTextPair(clip_id(video, span.start), values, texts)

    def length(self, video: str, span: Span) -> int:
        """Return how many rows a clip has."""
        rows = self._rows(video, span)
        return int(rows.stop - rows.start)

    def place(self, video: str) -> tuple[int, int]:
        """Return the shard and the row at which the features of a video begin."""
        stored = self.store[video]
        return stored.shard, stored.first

    def _rows(self, video: str, span: Span) -> slice:
        stored = self.store[video]
        nothing = np.zeros((stored.rows, 1), np.float32)  # the count of rows alone matters
        return clip_rows(FeatureSequence(nothing, stored.rate, stored.backbone), span)


@dataclass(frozen=True)
class VideoFrames:
    """Video files by id, whose clips are frames: so many of each, squares of `side` pixels."""

    paths: Mapping[str, Path]
    frames: int
    side: int

    def flaw(self, video: str) -> Flaw | None:
        """Return why a video cannot be trained on, None where its file holds a picture."""
        from stepline.media import probe

        if video not in self.paths:
            return NO_FILE, ""
        try:
            return None if probe(self.paths[video]).has_picture else (NO_PICTURE, "")
        except MediaError as error:
            return UNREADABLE, str(error)

    def pairs(self, video: str, clips: SpannedTexts) -> list[ClipTextPair]:
        """Return clips of a video, read when they are asked for."""
        return [self.pair(video, span, texts) for span, texts in clips]

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip, read when it is asked for."""
        clip = FrameClip(self.paths[video], span, self.frames, self.side)
        return ClipTextPair(clip_id(video, span.start), clip, texts)

    def length(self, video: str, span: Span) -> int:  # noqa: ARG002 (as of stored features)
        """Return how many frames a clip has."""
        return self.frames

    def place(self, video: str) -> tuple[int, int]:  # noqa: ARG002 (as of stored features)
        """Return the same for every video: files are in no store."""
        return 0, 0


ClipSource: TypeAlias = StoredClips | VideoFrames


def clip_source(features: FeatureStore | VideoFrames) -> ClipSource:
    """Return the clips of a store or of files."""
    return features if isinstance(features, VideoFrames) else StoredClips(features)


def flaw_finder(
    source: ClipSource, excluded: ExcludedVideos | frozenset[str]
) -> Callable[[str], Flaw | None]:
    """Return what says, of one video after the other, why it cannot serve; None where it can.

    excluded: ids of videos that are left out (a benchmark's own).
    """
    if isinstance(source, StoredClips):
        return FeatureJoin(source.store, excluded=excluded).flaw
    return lambda video: (EXCLUDED, "") if video in excluded else source.flaw(video)
