"""Clips of a few seconds with their narration: how records are cut into clips, and clips with texts
as arrays.

Key-steps are a record's `reference` (COIN, CrossTask): labels by people, which only training may
read. Letters: B clips, R feature rows, C width of a row, P candidate texts, D width of a text
vector.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import DatasetError, MediaError, ShapeError
from stepline.features import FeatureStore
from stepline.models.training.batches import TensorRecord, pad_rows
from stepline.models.training.sources import (
    EXCLUDED_REASON,
    ExcludedIds,
    OmitReason,
    TrainingVideoFilter,
)
from stepline.models.wys2.settings import ClipSettings
from stepline.records import FeatureSequence, Matrix, Record, Span, Step
from stepline.text.narration import load_tagger
from stepline.writing.extractive.antecedents import PronounResolver
from stepline.writing.extractive.english import parse

# P(antecedent) from which a pronoun is replaced. On a simulated set .5 gives better labels than
# replacing every pronoun, or none (ROC-AUC of the detector 78.5, 76.7, 78.3)
MIN_NAME_PROBABILITY = 0.5
WITHHELD_SHARE = 0.2  # of the videos for test, and of the rest for validation


@dataclass(frozen=True)
class NarratedClip:
    """A clip of a narrated video, with the sentence that is spoken in it.

    Attributes:
        video: id of the video.
        span: start and end of the clip in seconds.
        sentence_index: index of the sentence in the narration.
        text: text of the sentence.
        task: task of the video, such as a recipe. None: unknown.
        key_step: text of the key-step at the middle of the clip. None: no key-step.
        candidate_sentences: indices of the sentences nearest to the middle of the clip, which may
            describe the clip. The first is `sentence_index`.
    """

    video: str
    span: Span
    sentence_index: int
    text: str
    task: str | None
    key_step: str | None
    candidate_sentences: tuple[int, ...] = ()


def cut_into_clips(record: Record, settings: ClipSettings = ClipSettings()) -> list[NarratedClip]:
    """Return the clips of a narrated video. Each sentence is divided into parts of about `stride`
    seconds, and a clip is centered on each part.

    Args:
        record: the video with its narration, and possibly key-steps.
        settings: length and spacing of the clips.

    Raises DatasetError if the record has no narration, if the narration exceeds the video, or if it
    has key-steps without any time.
    """
    sentences = record.sentences
    duration = _check_duration(record)
    texts = [sentence.text for sentence in sentences]
    if settings.resolve:
        texts = replace_pronouns(texts)
    middles = np.array([sentence.span.center for sentence in sentences])
    clips = []
    for row, sentence in enumerate(sentences):
        # the sentence in equal parts of about `stride`
        start = sentence.span.start
        length = min(sentence.span.end, duration) - start
        part_count = max(1, round(length / settings.stride))
        for part in range(part_count):
            middle = start + (part + 0.5) * length / part_count
            # around the middle, moved into the video, and shorter in a shorter one
            first = max(0.0, min(middle - settings.seconds / 2, duration - settings.seconds))
            step = find_step_at(record.reference, middle)
            candidates = (row,)
            if settings.candidates > 1:
                # the sentences nearest to the middle, the clip's own first
                nearest = np.argsort(np.abs(middles - middle), kind="stable").tolist()
                nearest.remove(row)
                candidates += tuple(nearest[: settings.candidates - 1])
            clips.append(
                NarratedClip(
                    video=record.video.id,
                    span=Span(first, min(duration, first + settings.seconds)),
                    sentence_index=row,
                    text=texts[row],
                    task=record.video.task,
                    key_step=None if step is None else step.text,
                    candidate_sentences=candidates,
                )
            )
    return clips


def replace_pronouns(sentences: Sequence[str]) -> list[str]:
    """Return English sentences with "it" and "them" replaced by their likely antecedents.

    For instance, "Peel the banana and cut it." becomes "Peel the banana and cut the banana."
    """
    namer = PronounResolver(parse(sentences), load_tagger().tag_sentences(sentences))
    resolved = []
    for number, sentence in enumerate(sentences):
        words = re.findall(r"\S+\s*", sentence)
        for index, word in enumerate(words):
            pronoun = re.match(r"(it|them)\b", word, re.IGNORECASE)
            if pronoun is not None:
                for name in namer.likely_antecedents(number, [index], MIN_NAME_PROBABILITY):
                    words[index] = f"the {name}{word[pronoun.end() :]}"
        resolved.append("".join(words))
    return resolved


def _check_duration(record: Record) -> float:
    """Return the length of a record's video in seconds. If it is unknown, return the end of the
    narration. Raises DatasetError for a record that cannot be cut into clips."""
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


def find_step_at(steps: Sequence[Step], second: float) -> Step | None:
    """Return the step that is shown at a time in seconds, or None. If several are, the one that
    starts last is returned."""
    starts = [(span.start, step) for step in steps for span in step.spans if second in span]
    return max(starts, key=lambda pair: pair[0])[1] if starts else None


def split_videos(
    videos: Sequence[str], seed: int
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the ids of training, validation and test videos: 20 % for test, the rest split 80:20
    (WYS2, section 4).

    Args:
        videos: ids of the videos. Their order does not matter.
        seed: seed of the random split.

    Raises DatasetError for fewer than three videos.
    """
    ids = sorted(set(videos))
    count = len(ids)
    if count < 3:
        raise DatasetError(f"{count} videos cannot be split in three; give at least 3")
    rng = np.random.default_rng(seed)
    order = [ids[index] for index in rng.permutation(count)]
    # a fifth, rounded half up, for test, and a fifth of the rest for validation
    test_count = max(1, math.floor(WITHHELD_SHARE * count + 0.5))
    remaining_count = count - test_count
    validation_count = max(1, math.floor(WITHHELD_SHARE * remaining_count + 0.5))
    test, remaining = order[:test_count], order[test_count:]
    return (
        frozenset(remaining[validation_count:]),
        frozenset(remaining[:validation_count]),
        frozenset(test),
    )


