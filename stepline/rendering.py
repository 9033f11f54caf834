"""How a record becomes one of its outputs: a function that the package's root installs, so that
records know nothing of outputs."""

from collections.abc import Callable
from typing import Any, TypeAlias

Renderer: TypeAlias = Callable[[Any, str], str]  # of a Record, whose module imports this one

_renderers: list[Renderer] = []  # one at most


def install_renderer(renderer: Renderer) -> None:
    """Use `renderer` from now on. The package's root installs the one of `stepline.outputs`."""
    _renderers.clear()
    _renderers.append(renderer)


def render_record(record: Any, output: str) -> str:
    """Return an output of a Record that is text, by its name in docs/outputs.md."""
    renderer = _renderers[0]
    return renderer(record, output)
