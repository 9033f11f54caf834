"""A recipe: which stages a run has, and the settings of each, as one file."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepline.curate.engine_settings import EngineSettings, LimitsSettings
from stepline.curate.forecast_settings import ForecastSettings
from stepline.curate.report_settings import ReportSettings
from stepline.curate.settings import ExportSettings, PlaceSettings, SourceSettings
from stepline.curate.stage import Stage, Stages
from stepline.curate.stage_settings import (
    CleanSettings,
    CoarseStageSettings,
    FilterSettings,
    GatherSettings,
    PlacingSettings,
    SwapStageSettings,
    VisibleSettings,
)
from stepline.errors import SettingsError
from stepline.nasva.refine_settings import RefineRunSettings
from stepline.nasva.run_settings import RunSettings
from stepline.request import StepsSettings
from stepline.settings import Settings, load_settings

FOLDER = Path(__file__).parent / "recipes"


class Recipe(Settings):
    """Every setting of `stepline curate`."""

    stages: tuple[str, ...] = ()  # names of the stages, each after those that it needs
    threads: int = 1  # threads of a dataset stage (training); they decide its last bits
    source: SourceSettings = SourceSettings()
    steps: StepsSettings = StepsSettings()  # recogniser, writer, backbone, coarse placing, grounding and judge
    filter: FilterSettings = FilterSettings()
    coarse: CoarseStageSettings = CoarseStageSettings()
    gather: GatherSettings = GatherSettings()
    sieve_swap: SwapStageSettings = SwapStageSettings()
    train: RunSettings = RunSettings()
    refine: RefineRunSettings = RefineRunSettings()
    place: PlacingSettings = PlacingSettings()
    clean: CleanSettings = CleanSettings()
    visible: VisibleSettings = VisibleSettings()
    export: ExportSettings = ExportSettings()
    report: ReportSettings = ReportSettings()
    forecast: ForecastSettings = ForecastSettings()
    places: PlaceSettings = PlaceSettings()
    limits: LimitsSettings = LimitsSettings()
    engine: EngineSettings = EngineSettings()


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return a recipe by the name of one that comes with the package, or by the path of a TOML file.

    Raises SettingsError for an unknown name, key or value.
    """
    known = sorted(file.stem for file in FOLDER.glob("*.toml"))
    path = FOLDER / f"{name}.toml" if name in known else Path(name)
    if not path.is_file():
        raise SettingsError(f"{name}: no such recipe; name one of {', '.join(known)}, or a TOML file")
    return load_settings(Recipe, path, overrides)


def chosen_stages(recipe: Recipe, stages: Stages) -> tuple[Stage, ...]:
    """Return the stages of a recipe in its order, each with what it takes among its needs.

    Raises SettingsError for a stage that is unknown, named twice, or named before what it needs.
    """
    chosen: dict[str, Stage] = {}
    for name in recipe.stages:
        if name not in stages:
            near = difflib.get_close_matches(name, stages, n=1)
            cure = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(stages))}"
            raise SettingsError(f"recipe: no stage {name!r}; {cure}")
        if name in chosen:
            raise SettingsError(f"recipe: stage {name!r} is named twice; name it once")
        for need in stages[name].needs:
            if need not in chosen:
                raise SettingsError(f"recipe: stage {name!r} needs {need!r} before it; add it to `stages`")
        taken = tuple(take for take in stages[name].takes if take in chosen)
        chosen[name] = replace(stages[name], needs=(*stages[name].needs, *taken), takes=())
    if not chosen:
        raise SettingsError("recipe: it names no stage; list some in `stages`")
    return tuple(chosen.values())
