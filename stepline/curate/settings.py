"""Settings of `stepline curate`: remote files, sources, stages, limits and engines, export,
forecast and report.

Those of the stages that other packages have are those packages' own (stage.Recipe joins them).
Remote files, limits, engines, the forecast, the report and the audit never decide what is in a
dataset.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stepline.models.nasva.settings import AlignerSettings, UnshownTexts
from stepline.settings import (
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    Positive,
    Processes,
    Seed,
    Settings,
)
from stepline.sieve_swap.settings import PairingSettings, SwapSettings


class ColumnsSettings(Settings):
    """What the columns of a list of videos are called. One that the list lacks under its own name
    counts as empty."""

    id: str = "id"  # unique; the video's file stem where there is no such column
    # its URL or path, relative to the list. It may be empty where there are features
    video: str = "video"
    captions: str = "captions"  # URL or path of its captions (vtt, srt, json, csv)
    features: str = "features"  # URL or path of its ready features
    title: str = "title"  # of the video
    task: str = "task"  # what is done in it
    category: str = "category"  # what source.categories chooses by
    duration: str = "duration"  # seconds


class SourceSettings(Settings):
    """Which videos come in."""

    # "auto": by what it holds
    kind: Literal["auto", "folder", "list", "webdataset", "howto100m"] = "auto"
    columns: ColumnsSettings = ColumnsSettings()  # of a list
    # "htm-370k": HowTo100M's Food and Entertaining, as HTM-370K
    preset: Literal["htm-370k"] | None = None
    categories: tuple[str, ...] = ()  # keep only videos of these; empty: of all
    ids: Path | None = None  # keep only the ids of this file, one per line
    # lists of evaluation videos, as `stepline excluded` writes them. These videos are kept out
    excluded: tuple[Path, ...] = ()
    # URL of a folder of captions, or HowTo100M's caption.json (none: next to the videos)
    captions: str | None = None
    # URL of a folder of ready features, one file per video (none: the videos are encoded)
    features: str | None = None
    # URL of a folder of videos, where the list or HowTo100M's table says only ids
    videos: str | None = None
    # look at every file, so that a changed one is done again. Else no file counts as changed
    stamps: bool = True


class ExportSettings(Settings):
    """What the dataset looks like on disk."""

    name: str = "stepline dataset"  # title of its card
    # of the whole, as its publisher decides: an SPDX name ("other": not stated)
    licence: str = "other"
    rows: Count = 2000  # records per Parquet shard
    features: bool = True  # also write the feature shards
    shard: Count = 256  # MiB that a shard of features or a tar holds
    # also write tars of records (.json) and steps (.vtt), with the videos if `media`
    webdataset: bool = False
    media: bool = False  # copy the videos into the tars; ask first whether their licences allow it


class LimitsSettings(Settings):
    """What one unit of work (a stage of a video) may take before it counts as failed."""

    seconds: Positive = 1800.0  # wall seconds; longer is a hang, and the unit's process is killed
    # MiB that a worker holds with all it has started. Beyond it, its process is killed
    memory: Count = 6144
    # units of a stage that fail one after another before the run ends: no fault of theirs
    in_a_row: Count = 100
    attempts: Count = 3  # times that a failing unit is tried in all, over every --retry-failed


class EngineSettings(Settings):
    """Where the work is done. On the CPU, none of these settings changes a byte of the dataset."""

    name: Literal["local", "ray"] = "local"  # processes of this machine, or a Ray cluster
    # processes (local) or actors per stage group (ray), none = one per core
    workers: Processes | None = None
    fewest: Processes = 1  # actors per stage group that Ray keeps when there is little to do
    # GPUs that a worker takes for the stages that use one (.25: four share it, 0: no GPU)
    gpus: NonNegative = 0.0
    # open videos that a worker with a GPU recognises together, at most
    batch: Annotated[int, Field(ge=1, le=256)] = 1
    cache: Count = 4096  # MiB of remote media that wait on the local disk together
    # videos per worker that are open together. It bounds what waits
    ahead: Annotated[int, Field(ge=1, le=256)] = 4
    address: str | None = None  # of a Ray cluster; none = one is started on this machine


class ForecastSettings(Settings):
    """What `--dry-run` samples, and what things cost. Prices are in one currency of your own."""

    # videos worked on at first. Their results are not made again
    sample: Annotated[int, Field(ge=6, le=100_000)] = 24
    # half the 95 % interval of CPU, of its value. While wider, as many videos again
    within: NonNegative = 0.1
    # videos to which the sample so grows (as many as `sample`: never)
    most: Annotated[int, Field(ge=6, le=100_000)] = 200
    seed: Seed = 0  # of the sample and the draws
    cores: tuple[Count, ...] = (1, 16, 128)  # for which hours are reported, next to this machine's
    draws: Annotated[int, Field(ge=100, le=100_000)] = 1000  # of the bootstrap
    core_hour: NonNegative = 0.04  # one core for one hour
    gpu_hour: NonNegative = 2.0  # one GPU for one hour in which a stage uses it
    million_tokens: NonNegative = 0.5  # of a language model, in and out together
    gigabyte_month: NonNegative = 0.02  # of storage; a month is counted


class ReportSettings(Settings):
    """What the report shows of a dataset."""

    seed: Seed = 0  # of all that is drawn at random
    audit_videos: CountOrZero = 10  # videos that people check; as many as NaSVA's authors did
    audit_texts: CountOrZero = 25  # sentences and steps of each, at most
    examples: CountOrZero = 12  # videos, drawn at random. Some steps of each are shown
    example_steps: CountOrZero = 4  # of each, at most
    # pictures of the examples and key frames of the audited texts in the page, 3 to 6 kB each
    frames: bool = True
    frame_width: Annotated[int, Field(ge=32, le=640)] = 176  # pixels
    steps_read: CountOrZero = 5000  # steps whose verbs and objects are counted for the cloud
    videos_compared: CountOrZero = 20000  # videos among which near-duplicates are sought
    # whose steps are drawn in the plane (none: the task with most placed steps)
    task: str | None = None
    points: CountOrZero = 400  # steps drawn there, at most
    # wikiHow-like texts (`stepline text-base build`) that tasks are compared with
    text_base: Path | None = None


class FilterSettings(Settings):
    """Which videos are left out, as soon as what is said of them is known."""

    languages: tuple[str, ...] = ("en",)  # ISO 639-1 codes; none: any language
    shortest: NonNegative = 5.0  # s of a video
    # s (none: any). NaSVA trains on at most 1200, Sieve & Swap takes 600
    longest: NonNegative | None = 1200.0
    words: CountOrZero = 10  # least words that are said
    words_a_minute: NonNegative = 15.0  # least words per minute. Narration has 60 and more
    steps: CountOrZero = 2  # least steps that are written


class CoarseStageSettings(Settings):
    """Where a step is said. How it is found is in `steps.nasva.coarse`."""

    # "cited": where the sentences are that its writer cites
    said: Literal["cited", "likeness"] = "likeness"


class GatherSettings(Settings):
    """Which videos count as the same. The one whose id comes first is kept."""

    # share of common runs of words at which two videos say the same (1: never)
    same_words: Fraction = 0.9
    # mean difference of thumbnails, of 1, at which two show the same (0: never)
    same_picture: Fraction = 0.02
    run: Annotated[int, Field(ge=1, le=10)] = 3  # words per run of the first


class PlacingSettings(Settings):
    """How the refined network places the steps for good."""

    # P(shown) against texts of other videos (false: every labelled step counts as shown)
    calibrate: bool = True
    # which texts of other videos stand for steps that a video does not show
    unshown: UnshownTexts = "unlike"
    # share of the steps that is shown (none: estimated). NaSVA table 5: 0.606
    shown_rate: Fraction | None = 0.6
    aligner: AlignerSettings = AlignerSettings()


class SwapStageSettings(Settings):
    """Sieve & Swap over what was gathered."""

    base: Path | None = None  # folder of a text base, which `stepline text-base build` makes
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()


class CleanSettings(Settings):
    """Which steps stay in the end: written, supported by what is said, shown, and placed."""

    written: Fraction = 0.5  # least P(it describes a step), by its wording
    # least cosine to a sentence that it rests on, by MiniLM, as the writers' own floor
    supported: Fraction = 0.4
    shown: Fraction = 0.5  # least P(shown)
    # least overlap (IoU) of what grounding and network say (0: they need not agree)
    placed: Fraction = 0.3
    # whose span a step gets. The grounding knows where shots end
    spans: Literal["grounding", "network"] = "grounding"
    least: CountOrZero = 1  # steps that a video must keep to stay


class VisibleSettings(Settings):
    """Which narrations count as shown."""

    shown: Fraction = 0.5  # least P(the picture shows what is said while it is said)
    least: CountOrZero = 1  # such sentences that a video must have to stay
