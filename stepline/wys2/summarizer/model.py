"""The summarizer's network: segments see each other through a transformer, and each says how much
it matters.

Also its file, and the reader of WikiHow Summaries, IV-Sum's annotations of which frames belong in a
video's summary.
Source: Narasimhan et al. 2022 (IV-Sum), section 3.
Letters: B videos, S segments, C and E widths of what is seen and said, D width between layers.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepline.datasets.files import Node, read_json
from stepline.errors import DatasetError, ShapeError
from stepline.records import Record, Span, Step, Video
from stepline.training.network_file import Header, NetworkFile
from stepline.wys2.settings import SummarizerSettings

SUMMARIZER_FILE = "summarizer.safetensors"  # in the folder of a training run
NETWORK_FILE = NetworkFile(
    kind="stepline.wys2.summarizer",
    version=None,
    title="a summarizer",
    writer="`stepline train summarizer`",
    names=(SUMMARIZER_FILE,),
)

FRAMES_PER_SECOND = 8.0  # of the annotations; IV-Sum takes 32 a segment


class Summarizer(nn.Module):  # type: ignore[misc]   # torch is untyped to mypy here
    """Scores the segments of a batch of videos."""

    def __init__(self, settings: SummarizerSettings) -> None:
        super().__init__()
        self.settings = settings
        self.project = nn.Linear(settings.video_width + settings.text_width, settings.width)
        layer = nn.TransformerEncoderLayer(
            settings.width,
            settings.heads,
            4 * settings.width,
            settings.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.score = nn.Sequential(nn.LayerNorm(settings.width), nn.Linear(settings.width, 1))

    def forward(self, pictures: Tensor, speech: Tensor, pad: Tensor) -> Tensor:
        """Return logits (B, S) of how much each segment matters. pictures (B, S, C), speech (B, S,
        E), pad (B, S)."""
        settings = self.settings
        widths = (pictures.shape[-1], speech.shape[-1])
        expected = (settings.video_width, settings.text_width)
        if widths != expected:
            raise ShapeError(
                f"segments are {widths} wide (seen, said), not {expected}; use the same backbone"
            )
        inputs = torch.cat([_standardise(pictures), _standardise(speech)], dim=-1)  # (B, S, C + E)
        positions = _sinusoidal_encoding(pictures.shape[1], settings.width, pictures.device)
        hidden = self.project(inputs) + positions  # (B, S, D)
        hidden = self.encoder(hidden, src_key_padding_mask=pad)  # (B, S, D)
        return cast(Tensor, self.score(hidden)[..., 0])  # (B, S)


def _standardise(rows: Tensor) -> Tensor:
    """Return rows of mean 0 and spread 1: rows of length 1 would drown in their positions. Zero
    rows stay zero."""
    return F.layer_norm(rows, rows.shape[-1:]) if rows.shape[-1] else rows


def _sinusoidal_encoding(count: int, width: int, device: torch.device) -> Tensor:
    """Return sines and cosines (S, D) of a segment's number."""
    steps = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
    angles = torch.arange(count, device=device)[:, None] * steps
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


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
    header = {"video": video, "text": text, "settings": model.settings.model_dump(mode="json")}
    NETWORK_FILE.write(path, model.state_dict(), header)


def read_summarizer(path: Path) -> LoadedSummarizer:
    """Return the network that a file or a run's folder holds. Raises ModelError, naming what does
    not fit."""

    def parse(header: Header) -> tuple[SummarizerSettings, str, str]:
        settings = SummarizerSettings.model_validate_json(json.dumps(header["settings"]))
        return settings, str(header["video"]), str(header["text"])

    file = NETWORK_FILE.find(path)
    (_, video, text), network = NETWORK_FILE.load(file, parse, lambda parsed: Summarizer(parsed[0]))
    return LoadedSummarizer(network, video, text, file)


def read_frame_labels(path: Path, rate: float = FRAMES_PER_SECOND) -> Iterator[Record]:
    """Yield a record a video of {video: [0 or 1 a frame]}; each run of ones is a reference step.

    Raises DatasetError for other numbers, or a file of another form.
    """
    for id, node in Node(read_json(path), str(path)).entries():
        try:
            frames = np.asarray(node.value, dtype=np.float64)
        except (TypeError, ValueError):
            frames = np.full(1, np.nan)
        if frames.ndim != 1 or not np.isin(frames, (0.0, 1.0)).all():
            raise DatasetError(
                f"{path}: {id}: not a list of 0 and 1, one a frame; give IV-Sum's annotation file"
            )
        # (runs, 2) seconds
        edges = np.flatnonzero(np.diff(frames, prepend=0.0, append=0.0)).reshape(-1, 2) / rate
        steps = tuple(
            Step(id=str(number), text=f"part {number}", spans=(Span(float(start), float(end)),))
            for number, (start, end) in enumerate(edges, start=1)
        )
        duration = len(frames) / rate
        yield Record(id=id, video=Video(id=id, duration=duration or None), reference=steps)
