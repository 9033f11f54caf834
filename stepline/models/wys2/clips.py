"""Clips of a few seconds with their narration: what records are cut into, and with texts as arrays
for the detector.

Key-steps are a record's reference (COIN, CrossTask): people's labels, which training may read and
no stage does. Letters: B clips, R feature rows, C width of a row, P candidate texts, D width of a
text vector.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import DatasetError, MediaError, ShapeError
from stepline.features import FeatureStore
from stepline.models.training.batches import TensorRecord, pad
from stepline.models.training.sources import EXCLUDED_REASON, ExcludedIds, FeatureJoin, Flaw
from stepline.models.wys2.settings import ClipSettings
from stepline.records import FeatureSequence, Matrix, Record, Span, Step
from stepline.writing.extractive.antecedents import resolve_pronouns

WITHHELD_SHARE = 0.2  # of the videos for test, and of the rest for validation


@dataclass(frozen=True)
class NarratedClip:
    """A clip: the sentence that it belongs to, its words, and the text of the key-step that its
    middle shows, if any.

    candidates: the sentences nearest to its middle, its own first.
    """

    video: str
    span: Span
    sentence: int
    text: str
    task: str | None
    key_step: str | None
    candidates: tuple[int, ...] = ()


def narrated_clips(record: Record, settings: ClipSettings | None = None) -> list[NarratedClip]:
    """Return the clips of a record: each sentence is cut into pieces of about `stride` seconds, a
    clip around each middle.

    Raises DatasetError without narration, for narration past the end of the video, and where no
    key-step has a time. Records without any key-step are unlabelled, which is not an error.
    """
    if settings is None:
        settings = ClipSettings()
    sentences = record.sentences
    duration = _checked_duration(record)
    texts = [sentence.text for sentence in sentences]
    if settings.resolve:
        texts = resolve_pronouns(texts)
    middles = np.array([sentence.span.center for sentence in sentences])
    clips = []
    for row, sentence in enumerate(sentences):
        # the sentence in equal pieces of about `stride`
        start = sentence.span.start
        length = min(sentence.span.end, duration) - start
        pieces = max(1, round(length / settings.stride))
        for piece in range(pieces):
            middle = start + (piece + 0.5) * length / pieces
            step = step_at(record.reference, middle)
            candidates = (row,)
            if settings.candidates > 1:
                # the sentences nearest to the middle, the clip's own first
                nearest = np.argsort(np.abs(middles - middle), kind="stable").tolist()
                nearest.remove(row)
                candidates += tuple(nearest[: settings.candidates - 1])
            clips.append(
                NarratedClip(
                    video=record.id,
                    span=_clip_span(middle, duration, settings.seconds),
                    sentence=row,
                    text=texts[row],
                    task=record.video.task,
                    key_step=None if step is None else step.text,
                    candidates=candidates,
                )
            )
    return clips


def _checked_duration(record: Record) -> float:
    """Return the seconds of a record's video, or of its narration where they are unknown. Raises
    DatasetError for a record that cannot be cut into clips."""
    sentences = record.sentences
    if not sentences:
        raise DatasetError(
            f"{record.id}: no narration; give its transcript, or leave the video out"
        )
    duration = record.video.duration or max(sentence.span.end for sentence in sentences)
    last_start = sentences[-1].span.start
    if last_start >= duration:
        fault = f"{record.id}: someone speaks at {last_start:g} s of {duration:g} s"
        raise DatasetError(f"{fault}; check whose transcript it is")
    if record.reference and not any(step.spans for step in record.reference):
        fault = f"{record.id}: none of its {len(record.reference)} key-steps has a time"
        raise DatasetError(f"{fault}; give annotations with times")
    return duration


def step_at(steps: Sequence[Step], second: float) -> Step | None:
    """Return the step whose span covers the second. Of several, the one whose span begins last."""
    starts = [(span.start, step) for step in steps for span in step.spans if second in span]
    return max(starts, key=lambda pair: pair[0])[1] if starts else None


def _clip_span(middle: float, duration: float, seconds: float) -> Span:
    """Return a clip of that length around a second, moved into the video. It is all of a shorter
    video."""
    start = min(max(0.0, middle - seconds / 2), max(0.0, duration - seconds))
    return Span(start, min(duration, start + seconds))


def split_videos(
    videos: Sequence[str], seed: int
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the videos of training, validation and test: 20 % are withheld, the rest is split
    80:20 (section 4).

    The split depends on the seed and on the ids, not on their order. Raises DatasetError for fewer
    than three.
    """
    ids = sorted(set(videos))
    count = len(ids)
    if count < 3:
        raise DatasetError(f"{count} videos cannot be split in three; give at least 3")
    rng = np.random.default_rng(seed)
    order = [ids[index] for index in rng.permutation(count)]
    # a fifth, rounded half up, for test, and a fifth of the rest for validation
    test_count = max(1, math.floor(WITHHELD_SHARE * count + 0.5))
    rest_count = count - test_count
    validation_count = max(1, math.floor(WITHHELD_SHARE * rest_count + 0.5))
    test, rest = order[:test_count], order[test_count:]
    return (frozenset(rest[validation_count:]), frozenset(rest[:validation_count]), frozenset(test))


