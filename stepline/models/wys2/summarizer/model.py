"""The summarizer's network: segments see each other through a transformer, and each says how much
it matters.

Also its file, and the reader of WikiHow Summaries, IV-Sum's annotations of the frames that belong in a
video's summary.
Source: Narasimhan et al. 2022 (IV-Sum), section 3.
Letters: B videos, S segments, C and E widths of what is seen and said, D width between layers.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.datasets.files import read_node
from stepline.errors import DatasetError, ShapeError
from stepline.models.training.network_file import Header, NetworkFile
from stepline.models.wys2.settings import SummarizerSettings
from stepline.records import Record, Span, Step, Video

SUMMARIZER_FILE = "summarizer.safetensors"  # in the folder of a training run
NETWORK_FILE = NetworkFile(
    kind="stepline.wys2.summarizer",
    version=None,
    title="a summarizer",
    writer="`stepline train summarizer`",
    names=(SUMMARIZER_FILE,),
)

FRAMES_PER_SECOND = 8.0  # of the annotations; IV-Sum takes 32 per segment
FRAME_LABELS = (0.0, 1.0)
LONGEST_PERIOD = 10_000.0  # of the sines of positions, in segments per radian


class Summarizer(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores the segments of a batch of videos."""

    def __init__(self, settings: SummarizerSettings) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        input_width = settings.video_width + settings.text_width
        self.project = nn.Linear(input_width, width)
        layer = nn.TransformerEncoderLayer(
            width,
            settings.heads,
            dim_feedforward=4 * width,
            dropout=settings.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        norm = nn.LayerNorm(width)
        linear = nn.Linear(width, 1)
        self.score = nn.Sequential(norm, linear)

    def forward(self, pictures: Tensor, speech: Tensor, pad: Tensor) -> Tensor:
        """Return logits (B, S) of how much each segment matters. pictures (B, S, C), speech (B, S,
        E), pad (B, S)."""
        settings = self.settings
        # Both widths are those of training.
        _, count, picture_width = pictures.shape
        speech_width = speech.shape[-1]
        widths = (picture_width, speech_width)
        expected = (settings.video_width, settings.text_width)
        if widths != expected:
            fault = f"segments are {widths} wide (seen, said), not {expected}"
            raise ShapeError(f"{fault}; use the same backbone")
        # Seen and said on one scale, then in one width.
        parts = [_standardise(pictures), _standardise(speech)]
        inputs = torch.cat(parts, dim=-1)  # (B, S, C + E)
        positions = _sinusoidal_encoding(count, settings.width, pictures.device)  # (S, D)
        hidden = self.project(inputs) + positions  # (B, S, D)
        hidden = self.encoder(hidden, src_key_padding_mask=pad)
        logits = self.score(hidden)  # (B, S, 1)
        return cast(Tensor, logits[..., 0])


def _standardise(rows: Tensor) -> Tensor:
    """Return rows of mean 0 and spread 1: next to rows of length 1 the positions would be too
    large. Zero rows stay zero."""
    width = rows.shape[-1]
    if not width:
        return rows
    return F.layer_norm(rows, (width,))


def _sinusoidal_encoding(count: int, width: int, device: torch.device) -> Tensor:
    """Return sines and cosines (S, D) of a segment's number."""
    exponents = torch.arange(0, width, 2, device=device)  # (D / 2,)
    rate = -math.log(LONGEST_PERIOD) / width
    frequencies = torch.exp(exponents * rate)
    numbers = torch.arange(count, device=device)
    column = numbers[:, None]
    angles = column * frequencies  # (S, D / 2)
    sines = angles.sin()
    cosines = angles.cos()
    pairs = torch.stack([sines, cosines], dim=-1)  # (S, D / 2, 2)
    return pairs.flatten(1)


SettingsAndSources: TypeAlias = tuple[SummarizerSettings, str, str]  # settings, video, text


@dataclass(frozen=True)
class LoadedSummarizer:
    """A network at rest, the backbones whose features and texts it takes ("": unknown or none), and
    its file."""

    network: Summarizer
    video: str
    text: str
    path: Path


def write_summarizer(model: Summarizer, path: Path, *, video: str = "", text: str = "") -> None:
    """Write a network with its settings and the names of what gave its features and sentence
    vectors."""
    settings = model.settings.model_dump(mode="json")
    header = {"video": video, "text": text, "settings": settings}
    NETWORK_FILE.write(path, model.state_dict(), header)


def read_summarizer(path: Path) -> LoadedSummarizer:
    """Return the network that a file or a run's folder holds. Raises ModelError, naming what does
    not fit."""

    def parse(header: Header) -> SettingsAndSources:
        settings_json = json.dumps(header["settings"])
        settings = SummarizerSettings.model_validate_json(settings_json)
        video = str(header["video"])
        text = str(header["text"])
        return settings, video, text

    def build(parts: SettingsAndSources) -> Summarizer:
        settings, _, _ = parts
        return Summarizer(settings)

    file = NETWORK_FILE.find(path)
    parts, network = NETWORK_FILE.load(file, parse, build)
    _, video, text = parts
    return LoadedSummarizer(network, video, text, file)


def read_frame_labels(path: Path, rate: float = FRAMES_PER_SECOND) -> Iterator[Record]:
    """Yield a record per video of {video: [0 or 1 per frame]}. Each run of ones is a reference
    step.

    Raises DatasetError for other numbers, or a file of another form.
    """
    for id, node in read_node(path).entries():
        try:
            frames = np.asarray(node.value, dtype=np.float64)
        except (TypeError, ValueError):
            frames = np.full(1, np.nan)
        is_flag = np.isin(frames, FRAME_LABELS)
        if frames.ndim != 1 or not is_flag.all():
            fault = f"{path}: {id}: not a list of 0 and 1, one per frame"
            raise DatasetError(f"{fault}; give IV-Sum's annotation file")
        # where runs of ones start and end
        changes = np.diff(frames, prepend=0.0, append=0.0)
        edges = np.flatnonzero(changes) / rate  # seconds
        runs = edges.reshape(-1, 2)
        steps = []
        for number, (start, end) in enumerate(runs.tolist(), start=1):
            span = Span(start, end)
            step_id = str(number)
            step = Step(id=step_id, text=f"part {number}", spans=(span,))
            steps.append(step)
        duration = len(frames) / rate
        video = Video(id=id, duration=duration or None)
        reference = tuple(steps)
        yield Record(id=id, video=video, reference=reference)
