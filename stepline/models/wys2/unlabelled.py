"""Clips without labels, read one video after the other: no pass holds more than a sample of them.

HowTo100M has 136 million clips, whose rows and vectors are a terabyte. A pass makes each video's
clips again from its record, its stored features and the stored vectors of its sentences. Of a clip
it keeps a reference, from which training reads it again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.models.training.batches import LazySamples
from stepline.models.training.sources import ExcludedIds, LabelledTexts, format_reasons
from stepline.models.wys2.clips import ClipTextPair, NarratedClip, VideoFrames, clip_source
from stepline.models.wys2.dataset import narrated_videos
from stepline.models.wys2.settings import ClipSettings
from stepline.records import Record, Rejected, Span

References: TypeAlias = npt.NDArray[Any]  # one per clip: a row number, or of the columns below
Block: TypeAlias = tuple[References, Sequence[ClipTextPair]]
NarratedVideo: TypeAlias = tuple[Record, list[NarratedClip]]
CLIP_COLUMNS = np.dtype(
    {"names": ["video", "sentence", "start", "end"], "formats": ["i4", "i4", "f8", "f8"]}
)
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

    A video that comes twice counts once.
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
        """Read all videos once, and store the vectors of what is said.

        Args:
            records: gives the same videos each time that it is iterated.
            features: as `gather_clips` takes them.
            store: keeps the vectors of what is said in all videos on disk, and returns them
                (`store_text_vectors`).
            settings: of the clips.
            excluded: ids of videos that are left out.
        """
        # only labels need resolved pronouns and other candidates
        own_text_only = {"resolve": False, "candidates": 1}
        self._settings = (settings or ClipSettings()).model_copy(update=own_text_only)
        self._records = records
        self._source = clip_source(features)
        self._excluded = excluded
        self.omitted: list[Rejected] = []
        self._videos: list[str] = []
        self._count = 0
        self._vectors: FeatureStore | None = None
        narrations = self._narrations()
        first = next(narrations, None)
        if first is not None:
            self._vectors = store(chain([first], narrations))

    def __len__(self) -> int:
        return self._count

    def _clips(self, omitted: list[Rejected]) -> Iterator[NarratedVideo]:
        """Yield each video with its clips, from the first on."""
        return narrated_videos(
            self._records, self._source, self._settings, omitted, excluded=self._excluded, once=True
        )

    def _narrations(self) -> Iterator[LabelledTexts]:
        """Yield what is said in each video, counting its clips."""
        for record, clips in self._clips(self.omitted):
            self._videos.append(record.video.id)
            self._count += len(clips)
            yield LabelledTexts(record.video.id, "narration", _sentence_texts(record), ())

    def blocks(self) -> Iterator[Block]:
        """Yield all clips, the features of each video read once.

        Raises DatasetError where the records have changed since the stream was made.
        """
        references: list[References] = []
        pairs: list[ClipTextPair] = []
        for number, (record, clips) in enumerate(self._clips([])):
            self._check(number, record)
            rows = [(number, clip.sentence, clip.span.start, clip.span.end) for clip in clips]
            references.append(np.array(rows, dtype=CLIP_COLUMNS))
            vectors = self._store().matrix(record.video.id)
            texts = [(clip.span, vectors[clip.sentence : clip.sentence + 1]) for clip in clips]
            pairs += self._source.pairs(record.video.id, texts)
            if len(pairs) >= CLIPS_PER_BLOCK:
                yield np.concatenate(references), pairs
                references = []
                pairs = []
        if pairs:
            yield np.concatenate(references), pairs

    def _check(self, number: int, record: Record) -> None:
        video = record.video.id
        if self._videos[number : number + 1] != [video]:
            raise DatasetError(
                f"{record.id}: the unlabelled videos have changed during the run; "
                "start the command again"
            )
        # The stored vectors are of these very sentences.
        lines = None if self._vectors is None else self._vectors.texts(video)
        if lines is None or lines.texts != _sentence_texts(record):
            raise DatasetError(
                f"{record.id}: its stored vectors are of other sentences; give another --out"
            )

    def _store(self) -> FeatureStore:
        if self._vectors is None:
            raise DatasetError(f"no unlabelled clip; left out: {format_reasons(self.omitted)}")
        return self._vectors

    def pairs(self, references: References) -> LazySamples[ClipTextPair]:
        """Return the clips of these references, each read when it is asked for."""
        lengths = []
        shards = []
        for number, _, start, end in references.tolist():
            video = self._videos[number]
            lengths.append(self._source.length(video, Span(start, end)))
            shards.append(self._source.shard(video))

        def read(index: int) -> ClipTextPair:
            number, row, start, end = references[index].tolist()
            video = self._videos[number]
            text = self._store().matrix(video, slice(row, row + 1))
            return self._source.pair(video, Span(start, end), text)

        return LazySamples(read, lengths, shards)


def _sentence_texts(record: Record) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in record.sentences)
