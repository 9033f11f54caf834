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

from stepline.procx import losses
from stepline.procx.captioner import Captioner
from stepline.procx.deformable_attention import DeformableAttention
from stepline.procx.lstm_captioner import LstmCaptioner
from stepline.procx.model import (
    FeaturePyramid,
    PositionalEncoding,
    PredictionHeads,
    ResidualFeedForward,
    SelfAttention,
)

PARTS: dict[type[nn.Module], str] = {
    DeformableAttention: "deformable attention",
    ResidualFeedForward: "feed-forward",
    SelfAttention: "self-attention",
    PredictionHeads: "heads",
    Captioner: "captioner",
    LstmCaptioner: "captioner",
    FeaturePyramid: "pyramid",
    PositionalEncoding: "pyramid",
}
OPTIMIZER, BACKWARD = "Optimizer.step", "autograd::engine::evaluate_function"


def shares(model: nn.Module, step: Callable[[], object]) -> dict[str, float]:
    """Return the share of a step's CPU time in each part, the largest first. "rest" is losses,
    clipping and norms."""
    with named(model), profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    events = [
        event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CPU
    ]
    parts = {
        event.sequence_nr: part(event)
        for event in events
        if event.sequence_nr >= 0 and not backward(event)
    }
    spent: Counter[str] = Counter()
    for event in events:
        spent[parts.get(root(event).sequence_nr, "rest") if backward(event) else part(event)] += (
            event.self_cpu_time_total
        )
    whole = sum(spent.values())
    return {name: time / whole for name, time in spent.most_common()}


@contextmanager
def named(model: nn.Module) -> Iterator[None]:
    """Within it, what each part does is recorded under its name."""
    handles, opened = [], []

    def begin(name: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            opened.append(record_function(f"part {name}"))
            opened[-1].__enter__()

        return enter

    def end(*_: object) -> None:
        opened.pop().__exit__(None, None, None)

    for module in model.modules():
        if type(module) in PARTS:
            handles.append(module.register_forward_pre_hook(begin(PARTS[type(module)])))
            handles.append(module.register_forward_hook(end))
    matching = record_function("part matching")(losses.hungarian_match)
    with patch.object(losses, "hungarian_match", matching):
        yield
    for handle in handles:
        handle.remove()


def part(event: Any) -> str:
    """Return the innermost part in which an event of the forward pass lies."""
    while event is not None:
        if event.name.startswith("part "):
            return str(event.name[5:])
        if event.name.startswith(OPTIMIZER):
            return "optimizer"
        event = event.cpu_parent
    return "rest"


def root(event: Any) -> Any:
    """Return the node of the backward pass in which an event lies, the event itself outside of
    it."""
    found = event
    while event is not None:
        if event.name.startswith(BACKWARD):
            found = event
        event = event.cpu_parent
    return found


def backward(event: Any) -> bool:
    """Return whether an event is of the backward pass."""
    return bool(root(event).name.startswith(BACKWARD))
