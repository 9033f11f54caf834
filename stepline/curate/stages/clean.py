"""The stages that keep only what holds, and the one that makes the records a dataset to publish.

clean      steps of which everything holds, by four scores: they read as steps (`sieve_swap`'s wording), what is
           said supports them, they are shown, and grounding and network place them alike
visible    narrations whose picture shows what they say, as a dataset of their own (WYS2, section 3)
export     the records of the stage before it, as files that people can load
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.curate.export import DatasetContents, export_dataset
from stepline.curate.settings import CleanSettings, VisibleSettings
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.stages.gather import (
    FEATURES,
    RECORDS,
    last_folder,
    last_records,
    read_left_out,
    write_dataset,
)
from stepline.features import FeatureStore
from stepline.records import Record, Rejected, Step
from stepline.remote import RemotePath
from stepline.storage import read_parquet

IDLE, UNSAID, UNSEEN = (
    "its wording tells no step",
    "nothing that is said supports it",
    "it is not shown",
)
ASTRAY, FEW = "grounding and network place it apart", "too few clean steps are left of it"


@dataclass(frozen=True)
class StepScores:
    """What is known of one step. wording: P(it tells a step); support: best cosine to its
    sentences, 0 without any.

    shown: P(shown) of whoever placed it last. agreement: IoU of the grounding's span and the
    network's.
    """

    wording: float
    support: float
    shown: float
    agreement: float


def clean(dataset: DatasetContext) -> None:
    """Write the records with their clean steps; the others are in `dropped`, each with its
    reason."""
    settings = dataset.recipe.clean
    left_out = read_left_out(last_folder(dataset))
    grounded = {
        record.id: record.steps for record in read_parquet(dataset.folders["gather"] / RECORDS)
    }
    placed_twice = "refine" in dataset.folders and "ground" in dataset.recipe.stages
    records: list[Record] = []
    for record in last_records(dataset):
        cleaned = clean_record(record, grounded[record.id] if placed_twice else (), settings)
        if len(cleaned.steps) >= max(1, settings.least):
            records.append(cleaned)
        else:
            left_out[record.id] = StageFailure(record.id, "clean", "left out", FEW)
    write_dataset(dataset.folder, records, left_out)
    dataset.say(
        f"{sum(len(record.steps) for record in records)} clean steps in {len(records)} videos"
    )


def clean_record(record: Record, grounded: Sequence[Step], settings: CleanSettings) -> Record:
    """Return the record without the steps that fail.

    grounded: its steps where the grounding has them, which trains nothing; none to ask it nothing.
    """
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for step, scores in zip(record.steps, score_steps(record, grounded), strict=True):
        reason = drop_reason(step, scores, settings)
        if reason is None:
            steps.append(
                _at_grounded_span(step, grounded) if settings.spans == "grounding" else step
            )
        else:
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
    return record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


def _at_grounded_span(step: Step, grounded: Sequence[Step]) -> Step:
    """Return a step with the grounding's span, where that has one; its best second stays if it lies
    there."""
    span = next((other.spans[0] for other in grounded if other.id == step.id and other.spans), None)
    if span is None:
        return step
    at = step.at if step.at is not None and step.at in span else span.center
    return step.model_copy(update={"spans": (span,), "at": at})


def score_steps(record: Record, grounded: Sequence[Step]) -> list[StepScores]:
    """Return the four scores of each step."""
    from stepline.sieve_swap.swap import instruction_probability
    from stepline.text import embed

    if not record.steps:
        return []
    vectors = embed([step.text for step in record.steps])
    likeness = vectors @ embed([sentence.text for sentence in record.sentences]).T  # (K, S)
    spans = {step.id: step.spans for step in grounded}
    scores = []
    for step, wording, row in zip(
        record.steps, instruction_probability(vectors), likeness, strict=True
    ):
        others = spans.get(step.id, ())
        agreement = step.spans[0].iou(others[0]) if step.spans and others else float(not grounded)
        support = max((float(row[source]) for source in step.sources), default=0.0)
        scores.append(StepScores(float(wording), support, step.score or 0.0, agreement))
    return scores


def drop_reason(step: Step, scores: StepScores, settings: CleanSettings) -> str | None:
    """Return why a step goes, the first reason of several; None where it stays."""
    if scores.wording < settings.written:
        return IDLE
    if scores.support < settings.supported:
        return UNSAID
    if step.status not in ("shown", "unclear") or not step.spans or scores.shown < settings.shown:
        return UNSEEN
    return ASTRAY if scores.agreement < settings.placed else None


UNSHOWN, NOBODY = "the picture does not show it", "nobody could judge what is said in it"
FEW_SHOWN = "too few of its sentences are shown"


def visible(dataset: DatasetContext) -> None:
    """Write records whose steps are the sentences that are shown while they are said; the others
    are dropped."""
    settings = dataset.recipe.visible
    source = dataset.folders["gather"]
    left_out = read_left_out(source)
    kept: list[Record] = []
    for record in read_parquet(source / RECORDS):
        shown = visible_record(record, settings)
        if all(sentence.shown is None for sentence in record.sentences):
            left_out[record.id] = StageFailure(record.id, "visible", "left out", NOBODY)
        elif len(shown.steps) < settings.least:
            left_out[record.id] = StageFailure(record.id, "visible", "left out", FEW_SHOWN)
        else:
            kept.append(shown)
    write_dataset(dataset.folder, kept, left_out)
    dataset.say(
        f"{sum(len(record.steps) for record in kept)} visual narrations in {len(kept)} videos"
    )


def visible_record(record: Record, settings: VisibleSettings) -> Record:
    """Return the record with its visual narrations as steps, each shown where it is said."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for number, sentence in enumerate(record.sentences):
        if sentence.shown is None or sentence.shown < settings.shown:
            dropped.append(Rejected(what="sentence", text=sentence.text, reason=UNSHOWN))
            continue
        span = sentence.span
        steps.append(
            Step(
                id=str(number + 1),
                text=sentence.text,
                spans=(span,),
                at=span.center,
                said=span,
                status="shown",
                score=sentence.shown,
                sources=(number,),
            )
        )
    return record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


def export(dataset: DatasetContext) -> None:
    """Write the dataset into the stage's folder; `stepline.curate.driver` publishes it in
    OUT/dataset."""
    from stepline.curate.stages import STAGES

    recipe = dataset.recipe
    features = dataset.folders["gather"] / FEATURES
    tree = export_dataset(
        DatasetContents(
            records=lambda: last_records(dataset),
            left_out=read_left_out(last_folder(dataset)),
            items={item.id: item for item in dataset.items},
            stages=recipe.stages,
            settings={name: STAGES[name].settings(recipe) for name in recipe.stages},
            features=FeatureStore(features) if any(features.glob("shard-*.parquet")) else None,
            media={
                item.id: RemotePath(item.video, recipe.places)
                for item in dataset.items
                if item.video is not None
            },
        ),
        dataset.folder,
        recipe.export,
    )
    dataset.say(
        f"{tree['videos']} videos with {tree['steps']} steps in the dataset, {tree['left_out']} left out"
    )
