"""The grounding network trained on where steps are said (NaSVA, the first stage of section 3.3).

Narrations sieved, and swapped for human-written steps, over all gathered videos (Sieve & Swap, section 4).

Self-training, and the final places of the steps by the network that it ends with (NaSVA, section 3.3).

Where a video's steps are shown for good, by the network that self-training ended with.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.curate.settings import PlacingSettings
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.stages.cache_keys import text_source
from stepline.curate.stages.gather import FEATURES, RECORDS, last_folder, read_left_out, write_dataset
from stepline.errors import DatasetError, SettingsError
from stepline.features import FeatureStore
from stepline.nasva.align import Fit, fit_texts
from stepline.nasva.calibration import calibration_path, write_calibration
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.dataset import matching_rows
from stepline.nasva.fit_calibration import calibrate_by_foreign
from stepline.nasva.network_settings import ModelSettings, RunSettings
from stepline.nasva.predict import place_steps
from stepline.records import Matrix, Record
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.storage import read_parquet
from stepline.training.settings import TrainSettings
from stepline.training.sources import labelled_texts

if TYPE_CHECKING:
    from stepline.nasva.refine import Refined, RefineSources

RUN = "run"  # in the stage's folder; `stepline train nasva` makes the same


def train(gathered: DatasetContext) -> None:
    """Train on the gathered features and the steps of the recipe, or go on where a run was killed."""
    from stepline.nasva.train import Prepared, Sources, train_run

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


RUN = "run"  # in the stage's folder; `stepline sieve-swap` makes the same
NO_SWAPPED_STEP = "no sentence of it is swapped or kept"


def sieve_swap(gathered: DatasetContext) -> None:
    """Swap the narrations of all videos, or go on where a run was killed."""
    from stepline.sieve_swap.run import Job, run
    from stepline.text_base import open_base

    settings = gathered.recipe.sieve_swap
    if settings.base is None:
        raise SettingsError("sieve_swap.base is not set; name the folder of a text base")
    told = SieveSwapSettings(pairing=settings.pairing, match=settings.match)
    source = gathered.folders["gather"] / RECORDS
    base, out = open_base(settings.base), gathered.folder / RUN
    run(Job(source, base, out, told, say=gathered.say))
    left_out = read_left_out(gathered.folders["gather"])
    kept: list[Record] = []
    for record in _made(gathered):
        if record.steps:
            kept.append(record)
        else:
            reason = next((one.reason for one in record.dropped if one.what == "video"), NO_SWAPPED_STEP)
            left_out[record.id] = StageFailure(record.id, "sieve-swap", "left out", reason)
    write_dataset(gathered.folder, sorted(kept, key=lambda record: record.id), left_out)


def _made(gathered: DatasetContext) -> Iterator[Record]:
    """Yield what the run made of every video, in any order; the split is in the record's settings."""
    from stepline.sieve_swap.output import LEFT_OUT, TRAIN, VALIDATION
    from stepline.storage import read_parquet

    for split in (TRAIN, VALIDATION, LEFT_OUT):
        for file in sorted((gathered.folder / RUN / split).glob("*.parquet")):
            yield from read_parquet(file)


RUN = "run"  # in the stage's folder; `stepline refine` makes the same
NO_REFINED_STEP = "no step of it keeps a label after self-training"


def refine(gathered: DatasetContext) -> None:
    """Refine the steps' places in rounds, then place them for good; videos that no round holds are left out."""
    from stepline.nasva.checkpoint import load_aligner
    from stepline.nasva.refine import REFINED, refine_dataset

    settings, folder = gathered.recipe.refine, gathered.folder / RUN
    settings = settings.model_copy(update={"train": alone(settings.train)})
    sources = _sources(gathered)
    done = refine_dataset(sources, folder, settings)
    gathered.say(f"{done.videos} videos refined in {len(done.trained.rounds)} rounds")
    vectors = Vectors(FeatureStore(sources.features), FeatureStore(folder / "vectors" / "step"))
    place = gathered.recipe.place
    records = [record for record in read_parquet(folder / REFINED) if record.steps]
    loaded, told = calibrated(load_aligner(folder / "aligner.safetensors"), records, vectors, place)
    gathered.say(told)
    left_out = read_left_out(last_folder(gathered)) | _omitted(done) | _without_steps(read_parquet(folder / REFINED))
    count = write_dataset(gathered.folder, (placed(one, loaded, vectors, place) for one in records), left_out)
    gathered.say(f"{count} videos placed for good")


