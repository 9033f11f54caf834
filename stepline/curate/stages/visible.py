"""Narrations whose picture shows what they say, as a dataset of their own (WYS2, section 3)."""

from stepline.curate.stage import Failure, Gathered
from stepline.curate.stage_settings import VisibleSettings
from stepline.curate.stages.dataset import RECORDS, read_left_out, write_dataset
from stepline.records import Dropped, Record, Step
from stepline.store import read_parquet

UNSHOWN, NOBODY = "the picture does not show it", "nobody could judge what is said in it"
FEW = "too few of its sentences are shown"


def visible(gathered: Gathered) -> None:
    """Write records whose steps are the sentences that are shown while they are said; the others are dropped."""
    settings = gathered.recipe.visible
    source = gathered.folders["gather"]
    left_out = read_left_out(source)
    kept: list[Record] = []
    for record in read_parquet(source / RECORDS):
        reason = NOBODY if not _is_judged(record) else None
        shown = visible_record(record, settings)
        if reason is None and len(shown.steps) < settings.least:
            reason = FEW
        if reason is None:
            kept.append(shown)
        else:
            left_out[record.id] = Failure(record.id, "visible", "left out", reason)
    write_dataset(gathered.folder, kept, left_out)
    gathered.say(f"{sum(len(record.steps) for record in kept)} visual narrations in {len(kept)} videos")


def visible_record(record: Record, settings: VisibleSettings) -> Record:
    """Return the record with its visual narrations as steps, each shown where it is said."""
    steps: list[Step] = []
    dropped: list[Dropped] = []
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
            dropped.append(Dropped(what="sentence", text=one.text, reason=UNSHOWN))
    return record.model_copy(update={"steps": tuple(steps), "dropped": (*record.dropped, *dropped)})


def _is_judged(record: Record) -> bool:
    return record.transcript is not None and any(one.shown is not None for one in record.transcript.sentences)
