"""All that a report shows of a dataset, collected in one pass over its records.

Counts grow by a few numbers for each video (counts.py), examples and the audit's texts are random
samples of bounded size.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from stepline.curate.audit.sample import AuditSample, AuditSampler
from stepline.curate.report.counts import DatasetCounts
from stepline.curate.report.examples import ExampleVideo, example_video
from stepline.curate.sampling import ReservoirSample
from stepline.curate.settings import ReportSettings
from stepline.curate.stage import FailureKind, StageFailure
from stepline.records import Record

MAX_AUDIT_TEXTS = 25  # sentences and steps of a video that people check
MAX_EXAMPLE_STEPS = 4  # of a video
MAX_NAMED_VIDEOS = 3  # of a reason
NUMBER_PATTERN = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class ReasonRow:
    """Why videos have no result of a stage. Numbers in the reason read as #. videos: ids of the
    first few."""

    stage: str
    kind: str
    reason: str
    count: int
    videos: tuple[str, ...]


@dataclass(frozen=True)
class ReportFindings:
    """All that a report shows. notes: parts of the report that could not be made, and why."""

    counts: DatasetCounts
    reasons: tuple[ReasonRow, ...]
    sample: AuditSample
    examples: tuple[ExampleVideo, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[str, ...] = ()


def collect(
    records: Iterable[Record],
    settings: ReportSettings,
    *,
    failures: Sequence[StageFailure] = (),
    provenance: Mapping[str, str] | None = None,
    stages: tuple[str, ...] = (),
) -> ReportFindings:
    """Return what a report shows of a dataset.

    Args:
        records: kept and left out.
        settings: sizes of the samples, and their seed.
        failures: as the run noted them. A record of a left-out video does not know a hang from an
            error.
        provenance: lines that say where the dataset comes from.
        stages: of the recipe, in its order.
    """
    counts = DatasetCounts()
    sampler = AuditSampler(videos=settings.audit_videos, texts=MAX_AUDIT_TEXTS, seed=settings.seed)
    examples = ReservoirSample[ExampleVideo](settings.examples, seed=settings.seed)
    kinds: _KindsByStage = {}
    for failure in failures:
        kinds[failure.id, failure.stage] = failure.kind
    left_out: list[StageFailure] = []
    for record in records:
        if not counts.add(record):
            left_out.append(_failure(record, kinds))
            continue
        sampler.add(record)
        examples.add(record.id, example_video(record, MAX_EXAMPLE_STEPS))
    return ReportFindings(
        counts=counts,
        reasons=_reason_rows(left_out, stages),
        sample=sampler.sample(),
        examples=tuple(examples.values()),
        provenance=provenance or {},
        stages=stages,
    )


# The kind of each failure, by the id of its video and its stage.
_KindsByStage: TypeAlias = dict[tuple[str, str], FailureKind]


def _failure(record: Record, kinds: _KindsByStage) -> StageFailure:
    """Return why a left-out record is one. Its `dropped` names the stage as text."""
    # A video that is left out has one such entry, with the stage in front of the reason.
    dropped_videos = [dropped for dropped in record.dropped if dropped.what == "video"]
    dropped = dropped_videos[0]
    stage = dropped.text or "the dataset"
    kind = kinds.get((record.id, stage), "left out")
    reason = dropped.reason.removeprefix(f"{stage}: ")
    return StageFailure(record.id, stage, kind, reason)


def _reason_rows(
    failures: Sequence[StageFailure], stages: tuple[str, ...]
) -> tuple[ReasonRow, ...]:
    """Return the failures by stage (in the recipe's order), kind and reason, the commonest first in
    each stage."""
    # Equal but for numbers, two reasons are one.
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for failure in failures:
        reason = without_numbers(failure.reason)
        key = (failure.stage, failure.kind, reason)
        groups[key].append(failure.id)
    rows = []
    for (stage, kind, reason), ids in groups.items():
        ids.sort()
        first_ids = ids[:MAX_NAMED_VIDEOS]
        row = ReasonRow(stage, kind, reason, len(ids), tuple(first_ids))
        rows.append(row)
    # By stage, and in it the commonest reason first.
    rows.sort(key=lambda row: (row.stage, -row.count, row.reason))

    # Stages that the recipe does not name come last.
    ranks = {}
    for rank, stage in enumerate(stages):
        ranks[stage] = rank
    last = len(ranks)
    rows.sort(key=lambda row: ranks.get(row.stage, last))
    return tuple(rows)


def without_numbers(reason: str) -> str:
    """Return a reason that is equal for all that it happened to: its numbers read as #."""
    return NUMBER_PATTERN.sub("#", reason)
