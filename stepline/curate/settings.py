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

    id: str = Field("id", description="unique; the video's file stem where there is no such column")
    video: str = Field(
        "video",
        description="its URL or path, relative to the list. It may be empty where there are "
        "features",
    )
    captions: str = Field(
        "captions", description="URL or path of its captions (vtt, srt, json, csv)"
    )
    features: str = Field("features", description="URL or path of its ready features")
    title: str = Field("title", description="of the video")
    task: str = Field("task", description="what is done in it")
    category: str = Field("category", description="what source.categories chooses by")
    duration: str = Field("duration", description="seconds")


class SourceSettings(Settings):
    """Which videos a run uses, and where their captions and features are."""

    kind: Literal["auto", "folder", "list", "howto100m"] = Field(
        "auto", description='"auto": by what it holds'
    )
    columns: ColumnsSettings = Field(ColumnsSettings(), description="of a list")
    preset: Literal["htm-370k"] | None = Field(
        None, description='"htm-370k": HowTo100M\'s Food and Entertaining, as HTM-370K'
    )
    categories: tuple[str, ...] = Field((), description="keep only videos of these; empty: of all")
    ids: Path | None = Field(None, description="keep only the ids of this file, one per line")
    excluded: tuple[Path, ...] = Field(
        (),
        description="lists of evaluation videos, as `stepline curate excluded` writes them. These videos "
        "are kept out",
    )
    captions: str | None = Field(
        None,
        description="URL of a folder of captions, or HowTo100M's caption.json (none: next to the "
        "videos)",
    )
    features: str | None = Field(
        None,
        description="URL of a folder of ready features, one file per video (none: the videos are "
        "encoded)",
    )
    videos: str | None = Field(
        None,
        description="URL of a folder of videos, where the list or HowTo100M's table says only ids",
    )
    stamps: bool = Field(
        True,
        description="look at every file, so that a changed one is done again. Else no file counts "
        "as changed",
    )


class ExportSettings(Settings):
    """Name, licence and file sizes of the published dataset."""

    name: str = Field("stepline dataset", description="title of its card")
    licence: str = Field(
        "other",
        description='of the whole, as its publisher decides: an SPDX name ("other": not stated)',
    )
    rows: Count = Field(2000, description="records per Parquet shard")
    features: bool = Field(True, description="also write the feature shards")
    shard: Count = Field(256, description="MiB that a shard of features holds")


class LimitsSettings(Settings):
    """Limits of time, memory and attempts of one task (a stage of a video)."""

    seconds: Positive = Field(
        1800.0, description="wall seconds; longer is a hang, and the unit's process is killed"
    )
    memory: Count = Field(
        6144,
        description="MiB that a worker holds with all it has started. Beyond it, its process is "
        "killed",
    )
    in_a_row: Count = Field(
        100,
        description="units of a stage that fail one after another before the run ends: no fault "
        "of theirs",
    )
    attempts: Count = Field(
        3, description="times that a failing unit is tried in all, over every --retry-failed"
    )


class EngineSettings(Settings):
    """Where tasks run. On the CPU, none of these settings changes a byte of the dataset."""

    name: Literal["local", "ray"] = Field(
        "local", description="processes of this machine, or a Ray cluster"
    )
    workers: Processes | None = Field(
        None, description="processes (local) or actors (ray), none = one per core"
    )
    gpus: NonNegative = Field(
        0.0,
        description="GPUs that a worker takes for the stages that use one (.25: four share it, 0: "
        "no GPU)",
    )
    ahead: Annotated[int, Field(ge=1, le=256)] = Field(
        4, description="videos per worker that are open together. It bounds what waits"
    )
    address: str | None = Field(
        None, description="of a Ray cluster; none = one is started on this machine"
    )


class ReportSettings(Settings):
    """Sizes of the random samples that the report shows."""

    seed: Seed = Field(0, description="of all that is drawn at random")
    audit_videos: CountOrZero = Field(
        10, description="videos that people check; as many as NaSVA's authors did"
    )
    examples: CountOrZero = Field(
        12, description="videos, drawn at random. Some steps of each are shown"
    )
    frames: bool = Field(
        True,
        description="pictures of the examples and key frames of the audited texts in the page, 3 "
        "to 6 kB each",
    )


class FilterSettings(Settings):
    """Which videos are left out because of their speech, language or length."""

    languages: tuple[str, ...] = Field(("en",), description="ISO 639-1 codes; none: any language")
    shortest: NonNegative = Field(5.0, description="s of a video")
    longest: NonNegative | None = Field(
        1200.0, description="s (none: any). NaSVA trains on at most 1200, Sieve & Swap takes 600"
    )
    words: CountOrZero = Field(10, description="least words that are said")
    words_a_minute: NonNegative = Field(
        15.0, description="least words per minute. Narration has 60 and more"
    )
    steps: CountOrZero = Field(2, description="least steps that are written")


class SpeechPlacingSettings(Settings):
    """How steps are grounded in the speech. Similarity has its settings in `steps.nasva.coarse`."""

    said: Literal["cited", "likeness"] = Field(
        "likeness", description='"cited": where the sentences are that its writer cites'
    )


class GatherSettings(Settings):
    """When two videos count as duplicates. The one whose id comes first is kept."""

    same_words: Fraction = Field(
        0.9, description="share of common runs of words at which two videos say the same (1: never)"
    )


class PlacingSettings(Settings):
    """How the trained network grounds the steps at the end of self-training."""

    calibrate: bool = Field(
        True,
        description="P(shown) against texts of other videos (false: every labelled step counts as "
        "shown)",
    )
    shown_rate: Fraction | None = Field(
        0.6, description="share of the steps that is shown (none: estimated). NaSVA table 5: 0.606"
    )
    aligner: AlignerSettings = AlignerSettings()


class SwapStageSettings(Settings):
    """Settings of Sieve & Swap over all videos."""

    base: Path | None = Field(
        None, description="folder of a text base, which `stepline text-base build` makes"
    )
    pairing: PairingSettings = PairingSettings()
    match: SwapSettings = SwapSettings()


class CleanSettings(Settings):
    """Minimal scores of the steps that stay: wording, support by speech, visibility, agreement."""

    written: Fraction = Field(0.5, description="least P(it describes a step), by its wording")
    supported: Fraction = Field(
        0.4,
        description="least cosine to a sentence that it rests on, by MiniLM, as the writers' own "
        "floor",
    )
    shown: Fraction = Field(0.5, description="least P(shown)")
    placed: Fraction = Field(
        0.3,
        description="least overlap (IoU) of what grounding and network say (0: they need not "
        "agree)",
    )
    spans: Literal["grounding", "network"] = Field(
        "grounding", description="whose span a step gets. The grounding knows where shots end"
    )


class VisibleSettings(Settings):
    """Which spoken sentences count as shown: by a detector, else by the steps that rest on them."""

    shown: Fraction = Field(
        0.5, description="least P(the picture shows what is said while it is said) of a detector"
    )
