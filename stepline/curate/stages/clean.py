"""Only steps of which everything holds: written as one, supported by what is said, shown, and placed alike.

Four readers: the wording (`sieve_swap.wording`), the likeness to the sentences that a step rests on, P(shown) of
whoever placed it last, and the overlap of two places: the grounding's, which trains nothing, and the network's.

Narrations whose picture shows what they say, as a dataset of their own (WYS2, section 3).

The last stage: the records of the stage before it become a dataset that can be published.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepline.curate.export import DatasetContents, export_dataset
from stepline.curate.remote import RemotePath
from stepline.curate.settings import CleanSettings, VisibleSettings
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.stages.gather import FEATURES, RECORDS, last_folder, last_records, read_left_out, write_dataset
from stepline.features import FeatureStore
from stepline.records import Record, Rejected, Span, Step
from stepline.storage import read_parquet

if TYPE_CHECKING:
    from collections.abc import Sequence

IDLE, UNSAID, UNSEEN = "its wording tells no step", "nothing that is said supports it", "it is not shown"
ASTRAY, FEW = "grounding and network place it apart", "too few clean steps are left of it"


@dataclass(frozen=True)
class Judged:
    """What is known of one step. wording: P(it tells a step); support: best cosine to its sentences, 0 without any."""

    wording: float
    support: float
    shown: float
    agreement: float


def clean(gathered: DatasetContext) -> None:
    """Write the records with their clean steps; the others are in `dropped`, each with its reason."""
    settings = gathered.recipe.clean
    left_out = read_left_out(last_folder(gathered))
    first = {record.id: record.steps for record in read_parquet(gathered.folders["gather"] / RECORDS)}
    agree = "refine" in gathered.folders and "ground" in gathered.recipe.stages

    def kept() -> Iterator[Record]:
        for record in last_records(gathered):
            cleaned = cleaned_record(record, first[record.id] if agree else (), settings)
            if len(cleaned.steps) >= max(1, settings.least):
                yield cleaned
            else:
                left_out[record.id] = StageFailure(record.id, "clean", "left out", FEW)

    records = list(kept())
    write_dataset(gathered.folder, records, left_out)
    gathered.say(f"{sum(len(record.steps) for record in records)} clean steps in {len(records)} videos")


def cleaned_record(record: Record, grounded: "Sequence[Step]", settings: CleanSettings) -> Record:
    """Return the record without the steps that fail; grounded: where the grounding has them, none to ask it nothing."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for step, known in zip(record.steps, judged_steps(record, grounded), strict=True):
        reason = refusal(step, known, settings)
        if reason is None:
            steps.append(_where_grounded(step, grounded) if settings.spans == "grounding" else step)
        else:
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
    return record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


def _where_grounded(step: Step, grounded: "Sequence[Step]") -> Step:
    """Return a step with the grounding's span, where that has one; its best second stays if it lies there."""
    span = next((one.spans[0] for one in grounded if one.id == step.id and one.spans), None)
    if span is None:
        return step
    at = step.at if step.at is not None and step.at in span else span.center
    return step.model_copy(update={"spans": (span,), "at": at})


def judged_steps(record: Record, grounded: "Sequence[Step]") -> list[Judged]:
    """Return what the four readers say of each step."""
    from stepline.sieve_swap.instruction_classifier import instructs
    from stepline.text import embed

    if not record.steps:
        return []
    sentences = record.transcript.sentences if record.transcript else ()
    vectors = embed([step.text for step in record.steps])
    likeness = vectors @ embed([one.text for one in sentences]).T  # (K, S)
    places = {step.id: step.spans for step in grounded}
    return [
        Judged(
            float(wording),
            max((float(row[source]) for source in step.sources), default=0.0),
            step.score if step.score is not None else 0.0,
            _agreement(step.spans, places.get(step.id)) if grounded else 1.0,
        )
        for step, wording, row in zip(record.steps, instructs(vectors), likeness, strict=True)
    ]


def refusal(step: Step, known: Judged, settings: CleanSettings) -> str | None:
    """Return why a step goes, the first reason of several; None where it stays."""
    if known.wording < settings.written:
        return IDLE
    if known.support < settings.supported:
        return UNSAID
    if step.status != "shown" or not step.spans or known.shown < settings.shown:
        return UNSEEN
    return ASTRAY if known.agreement < settings.placed else None


def _agreement(spans: "Sequence[Span]", others: "Sequence[Span] | None") -> float:
    """Return the IoU of two best spans, 0 where one side has none."""
    return spans[0].iou(others[0]) if spans and others else 0.0


UNSHOWN, NOBODY = "the picture does not show it", "nobody could judge what is said in it"
FEW_SHOWN = "too few of its sentences are shown"


def visible(gathered: DatasetContext) -> None:
    """Write records whose steps are the sentences that are shown while they are said; the others are dropped."""
    settings = gathered.recipe.visible
    source = gathered.folders["gather"]
    left_out = read_left_out(source)
    kept: list[Record] = []
    for record in read_parquet(source / RECORDS):
        reason = NOBODY if not _is_judged(record) else None
        shown = visible_record(record, settings)
        if reason is None and len(shown.steps) < settings.least:
            reason = FEW_SHOWN
        if reason is None:
            kept.append(shown)
        else:
            left_out[record.id] = StageFailure(record.id, "visible", "left out", reason)
    write_dataset(gathered.folder, kept, left_out)
    gathered.say(f"{sum(len(record.steps) for record in kept)} visual narrations in {len(kept)} videos")


def visible_record(record: Record, settings: VisibleSettings) -> Record:
    """Return the record with its visual narrations as steps, each shown where it is said."""
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for number, one in enumerate(record.transcript.sentences if record.transcript else ()):
        if one.shown is not None and one.shown >= settings.shown:
            steps.append(
                Step(
                    id=str(number + 1),
                    text=one.text,
                    spans=(one.span,),
                    at=one.span.center,
                    said=one.span,
                    status="shown",
                    score=one.shown,
                    sources=(number,),
                )
            )
        else:
            dropped.append(Rejected(what="sentence", text=one.text, reason=UNSHOWN))
    return record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


def _is_judged(record: Record) -> bool:
    return record.transcript is not None and any(one.shown is not None for one in record.transcript.sentences)


def export(gathered: DatasetContext) -> None:
    """Write the dataset into the stage's folder; `stepline.curate.driver` publishes it in OUT/dataset."""
    from stepline.curate.stages import STAGES

    recipe = gathered.recipe
    features = gathered.folders["gather"] / FEATURES
    tree = export_dataset(
        DatasetContents(
            records=lambda: last_records(gathered),
            left_out=read_left_out(last_folder(gathered)),
            items={item.id: item for item in gathered.items},
            stages=recipe.stages,
            settings={name: STAGES[name].settings(recipe) for name in recipe.stages},
            features=FeatureStore(features) if any(features.glob("shard-*.parquet")) else None,
            media={item.id: RemotePath(item.video, recipe.places) for item in gathered.items if item.video is not None},
        ),
        gathered.folder,
        recipe.export,
    )
    gathered.say(f"{tree['videos']} videos with {tree['steps']} steps in the dataset, {tree['left_out']} left out")
