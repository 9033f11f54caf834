"""Predictions for benchmarks by a trained detector: sets of clips (VND), and the sentences of
HTM-Align (WYS2, 4.2 and 4.3).

    vnd         the score of each clip with its own words
    htm-align   for each sentence the best clip of the video (`seconds`), its score (`alignability`), and, where a
                transcript says when the sentence is spoken, the score of the clip of that time (`shown`)

Scores are raw, as ROC-AUC takes them. Differs: the paper gives its features to TAN's alignability
head, which was not released. Here the best clip of the video decides, as in MIL-NCE's row of the
same table. Letters: K sentences, T feature rows, D width of a text vector.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from stepline.errors import ModelError
from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.media import probe
from stepline.models.training.benchmark_answers import BenchmarkAnswers, answer_questions
from stepline.models.training.network import LoadedNetwork
from stepline.models.training.sources import TextEncoder, load_text_encoder
from stepline.models.wys2.clips import collate_pairs
from stepline.models.wys2.detector import (
    NETWORK,
    Detector,
    max_clips_per_batch,
    read_detector,
    score_pairs,
)
from stepline.models.wys2.predict import MIN_CLIP_SECONDS, make_clip_pair, widen_span
from stepline.networks.device import current_device, device_of
from stepline.records import FeatureSequence, Matrix, Span

A = TypeVar("A")

# where the best clip of a file is searched for
FRAME_CLIPS_PER_SECOND = 1.0

# a video's features, or its file for a detector of frames
FeaturesOrFile = FeatureSequence | Path
VideoReader = Callable[[str], FeaturesOrFile]  # of a video's id


class LabelledClip(Protocol):
    """A benchmark clip: a span of a video, and the words that are spoken in it."""

    @property
    def id(self) -> str:
        """Id of the clip."""

    @property
    def video(self) -> str:
        """Path of the video."""

    @property
    def video_id(self) -> str | None:
        """Id of the video's features. None: the stem of `video`."""

    @property
    def span(self) -> Span:
        """Start and end of the clip in seconds."""

    @property
    def text(self) -> str:
        """The words that are spoken in the clip."""


@dataclass(frozen=True)
class BenchmarkDetector(LoadedNetwork):
    """A trained detector with its text encoder. The detector may lack a calibration.

    Attributes:
        network: the detector.
        encode: turns texts into vectors.
    """

    network: Detector
    encode: TextEncoder

    @property
    def sees_frames(self) -> bool:
        """Whether the detector takes video frames instead of features."""
        return self.network.settings.video == "s3d"

    def read_video_input(self, video: str, read_video: VideoReader) -> FeaturesOrFile:
        """Return the features of a video, or its file for a detector of frames.

        Args:
            video: id of the video.
            read_video: returns the features or the file of an id.

        Raises ModelError for features of another kind than those of the detector's training.
        """
        features = read_video(video)
        if not isinstance(features, Path):
            self.check_features(features)
        return features

    def score_spans(
        self, features: FeaturesOrFile, spans: Sequence[Span], vectors: Matrix
    ) -> Matrix:
        """Return the score of each of K spans of a video with its text, (K,).

        Args:
            features: features of the video, or its file.
            spans: the K spans in seconds.
            vectors: (K, D) text vector of each span.
        """
        pairs = [
            make_clip_pair(self.network, "", features, span, vectors[k : k + 1])
            for k, span in enumerate(spans)
        ]
        return score_pairs(self.network, pairs)


def load_for_benchmarks(path: Path) -> BenchmarkDetector:
    """Return the detector of a file or a run folder. Raises ModelError if the file does not name
    its text encoder."""
    file = NETWORK.find_file(path)
    space, network = read_detector(file)
    if not space.text:
        raise ModelError(
            f"{file}: does not say what made its text vectors; train it by `stepline train wys2`"
        )
    width = network.settings.video_width
    encode = load_text_encoder(space.text)
    return BenchmarkDetector(file, sha256(file), space, width, True, network, encode)


