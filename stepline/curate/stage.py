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
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, JsonValue

from stepline.curate.settings import (
    CleanSettings,
    CoarseStageSettings,
    EngineSettings,
    ExportSettings,
    FilterSettings,
    ForecastSettings,
    GatherSettings,
    LimitsSettings,
    PlacingSettings,
    ReportSettings,
    SourceSettings,
    SwapStageSettings,
    VisibleSettings,
)
from stepline.errors import SettingsError, StoreError
from stepline.files.remote.settings import RemoteSettings
from stepline.limits import parse_json
from stepline.models.nasva.settings import AlignerRunSettings, RefineRunSettings
from stepline.pipeline.request import StepsSettings
from stepline.records import Rejected
from stepline.settings import Settings, Threads, load_settings, with_constants

if TYPE_CHECKING:
    from stepline.files.remote import RemotePath

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VideoItem:
    """One video of a source.

    id: unique in the run. Items are always handled sorted by it.
    video, captions, features: fsspec URLs of the media, of captions that stand for recognition, and
    of ready features that stand for a backbone. None = not given.
    Each stamp is the file's fingerprint, which a change alters. It is size and time of change of a
    local file, size and ETag in an object store (RemotePath.fingerprint).
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
        """Whether there is any file of it."""
        return bool(self.video or self.captions or self.features)


def reject_video(id: str, reason: str) -> Rejected:
    """Return a video that a source names and the run leaves out. reason: words that hold no path of
    this machine."""
    return Rejected("video", reason, id=id)


SourceEntry: TypeAlias = VideoItem | Rejected


@dataclass(frozen=True)
class Collection:
    """All videos of a run, sorted by id, and what the source refused."""

    items: Sequence[VideoItem]
    refused: Sequence[Rejected]


StageKind: TypeAlias = Literal["video", "dataset"]
StageInput: TypeAlias = Literal["media", "speech", "picture", "about", "where"]
FailureKind: TypeAlias = Literal["left out", "error", "hang", "crash", "memory"]


class LeftOutError(Exception):
    """Raised by a video stage where the recipe's own rule keeps a video out. The reason is counted,
    never retried."""


@dataclass(frozen=True)
class StageFailure:
    """Why a video has no result of a stage. reason: one line with no path, process or time of this
    machine in it."""

    id: str
    stage: str
    kind: FailureKind
    reason: str
    attempts: int = 1

    @classmethod
    def from_json(cls, data: bytes, name: str) -> "StageFailure":
        """Return a failure that a run stored. Raises StoreError where the file of that name holds
        none."""
        try:
            return cls(**parse_json(data))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{name}: not a failure that Stepline wrote ({error}); remove it"
            ) from error


@dataclass(frozen=True)
class VideoContext:
    """What a video stage gets. The paths are local, None where the stage does not read them or the
    item has none.

    results: bytes of the results of `needs`, by stage. folders: of needs that are dataset stages.
    notes: numbers that the stage wants next to its timing, such as {"tokens": 812}. They decide
    nothing.
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
    """What a dataset stage gets: all items (sorted by id), and the results of its needs, read one
    at a time.

    folder: local, the stage's own. What it holds after `run` is its result.
    results: by stage, (item, bytes) of every item without a failure in any video stage before this
    one, sorted by id.
    failures: of every other item, the first in the recipe's order.
    folders: of needs that are dataset stages.
    out: of the run, for what is published next to the results.
    stage_settings: what decides each stage of the run.
    """

    folder: Path
    items: Sequence[VideoItem]
    recipe: "Recipe"
    out: "RemotePath"
    results: Callable[[str], Iterator[tuple[VideoItem, bytes]]]
    failures: Mapping[str, StageFailure] = field(default_factory=dict)  # by item id
    refused: Sequence[Rejected] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    stage_settings: Mapping[str, JsonValue] = field(default_factory=dict)
    say: Callable[[str], None] = log.info


