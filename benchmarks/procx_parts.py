"""Which part of the network a training step spends its time in, backward passes with the parts that
they are of."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from stepline.models.procx import losses
from stepline.models.procx.captioner import Captioner
from stepline.models.procx.deformable_attention import DeformableAttention
from stepline.models.procx.lstm_captioner import LstmCaptioner
from stepline.models.procx.model import (
    FeaturePyramid,
    PositionalEncoding,
    PredictionHeads,
    ResidualFeedForward,
    SelfAttention,
)

PART_NAMES: dict[type[nn.Module], str] = {
    DeformableAttention: "deformable attention",
    ResidualFeedForward: "feed-forward",
    SelfAttention: "self-attention",
    PredictionHeads: "heads",
    Captioner: "captioner",
    LstmCaptioner: "captioner",
    FeaturePyramid: "pyramid",
    PositionalEncoding: "pyramid",
}
# beginnings of names of events
OPTIMIZER_EVENT = "Optimizer.step"
BACKWARD_EVENT = "autograd::engine::evaluate_function"
PART_EVENT = "part "


def shares(model: nn.Module, step: Callable[[], object]) -> dict[str, float]:
    """Return the share of a step's CPU time in each part, the largest first. "rest" is losses,
    clipping and norms."""
    with named(model), profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    cpu = torch.autograd.DeviceType.CPU
    events = [event for event in profiler.events() if event.device_type == cpu]

    # a backward event has the sequence number of its forward one
    part_of_sequence = {}
    for event in events:
        if event.sequence_nr >= 0 and not backward(event):
            part_of_sequence[event.sequence_nr] = part(event)

    times: Counter[str] = Counter()
    for event in events:
        name = part(event)
        if backward(event):
            name = part_of_sequence.get(root(event).sequence_nr, "rest")
        times[name] += event.self_cpu_time_total
    whole = sum(times.values())
    return {name: time / whole for name, time in times.most_common()}


@contextmanager
def named(model: nn.Module) -> Iterator[None]:
    """Within it, what each part does is recorded under its name."""
    handles = []
    records = []

    def begin(name: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            record = record_function(PART_EVENT + name)
            records.append(record)
            record.__enter__()

        return enter

    def end(*_: object) -> None:
        records.pop().__exit__(None, None, None)

    for module in model.modules():
        name = PART_NAMES.get(type(module))
        if name is not None:
            handles.append(module.register_forward_pre_hook(begin(name)))
            handles.append(module.register_forward_hook(end))
    matching = record_function(f"{PART_EVENT}matching")(losses.hungarian_match)
    with patch.object(losses, "hungarian_match", matching):
        yield
    for handle in handles:
        handle.remove()


def part(event: Any) -> str:
    """Return the innermost part that an event of the forward pass is in."""
    while event is not None:
        if event.name.startswith(PART_EVENT):
            return str(event.name.removeprefix(PART_EVENT))
        if event.name.startswith(OPTIMIZER_EVENT):
            return "optimizer"
        event = event.cpu_parent
    return "rest"


def root(event: Any) -> Any:
    """Return the node of the backward pass that an event is in, the event itself outside of it."""
    node = event
    while event is not None:
        if event.name.startswith(BACKWARD_EVENT):
            node = event
        event = event.cpu_parent
    return node


def backward(event: Any) -> bool:
    """Return whether an event is of the backward pass."""
    return bool(root(event).name.startswith(BACKWARD_EVENT))