@dataclass(frozen=True)
class FrameClip:
    """A clip in a video's file, read when it is asked for: `frames` pictures spread over it,
    squares of `side` pixels.

    The square is the middle of the picture.
    """

    path: Path
    span: Span
    frames: int
    side: int

    def __len__(self) -> int:
        return self.frames

    def read(self) -> npt.NDArray[np.uint8]:
        """Return the frames (T, side, side, 3). Where the video shows nothing any more, it is the
        last one before.

        Raises MediaError for a file that cannot be read, or that shows nothing up to the end of the
        clip.
        """
        start = self.span.start
        length = self.span.end - start
        side = self.side
        times = [start + (number + 0.5) * length / self.frames for number in range(self.frames)]
        # After its end a video shows its last picture.
        pictures = self._pictures(times) or self._last_picture_before(start)
        images = []
        # A time without a picture has the one before.
        latest = pictures[min(pictures)]
        for time in times:
            latest = pictures.get(time, latest)
            # The middle square.
            height, width, _ = latest.shape
            top = (height - side) // 2
            left_edge = (width - side) // 2
            images.append(latest[top : top + side, left_edge : left_edge + side])
        return np.stack(images)

    def _last_picture_before(self, start: float) -> dict[float, npt.NDArray[np.uint8]]:
        """Return the video's last picture, for a clip past it, as a player shows it."""
        # Farther back each time, until there is a picture.
        back = 1.0
        while True:
            times = np.arange(start - back, start, 0.5)
            pictures = self._pictures(times[times >= 0].tolist() or [0.0])
            if pictures:
                return dict([pictures.popitem()])
            if back >= start:
                fault = f"no picture up to {self.span.end:g} s can be seen"
                raise MediaError(f"{self.path}: {fault}; leave the video out")
            back *= 2

    def _pictures(self, times: Sequence[float]) -> dict[float, npt.NDArray[np.uint8]]:
        from stepline.media import read_frames_at

        frames = read_frames_at(self.path, times, shorter=self.side)
        return {frame.time: frame.image for frame in frames}


@dataclass(frozen=True)
class ClipTextPair:
    """A clip, float32 rows (R, C) or uint8 RGB frames (T, H, W, 3), and its texts (P, D) float32,
    its own first.

    A FrameClip is frames that are still in their file. Raises ShapeError when an array has
    another form, no row, or holds NaN or infinity.
    """

    id: str
    video: Matrix | npt.NDArray[np.uint8] | FrameClip
    text: Matrix

    def array(self) -> Matrix | npt.NDArray[np.uint8]:
        """Return the rows, or the frames, which may be read from their file. Raises MediaError
        where they cannot be."""
        return self.video.read() if isinstance(self.video, FrameClip) else self.video

    def read(self) -> "ClipTextPair":
        """Return the pair with its frames in memory."""
        return replace(self, video=self.array())

    def __post_init__(self) -> None:
        video = self.video
        # Frames in a file are checked when they are read.
        if isinstance(video, FrameClip):
            return
        is_frames = video.dtype == np.uint8 and video.ndim == 4 and video.shape[3] == 3
        is_rows = video.dtype == np.float32 and video.ndim == 2
        if not (is_frames or is_rows) or not len(video):
            expected = "float32 (R, C) or uint8 (T, H, W, 3), R and T > 0"
            raise ShapeError(
                f"{self.id}: a clip must be {expected}, not {video.dtype} {video.shape}"
            )
        text = self.text
        if text.dtype != np.float32 or text.ndim != 2 or not len(text):
            raise ShapeError(
                f"{self.id}: texts must be float32 (P, D), P > 0, not {text.dtype} {text.shape}"
            )
        if not np.isfinite(text).all() or (is_rows and not np.isfinite(video).all()):
            raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def pair_length(pair: ClipTextPair) -> int:
    """Return the number of rows or frames of a clip."""
    return len(pair.video)


