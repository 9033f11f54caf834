"""Self-training, and the final places of the steps by the network that it ends with (NaSVA, section 3.3)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepline.curate.stage import Failure, Gathered
from stepline.curate.stages.dataset import FEATURES, RECORDS, last_folder, read_left_out, write_dataset
from stepline.curate.stages.decides import text_source
from stepline.curate.stages.train import alone
from stepline.features import FeatureStore
from stepline.records import Record
from stepline.store import read_parquet

if TYPE_CHECKING:
    from stepline.nasva.refining import Refined, RefineSources

RUN = "run"  # in the stage's folder; `stepline refine` makes the same
NO_STEP = "no step of it keeps a label after self-training"


def refine(gathered: Gathered) -> None:
    """Refine the steps' places in rounds, then place them for good; videos that no round holds are left out."""
    from stepline.curate.stages.placing import Vectors, calibrated, placed
    from stepline.nasva.infer import load
    from stepline.nasva.refining import REFINED, refine_dataset

    settings, folder = gathered.recipe.refine, gathered.folder / RUN
    settings = settings.model_copy(update={"train": alone(settings.train)})
    sources = _sources(gathered)
    done = refine_dataset(sources, folder, settings)
    gathered.say(f"{done.videos} videos refined in {len(done.trained.rounds)} rounds")
    vectors = Vectors(FeatureStore(sources.features), FeatureStore(folder / "vectors" / "step"))
    place = gathered.recipe.place
    records = [record for record in read_parquet(folder / REFINED) if record.steps]
    loaded, told = calibrated(load(folder / "aligner.safetensors"), records, vectors, place)
    gathered.say(told)
    left_out = read_left_out(last_folder(gathered)) | _omitted(done) | _without_steps(read_parquet(folder / REFINED))
    count = write_dataset(gathered.folder, (placed(one, loaded, vectors, place) for one in records), left_out)
    gathered.say(f"{count} videos placed for good")


def _sources(gathered: Gathered) -> "RefineSources":
    """Return what self-training reads: steps and, for the final network, narrations (NaSVA's W + S)."""
    from stepline.nasva.refining import RefineSources

    records, encoder = str(last_folder(gathered) / RECORDS), text_source(gathered.recipe)
    features = gathered.folders["gather"] / FEATURES
    return RefineSources(records, features, step_vectors=encoder, narrations=records, narration_vectors=encoder)


def _omitted(done: "Refined") -> dict[str, Failure]:
    return {one.video: _left_out(one.video, one.reason) for one in done.omitted if one.kind == "step"}


def _without_steps(records: Iterable[Record]) -> dict[str, Failure]:
    return {record.id: _left_out(record.id, NO_STEP) for record in records if not record.steps}


def _left_out(id: str, reason: str) -> Failure:
    return Failure(id, "refine", "left out", reason)
