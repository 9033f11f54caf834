"""What a run goes over: one item a video, with where its parts are and what tells that one of them changed."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One video of a source.

    id: unique in the run; items are always handled sorted by it. video, captions, features: fsspec URLs of the media,
    of captions that stand for recognition, and of ready features that stand for a backbone; None = there are none.
    Each stamp tells a changed file: its size and time of change where it is local, size and ETag in an object store.
    """

    id: str
    video: str | None = None
    stamp: str = ""
    captions: str | None = None
    captions_stamp: str = ""
    features: str | None = None
    features_stamp: str = ""
    title: str | None = None
    task: str | None = None
    category: str | None = None
    duration: float | None = None  # seconds, where the source tells it
    path: str | None = None  # of the video relative to the source, or its public URL; what a dataset says of it


@dataclass(frozen=True, slots=True)
class Refused:
    """What a source named and the run leaves out. reason: in words that hold no path of this machine."""

    id: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """All videos of a run, sorted by id, and what the source refused."""

    items: Sequence[Item]
    refused: Sequence[Refused]