@dataclass(frozen=True)
class ClipTextBatch(TensorRecord):
    """video (B, R, C) with video_pad (B, R), or frames (B, T, H, W, 3) without. text (B, P, D) with
    text_pad (B, P)."""

    video: Tensor
    video_pad: Tensor | None
    text: Tensor
    text_pad: Tensor


def collate_pairs(pairs: Sequence[ClipTextPair]) -> ClipTextBatch:
    """Return the pairs as one batch. Raises ShapeError without any, or when their widths or frames
    differ."""
    if not pairs:
        raise ShapeError("a batch needs at least one clip, not 0")
    text, text_pad = pad([pair.text for pair in pairs])
    videos = [pair.array() for pair in pairs]
    # Rows differ in number, so they are padded.
    if videos[0].dtype == np.float32:
        rows, row_pad = pad([video.astype(np.float32, copy=False) for video in videos])
        return ClipTextBatch(rows, row_pad, text, text_pad)
    # Frames are of one number and size.
    shapes = {frames.shape for frames in videos}
    if len(shapes) > 1:
        raise ShapeError(
            f"clips of one batch must have one shape, not {sorted(shapes)}; cut them alike"
        )
    return ClipTextBatch(torch.from_numpy(np.stack(videos)), None, text, text_pad)


def clip_text_pair(id: str, features: FeatureSequence, span: Span, text: Matrix) -> ClipTextPair:
    """Return the feature rows of a clip with its texts."""
    return ClipTextPair(id, features.values[clip_rows(features, span)], text)


def clip_rows(features: FeatureSequence, span: Span) -> slice:
    """Return the rows that a clip has. One past the last row has that one."""
    rows = features.rows(span)
    first = min(rows.start, max(0, len(features.values) - 1))
    return slice(first, max(rows.stop, first + 1))


def clip_id(video: str, start: float) -> str:
    """Return what a clip of a video is called. start: its first second."""
    return f"{video} {start:.1f}"


# ---------------------------------------------------------------- where clips come from

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
        return [
            clip_text_pair(clip_id(video, span.start), features, span, texts)
            for span, texts in clips
        ]

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip. Only its own rows are read."""
        features = self.store.read(video, self._rows(video, span))
        return ClipTextPair(clip_id(video, span.start), features.values, texts)

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
        values = np.zeros((stored.rows, 1), np.float32)
        return clip_rows(FeatureSequence(values, stored.rate, stored.backbone), span)


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
        return None if media.has_picture else (NO_PICTURE, "")

    def pairs(self, video: str, clips: SpannedTexts) -> list[ClipTextPair]:
        """Return clips of a video, read when they are asked for."""
        return [self.pair(video, span, texts) for span, texts in clips]

    def pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return a clip, read when it is asked for."""
        clip = FrameClip(self.paths[video], span, self.frames, self.side)
        return ClipTextPair(clip_id(video, span.start), clip, texts)

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
    return features if isinstance(features, VideoFrames) else StoredClips(features)


def flaw_finder(source: ClipSource, excluded: ExcludedIds) -> Callable[[str], Flaw | None]:
    """Return what says, of one video after the other, why it cannot serve, or None where it can.

    excluded: ids of videos that are left out (a benchmark's own).
    """
    if isinstance(source, StoredClips):
        return FeatureJoin(source.store, excluded=excluded).flaw

    def flaw(video: str) -> Flaw | None:
        return (EXCLUDED_REASON, "") if video in excluded else source.flaw(video)

    return flaw
