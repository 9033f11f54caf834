"""What the videos of a batch should say: where their steps are, padded to one shape.

Letters: B batch, K steps of the video that has most.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.procx.boxes import centered


@dataclass(frozen=True)
class Targets:
    """boxes (B, K, 2): center and length as fractions of the video, 0 on padding; box_pad (B, K)."""

    boxes: Tensor
    box_pad: Tensor

    @property
    def counts(self) -> Tensor:
        """How many steps each video has, (B,)."""
        return (~self.box_pad).sum(dim=1)

    def to(self, device: str | torch.device) -> "Targets":
        """Return the targets on another device."""
        return Targets(self.boxes.to(device), self.box_pad.to(device))


def targets(spans: Sequence[Sequence[tuple[float, float]]], durations: Sequence[float]) -> Targets:
    """Return the steps' (start, end) seconds of each video as boxes; all steps are kept, and a video may have none.

    What lies outside [0, duration] is cut off. Raises ShapeError for a span that is reversed or wholly outside, or a
    video without length.
    """
    if len(spans) != len(durations):
        raise ShapeError(f"{len(spans)} videos have spans, {len(durations)} a duration; give both for each")
    boxes = torch.zeros(len(spans), max(map(len, spans), default=0), 2)  # (B, K, 2)
    box_pad = torch.ones(boxes.shape[:2], dtype=torch.bool)
    for video, (steps, duration) in enumerate(zip(spans, durations, strict=True)):
        if not duration > 0:
            raise ShapeError(f"a video's duration must be above 0 seconds, not {duration}")
        for place, (start, end) in enumerate(steps):
            first, last = max(0.0, start) / duration, min(duration, end) / duration
            if not start <= end or not first <= last:  # NaN too
                raise ShapeError(f"step {start}-{end} does not lie in the video's 0-{duration} seconds; leave it out")
            boxes[video, place] = torch.tensor([first, last])
            box_pad[video, place] = False
    return Targets(centered(boxes), box_pad)
