"""Settings of reading and writing anywhere, of the videos that come in and of the dataset that goes out."""

from pathlib import Path
from typing import Literal

from stepline.settings import Count, NonNegative, Positive, Settings


class PlaceSettings(Settings):
    """How files are reached; nothing here decides what is in a dataset."""

    attempts: Count = 6  # tries of one request; a refusal that no second try can cure ends at the first
    pause: NonNegative = 0.5  # s before the second try; doubles, to 30 s, less by chance
    seconds: Positive = 60.0  # that one request of one block may take; a slower one is tried again
    block: Count = 8  # MiB read by one request
    endpoint: str | None = None  # URL of an S3-compatible server; none: what AWS_ENDPOINT_URL says, else Amazon's
    anonymous: bool = False  # ask without credentials, as public buckets allow


class ColumnsSettings(Settings):
    """What the columns of a list of videos are called; one that the list lacks under its own name counts as empty."""

    id: str = "id"  # unique; the video's file stem where there is no such column
    video: str = "video"  # its URL or path, relative to the list; may be empty where there are features
    captions: str = "captions"  # URL or path of its captions (vtt, srt, json, csv)
    features: str = "features"  # URL or path of its ready features
    title: str = "title"  # of the video
    task: str = "task"  # what is done in it
    category: str = "category"  # what source.categories chooses by
    duration: str = "duration"  # seconds


class SourceSettings(Settings):
    """Which videos come in."""

    kind: Literal["auto", "folder", "list", "webdataset", "howto100m"] = "auto"  # "auto": by what it holds
    columns: ColumnsSettings = ColumnsSettings()  # of a list
    preset: Literal["htm-370k"] | None = None  # "htm-370k": HowTo100M's Food and Entertaining, as HTM-370K
    categories: tuple[str, ...] = ()  # keep only videos of these; empty: of all
    ids: Path | None = None  # keep only the ids of this file, one a line
    excluded: tuple[Path, ...] = ()  # lists of evaluation videos, as `stepline excluded` writes them; kept out
    captions: str | None = None  # URL of a folder of captions, or HowTo100M's caption.json; none: beside the videos
    features: str | None = None  # URL of a folder of ready features, one file a video; none: the videos are encoded
    videos: str | None = None  # URL of a folder of videos, where the list or HowTo100M's table says only ids
    stamps: bool = True  # look at every file, so that a changed one is done again; else none changes


class ExportSettings(Settings):
    """What the dataset looks like on disk."""

    name: str = "stepline dataset"  # title of its card
    licence: str = "other"  # of the whole, as its publisher decides: an SPDX name; "other": not stated
    rows: Count = 2000  # records a Parquet shard
    features: bool = True  # also write the feature shards
    shard: Count = 256  # MiB a shard of features or a tar holds
    webdataset: bool = False  # also write tars of records (.json) and steps (.vtt), with the videos if `media`
    media: bool = False  # copy the videos into the tars; ask first whether their licences allow it
