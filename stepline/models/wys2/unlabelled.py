"""Clips without labels, read one video after the other: no pass holds more than a sample of them.

HowTo100M has 136 million clips, whose rows and vectors are a terabyte. A pass makes each video's
clips again from its record, its stored features and the stored vectors of its sentences. Of a clip
it keeps a reference, from which training reads it again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.models.training.batches import LazySamples
from stepline.models.training.gather import ExcludedIds, reasons_in_words
from stepline.models.training.sources import LabelledTexts
from stepline.models.wys2.clip_sources import VideoFrames, clip_source
from stepline.models.wys2.clips import ClipTextPair, NarratedClip
from stepline.models.wys2.dataset import narrated_videos
from stepline.models.wys2.settings import ClipSettings
from stepline.records import Record, Rejected, Span, Transcript

References: TypeAlias = npt.NDArray[Any]  # one per clip: a row number, or of the columns below
Block: TypeAlias = tuple[References, Sequence[ClipTextPair]]
NarratedVideo: TypeAlias = tuple[Record, list[NarratedClip]]
CLIP_COLUMNS = np.dtype(
    {"names": ["video", "sentence", "start", "end"], "formats": ["i4", "i4", "f8", "f8"]}
)
# videos whose features are read in the store's order, whatever that of the records
VIDEOS_PER_WINDOW = 1024
CLIPS_PER_BLOCK = 512  # that are scored together


class UnlabelledClips(Protocol):
    """Clips that can be read in order, and some of them again by their references."""

    def __len__(self) -> int: ...
    def blocks(self) -> Iterator[Block]:
        """Yield all clips, some at a time, in the same order each time."""
        ...

    def pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips of these references, which may be read when they are asked for."""
        ...