@dataclass(frozen=True)
class FrameClip:
    """A clip as frames of a video file, which are decoded when they are read.

    Attributes:
        path: the video file.
        span: start and end of the clip in seconds.
        frames: number of evenly spaced frames.
        side: side in pixels of the square that is cropped from the center of each frame.
    """

    path: Path
    span: Span
    frames: int
    side: int

    def __len__(self) -> int:
        return self.frames

    def read_frames(self) -> npt.NDArray[np.uint8]:
        """Return the T frames of the clip, (T, side, side, 3) uint8. Past the end of the video the
        last frame is repeated.

        Raises MediaError if the file cannot be read, or has no frame before the end of the clip.
        """
        start = self.span.start
        side = self.side
        length = self.span.end - start
        times = [start + (number + 0.5) * length / self.frames for number in range(self.frames)]
        # After its end a video shows its last picture.
        frames_by_time = self._read_frames(times) or self._read_last_frame_before(start)
        images = []
        # A time without a picture has the one before.
        latest = frames_by_time[min(frames_by_time)]
        for time in times:
            latest = frames_by_time.get(time, latest)
            # The middle square.
            height, width, _ = latest.shape
            top = (height - side) // 2
            left = (width - side) // 2
            images.append(latest[top : top + side, left : left + side])
        return np.stack(images)

    def _read_last_frame_before(self, start: float) -> dict[float, npt.NDArray[np.uint8]]:
        """Return {time: image} of the last frame before `start` seconds, for a clip past the end of
        the video."""
        # Farther back each time, until there is a picture.
        back = 1.0
        while True:
            times = np.arange(start - back, start, 0.5)
            frames_by_time = self._read_frames(times[times >= 0].tolist() or [0.0])
            if frames_by_time:
                return dict([frames_by_time.popitem()])
            if back >= start:
                raise MediaError(
                    f"{self.path}: no picture up to {self.span.end:g} s can be seen; leave the "
                    "video out"
                )
            back *= 2

    def _read_frames(self, times: Sequence[float]) -> dict[float, npt.NDArray[np.uint8]]:
        from stepline.media import read_frames_at

        frames = read_frames_at(self.path, times, shorter=self.side)
        return {frame.time: frame.image for frame in frames}


