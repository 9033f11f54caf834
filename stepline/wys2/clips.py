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
    spoken = resolve_pronouns(texts) if settings.resolve else texts
    middles = [sentence.span.center for sentence in sentences]
    clips: list[NarratedClip] = []
    for row, sentence in enumerate(sentences):
        start, end = sentence.span.start, min(sentence.span.end, duration)
        pieces = max(1, round((end - start) / settings.stride))
        for piece in range(pieces):
            middle = start + (piece + 0.5) * (end - start) / pieces
            step = step_at(record.reference, middle)
            text = None if step is None else step.text
            # the sentences nearest to the middle, the clip's own first
            others: list[int] = []
            if settings.candidates > 1:
                others = sorted(
                    {*range(len(middles))} - {row},
                    key=lambda other: (abs(middles[other] - middle), other),
                )
            near = (row, *others[: settings.candidates - 1])
            span = _clip_span(middle, duration, settings.seconds)
            clips.append(
                NarratedClip(record.id, span, row, spoken[row], record.video.task, text, near)
            )
    return clips


def step_at(steps: Sequence[Step], second: float) -> Step | None:
    """Return the step whose span covers the second; of several, the one whose span begins last."""
    covering = [(span.start, step) for step in steps for span in step.spans if second in span]
    return max(covering, key=lambda pair: pair[0])[1] if covering else None


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
    known = sorted(set(videos))
    if len(known) < 3:
        raise DatasetError(f"{len(known)} videos cannot be split in three; give at least 3")
    order = [known[index] for index in np.random.default_rng(seed).permutation(len(known))]
    test = max(1, math.floor(0.2 * len(order) + 0.5))
    validation = max(1, math.floor(0.2 * (len(order) - test) + 0.5))
    return (
        frozenset(order[test + validation :]),
        frozenset(order[test : test + validation]),
        frozenset(order[:test]),
    )


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
        start, length = self.span.start, self.span.end - self.span.start
        times = [start + (number + 0.5) * length / self.frames for number in range(self.frames)]
        found, back = self._pictures(times), 1.0
        while not found:  # the clip lies past the last picture: that one, as a player shows it
            before = [
                time for time in np.arange(start - back, start, 0.5).tolist() if time >= 0
            ] or [0.0]
            found = dict([*self._pictures(before).items()][-1:])
            if not found and back >= start:
                raise MediaError(
                    f"{self.path}: no picture up to {self.span.end:g} s can be seen; leave the video out"
                )
            back *= 2
        images, last = [], found[min(found)]
        for time in times:
            last = found.get(time, last)
            top, left = ((size - self.side) // 2 for size in last.shape[:2])
            images.append(last[top : top + self.side, left : left + self.side])
        return np.stack(images)

    def _pictures(self, times: Sequence[float]) -> dict[float, npt.NDArray[np.uint8]]:
        from stepline.media import read_frames_at

        return {
            frame.time: frame.image for frame in read_frames_at(self.path, times, shorter=self.side)
        }


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
        if isinstance(self.video, FrameClip):
            return
        frames = self.video.dtype == np.uint8 and self.video.ndim == 4 and self.video.shape[3] == 3
        rows = self.video.dtype == np.float32 and self.video.ndim == 2
        if not (frames or rows) or not len(self.video):
            form = f"{self.video.dtype} {self.video.shape}"
            raise ShapeError(
                f"{self.id}: a clip must be float32 (R, C) or uint8 (T, H, W, 3), R and T > 0, not {form}"
            )
        if self.text.dtype != np.float32 or self.text.ndim != 2 or not len(self.text):
            raise ShapeError(
                f"{self.id}: texts must be float32 (P, D), P > 0, not {self.text.dtype} {self.text.shape}"
            )
        if not np.isfinite(self.text).all() or (rows and not np.isfinite(self.video).all()):
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
