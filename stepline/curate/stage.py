"""What a run is made of: items (videos), stages, and the recipe that names stages and sets them.

    STAGES = {"coarse": Stage("coarse", 1, "video", coarse, ("transcribe", "write"), settings=...)}

A stage is a plain function with a name, a version, and all that decides its result. One of kind
"video" makes the bytes of one result from one item. One of kind "dataset" runs once over all of
them. Neither knows which engine runs it.
"""

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import JsonValue

from stepline.curate.settings import (
    CleanSettings,
    EngineSettings,
    ExportSettings,
    FilterSettings,
    GatherSettings,
    LimitsSettings,
    PlacingSettings,
    ReportSettings,
    SourceSettings,
    SpeechPlacingSettings,
    SwapStageSettings,
    VisibleSettings,
)
from stepline.errors import SettingsError, StoreError
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings
from stepline.limits import parse_json
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.pipeline.request import StepsSettings
from stepline.records import Rejected
from stepline.settings import Settings, Threads, load_settings

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VideoItem:
    """A video of a source, with its files and metadata.

    Attributes:
        id: unique in the run.
        video: URL or path of the video file, None without one.
        stamp: text that changes with the video file (RemotePath.fingerprint).
        captions: URL or path of captions, which replace speech recognition.
        captions_stamp: text that changes with the captions.
        features: URL or path of ready visual features, which replace a vision backbone.
        features_stamp: text that changes with the features.
        title: title of the video.
        task: what is done in the video, such as "make soup".
        category: category by which sources are filtered.
        duration: seconds, if the source states it.
        path: path of the video relative to the source, or its public URL, which the dataset
            publishes.
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
    duration: float | None = None  # seconds, where the source knows it
    # of the video relative to the source, or its public URL: what a dataset says of it
    path: str | None = None

    @property
    def has_files(self) -> bool:
        """Whether the video has a video file, captions or features."""
        return bool(self.video or self.captions or self.features)


def reject_video(id: str, reason: str) -> Rejected:
    """Return the entry of a refused video.

    Args:
        id: id of the video.
        reason: why it is refused, without paths of this machine.
    """
    return Rejected("video", reason, id=id)


SourceEntry = VideoItem | Rejected


@dataclass(frozen=True)
class Collection:
    """The videos of a run.

    Attributes:
        items: all videos, sorted by id.
        refused: entries that the source refused, sorted by id.
    """

    items: Sequence[VideoItem]
    refused: Sequence[Rejected]


FailureKind = Literal["left out", "error", "hang", "crash", "memory"]


class LeftOutError(Exception):
    """Raised by a stage if a rule of the recipe leaves the video out. It is never tried again."""


@dataclass(frozen=True)
class StageFailure:
    """Why a video has no result of a stage.

    Attributes:
        id: id of the video.
        stage: name of the stage.
        kind: kind of the failure: "left out" by a rule, or an error, hang, crash or lack of memory.
        reason: one line without paths and times of this machine.
        attempts: number of tries so far.
    """

    id: str
    stage: str
    kind: FailureKind
    reason: str
    attempts: int = 1


def from_json(build: Callable[..., T], data: bytes | str, name: str) -> T:
    """Return `build(**fields)` for the fields of a stored JSON object.

    Args:
        build: class or function of the stored object.
        data: the JSON text.
        name: name of the file, for messages.

    Raises StoreError for any other content.
    """
    try:
        return build(**parse_json(data))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{name}: not written by Stepline ({error}); remove it, and run again"
        ) from error


@dataclass(frozen=True)
class VideoContext:
    """The inputs of a stage of kind "video", for one video.

    Attributes:
        item: the video.
        recipe: stages and settings.
        media: local path of the video file. None if the stage does not read it.
        captions: local path of the captions. None if the stage does not read them.
        features: local path of ready features. None if the stage does not read them.
        results: bytes of the results of earlier stages, by stage.
        folders: result folders of stages of kind "dataset", by stage.
        notes: numbers for the log by name, to which the stage may add.
    """

    item: VideoItem
    recipe: "Recipe"
    media: Path | None = None
    captions: Path | None = None
    features: Path | None = None
    results: Mapping[str, bytes] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetContext:
    """The inputs of a stage of kind "dataset", which runs once over all videos.

    Attributes:
        folder: local folder of the stage. Its contents after the run are the result.
        items: all videos, sorted by id.
        recipe: stages and settings.
        out: output folder of the run, for files that are published directly.
        results: takes the name of a stage. Yields (video, bytes of the result) for all videos
            without a failure.
        failures: first failure of every other video, by id.
        refused: entries that the source refused.
        folders: result folders of earlier stages of kind "dataset", by stage.
        stage_settings: stage -> settings that decide its result.
        say: called with a progress message.
    """

    folder: Path
    items: Sequence[VideoItem]
    recipe: "Recipe"
    out: RemotePath
    results: Callable[[str], Iterator[tuple[VideoItem, bytes]]]
    failures: Mapping[str, StageFailure]  # by item id
    refused: Sequence[Rejected]
    folders: Mapping[str, Path]
    stage_settings: Mapping[str, JsonValue] = field(default_factory=dict)
    say: Callable[[str], None] = log.info


@dataclass(frozen=True)
class Stage:
    """A stage of a recipe.

    Attributes:
        name: name of the stage.
        version: increased when results change, so that they are computed again.
        kind: "video" (one result per video) or "dataset" (one result for all videos).
        run: function at module level: VideoContext -> bytes, or DatasetContext -> None.
        needs: names of the stages whose results it reads.
        takes: names of further stages whose results it reads if the recipe has them.
        reads: what it reads of a video. "media": video file. "speech": captions, or else the video
            file. "picture": ready features, or else the video file. "about": title, task, category
            and duration. "where": addresses of the files.
        settings: returns the part of a recipe that decides the result, with the sha256 of named
            files. None: no setting decides it.
        suffix: file name suffix of its results.
        gpu: whether it uses a GPU: for any recipe, or a function of the recipe.
        resumes: whether a stage of kind "dataset" continues in the folder of a killed run.
        reads_media: returns whether it also reads the video file with a recipe. None: never.
        libraries: returns the packages whose versions change its results. None: there are none.
    """

    name: str
    version: int
    kind: Literal["video", "dataset"]
    run: Callable[[VideoContext], bytes] | Callable[[DatasetContext], None]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    reads: tuple[Literal["media", "speech", "picture", "about", "where"], ...] = ()
    settings: Callable[["Recipe"], JsonValue] | None = None
    suffix: str = ".json"
    gpu: Callable[["Recipe"], bool] | bool = False
    resumes: bool = False
    reads_media: Callable[["Recipe"], bool] | None = None
    libraries: Callable[["Recipe"], tuple[str, ...]] | None = None

    def result_settings(self, recipe: "Recipe") -> JsonValue:
        """Return the part of a recipe that decides the result, None if no setting does."""
        return None if self.settings is None else self.settings(recipe)

    def uses_gpu(self, recipe: "Recipe") -> bool:
        """Return whether the stage uses a GPU with a recipe."""
        return self.gpu if isinstance(self.gpu, bool) else self.gpu(recipe)

    def library_names(self, recipe: "Recipe") -> tuple[str, ...]:
        """Return the packages whose versions change the results of the stage with a recipe."""
        return () if self.libraries is None else self.libraries(recipe)


StageTable = Mapping[str, Stage]


DATASET_FOLDER = "dataset"  # below OUT: what is published
RECIPES_FOLDER = Path(__file__).parent / "recipes"


class Recipe(Settings):
    """A recipe of `stepline curate`: the stages and all their settings."""

    stages: tuple[str, ...] = ()
    """names of the stages, each after those that it needs"""
    threads: Threads = 1
    """threads of a dataset stage (training); they decide its last bits"""
    source: SourceSettings = SourceSettings()
    steps: StepsSettings = StepsSettings()
    """recogniser, writer, backbone, coarse placing, grounding and judge"""
    filter: FilterSettings = FilterSettings()
    coarse: SpeechPlacingSettings = SpeechPlacingSettings()
    gather: GatherSettings = GatherSettings()
    sieve_swap: SwapStageSettings = SwapStageSettings()
    train: AlignerRunSettings = AlignerRunSettings()
    refine: RefineRunSettings = RefineRunSettings()
    place: PlacingSettings = PlacingSettings()
    clean: CleanSettings = CleanSettings()
    visible: VisibleSettings = VisibleSettings()
    export: ExportSettings = ExportSettings()
    report: ReportSettings = ReportSettings()
    places: RemoteSettings = RemoteSettings()
    limits: LimitsSettings = LimitsSettings()
    engine: EngineSettings = EngineSettings()

    @property
    def remote(self) -> RemoteSettings:
        """Limits and retries of remote files, which recipes call `places`."""
        return self.places


def load_recipe(name: str, overrides: Sequence[str] = (), *, preset: Path | None = None) -> Recipe:
    """Return a recipe with overrides.

    Args:
        name: name of a recipe of the package, or path of a TOML file.
        overrides: settings as section.key=value.
        preset: TOML file of defaults, which the values of the recipe replace. None: no such file.

    Raises SettingsError for an unknown name, key or value.
    """
    # A name among the package's recipes comes before a file of that name.
    names = sorted(file.stem for file in RECIPES_FOLDER.glob("*.toml"))
    path = RECIPES_FOLDER / f"{name}.toml" if name in names else Path(name)
    if not path.is_file():
        raise SettingsError(
            f"{name}: no such recipe; name one of {', '.join(names)}, or a TOML file"
        )
    recipe = load_settings(Recipe, path, overrides, preset=preset)
    steps = recipe.steps
    # A named vision-language model is checked once, for all videos.
    if steps.vision.vlm.named:
        from stepline.pipeline.networks import check_vlm

        check_vlm(steps.vision)
    # What no run over many videos can do.
    if steps.vision.vlm.dry_run or steps.writing.llm.dry_run:
        raise SettingsError(
            "steps: dry_run asks no model; take it out, and give --limit to ask about few videos"
        )
    return recipe


def resolve_stages(recipe: Recipe, stages: StageTable) -> tuple[Stage, ...]:
    """Return the stages of a recipe in its order, each with all stages and files that it reads.

    Args:
        recipe: names the stages.
        stages: all known stages by name.

    Raises SettingsError for a stage that is unknown, repeated, or named before one that it reads.
    """
    # Each stage is checked against those before it.
    resolved: dict[str, Stage] = {}
    for name in recipe.stages:
        if name not in stages:
            raise SettingsError(f"recipe: no stage {name!r}; {_nearest_stage(name, stages)}")
        if name in resolved:
            raise SettingsError(f"recipe: stage {name!r} is named twice; name it once")
        stage = stages[name]
        for need in stage.needs:
            if need not in resolved:
                raise SettingsError(
                    f"recipe: stage {name!r} needs {need!r} before it; add it to `stages`"
                )
        for earlier in resolved:
            if name in stages[earlier].takes:
                raise SettingsError(
                    f"recipe: stage {earlier!r} reads the result of {name!r}; name {name!r} first"
                )
        # What a stage takes if it is there counts as a need from now on.
        needs = stage.needs + tuple(take for take in stage.takes if take in resolved)
        reads = stage.reads
        if stage.reads_media is not None and stage.reads_media(recipe):
            reads += ("media",)
        resolved[name] = replace(stage, needs=needs, reads=reads)
    if not resolved:
        raise SettingsError("recipe: it names no stage; list some in `stages`")
    return tuple(resolved.values())


def _nearest_stage(name: str, stages: StageTable) -> str:
    matches = difflib.get_close_matches(name, stages, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"there are {', '.join(sorted(stages))}"


def input_files(stage: Stage, item: VideoItem) -> frozenset[str]:
    """Return the kinds of files of a video that a stage reads: "media", "captions", "features"."""
    files = set()
    for kind in stage.reads:
        if kind == "speech" and item.captions is not None:
            files.add("captions")
        elif kind == "picture" and item.features is not None:
            files.add("features")
        elif kind not in ("about", "where") and item.video is not None:
            files.add("media")
    return frozenset(files)
