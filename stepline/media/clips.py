"""Cuts clips out of a video, frame by frame."""

from pathlib import Path

from stepline.records import Span


def cut(path: Path | str, span: Span, out: Path) -> None:
    """Write the seconds of `span` as an mp4."""
    raise NotImplementedError
