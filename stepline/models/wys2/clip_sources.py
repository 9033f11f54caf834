"""Where the clips of a video come from: its stored features, or the frames of its file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.errors import MediaError
from stepline.features import FeatureStore
from stepline.models.training.gather import EXCLUDED_REASON, ExcludedIds, FeatureJoin, Flaw
from stepline.models.wys2.clips import ClipTextPair, FrameClip, clip_id, clip_rows, clip_text_pair
from stepline.records import FeatureSequence, Matrix, Span

NO_FILE = "there is no video of it"
NO_PICTURE = "its video has no picture"
UNREADABLE_FILE = "its video cannot be read"

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
            id = clip_id(video, span.start)
            pair = clip_text_pair(id, features, span, texts)
            pairs.append(pair)
        return pairs

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip. Only its own rows are read."""
        rows = self._rows(video, span)
        features = self.store.read(video, rows)
        id = clip_id(video, span.start)
        return ClipTextPair(id, features.values, texts)

    def length(self, video: str, span: Span) -> int:
        """Return the number of rows of a clip."""
        rows = self._rows(video, span)
        return int(rows.stop - rows.start)

    def place(self, video: str) -> tuple[int, int]:
        """Return the shard and the row at which the features of a video begin."""
        stored = self.store[video]
        return stored.shard, stored.first

    def _rows(self, video: str, span: Span) -> slice:
        stored = self.store[video]
        # the count of rows alone matters
        shape = (stored.rows, 1)
        values = np.zeros(shape, np.float32)
        features = FeatureSequence(values, stored.rate, stored.backbone)
        return clip_rows(features, span)


@dataclass(frozen=True)
class VideoFrames:
    """Video files by id, whose clips are frames: `frames` of each, squares of `side` pixels."""

    paths: Mapping[str, Path]
    frames: int
    side: int

    def flaw(self, video: str) -> Flaw | None:
        """Return why a video cannot be trained on, None where its file holds a picture."""
        from stepline.media import probe

        if video not in self.paths:
            return NO_FILE, ""
        try:
            media = probe(self.paths[video])
        except MediaError as error:
            return UNREADABLE_FILE, str(error)
        if media.has_picture:
            return None
        return NO_PICTURE, ""

    def pairs(self, video: str, clips: SpannedTexts) -> list[ClipTextPair]:
        """Return clips of a video, read when they are asked for."""
        pairs = []
        for span, texts in clips:
            pair = self.pair(video, span, texts)
            pairs.append(pair)
        return pairs

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip, read when it is asked for."""
        path = self.paths[video]
        clip = FrameClip(path, span, self.frames, self.side)
        id = clip_id(video, span.start)
        return ClipTextPair(id, clip, texts)

    def length(self, video: str, span: Span) -> int:  # noqa: ARG002 (as of stored features)
        """Return the number of frames of a clip."""
        return self.frames

    def place(self, video: str) -> tuple[int, int]:  # noqa: ARG002 (as of stored features)
        """Return the same for every video: files are in no store."""
        return 0, 0


# what gives the clips of a run
ClipSource: TypeAlias = StoredClips | VideoFrames


def clip_source(features: FeatureStore | VideoFrames) -> ClipSource:
    """Return the clips of a store or of files."""
    if isinstance(features, VideoFrames):
        return features
    return StoredClips(features)


def flaw_finder(source: ClipSource, excluded: ExcludedIds) -> Callable[[str], Flaw | None]:
    """Return what says, of one video after the other, why it cannot serve, or None where it can.

    excluded: ids of videos that are left out (a benchmark's own).
    """
    if isinstance(source, StoredClips):
        join = FeatureJoin(source.store, excluded=excluded)
        return join.flaw

    def flaw(video: str) -> Flaw | None:
        if video in excluded:
            return EXCLUDED_REASON, ""
        return source.flaw(video)

    return flaw