@dataclass(frozen=True)
class Stage:
    """One stage of a recipe.

    Args:
        version: raise it when the result changes, so that it is made again.
        run: a module's own function: VideoContext -> bytes, or DatasetContext -> None. Processes
            import it.
        needs: the stages whose results it reads.
        takes: needs that count only where the recipe has them before it.
        reads: "media": the video file. "speech": the captions, and only where captions are missing
            the video. "picture": the ready features, else the video. "about": title, task, category
            and duration. "where": the addresses of its files.
        settings: returns exactly what of a recipe decides the result, with the sha256 of every file
            that it names. None: no setting does.
        suffix: of its results.
        gpu: whether it uses one, with a recipe or with all. The other stages run on the CPU.
        resumes: whether a dataset stage continues in a folder where it was killed. Others start in
            an empty one.
        reads_media: returns whether it reads the video file too with a recipe. None: it does not.
        libraries: returns the packages whose versions change a result with a recipe, as far as it
            is computed: captions and ready features are only read. None: no version does.
    """

    name: str
    version: int
    kind: StageKind
    run: Callable[[VideoContext], bytes] | Callable[[DatasetContext], None]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    reads: tuple[StageInput, ...] = ()
    settings: Callable[["Recipe"], JsonValue] | None = None
    suffix: str = ".json"
    gpu: Callable[["Recipe"], bool] | bool = False
    resumes: bool = False
    reads_media: Callable[["Recipe"], bool] | None = None
    libraries: Callable[["Recipe"], tuple[str, ...]] | None = None

    def result_settings(self, recipe: "Recipe") -> JsonValue:
        """Return exactly what of a recipe decides its result."""
        decisions = None if self.settings is None else self.settings(recipe)
        return with_constants(decisions) if isinstance(decisions, dict) else decisions

    def uses_gpu(self, recipe: "Recipe") -> bool:
        """Return whether it uses a GPU with a recipe."""
        return self.gpu if isinstance(self.gpu, bool) else self.gpu(recipe)

    def library_names(self, recipe: "Recipe") -> tuple[str, ...]:
        """Return the packages whose versions change its result with a recipe."""
        return () if self.libraries is None else self.libraries(recipe)


StageTable: TypeAlias = Mapping[str, Stage]


DATASET_FOLDER = "dataset"  # below OUT: what is published
RECIPES_FOLDER = Path(__file__).parent / "recipes"


class Recipe(Settings):
    """Every setting of `stepline curate`."""

    stages: tuple[str, ...] = Field(
        (), description="names of the stages, each after those that it needs"
    )
    threads: Threads = Field(
        1, description="threads of a dataset stage (training); they decide its last bits"
    )
    source: SourceSettings = SourceSettings()
    steps: StepsSettings = Field(
        StepsSettings(),
        description="recogniser, writer, backbone, coarse placing, grounding and judge",
    )
    filter: FilterSettings = FilterSettings()
    coarse: CoarseStageSettings = CoarseStageSettings()
    gather: GatherSettings = GatherSettings()
    sieve_swap: SwapStageSettings = SwapStageSettings()
    train: AlignerRunSettings = AlignerRunSettings()
    refine: RefineRunSettings = RefineRunSettings()
    place: PlacingSettings = PlacingSettings()
    clean: CleanSettings = CleanSettings()
    visible: VisibleSettings = VisibleSettings()
    export: ExportSettings = ExportSettings()
    report: ReportSettings = ReportSettings()
    forecast: ForecastSettings = ForecastSettings()
    places: RemoteSettings = RemoteSettings()
    limits: LimitsSettings = LimitsSettings()
    engine: EngineSettings = EngineSettings()

    @property
    def remote(self) -> RemoteSettings:
        """How files elsewhere are reached. The key in recipes is `places`."""
        return self.places


def load_recipe(name: str, overrides: Sequence[str] = (), *, preset: Path | None = None) -> Recipe:
    """Return a recipe by the name of one that comes with the package, or by the path of a TOML
    file.

    preset: settings below the recipe's own, a file of `cli.options.preset_files`.
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
    # A named vision-language model is checked once, for all videos.
    if recipe.steps.vision.vlm.named:
        from stepline.pipeline.networks import check_vlm

        check_vlm(recipe.steps.vision)
    steps = recipe.steps
    # What no run over many videos can do.
    if steps.vision.vlm.dry_run or steps.writing.llm.dry_run:
        raise SettingsError(
            "steps: dry_run asks no model; take it out, and let `stepline curate --dry-run` ask a sample"
        )
    if steps.writing.llm.pictures:
        raise SettingsError("steps.writing.llm.pictures: `write` reads no video; take it out (0)")
    return recipe


def resolve_stages(recipe: Recipe, stages: StageTable) -> tuple[Stage, ...]:
    """Return the stages of a recipe in its order, each with what it takes among its needs and all
    that it reads.

    Raises SettingsError for a stage that is unknown, named twice, or named before what it needs.
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
        # What a stage takes if it is there counts as a need from now on.
        needs = (*stage.needs, *(take for take in stage.takes if take in resolved))
        reads = stage.reads
        if stage.reads_media is not None and stage.reads_media(recipe):
            reads = (*reads, "media")
        resolved[name] = replace(stage, needs=needs, takes=(), reads=reads)
    if not resolved:
        raise SettingsError("recipe: it names no stage; list some in `stages`")
    return tuple(resolved.values())


def _nearest_stage(name: str, stages: StageTable) -> str:
    matches = difflib.get_close_matches(name, stages, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"there are {', '.join(sorted(stages))}"


def input_files(stage: Stage, item: VideoItem) -> frozenset[str]:
    """Return which files of an item a stage reads: "media", "captions", "features"."""
    files = set()
    for kind in stage.reads:
        if kind == "speech" and item.captions is not None:
            files.add("captions")
        elif kind == "picture" and item.features is not None:
            files.add("features")
        elif kind not in ("about", "where") and item.video is not None:
            files.add("media")
    return frozenset(files)
