"""The stages that keep only what is right, and the one that makes the records a dataset to publish.

clean      steps of which everything holds, by four scores: they read as steps (`sieve_swap`'s wording), what is
           said supports them, they are shown, and grounding and network place them alike
visible    narrations whose picture shows what they say, as a dataset of their own (WYS2, section 3). Without a
           detector: those on which a step rests
export     the records of the stage before it, as files that people can load
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepline.curate.export.dataset import DatasetContents, export_dataset
from stepline.curate.settings import CleanSettings, VisibleSettings
from stepline.curate.stage import DatasetContext, StageFailure
from stepline.curate.stages.gather import (
    FEATURES_FOLDER,
    RECORDS_FILE,
    preceding_stage_folder,
    preceding_stage_records,
    read_stage_failures,
    write_dataset,
)
from stepline.features import FeatureStore
from stepline.models.nasva.predict import CALIBRATE_ADVICE, NOT_CALIBRATED
from stepline.outputs.text import no_step_text
from stepline.records import Record, Rejected, Step
from stepline.storage import read_parquet
from stepline.text import embed

# Reasons of dropped steps, and of videos that are left out.
NO_STEP_WORDING = "its wording states no step"
NO_SUPPORT = "nothing that is said supports it"
NOT_SHOWN = "it is not shown"
PLACED_APART = "grounding and network place it apart"
TOO_FEW_STEPS = "too few clean steps are left of it"


@dataclass(frozen=True)
class StepScores:
    """Four scores of a step.

    Attributes:
        wording: P(the text describes a step).
        support: highest cosine of the step to one of its source sentences, 0 without any.
        visibility: P(shown), by the model that grounded the step last. 0 if unknown.
        agreement: IoU of its spans by the grounding and by the trained network, 1 if not compared.
    """

    wording: float
    support: float
    visibility: float
    agreement: float


def run_clean(dataset: DatasetContext) -> None:
    """Write the records with only those steps whose four scores are high enough (the stage
    `clean`). Dropped steps are listed with a reason.

    A video without a remaining step is left out.
    """
    settings = dataset.recipe.clean
    left_out = read_stage_failures(preceding_stage_folder(dataset))
    gathered = read_parquet(dataset.folders["gather"] / RECORDS_FILE)
    # Two places of a step can be compared only where both stages are in the recipe, and no other
    # step has its id since.
    placed_twice = (
        "refine" in dataset.folders
        and "ground" in dataset.recipe.stages
        and "sieve-swap" not in dataset.folders
    )
    step_count = 0

    def clean_records() -> Iterator[Record]:
        nonlocal step_count
        for record in preceding_stage_records(dataset):
            grounded: Sequence[Step] = ()
            if placed_twice:
                # Both are sorted by id, so that one record of either is in memory.
                grounded = next(other.steps for other in gathered if other.id == record.id)
            cleaned = clean_record(record, grounded, settings)
            if cleaned.steps:
                step_count += len(cleaned.steps)
                yield cleaned
            else:
                left_out[record.id] = StageFailure(record.id, "clean", "left out", TOO_FEW_STEPS)

    count = write_dataset(dataset.folder, clean_records(), left_out)
    dataset.say(f"{step_count} clean steps in {count} videos")


def clean_record(record: Record, grounded: Sequence[Step], settings: CleanSettings) -> Record:
    """Return a record without the steps whose scores are too low. They are added to `dropped`.

    Args:
        record: record of the preceding stage.
        grounded: steps of the stage `ground`, with which the spans of the network are compared. Empty: no
            span is compared or replaced.
        settings: minimal scores. With spans="grounding" each step gets its span in `grounded`.
    """
    steps = []
    dropped = []
    for step, scores in zip(record.steps, score_steps(record, grounded), strict=True):
        reason = drop_reason(step, scores, settings)
        if reason is not None:
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
        elif settings.spans == "grounding":
            steps.append(_use_grounded_span(step, grounded))
        else:
            steps.append(step)
    return _with_steps(record, steps, dropped)


def _with_steps(record: Record, steps: Sequence[Step], dropped: Sequence[Rejected]) -> Record:
    update = {"steps": tuple(steps), "dropped": (*record.dropped, *dropped)}
    return record.model_copy(update=update)


def _use_grounded_span(step: Step, grounded: Sequence[Step]) -> Step:
    """Return a step with the span that the stage `ground` gave it, or unchanged without one."""
    # The grounding knows where shots end, so its span is the cleaner one.
    for other in grounded:
        if other.id == step.id and other.spans:
            span = other.spans[0]
            at = step.at
            if at is None or at not in span:
                at = span.center
            return step.model_copy(update={"spans": (span,), "at": at})
    return step


def score_steps(record: Record, grounded: Sequence[Step]) -> list[StepScores]:
    """Return the four scores of each step.

    grounded: steps of the stage `ground`. Empty: agreement is 1.
    """
    from stepline.sieve_swap.swap import instruction_probability

    if not record.steps:
        return []
    # The four scores of a step, with vectors of all texts made together.
    vectors = embed([step.text for step in record.steps])
    likeness = vectors @ embed([sentence.text for sentence in record.sentences]).T  # (K, S)
    wordings = instruction_probability(vectors)  # (K,)
    spans = {step.id: step.spans for step in grounded}
    scores = []
    for step, wording, row in zip(record.steps, wordings, likeness, strict=True):
        others = spans.get(step.id, ())
        # Without a second opinion, nothing disagrees.
        agreement = 1.0
        if step.spans and others:
            agreement = step.spans[0].iou(others[0])
        elif grounded:
            agreement = 0.0
        support = max((float(row[source]) for source in step.sources), default=0.0)
        scores.append(StepScores(float(wording), support, step.score or 0.0, agreement))
    return scores


def drop_reason(step: Step, scores: StepScores, settings: CleanSettings) -> str | None:
    """Return the first reason to drop a step, None if the step stays."""
    if scores.wording < settings.written:
        return NO_STEP_WORDING
    if scores.support < settings.supported:
        return NO_SUPPORT
    is_placed = step.status in ("seen", "placed") and step.spans
    if not is_placed or scores.visibility < settings.shown:
        return NOT_SHOWN
    if scores.agreement < settings.placed:
        return PLACED_APART
    return None


# Reasons of dropped sentences, and of videos that are left out.
NOT_SHOWN_SENTENCE = "the picture does not show it"
NO_STEP_OF_SENTENCE = "no placed step without a doubt rests on it"
FEW_SHOWN = "too few of its sentences are shown"
NO_STEP_OF_VIDEO = "no placed step without a doubt rests on its sentences"


def run_visible(dataset: DatasetContext) -> None:
    """Write records whose steps are the sentences that are shown while they are spoken.

    Without a detector they are the sentences on which a step rests. A video without such a sentence
    is left out. Source: WYS2, section 3.
    """
    settings = dataset.recipe.visible
    source = dataset.folders["gather"]
    left_out = read_stage_failures(source)
    what = "narrations with a step"
    if dataset.recipe.steps.nasva.aligner.path is None:
        what += " (nothing judged the picture)"
    narration_count = 0

    def visible_records() -> Iterator[Record]:
        nonlocal what, narration_count
        for record in read_parquet(source / RECORDS_FILE):
            visible = select_shown_sentences(record, settings)
            # A video without steps is left out for that, not for its pictures.
            if any(each.shown is not None for each in record.sentences):
                what, reason = "visual narrations", FEW_SHOWN
            else:
                reason = NO_STEP_OF_VIDEO if record.steps else no_step_text(record)
                if any(step.doubt == NOT_CALIBRATED for step in record.steps):
                    reason = f"{NO_STEP_OF_VIDEO}: each is {NOT_CALIBRATED}; {CALIBRATE_ADVICE}"
            if visible.steps:
                narration_count += len(visible.steps)
                yield visible
            else:
                left_out[record.id] = StageFailure(record.id, "visible", "left out", reason)

    count = write_dataset(dataset.folder, visible_records(), left_out)
    dataset.say(f"{narration_count} {what} in {count} videos")


def select_shown_sentences(record: Record, settings: VisibleSettings) -> Record:
    """Return a record with its shown sentences as steps. All other sentences are dropped.

    settings: minimal P(shown) of a detector. Without one, a sentence is kept if a placed step
        without a doubt rests on it.
    """
    citing = {}
    for step in record.steps:
        if step.spans and step.doubt is None:
            citing.update(dict.fromkeys(step.sources, step))
    steps = []
    dropped = []
    # A narration that is kept becomes a step where it is said.
    for number, sentence in enumerate(record.sentences):
        is_kept, reason = number in citing, NO_STEP_OF_SENTENCE
        if sentence.shown is not None:
            is_kept, reason = sentence.shown >= settings.shown, NOT_SHOWN_SENTENCE
        if not is_kept:
            dropped.append(Rejected(what="sentence", text=sentence.text, reason=reason))
            continue
        span = sentence.span
        steps.append(
            Step(
                id=str(number + 1),
                text=sentence.text,
                spans=(span,),
                at=span.center,
                said=span,
                status="placed" if sentence.shown is None else "seen",
                basis=None if sentence.shown is None else "network",
                score=sentence.shown,
                sources=(number,),
            )
        )
    return _with_steps(record, steps, dropped)


def run_export(dataset: DatasetContext) -> None:
    """Write the files of the dataset into the stage's folder (the stage `export`).

    `curate` publishes them at the end.
    """
    recipe = dataset.recipe
    features = None
    # Features of the videos, as far as they are there.
    features_folder = dataset.folders["gather"] / FEATURES_FOLDER
    if any(features_folder.glob("shard-*.parquet")):
        features = FeatureStore(features_folder)
    contents = DatasetContents(
        records=lambda: preceding_stage_records(dataset),
        left_out=read_stage_failures(preceding_stage_folder(dataset)),
        items={item.id: item for item in dataset.items},
        stages=recipe.stages,
        settings=dict(dataset.stage_settings),
        features=features,
    )
    tree = export_dataset(contents, dataset.folder, recipe.export)
    dataset.say(
        f"{tree['videos']} videos with {tree['steps']} steps in the dataset, "
        f"{tree['left_out']} left out"
    )