def _sources(gathered: DatasetContext) -> "RefineSources":
    """Return what self-training reads: steps and, for the final network, narrations (NaSVA's W + S)."""
    from stepline.nasva.refine import RefineSources

    records, encoder = str(last_folder(gathered) / RECORDS), text_source(gathered.recipe)
    features = gathered.folders["gather"] / FEATURES
    return RefineSources(records, features, step_vectors=encoder, narrations=records, narration_vectors=encoder)


def _omitted(done: "Refined") -> dict[str, StageFailure]:
    return {one.id: _left_out(one.id, one.reason) for one in done.omitted if one.what == "step"}


def _without_steps(records: Iterable[Record]) -> dict[str, StageFailure]:
    return {record.id: _left_out(record.id, NO_REFINED_STEP) for record in records if not record.steps}


def _left_out(id: str, reason: str) -> StageFailure:
    return StageFailure(id, "refine", "left out", reason)


@dataclass(frozen=True)
class Vectors:
    """Features of videos and vectors of their steps, from two stores."""

    features: FeatureStore
    texts: FeatureStore

    def of(self, record: Record) -> Matrix:
        """Return (K, C) vectors of a record's steps. Raises DatasetError where they are of other texts."""
        rows = matching_rows(next(labelled_texts([record], "step")), self.texts)
        if rows is None:
            raise DatasetError(f"{record.id}: its step vectors are of other texts; remove the stage's folder")
        return self.texts.matrix(record.id)[rows]


def calibrated(
    loaded: LoadedAligner, records: Sequence[Record], vectors: Vectors, settings: PlacingSettings
) -> tuple[LoadedAligner, str]:
    """Return the network with P(shown) fitted to its own videos, stored beside it, and a line that says how it went."""
    if not settings.calibrate:
        return loaded, "not calibrated, as the recipe says"
    own = list(_fits(loaded, records, records, vectors, settings))
    half = max(1, len(records) // 2)
    foreign = list(_fits(loaded, records, [*records[half:], *records[:half]], vectors, settings))
    mode = settings.aligner.mode
    try:
        calibration, share = calibrate_by_foreign(loaded, own, foreign, mode=mode, rate=settings.shown_rate)
    except DatasetError as error:
        return loaded, f"not calibrated: {error}"
    write_calibration(calibration, calibration_path(loaded.path))
    return replace(loaded, calibration=calibration), f"{share:.0%} of the steps count as shown"


def placed(record: Record, loaded: LoadedAligner, vectors: Vectors, settings: PlacingSettings) -> Record:
    """Return a record with its steps placed anew: spans, score and status."""
    fit = _fit(loaded, record, vectors.of(record), vectors, settings)
    duration = record.video.duration
    found = place_steps(record.steps, fit, loaded.calibration, settings=settings.aligner, duration=duration)
    told = {"network": "self-trained", "calibrated": loaded.calibration is not None}
    return record.model_copy(update={"steps": found.steps, "models": record.models | {"placing": told}})


def _fits(
    loaded: LoadedAligner,
    records: Sequence[Record],
    texts: Sequence[Record],
    vectors: Vectors,
    settings: PlacingSettings,
) -> Iterator[Fit]:
    """Yield how the texts of each second record fit the video of the first."""
    for record, other in zip(records, texts, strict=True):
        yield _fit(loaded, record, vectors.of(other), vectors, settings)


def _fit(loaded: LoadedAligner, record: Record, texts: Matrix, vectors: Vectors, settings: PlacingSettings) -> Fit:
    features = vectors.features.read(record.id)
    return fit_texts(loaded.aligner, features, np.ascontiguousarray(texts), settings=settings.aligner)