class ClipStream:
    """Clips of narrated videos, each with its own sentence, made again by each pass. omitted:
    videos left out, and why.

    records: yields the same videos from the first on, each time it is called. features,
    transcripts, excluded: as `gather_clips` takes them. A video that comes twice counts once.
    store: keeps the vectors of what is said in all videos on disk, and returns them
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
        excluded: ExcludedIds = frozenset(),
    ) -> None:
        if settings is None:
            settings = ClipSettings()
        # only labels need resolved pronouns and other candidates
        own_text_only = {"resolve": False, "candidates": 1}
        self._settings = settings.model_copy(update=own_text_only)
        self._records = records
        self._source = clip_source(features)
        self._excluded = excluded
        self._transcripts = transcripts or {}
        self.omitted: list[Rejected] = []
        self._videos: list[str] = []
        self._count = 0
        self._vectors: FeatureStore | None = None
        # One pass over all videos stores the vectors of what is said.
        narrations = self._narrations()
        first = next(narrations, None)
        if first is not None:
            all_narrations = chain([first], narrations)
            self._vectors = store(all_narrations)

    def __len__(self) -> int:
        return self._count

    def _clips(self, omitted: list[Rejected]) -> Iterator[NarratedVideo]:
        """Yield each video with its clips, from the first on."""
        return narrated_videos(
            self._records(),
            self._source,
            self._settings,
            self._transcripts,
            omitted,
            excluded=self._excluded,
            once=True,
        )

    def _narrations(self) -> Iterator[LabelledTexts]:
        """Yield what is said in each video, counting its clips."""
        for record, clips in self._clips(self.omitted):
            self._videos.append(record.video.id)
            self._count += len(clips)
            texts = _sentence_texts(record)
            yield LabelledTexts(record.video.id, "narration", texts, ())

    def blocks(self) -> Iterator[Block]:
        """Yield all clips, the features of each video read once and those of a window of videos in
        the store's order.

        Raises DatasetError where the records have changed since the stream was made.
        """
        window: list[References] = []
        videos = self._clips([])
        for number, (record, clips) in enumerate(videos):
            self._check(number, record)
            rows = []
            for clip in clips:
                start = clip.span.start
                end = clip.span.end
                row = (number, clip.sentence, start, end)
                rows.append(row)
            references = np.array(rows, dtype=CLIP_COLUMNS)
            window.append(references)
            if len(window) == VIDEOS_PER_WINDOW:
                yield from self._window_blocks(window)
                window = []
        yield from self._window_blocks(window)

    def _check(self, number: int, record: Record) -> None:
        video = record.video.id
        is_known = number < len(self._videos)
        if not is_known or self._videos[number] != video:
            fault = "the unlabelled videos have changed during the run"
            raise DatasetError(f"{record.id}: {fault}; start the command again")
        # The stored vectors are of these very sentences.
        stored_texts = None
        if self._vectors is not None:
            lines = self._vectors.texts(video)
            if lines is not None:
                stored_texts = lines.texts
        if stored_texts != _sentence_texts(record):
            fault = f"{record.id}: its stored vectors are of other sentences"
            raise DatasetError(f"{fault}; give another --out")

    def _window_blocks(self, window: Sequence[References]) -> Iterator[Block]:
        references: list[References] = []
        pairs: list[ClipTextPair] = []
        # In the store's order, so that a shard is not read twice.
        ordered = sorted(window, key=self._place)
        for clips in ordered:
            references.append(clips)
            pairs += self._pairs_of_video(clips)
            if len(pairs) >= CLIPS_PER_BLOCK:
                yield np.concatenate(references), pairs
                references = []
                pairs = []
        if pairs:
            yield np.concatenate(references), pairs

    def _place(self, clips: References) -> tuple[int, int]:
        """Return where the features of a video's clips are in the store."""
        video = self._video(clips[0])
        return self._source.place(video)

    def _video(self, clip: Any) -> str:
        return self._videos[int(clip["video"])]

    def _pairs_of_video(self, clips: References) -> list[ClipTextPair]:
        """Return all clips of a video."""
        video = self._video(clips[0])
        vectors = self._store().matrix(video)
        texts = []
        for _, row, start, end in clips.tolist():
            span = Span(start, end)
            vector = vectors[row : row + 1]
            texts.append((span, vector))
        return self._source.pairs(video, texts)

    def _store(self) -> FeatureStore:
        if self._vectors is None:
            raise DatasetError(f"no unlabelled clip; left out: {reasons_in_words(self.omitted)}")
        return self._vectors

    def pairs(self, references: References) -> LazySamples[ClipTextPair]:
        """Return the clips of these references, each read when it is asked for."""
        lengths = []
        shards = []
        for clip in references:
            video = self._video(clip)
            start = float(clip["start"])
            end = float(clip["end"])
            span = Span(start, end)
            length = self._source.length(video, span)
            shard, _ = self._source.place(video)
            lengths.append(length)
            shards.append(shard)

        def read(index: int) -> ClipTextPair:
            number, row, start, end = references[index].tolist()
            video = self._videos[number]
            span = Span(start, end)
            sentence = slice(row, row + 1)
            text = self._store().matrix(video, sentence)
            return self._source.pair(video, span, text)

        return LazySamples(read, lengths, shards)


def _sentence_texts(record: Record) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in record.sentences)


class Reservoir:
    """A uniform sample of at most `most` of the rows that come in blocks (Vitter 1985, R).

    Up to `most` rows, they stay in the order in which they came.
    """

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self._most = most
        self._rng = rng
        self._count = 0  # of the rows that came
        self._columns: list[References] = []

    def add(self, *columns: References) -> None:
        """Add a block of rows, as its columns."""
        if not self._columns:
            self._columns = [np.empty(self._most, column.dtype) for column in columns]
        # the place of each row in the sample. From `most` on it has none
        row_count = len(columns[0])
        new_count = self._count + row_count
        places = np.arange(self._count, new_count)
        is_late = places >= self._most
        # Row n draws a place below n, so that it stays with probability most / n.
        late_counts = places[is_late] + 1
        places[is_late] = self._rng.integers(0, late_counts)
        in_sample = places < self._most
        sample_places = places[in_sample]
        for own, column in zip(self._columns, columns, strict=True):
            # of rows for one place, the last stays
            own[sample_places] = column[in_sample]
        self._count = new_count

    @property
    def columns(self) -> list[References]:
        """The columns of the sample, none before the first block."""
        return [column[: self._count] for column in self._columns]