@dataclass(frozen=True)
class ClipTextPair:
    """A clip with its candidate texts. Raises ShapeError for arrays of the wrong shape, without
    rows, or with NaN or infinity.

    Attributes:
        id: id of the clip, for messages.
        video: R float32 feature rows (R, C), T uint8 RGB frames (T, H, W, 3), or frames in a file.
        text: (P, D) float32 vectors of P candidate texts. The first is the text of the clip.
    """

    id: str
    video: Matrix | npt.NDArray[np.uint8] | FrameClip
    text: Matrix

    def read_array(self) -> Matrix | npt.NDArray[np.uint8]:
        """Return the feature rows (R, C) or frames (T, H, W, 3). Raises MediaError if a file of
        frames cannot be read."""
        return self.video.read_frames() if isinstance(self.video, FrameClip) else self.video

    def load_frames(self) -> "ClipTextPair":
        """Return the pair with its frames read into memory."""
        return replace(self, video=self.read_array())

    def __post_init__(self) -> None:
        video = self.video
        # Frames in a file are checked when they are read.
        if isinstance(video, FrameClip):
            return
        is_frames = video.dtype == np.uint8 and video.ndim == 4 and video.shape[3] == 3
        is_rows = video.dtype == np.float32 and video.ndim == 2
        if not (is_frames or is_rows) or not len(video):
            raise ShapeError(
                f"{self.id}: a clip must be float32 (R, C) or uint8 (T, H, W, 3), R and T > 0, "
                f"not {video.dtype} {video.shape}"
            )
        text = self.text
        if text.dtype != np.float32 or text.ndim != 2 or not len(text):
            raise ShapeError(
                f"{self.id}: texts must be float32 (P, D), P > 0, not {text.dtype} {text.shape}"
            )
        if not np.isfinite(text).all() or (is_rows and not np.isfinite(video).all()):
            raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def count_clip_rows(pair: ClipTextPair) -> int:
    """Return the number of feature rows or frames of a clip."""
    return len(pair.video)


@dataclass(frozen=True)
class ClipTextBatch(TensorRecord):
    """A batch of B clips with up to P candidate texts each.

    Attributes:
        video: feature rows (B, R, C), or frames (B, T, H, W, 3).
        video_pad: (B, R), True on padded rows. None: `video` holds frames, which are not padded.
        text: (B, P, D) vectors of the candidate texts.
        text_pad: (B, P), True on padded texts.
    """

    video: Tensor
    video_pad: Tensor | None
    text: Tensor
    text_pad: Tensor


def collate_pairs(pairs: Sequence[ClipTextPair]) -> ClipTextBatch:
    """Return clips with texts as one padded batch. Raises ShapeError for no pair, or for pairs of
    different feature widths or frame sizes."""
    if not pairs:
        raise ShapeError("a batch needs at least one clip, not 0")
    text, text_pad = pad_rows([pair.text for pair in pairs])
    videos = [pair.read_array() for pair in pairs]
    # Rows differ in number, so they are padded.
    if videos[0].dtype == np.float32:
        rows, row_pad = pad_rows([video.astype(np.float32, copy=False) for video in videos])
        return ClipTextBatch(rows, row_pad, text, text_pad)
    # Frames are of one number and size.
    shapes = {frames.shape for frames in videos}
    if len(shapes) > 1:
        raise ShapeError(
            f"clips of one batch must have one shape, not {sorted(shapes)}; cut them alike"
        )
    return ClipTextBatch(torch.from_numpy(np.stack(videos)), None, text, text_pad)


def make_feature_pair(id: str, features: FeatureSequence, span: Span, text: Matrix) -> ClipTextPair:
    """Return a clip of feature rows with its texts.

    Args:
        id: id of the clip.
        features: feature rows of the video.
        span: start and end of the clip in seconds.
        text: (P, D) vectors of the candidate texts.
    """
    return ClipTextPair(id, features.values[find_clip_rows(features, span)], text)


