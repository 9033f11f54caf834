"""Clips that nobody labelled, gone through one video after the other: no pass holds more than a
sample of them.

HowTo100M has 136 million clips, whose rows and vectors are a terabyte. A pass makes each video's
clips anew from its record, its stored features and the stored vectors of its sentences; what it
keeps of a clip is a reference, from which training reads it again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.excluded import ExcludedVideos
from stepline.errors import DatasetError
from stepline.features import FeatureLocation, FeatureStore
from stepline.records import FeatureSequence, Record, Rejected, Span, Transcript
from stepline.training.batches import LazySamples
from stepline.training.gather import reasons_in_words
from stepline.training.sources import LabelledTexts
from stepline.wys2.clips import ClipTextPair, clip_id, clip_rows, clip_text_pair
from stepline.wys2.dataset import VideoFrames, narrated_videos
from stepline.wys2.settings import ClipSettings

References: TypeAlias = npt.NDArray[Any]  # one a clip: a row number, or of the columns below
CLIP = np.dtype([("video", "i4"), ("sentence", "i4"), ("start", "f8"), ("end", "f8")])
# videos whose features are read in the store's order, whatever that of the records
VIDEOS_A_WINDOW = 1024
CLIPS_A_BLOCK = 512


class UnlabelledClips(Protocol):
    """Clips that can be gone through, and some of them looked at again by their references."""

    def __len__(self) -> int: ...
    def blocks(self) -> Iterator[tuple[References, Sequence[ClipTextPair]]]:
        """Yield all clips, some at a time, in the same order each time."""
        ...

    def pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips of these references, which may be read when they are asked for."""
        ...


