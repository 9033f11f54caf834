"""From records, features and text vectors to the clips that a run learns from; what cannot serve is counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stepline.batches import Flags
from stepline.errors import DatasetError
from stepline.features import FeatureStore
from stepline.records import Matrix, Record, Transcript
from stepline.wys2.clips import Clip, narrated_clips
from stepline.wys2.labels import Embed, by_consensus, by_relevance, by_similarity, similarities
from stepline.wys2.pairs import Pair, pair_of
from stepline.wys2.settings import ClipSettings, LabelSettings
from stepline.wys2.task_classifiers import task_scores


@dataclass
class Gathered:
    """Clips and, aligned with them, their pairs. omitted: why videos were left out, counted."""

    clips: list[Clip] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)

    def of_videos(self, videos: frozenset[str]) -> "Gathered":
        """Return the clips of some videos."""
        kept = [row for row, clip in enumerate(self.clips) if clip.video in videos]
        return Gathered([self.clips[row] for row in kept], [self.pairs[row] for row in kept])

    def positive(self, labels: Flags) -> list[Pair]:
        """Return the pairs that labels (N,) call positive."""
        return [pair for pair, kept in zip(self.pairs, labels.tolist(), strict=True) if kept]


def gather(
    records: Iterable[Record],
    features: FeatureStore,
    encode: Embed,
    settings: ClipSettings,
    transcripts: Mapping[str, Transcript] | None = None,
) -> Gathered:
    """Return the clips of records. encode: sentences to vectors; transcripts: by video, for records that have none.

    A video without features, without narration or with broken annotations is left out and its reason counted.
    """
    gathered = Gathered()
    known = transcripts or {}
    for record in records:
        video = record.video.id
        if record.transcript is None and video in known:
            record = record.model_copy(update={"transcript": known[video]})
        if video not in features:
            gathered.omitted["no features"] += 1
            continue
        try:
            clips = narrated_clips(record, settings)
        except DatasetError as error:
            gathered.omitted[str(error).removeprefix(f"{record.id}: ").partition(";")[0]] += 1
            continue
        sentences = record.transcript.sentences if record.transcript else ()
        _add(gathered, clips, features, encode([sentence.text for sentence in sentences]))
    return gathered


def _add(gathered: Gathered, clips: Sequence[Clip], features: FeatureStore, vectors: Matrix) -> None:
    rows = features.read(clips[0].video)
    if not len(rows.values):
        gathered.omitted["no feature row"] += 1
        return
    gathered.clips += clips
    gathered.pairs += [
        pair_of(f"{clip.video} {clip.span.start:.1f}", rows, clip.span, vectors[list(clip.candidates)])
        for clip in clips
    ]


def infer_labels(gathered: Gathered, settings: LabelSettings) -> Flags:
    """Return which clips count as visual narrations, (N,), by the kind of label that the settings name.

    Raises DatasetError when no clip does, or MC lacks the tasks of the videos.
    """
    clips = gathered.clips
    if settings.kind == "ss":
        return by_similarity(similarities(clips, settings), settings)
    if settings.kind == "vr":
        return by_relevance(clips)
    names = sorted({clip.task for clip in clips if clip.task is not None})
    if missing := sum(clip.task is None for clip in clips):
        raise DatasetError(f"{missing} of {len(clips)} clips have no task; MC labels need the task of every video")
    tasks = np.array([names.index(clip.task or "") for clip in clips], dtype=np.int64)
    videos = [clip.video for clip in clips]
    seen = task_scores(np.stack([pair.video.mean(axis=0, dtype=np.float32) for pair in gathered.pairs]), tasks, videos)
    said = task_scores(np.stack([pair.text[0] for pair in gathered.pairs]), tasks, videos)
    return by_consensus(tasks, seen, said, settings)
