"""The stages over all gathered videos that train or swap, each in a run folder that a killed run
goes on from.

sieve-swap   narrations sieved, and swapped for human-written steps (Sieve & Swap, section 4)
train        the grounding network, trained on where steps are said (NaSVA, the first stage of section 3.3)
refine       self-training, then the final places of the steps by the network that it ends with (NaSVA, section 3.3)
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from stepline.curate.settings import PlacingSettings
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.stages.cache_keys import text_encoder_name
from stepline.curate.stages.gather import (
    FEATURES_FOLDER,
    RECORDS_FILE,
    preceding_stage_folder,
    read_stage_failures,
    write_dataset,
)
from stepline.errors import DatasetError, SettingsError, StoreError
from stepline.features import FeatureStore, open_store
from stepline.models.nasva.align import TextScores, score_texts
from stepline.models.nasva.calibration import calibration_path, write_calibration
from stepline.models.nasva.checkpoint import LoadedAligner, load_aligner
from stepline.models.nasva.fit_calibration import calibrate_on_foreign_texts, choose_foreign_texts
from stepline.models.nasva.predict import place_steps
from stepline.models.nasva.settings import AlignerNetworkSettings, AlignerRunSettings
from stepline.models.training.sources import LabelledTexts, iterate_labelled_texts
from stepline.records import Matrix, Record
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.text_base import open_base
from stepline.storage import read_parquet

# in the stage's folder. `stepline sieve-swap`, `train nasva` and `refine` make the same
RUN_FOLDER = "run"
NO_READERS = {"readers": 0}  # processes that read ahead fork badly next to an engine's threads
NO_SWAPPED_STEP = "no sentence of it is swapped or kept"
NO_REFINED_STEP = "no step of it keeps a label after self-training"


def run_sieve_swap(dataset: DatasetContext) -> None:
    """Run Sieve & Swap over the narrations of all videos (the stage `sieve-swap`). A killed run is
    resumed.

    Videos without a swapped or kept sentence are left out.
    """
    from stepline.sieve_swap.part_files import LEFT_OUT, TRAIN_SPLIT, VALIDATION_SPLIT
    from stepline.sieve_swap.run import SieveSwapJob, run_job

    settings = dataset.recipe.sieve_swap
    if settings.base is None:
        raise SettingsError("sieve_swap.base is not set; name the folder of a text base")
    gathered = dataset.folders["gather"]
    source = gathered / RECORDS_FILE
    base = open_base(settings.base)
    out = dataset.folder / RUN_FOLDER
    swap = SieveSwapSettings(pairing=settings.pairing, match=settings.match)
    run_job(SieveSwapJob(source, base, out, swap, report=dataset.say))
    # What was left out before stays so, with its reason.
    left_out = read_stage_failures(gathered)
    # The split is in each record's settings. Within a split, records are sorted by id.
    splits = (TRAIN_SPLIT, VALIDATION_SPLIT, LEFT_OUT)
    files = (sorted((out / split).glob("*.parquet")) for split in splits)
    sorted_records = (chain.from_iterable(map(read_parquet, paths)) for paths in files)

    def swapped_records() -> Iterator[Record]:
        # A video without any swapped step is left out, with the reason of the sieve.
        for record in heapq.merge(*sorted_records, key=lambda record: record.id):
            if record.steps:
                yield record
                continue
            reasons = (dropped.reason for dropped in record.dropped if dropped.what == "video")
            reason = next(reasons, NO_SWAPPED_STEP)
            left_out[record.id] = StageFailure(record.id, "sieve-swap", "left out", reason)

    write_dataset(dataset.folder, swapped_records(), left_out)


def run_train(dataset: DatasetContext) -> None:
    """Train the grounding network on the gathered videos (the stage `train`). The seconds in which
    a step is spoken are its labels.

    A killed run is resumed.
    """
    from stepline.models.nasva.train import AlignerSources, PreparedAligner, train_aligner_run

    features = dataset.folders["gather"] / FEATURES_FOLDER
    steps = preceding_stage_folder(dataset) / RECORDS_FILE
    if not any(features.glob("shard-*")):
        raise DatasetError(
            "no video with features is left to train on; `stepline curate status OUT` shows why"
        )
    encoder = text_encoder_name(dataset.recipe)
    sources = AlignerSources(features=features, steps=str(steps), step_vectors=encoder)

    def report(prepared: PreparedAligner) -> None:
        samples = prepared.samples
        dataset.say(f"training on {len(samples)} videos, {samples.labelled} steps with a label")

    folder = dataset.folder / RUN_FOLDER
    train_aligner_run(sources, folder, adapt_to_features(dataset.recipe.train), on_prepared=report)


def adapt_to_features(settings: AlignerRunSettings) -> AlignerRunSettings:
    """Return training settings without fixed feature widths and without processes that read ahead.

    The widths of the features are then taken from the data.
    """
    fields = settings.model.model_dump(exclude={"video_width", "text_width"})
    model = AlignerNetworkSettings(**fields)
    train = settings.train.model_copy(update=NO_READERS)
    return settings.model_copy(update={"model": model, "train": train})


def run_refine(dataset: DatasetContext) -> None:
    """Run rounds of self-training, then ground all steps with the final network (the stage
    `refine`).

    Videos without labels are left out.
    """
    from stepline.models.nasva.refine import REFINED_FILE, RefineSources, refine_dataset

    settings = dataset.recipe.refine
    settings = settings.model_copy(update={"train": settings.train.model_copy(update=NO_READERS)})
    folder = dataset.folder / RUN_FOLDER
    records_path = str(preceding_stage_folder(dataset) / RECORDS_FILE)
    encoder = text_encoder_name(dataset.recipe)
    # Self-training reads the steps and, for the final network, narrations (NaSVA's W + S).
    sources = RefineSources(
        records_path,
        dataset.folders["gather"] / FEATURES_FOLDER,
        step_vectors=encoder,
        narrations=records_path,
        narration_vectors=encoder,
    )
    refined = refine_dataset(sources, folder, settings)
    dataset.say(f"videos refined: {refined.videos}, rounds: {settings.rounds.rounds}")

    # What is left of each video: its steps' labels and task, for records do not fit into memory.
    left_out = read_stage_failures(preceding_stage_folder(dataset))
    reasons = {entry.id: entry.reason for entry in refined.omitted if entry.what == "step"}
    texts: list[LabelledTexts] = []
    tasks = []
    for record in read_parquet(folder / REFINED_FILE):
        if record.steps:
            texts += iterate_labelled_texts([record], "step")
            tasks.append(record.video.task)
        else:
            reasons[record.id] = NO_REFINED_STEP
    for id, reason in reasons.items():
        left_out[id] = StageFailure(id, "refine", "left out", reason)

    # The final places, by the network with its P(shown) fitted.
    stores = StepFeatureStores(
        open_store(sources.features), FeatureStore(folder / "vectors" / "step")
    )
    placing = dataset.recipe.place
    aligner = load_aligner(folder / "aligner.safetensors")
    aligner, report = calibrate(aligner, texts, tasks, stores, placing)
    dataset.say(report)
    records = (record for record in read_parquet(folder / REFINED_FILE) if record.steps)
    placed = (assign_final_spans(record, aligner, stores, placing) for record in records)
    count = write_dataset(dataset.folder, placed, left_out)
    dataset.say(f"{count} videos placed for good")


@dataclass(frozen=True)
class StepFeatureStores:
    """Visual features of videos and text vectors of their steps.

    Attributes:
        features: store of the visual features (T rows, D) of each video.
        texts: store of the step vectors (K steps, C) of each video.
    """

    features: FeatureStore
    texts: FeatureStore

    def step_vectors(self, texts: LabelledTexts) -> Matrix:
        """Return the vectors (K, C) of the steps of a video.

        Raises StoreError if the stored vectors are those of other texts.
        """
        from stepline.models.nasva.dataset import match_vector_rows  # loads torch

        rows = match_vector_rows(texts, self.texts)
        if rows is None:
            raise StoreError(
                f"{texts.video}: its step vectors are of other texts; remove the stage's folder"
            )
        return np.ascontiguousarray(self.texts.matrix(texts.video)[rows])

    def score_steps(
        self, aligner: LoadedAligner, video: str, vectors: Matrix, settings: PlacingSettings
    ) -> TextScores:
        """Return the scores of K steps over the seconds of a video.

        Args:
            aligner: the network.
            video: id of the video. It need not be the one that the steps are from.
            vectors: (K, C) vectors of the steps.
            settings: how the network places steps.
        """
        features = self.features.read(video)
        return score_texts(aligner.network, features, vectors, settings=settings.aligner)


def calibrate(
    aligner: LoadedAligner,
    videos: Sequence[LabelledTexts],
    tasks: Sequence[str | None],
    stores: StepFeatureStores,
    settings: PlacingSettings,
) -> tuple[LoadedAligner, str]:
    """Return the network with calibrated P(shown), and a progress message.

    The calibration is stored next to the network. With too few videos the network stays as it is.

    Args:
        aligner: the network.
        videos: the labelled steps of each video.
        tasks: task of each video, None if unknown.
        stores: visual features and step vectors of the videos.
        settings: whether to calibrate, and the expected share of shown steps.
    """
    if not settings.calibrate:
        return aligner, "not calibrated, as the recipe says"

    def read(index: int) -> Matrix:
        return stores.step_vectors(videos[index])

    def score_pairs() -> Iterator[tuple[TextScores, TextScores]]:
        for index, (other, rows) in enumerate(choose_foreign_texts(tasks, read)):
            video = videos[index].video
            own = read(index)
            # As many foreign texts as its own, so that both kinds count alike.
            both = np.concatenate([own, read(other)[rows[: len(own)]]])
            own_scores = stores.score_steps(aligner, video, own, settings)
            yield own_scores, stores.score_steps(aligner, video, both, settings)

    try:
        # Without enough videos the network stays as it is.
        calibration, fraction = calibrate_on_foreign_texts(
            aligner, score_pairs(), mode=settings.aligner.mode, shown_fraction=settings.shown_rate
        )
    except DatasetError as error:
        return aligner, f"not calibrated: {error}"
    write_calibration(calibration, calibration_path(aligner.path))
    return replace(aligner, calibration=calibration), f"{fraction:.0%} of the steps count as shown"


def assign_final_spans(
    record: Record, aligner: LoadedAligner, stores: StepFeatureStores, settings: PlacingSettings
) -> Record:
    """Return a record with the spans, scores and statuses that the network gives its steps.

    Args:
        record: the record.
        aligner: the network after self-training.
        stores: visual features and step vectors of the videos.
        settings: how the network places steps.
    """
    # The labels are those of self-training, and the places are the network's.
    steps = stores.step_vectors(next(iterate_labelled_texts([record], "step")))
    scores = stores.score_steps(aligner, record.video.id, steps, settings)
    grounding = place_steps(
        record.steps,
        scores,
        aligner.calibration,
        settings=settings.aligner,
        duration=record.video.duration,
    )
    network = {"network": "self-trained", "calibrated": aligner.calibration is not None}
    models = record.models | {"placing": network}
    return record.model_copy(update={"steps": grounding.steps, "models": models})