@dataclass(frozen=True)
class ListedClips:
    """Clips that are in memory; a reference is a clip's place in the list."""

    listed: Sequence[ClipTextPair]

    def __len__(self) -> int:
        return len(self.listed)

    def blocks(self) -> Iterator[tuple[References, Sequence[ClipTextPair]]]:
        """Yield all clips as one block."""
        yield np.arange(len(self.listed)), self.listed

    def pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips of these references."""
        return [self.listed[row] for row in references.tolist()]


class ClipStream:
    """Clips of narrated videos, each with its own sentence, made anew by each pass. omitted: videos
    left out, and why.

    records: gives the videos from the first on, each time it is called, and the same ones.
    features, transcripts, excluded: as `gather_clips` takes them. A video that comes twice counts
    once. store: keeps the vectors of what is said in all videos on disk, and returns them
    (`store_text_vectors`).
    """

    def __init__(
        self,
        records: Callable[[], Iterable[Record]],
        features: FeatureStore | VideoFrames,
        store: Callable[[Iterable[LabelledTexts]], FeatureStore],
        settings: ClipSettings | None = None,
        transcripts: Mapping[str, Transcript] | None = None,
        *,
        excluded: ExcludedVideos | frozenset[str] = frozenset(),
    ) -> None:
        # labels alone compare what pronouns stand for
        self._settings = (settings or ClipSettings()).model_copy(
            update={"resolve": False, "candidates": 1}
        )
        self._records, self._features, self._excluded = records, features, excluded
        self._transcripts = transcripts or {}
        self.omitted: list[Rejected] = []
        self._videos: list[str] = []
        self._count = 0
        self._vectors: FeatureStore | None = None
        said = self._narrations()
        if (first := next(said, None)) is not None:
            self._vectors = store(chain([first], said))

    def __len__(self) -> int:
        return self._count

    def _narrations(self) -> Iterator[LabelledTexts]:
        """Yield what is said in each video, counting its clips."""
        given = (self._records(), self._features, self._settings, self._transcripts)
        for record, clips in narrated_videos(
            *given, self.omitted, excluded=self._excluded, once=True
        ):
            self._videos.append(record.video.id)
            self._count += len(clips)
            yield LabelledTexts(
                record.video.id, "narration", tuple(each.text for each in record.sentences), ()
            )

    def blocks(self) -> Iterator[tuple[References, Sequence[ClipTextPair]]]:
        """Yield all clips, the features of each video read once and those of a window of videos in
        the store's order.

        Raises DatasetError where the records have changed since the stream was made.
        """
        given = (self._records(), self._features, self._settings, self._transcripts)
        window: list[References] = []
        videos = narrated_videos(*given, [], excluded=self._excluded, once=True)
        for number, (record, clips) in enumerate(videos):
            self._check(number, record)
            rows = [(number, clip.sentence, clip.span.start, clip.span.end) for clip in clips]
            window.append(np.array(rows, dtype=CLIP))
            if len(window) == VIDEOS_A_WINDOW:
                yield from self._window_blocks(window)
                window = []
        yield from self._window_blocks(window)

    def _check(self, number: int, record: Record) -> None:
        if number >= len(self._videos) or self._videos[number] != record.video.id:
            raise DatasetError(
                f"{record.id}: the unlabelled videos have changed meanwhile; start the command again"
            )
        lines = None if self._vectors is None else self._vectors.texts(record.video.id)
        if lines is None or lines.texts != tuple(each.text for each in record.sentences):
            raise DatasetError(
                f"{record.id}: its stored vectors are of other sentences; give another --out"
            )

    def _window_blocks(
        self, window: Sequence[References]
    ) -> Iterator[tuple[References, Sequence[ClipTextPair]]]:
        held: list[References] = []
        pairs: list[ClipTextPair] = []
        for clips in sorted(window, key=lambda clips: self._place(int(clips["video"][0]))):
            held.append(clips)
            pairs += self._pairs_of_video(clips)
            if len(pairs) >= CLIPS_A_BLOCK:
                yield np.concatenate(held), pairs
                held, pairs = [], []
        if pairs:
            yield np.concatenate(held), pairs

    def _place(self, number: int) -> tuple[int, int]:
        """Return where the features of a video lie."""
        if isinstance(self._features, VideoFrames):
            return 0, number
        stored = self._features[self._videos[number]]
        return stored.shard, stored.first

    def _pairs_of_video(self, clips: References) -> list[ClipTextPair]:
        """Return all clips of a video, whose features are read at once."""
        if isinstance(self._features, VideoFrames):
            return [self._pair(clip) for clip in clips]
        video = self._videos[int(clips["video"][0])]
        seen, said = self._features.read(video), self._store().matrix(video)
        return [
            clip_text_pair(clip_id(video, start), seen, Span(start, end), said[row : row + 1])
            for _, row, start, end in clips.tolist()
        ]

    def _pair(self, clip: Any) -> ClipTextPair:
        """Return a clip by its reference; of features, its own rows alone are read."""
        number, row, start, end = clip.tolist()
        video, span = self._videos[number], Span(start, end)
        text = self._store().matrix(video, slice(row, row + 1))
        if isinstance(self._features, VideoFrames):
            return ClipTextPair(clip_id(video, start), self._features.clip(video, span), text)
        rows = stored_rows(self._features[video], span)
        return ClipTextPair(clip_id(video, start), self._features.read(video, rows).values, text)

    def _store(self) -> FeatureStore:
        if self._vectors is None:
            raise DatasetError(f"no unlabelled clip; left out: {reasons_in_words(self.omitted)}")
        return self._vectors

    def pairs(self, references: References) -> LazySamples[ClipTextPair]:
        """Return the clips of these references, each read when it is asked for."""
        if isinstance(self._features, VideoFrames):
            return LazySamples(
                lambda at: self._pair(references[at]), [self._features.frames] * len(references)
            )
        stored = [self._features[video] for video in self._videos]
        lengths, shards = [], []
        for clip in references:
            number, _, start, end = clip.tolist()
            rows = stored_rows(stored[number], Span(start, end))
            lengths.append(rows.stop - rows.start)
            shards.append(stored[number].shard)
        return LazySamples(lambda at: self._pair(references[at]), lengths, shards)


def stored_rows(stored: FeatureLocation, span: Span) -> slice:
    """Return the rows of stored features that a clip has."""
    return clip_rows(
        FeatureSequence(np.zeros((stored.rows, 1), np.float32), stored.rate, stored.backbone), span
    )


class Reservoir:
    """A sample, each as likely as any other, of at most `most` of the rows that come in blocks
    (Vitter 1985, R).

    While all have room, they stay in the order in which they came.
    """

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self._most, self._rng, self._seen = most, rng, 0
        self._columns: list[References] = []

    def add(self, *columns: References) -> None:
        """Take a block of rows, given by its columns."""
        if not self._columns:
            self._columns = [np.empty(self._most, column.dtype) for column in columns]
        places = np.arange(self._seen, self._seen + len(columns[0]))
        late = places >= self._most
        places[late] = self._rng.integers(0, places[late] + 1)
        chosen = places < self._most
        for mine, given in zip(self._columns, columns, strict=True):
            mine[places[chosen]] = given[chosen]  # of rows for one place, the last stays
        self._seen += len(places)

    @property
    def columns(self) -> list[References]:
        """The columns of the rows that it holds; none before the first block."""
        return [column[: self._seen] for column in self._columns]
