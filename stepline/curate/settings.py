"""Settings of `stepline curate`: sources, stages, limits and engines, export and report.

Those of the stages that other packages have are those packages' own (stage.Recipe joins them).
Remote files, limits, engines, the report and the audit never decide what is in a dataset.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stepline.models.nasva.settings import AlignerSettings
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
    """Column names of a list of videos. Missing columns count as empty."""

    id: str = "id"
    """unique; the video's file stem where there is no such column"""
    video: str = "video"
    """its URL or path, relative to the list. It may be empty where there are features"""
    captions: str = "captions"
    """URL or path of its captions (vtt, srt, json, csv)"""
    features: str = "features"
    """URL or path of its ready features"""
    title: str = "title"
    """of the video"""
    task: str = "task"
    """what is done in it"""
    category: str = "category"
    """what source.categories chooses by"""
    duration: str = "duration"
    """seconds"""


class SourceSettings(Settings):
    """Which videos a run uses, and where their captions and features are."""

    kind: Literal["auto", "folder", "list", "howto100m"] = "auto"
    """ "auto": by what it holds"""
    columns: ColumnsSettings = ColumnsSettings()
    """of a list"""
    preset: Literal["htm-370k"] | None = None
    """ "htm-370k": HowTo100M's Food and Entertaining, as HTM-370K"""
    categories: tuple[str, ...] = ()
    """keep only videos of these; empty: of all"""
    ids: Path | None = None
    """keep only the ids of this file, one per line"""
    excluded: tuple[Path, ...] = ()
    """lists of evaluation videos, as `stepline curate excluded` writes them. These videos are kept out"""
    captions: str | None = None
    """URL of a folder of captions, or HowTo100M's caption.json (none: next to the videos)"""
    features: str | None = None
    """URL of a folder of ready features, one file per video (none: the videos are encoded)"""
    videos: str | None = None
    """URL of a folder of videos, where the list or HowTo100M's table says only ids"""
    stamps: bool = True
    """look at every file, so that a changed one is done again. Else no file counts as changed"""


class ExportSettings(Settings):
    """Name, licence and file sizes of the published dataset."""

    name: str = "stepline dataset"
    """title of its card"""
    licence: str = "other"
    """of the whole, as its publisher decides: an SPDX name ("other": not stated)"""
    rows: Count = 2000
    """records per Parquet shard"""
    features: bool = True
    """also write the feature shards"""
    shard: Count = 256
    """MiB that a shard of features holds"""


class LimitsSettings(Settings):
    """Limits of time, memory and attempts of one task (a stage of a video)."""

    seconds: Positive = 1800.0
    """wall seconds; longer is a hang, and the unit's process is killed"""
    memory: Count = 6144
    """MiB that a worker holds with all it has started. Beyond it, its process is killed"""
    in_a_row: Count = 100
    """units of a stage that fail one after another before the run ends: no fault of theirs"""
    attempts: Count = 3
    """times that a failing unit is tried in all, over every --retry-failed"""


class EngineSettings(Settings):
    """Where tasks run. On the CPU, none of these settings changes a byte of the dataset."""

    name: Literal["local", "ray"] = "local"
    """processes of this machine, or a Ray cluster"""
    workers: Processes | None = None
    """processes (local) or actors (ray), none = one per core"""
    gpus: NonNegative = 0.0
    """GPUs that a worker takes for the stages that use one (.25: four share it, 0: no GPU)"""
    ahead: Annotated[int, Field(ge=1, le=256)] = 4
    """videos per worker that are open together. It bounds what waits"""
    address: str | None = None
    """of a Ray cluster; none = one is started on this machine"""


class ReportSettings(Settings):
    """Sizes of the random samples that the report shows."""

    seed: Seed = 0
    """of all that is drawn at random"""
    audit_videos: CountOrZero = 10
    """videos that people check; as many as NaSVA's authors did"""
    examples: CountOrZero = 12
    """videos, drawn at random. Some steps of each are shown"""
    frames: bool = True
    """pictures of the examples and key frames of the audited texts in the page, 3 to 6 kB each"""


class FilterSettings(Settings):
    """Which videos are left out because of their speech, language or length."""

    languages: tuple[str, ...] = ("en",)
    """ISO 639-1 codes; none: any language"""
    shortest: NonNegative = 5.0
    """s of a video"""
    longest: NonNegative | None = 1200.0
    """s (none: any). NaSVA trains on at most 1200, Sieve & Swap takes 600"""
    words: CountOrZero = 10
    """least words that are said"""
    words_a_minute: NonNegative = 15.0
    """least words per minute. Narration has 60 and more"""
    steps: CountOrZero = 2
    """least steps that are written"""


class SpeechPlacingSettings(Settings):
    """How steps are grounded in the speech. Similarity has its settings in `steps.nasva.coarse`."""

    said: Literal["cited", "likeness"] = "likeness"
    """ "cited": where the sentences are that its writer cites"""


class GatherSettings(Settings):
    """When two videos count as duplicates. The one whose id comes first is kept."""

    same_words: Fraction = 0.9
    """share of common runs of words at which two videos say the same (1: never)"""


class PlacingSettings(Settings):
    """How the trained network grounds the steps at the end of self-training."""

    calibrate: bool = True
    """P(shown) against texts of other videos (false: every labelled step counts as shown)"""
    shown_rate: Fraction | None = 0.6
    """share of the steps that is shown (none: estimated). NaSVA table 5: 0.606"""
    aligner: AlignerSettings = AlignerSettings()


class SwapStageSettings(Settings):
    """Settings of Sieve & Swap over all videos."""

    base: Path | None = None
    """folder of a text base, which `stepline text-base build` makes"""
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()


class CleanSettings(Settings):
    """Minimal scores of the steps that stay: wording, support by speech, visibility, agreement."""

    written: Fraction = 0.5
    """least P(it describes a step), by its wording"""
    supported: Fraction = 0.4
    """least cosine to a sentence that it rests on, by MiniLM, as the writers' own floor"""
    shown: Fraction = 0.5
    """least P(shown)"""
    placed: Fraction = 0.3
    """least overlap (IoU) of what grounding and network say (0: they need not agree)"""
    spans: Literal["grounding", "network"] = "grounding"
    """whose span a step gets. The grounding knows where shots end"""


class VisibleSettings(Settings):
    """Which spoken sentences count as shown: by a detector, else by the steps that rest on them."""

    shown: Fraction = 0.5
    """least P(the picture shows what is said while it is said) of a detector"""