def find_clip_rows(features: FeatureSequence, span: Span) -> slice:
    """Return the range of feature rows in a span, at least one row. A span past the end gives the
    last row."""
    rows = features.rows(span)
    first = min(rows.start, max(0, len(features.values) - 1))
    return slice(first, max(rows.stop, first + 1))


def format_clip_id(video: str, start: float) -> str:
    """Return the id of a clip. It consists of the video's id and the start in seconds."""
    return f"{video} {start:.1f}"


# ---------------------------------------------------------------- where clips come from

NO_FILE = "there is no video of it"
NO_PICTURE = "its video has no picture"
UNREADABLE_FILE = "its video cannot be read"


@dataclass(frozen=True)
class StoredClips:
    """Reads clips as rows of stored features.

    Attributes:
        store: the feature store.
    """

    store: FeatureStore

    def make_pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return one clip with its texts. Only the clip's feature rows are read.

        Args:
            video: id of the video.
            span: start and end of the clip in seconds.
            texts: (P, D) vectors of the candidate texts.
        """
        features = self.store.read(video, self._find_rows(video, span))
        return ClipTextPair(format_clip_id(video, span.start), features.values, texts)

    def count_rows(self, video: str, span: Span) -> int:
        """Return the number of feature rows of a clip."""
        rows = self._find_rows(video, span)
        return int(rows.stop - rows.start)

    def find_shard(self, video: str) -> int:
        """Return the number of the store's shard with the features of a video."""
        return self.store[video].shard

    def _find_rows(self, video: str, span: Span) -> slice:
        stored = self.store[video]
        # the count of rows alone matters
        values = np.zeros((stored.rows, 1), np.float32)
        return find_clip_rows(FeatureSequence(values, stored.rate, stored.backbone), span)


@dataclass(frozen=True)
class VideoFrames:
    """Reads clips as frames of video files.

    Attributes:
        paths: video files by video id.
        frames: number of frames of a clip.
        side: side in pixels of the square that is cropped from the center of each frame.
    """

    paths: Mapping[str, Path]
    frames: int
    side: int

    def reason_to_omit(self, video: str) -> OmitReason | None:
        """Return why a video cannot be used for training, or None if its file has frames."""
        from stepline.media import probe

        if video not in self.paths:
            return NO_FILE, ""
        try:
            media = probe(self.paths[video])
        except MediaError as error:
            return UNREADABLE_FILE, str(error)
        return None if media.has_picture else (NO_PICTURE, "")

    def make_pair(self, video: str, span: Span, texts: Matrix) -> ClipTextPair:
        """Return one clip with its texts. Its frames are decoded later, when they are read.

        Args:
            video: id of the video.
            span: start and end of the clip in seconds.
            texts: (P, D) vectors of the candidate texts.
        """
        clip = FrameClip(self.paths[video], span, self.frames, self.side)
        return ClipTextPair(format_clip_id(video, span.start), clip, texts)

    def count_rows(self, video: str, span: Span) -> int:  # noqa: ARG002 (as of stored features)
        """Return the number of frames of a clip."""
        return self.frames

    def find_shard(self, video: str) -> int:  # noqa: ARG002 (as of stored features)
        """Return 0, since video files are not in shards."""
        return 0


# what gives the clips of a run
ClipSource = StoredClips | VideoFrames


def make_clip_source(features: FeatureStore | VideoFrames) -> ClipSource:
    """Return the reader of clips for a feature store or for video files."""
    return features if isinstance(features, VideoFrames) else StoredClips(features)


def make_omission_check(
    source: ClipSource, excluded: ExcludedIds
) -> Callable[[str], OmitReason | None]:
    """Return a function that maps a video id to the reason why it cannot be used, or None.

    Args:
        source: reader of the clips.
        excluded: ids of videos to leave out.
    """
    if isinstance(source, StoredClips):
        return TrainingVideoFilter(source.store, excluded=excluded).reason_to_omit

    def reason_to_omit(video: str) -> OmitReason | None:
        return (EXCLUDED_REASON, "") if video in excluded else source.reason_to_omit(video)

    return reason_to_omit
