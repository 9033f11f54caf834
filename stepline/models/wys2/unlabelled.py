"""Unlabelled clips, read one video after the other, so that no pass holds all of them in memory.

HowTo100M has 136 million clips, whose features and vectors take a terabyte. A pass makes the clips
of each video from its record, its stored features, and the stored vectors of its sentences. It
keeps a reference of 28 bytes per chosen clip, from which training reads the clip again.
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
from stepline.models.wys2.clips import ClipTextPair, NarratedClip, VideoFrames, make_clip_source
from stepline.models.wys2.dataset import iterate_narrated_videos
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
    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all clips in blocks, in the same order each time."""
        ...

    def get_pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips of references. They may be read when they are asked for."""
        ...


class ClipStream:
    """Clips of narrated videos, each with its own sentence, made anew by each pass.

    Attributes:
        omitted: videos that were left out, with the reasons. A video that comes twice counts once.
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
            records: give the same videos each time they are iterated.
            features: a feature store, or the videos themselves.
            store: stores the vectors of all sentences on disk and returns their store
                (`store_text_vectors`).
            settings: of the clips.
            excluded: ids of videos that are left out.
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
        """Yield the sentences of each video, and count its clips."""
        for record, clips in self._iterate_videos(self.omitted):
            self._videos.append(record.video.id)
            self._count += len(clips)
            yield LabelledTexts(record.video.id, "narration", _get_sentence_texts(record), ())

    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all clips, the features of each video read once.

        Raises DatasetError where the records have changed since the stream was made.
        """
        references: list[References] = []
        pairs: list[ClipTextPair] = []
        for number, (record, clips) in enumerate(self._iterate_videos([])):
            self._check_unchanged(number, record)
            rows = [(number, clip.sentence, clip.span.start, clip.span.end) for clip in clips]
            references.append(np.array(rows, dtype=CLIP_COLUMNS))
            vectors = self._require_vectors().matrix(record.video.id)
            for clip in clips:
                text = vectors[clip.sentence : clip.sentence + 1]
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
        """Return the clips of references. Each is read when it is asked for."""
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
