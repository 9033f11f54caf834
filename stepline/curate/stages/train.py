"""The grounding network trained on where steps are said (NaSVA, the first stage of section 3.3)."""

from stepline.curate.stage import Gathered
from stepline.curate.stages.dataset import FEATURES, RECORDS, last_folder
from stepline.curate.stages.decides import text_source
from stepline.nasva.model_settings import ModelSettings
from stepline.nasva.run_settings import RunSettings
from stepline.training_settings import TrainSettings

RUN = "run"  # in the stage's folder; `stepline train nasva` makes the same


def train(gathered: Gathered) -> None:
    """Train on the gathered features and the steps of the recipe, or go on where a run was killed."""
    from stepline.nasva.run import Prepared, Sources, train_run

    sources = Sources(
        features=gathered.folders["gather"] / FEATURES,
        steps=str(last_folder(gathered) / RECORDS),
        step_vectors=text_source(gathered.recipe),
    )

    def told(prepared: Prepared) -> None:
        counts = f"{len(prepared.samples)} videos, {prepared.samples.labelled} steps with a label"
        gathered.say(f"training on {counts}")

    train_run(sources, gathered.folder / RUN, of_any_width(gathered.recipe.train), told=told)


def of_any_width(settings: RunSettings) -> RunSettings:
    """Return the settings without the widths of the features, which are the features' own; see `alone`."""
    given = settings.model.model_dump(exclude={"video_width", "text_width"})
    return settings.model_copy(update={"model": ModelSettings(**given), "train": alone(settings.train)})


def alone(settings: TrainSettings) -> TrainSettings:
    """Return the settings without threads that read ahead, which fork badly beside an engine's own."""
    return settings.model_copy(update={"readers": 0})
