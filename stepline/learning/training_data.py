"""Corrected videos as data: records and features that the trainers read, and a test set where two
people agree.

    DIR/records/NAME.json   what people left of the steps, as `steps` and as `reference`
    DIR/features            a store of what is seen of them, one row a second
    DIR/test/NAME.json      of videos that several people corrected: as `reference`, the steps on which they agree
    DIR/agreement.json      how well they agree
    DIR/answers.jsonl       what annotators said of clips at /annotate/, in the form of `stepline annotate vnd`

    stepline train nasva --features DIR/features --steps DIR/records --step-vectors conse ...
    stepline train procx --features DIR/features --steps DIR/records --set data.target=reference ...
    stepline train wys2  --features DIR/features --key-steps DIR/records ...

Videos of the test set are not among the others.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from stepline.annotate.answers import cohen_kappa
from stepline.atomic_files import write_atomic
from stepline.errors import StoreError
from stepline.features import FeatureWriter
from stepline.learning.corrected_videos import CorrectedVideos
from stepline.library.corrections import Correction, active_corrections, corrected
from stepline.outputs.text import safe_stem
from stepline.records import Record, Step
from stepline.storage import write_record
from stepline.studio.store import Studio

AGREE = 0.5  # tIoU from which two people mean the same seconds


@dataclass(frozen=True)
class CorrectorAgreement:
    """How well people agree who corrected the same videos, over pairs of them and the machine's
    steps.

    kappa: Cohen's, of "shown", "not shown" and "no step"; same: the fraction that is equal;
    overlap: the mean tIoU over `both`, the steps that both have as shown. None where undefined. Who
    came second saw the first one's work: an upper bound.
    """

    videos: int
    pairs: int
    steps: int
    both: int
    kappa: float | None
    same: float | None
    overlap: float | None


def records_by_person(machine: Record, corrections: Sequence[Correction]) -> dict[str, Record]:
    """Return the record as each person left it: as it stood after their last correction."""
    last = {correction.by: number for number, correction in enumerate(corrections, start=1)}
    return {by: corrected(machine, corrections[:number]).record for by, number in last.items()}


def agreement(videos: Sequence[tuple[Record, dict[str, Record]]]) -> CorrectorAgreement:
    """Return how well people agree on videos, each the machine's record and those that people
    left."""
    first, second, overlaps = list[int](), list[int](), list[float]()
    pairs = 0
    for machine, left in videos:
        for one, other in combinations(left.values(), 2):
            pairs += 1
            for id in (step.id for step in machine.steps):
                a, b = (_step(record, id) for record in (one, other))
                first.append(_category(a))
                second.append(_category(b))
                if (
                    a is not None
                    and b is not None
                    and _category(a) == _category(b) == 1
                    and a.spans
                    and b.spans
                ):
                    overlaps.append(a.spans[0].iou(b.spans[0]))
    x, y = np.array(first, dtype=np.int_), np.array(second, dtype=np.int_)
    return CorrectorAgreement(
        len(videos),
        pairs,
        len(x),
        len(overlaps),
        cohen_kappa(x, y),
        float((x == y).mean()) if len(x) else None,
        float(np.mean(overlaps)) if overlaps else None,
    )


def _step(record: Record, id: str) -> Step | None:
    return next((step for step in record.steps if step.id == id), None)


def _category(step: Step | None) -> int:
    """Return 0 of no step, 1 of a shown one, 2 of one that is not shown."""
    return 0 if step is None else 1 if step.status == "shown" else 2


def agreed_steps(left: Sequence[Record]) -> tuple[Step, ...]:
    """Return the last person's steps on which all agree: that they are steps, whether shown, and
    where."""
    last = left[-1]
    return tuple(
        step for step in last.steps if all(_same(step, _step(record, step.id)) for record in left)
    )


def _same(step: Step, other: Step | None) -> bool:
    if other is None or _category(step) != _category(other):
        return False
    return not (step.spans and other.spans) or step.spans[0].iou(other.spans[0]) >= AGREE


def export_corrected(studio: Studio, videos: CorrectedVideos, out: Path) -> list[str]:
    """Write the corrected videos of a library, and return what was written, in words.

    Raises StoreError where two videos have one id, or the folder holds another export.
    """
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out}: holds files already; give --export another folder")
    seen = {video.machine.video.id: video.seen.features for video in videos.found}
    if len(seen) < len(videos.found):
        raise StoreError(
            "two corrected videos have one id; give one of their files another name and find its steps"
        )
    checked, trained = list[tuple[Record, dict[str, Record]]](), 0
    with FeatureWriter(out / "features") as features:
        for card in studio.videos():
            corrections = studio.corrections(card.id)
            machine = studio.record(card.id)
            if not active_corrections(corrections) or machine.video.id not in seen:
                continue
            rows = seen[machine.video.id]
            if rows is not None:
                features.add(machine.video.id, rows.values, rate=rows.rate, backbone=rows.backbone)
            left, name = records_by_person(machine, corrections), f"{safe_stem(machine.id)}.json"
            if len(left) > 1:
                checked.append((machine, left))
                last = studio.corrected(card.id).record
                write_record(
                    _with_reference(last, agreed_steps([*left.values(), last])), out / "test" / name
                )
            else:
                record = studio.corrected(card.id).record
                write_record(_with_reference(record, record.steps), out / "records" / name)
                trained += 1
    told = agreement(checked)
    write_atomic(out / "agreement.json", json.dumps(asdict(told), indent=2) + "\n")
    answers = studio.answers()
    write_atomic(
        out / "answers.jsonl", "".join(f"{answer.model_dump_json()}\n" for answer in answers)
    )
    lines = [
        f"{out / 'records'}: {trained} videos to train on",
        f"{out / 'features'}: what is seen of all",
    ]
    if checked:
        kappa = "undefined" if told.kappa is None else f"{told.kappa:.2f}"
        lines.append(
            f"{out / 'test'}: {len(checked)} videos that several people corrected, kappa {kappa}"
        )
    return lines


def _with_reference(record: Record, steps: Sequence[Step]) -> Record:
    """Return the record with steps that people placed as its reference: their best spans, none
    where not shown."""
    placed = tuple(
        step.model_copy(update={"spans": step.spans[:1] if step.status == "shown" else ()})
        for step in steps
    )
    return record.model_copy(update={"reference": placed})
