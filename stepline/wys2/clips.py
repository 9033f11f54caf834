"""Clips of a few seconds with their narration: what records are cut into, and with texts as arrays
for the detector.

Key-steps are a record's reference (COIN, CrossTask): people's labels, which training may read and
no stage does. Letters: B clips, R feature rows, C width of a row, P candidate texts, D width of a
text vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import DatasetError, MediaError, ShapeError
from stepline.records import FeatureSequence, Matrix, Record, Span, Step
from stepline.training.batches import TensorRecord, pad
from stepline.writing.extractive.coreference import resolve_pronouns
from stepline.wys2.settings import ClipSettings


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
    """Return the clips of a record: each sentence is cut into pieces of about `stride`, a clip
    around each middle.

    Raises DatasetError without narration, for narration past the end of the video, and where no
    key-step has a time (records without any key-step are unlabelled, and no error).
    """
    settings = settings or ClipSettings()
    sentences = record.sentences
    if not sentences:
        raise DatasetError(
            f"{record.id}: no narration; give its transcript, or leave the video out"
        )
    duration = record.video.duration or max(sentence.span.end for sentence in sentences)
    if sentences[-1].span.start >= duration:
        late = f"somebody speaks at {sentences[-1].span.start:g} s of {duration:g} s"
        raise DatasetError(f"{record.id}: {late}; check whose transcript it is")
    if record.reference and not any(step.spans for step in record.reference):
        count = len(record.reference)
        raise DatasetError(
            f"{record.id}: none of its {count} key-steps has a time; give annotations with times"
        )
    texts = [sentence.text for sentence in sentences]
    if settings.resolve:
        texts = resolve_pronouns(texts)
    middles = np.array([sentence.span.center for sentence in sentences])
    clips: list[NarratedClip] = []
    for row, sentence in enumerate(sentences):
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
                    record.id,
                    _clip_span(middle, duration, settings.seconds),
                    row,
                    texts[row],
                    record.video.task,
                    None if step is None else step.text,
                    candidates,
                )
            )
    return clips


def step_at(steps: Sequence[Step], second: float) -> Step | None:
    """Return the step whose span covers the second; of several, the one whose span begins last."""
    latest: Step | None = None
    latest_start = -math.inf
    for step in steps:
        for span in step.spans:
            if second in span and span.start > latest_start:
                latest, latest_start = step, span.start
    return latest


def _clip_span(middle: float, duration: float, seconds: float) -> Span:
    """Return a clip of that length around a second, moved into the video; all of a shorter
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
    if len(ids) < 3:
        raise DatasetError(f"{len(ids)} videos cannot be split in three; give at least 3")
    order = [ids[index] for index in np.random.default_rng(seed).permutation(len(ids))]
    test = max(1, math.floor(0.2 * len(order) + 0.5))
    validation = max(1, math.floor(0.2 * (len(order) - test) + 0.5))
    training = order[test + validation :]
    return frozenset(training), frozenset(order[test : test + validation]), frozenset(order[:test])


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
        """Return the frames (T, side, side, 3); where the video shows nothing any more, the last
        one before.

        Raises MediaError for a file that cannot be read, or that shows nothing up to the end of the
        clip.
        """
        start = self.span.start
        length = self.span.end - self.span.start
        times = [start + (number + 0.5) * length / self.frames for number in range(self.frames)]
        pictures = self._pictures(times) or self._last_picture_before(start)
        images = []
        latest = pictures[min(pictures)]
        for time in times:
            latest = pictures.get(time, latest)
            top, left_edge = ((size - self.side) // 2 for size in latest.shape[:2])
            images.append(latest[top : top + self.side, left_edge : left_edge + self.side])
        return np.stack(images)

    def _last_picture_before(self, start: float) -> dict[float, npt.NDArray[np.uint8]]:
        """Return the video's last picture, for a clip past it, as a player shows it."""
        back = 1.0
        while True:
            times = [time for time in np.arange(start - back, start, 0.5).tolist() if time >= 0]
            pictures = self._pictures(times or [0.0])
            if pictures:
                last = [*pictures][-1]
                return {last: pictures[last]}
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

    A FrameClip stands for frames that are still in their file. Raises ShapeError when an array has
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
        return replace(self, video=self.array()) if isinstance(self.video, FrameClip) else self

    def __post_init__(self) -> None:
        video = self.video
        if isinstance(video, FrameClip):
            return
        frames = video.dtype == np.uint8 and video.ndim == 4 and video.shape[3] == 3
        rows = video.dtype == np.float32 and video.ndim == 2
        if not (frames or rows) or not len(video):
            form = f"{video.dtype} {video.shape}"
            expected = "float32 (R, C) or uint8 (T, H, W, 3), R and T > 0"
            raise ShapeError(f"{self.id}: a clip must be {expected}, not {form}")
        if self.text.dtype != np.float32 or self.text.ndim != 2 or not len(self.text):
            form = f"{self.text.dtype} {self.text.shape}"
            raise ShapeError(f"{self.id}: texts must be float32 (P, D), P > 0, not {form}")
        if not np.isfinite(self.text).all() or (rows and not np.isfinite(video).all()):
            raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def pair_length(pair: ClipTextPair) -> int:
    """Return how many rows or frames a clip has."""
    return len(pair.video)


@dataclass(frozen=True)
class ClipTextBatch(TensorRecord):
    """video (B, R, C) with video_pad (B, R), or frames (B, T, H, W, 3) without; text (B, P, D) with
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
    if videos[0].dtype == np.float32:
        video, video_pad = pad([rows.astype(np.float32, copy=False) for rows in videos])
        return ClipTextBatch(video, video_pad, text, text_pad)
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
    """Return the rows that a clip has; one past the last row has that one."""
    rows = features.rows(span)
    first = min(rows.start, max(0, len(features.values) - 1))
    return slice(first, max(rows.stop, first + 1))


def clip_id(video: str, start: float) -> str:
    """Return what a clip of a video is called; start: its first second."""
    return f"{video} {start:.1f}"