def write_clip_scores(
    clips: Sequence[LabelledClip], detector: BenchmarkDetector, read_video: VideoReader, out: Path
) -> BenchmarkAnswers[float]:
    """Write the scores of benchmark clips as JSON {clip id: score}, and return them.

    Args:
        clips: clips with their spoken words.
        detector: the detector.
        read_video: returns the features or the file of a video id.
        out: the JSON file to write.

    Raises DatasetError when no clip can be scored.
    """
    # By video, so that each is read once.
    clips_of_videos: dict[str, list[LabelledClip]] = {}
    for clip in clips:
        # A detector of frames reads the file, which a list may give another id.
        id = None if detector.sees_frames else clip.video_id
        clips_of_videos.setdefault(id or Path(clip.video).stem, []).append(clip)

    def score(video: str) -> list[float]:
        features = detector.read_video_input(video, read_video)
        vectors = detector.encode([clip.text for clip in clips_of_videos[video]])
        spans = [clip.span for clip in clips_of_videos[video]]
        scores: list[float] = detector.score_spans(features, spans, vectors).tolist()
        return scores

    videos = answer_questions({video: video for video in clips_of_videos}, score)
    # by clip what is known by video
    answers: BenchmarkAnswers[float] = BenchmarkAnswers({}, {})
    for video, video_clips in clips_of_videos.items():
        ids = [clip.id for clip in video_clips]
        if video in videos.missing:
            answers.missing.update(dict.fromkeys(ids, videos.missing[video]))
        else:
            answers.by_id.update(zip(ids, videos.by_id[video], strict=True))
    _write_answers(answers, out)
    return answers


def write_sentence_scores(
    texts: Mapping[str, Sequence[str]],
    sentence_times: Mapping[str, npt.NDArray[np.float64]],
    detector: BenchmarkDetector,
    read_video: VideoReader,
    out: Path,
) -> BenchmarkAnswers[dict[str, list[float]]]:
    """Write the detector's scores of sentences in time as predictions for HTM-Align, and return
    them.

    Args:
        texts: the K sentences of each video, by video id.
        sentence_times: (K, 2) start and end in seconds of each sentence, by id of videos with a
            transcript.
        detector: the detector.
        read_video: returns the features or the file of a video id.
        out: the JSON file to write.

    Raises DatasetError when no video can be scored.
    """

    def answer(video: str) -> dict[str, list[float]]:
        features = detector.read_video_input(video, read_video)
        vectors = detector.encode(texts[video])
        scores = score_rows(detector.network, features, vectors)  # (K, T)
        rate = FRAME_CLIPS_PER_SECOND if isinstance(features, Path) else features.rate
        columns = {"seconds": scores.argmax(1) / rate, "alignability": scores.max(1)}
        # Where a sentence is spoken, its own clip is judged too.
        if video in sentence_times:
            spans = [widen_span(Span(start, end)) for start, end in sentence_times[video].tolist()]
            columns["shown"] = detector.score_spans(features, spans, vectors)
        return {name: column.astype(np.float64).tolist() for name, column in columns.items()}

    answers = answer_questions({video: video for video in texts}, answer)
    _write_answers(answers, out)
    return answers


def score_rows(network: Detector, features: FeaturesOrFile, vectors: Matrix) -> Matrix:
    """Return the score of each of K texts with the clip around each of T times, (K, T).

    Args:
        network: the detector.
        features: features of the video, with one time per row, or its file, with one time per
            second.
        vectors: (K, D) text vectors.
    """
    if isinstance(features, Path):
        rate = FRAME_CLIPS_PER_SECOND
        rows = max(1, math.floor(probe(features).duration * rate))
    else:
        rate = features.rate
        rows = len(features.values)
    # a clip around each row (only its picture is used)
    half = MIN_CLIP_SECONDS / 2
    middles = (np.arange(rows) + 0.5) / rate
    pairs = []
    for middle in middles.tolist():
        span = Span(max(0.0, middle - half), middle + half)
        pairs.append(make_clip_pair(network, "", features, span, vectors[:1]))
    # Texts are encoded once, and clips batch by batch.
    batch = max_clips_per_batch(network)
    device = device_of(network)
    network.eval()
    with torch.inference_mode(), current_device().autocast():
        text_array = np.ascontiguousarray(vectors, dtype=np.float32)
        texts = network.encode_texts(torch.from_numpy(text_array).to(device))
        parts = []
        for first in range(0, len(pairs), batch):
            clips = network.encode_clips(collate_pairs(pairs[first : first + batch]).to(device))
            parts.append(network.compare(clips, texts))  # (B, K)
    scores: Matrix = torch.cat(parts).T.float().cpu().numpy()
    return scores


def _write_answers(answers: BenchmarkAnswers[A], out: Path) -> None:
    answers.require_any()
    write_atomic(out, json.dumps(answers.by_id, allow_nan=False) + "\n")
