"""What is known of a dataset when its last record is written: the numbers of its card and of its metadata."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from stepline import __version__
from stepline.curate.export.shards import Written
from stepline.curate.report.biases import biases
from stepline.curate.report.counts import Counts
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import Failure
from stepline.models import WEIGHTS
from stepline.records import VERSION, Record

MAKERS = ("asr", "writer", "vision", "judge")  # of a record's `models`, what the card names
NAMED = 50  # distinct makers of one kind that are counted; more would be no names
STARTS = {"conse": ("efficientnet-lite0", "minilm")}  # weights behind a name
SOURCE = "source"
NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[.,:]\d+)*")  # but no part of a word, as in mp4
PATH = re.compile(r"(\w+:)?[^\s:]*/[^\s:/]+")  # with or without a word before it, as in clip:/weights/clip


@dataclass(frozen=True)
class Fall:
    """What a stage left out. entered: videos that reached it; dropped: reason -> videos, the commonest first."""

    stage: str
    entered: int
    dropped: Mapping[str, int]

    @property
    def kept(self) -> int:
        """Videos that left it."""
        return self.entered - sum(self.dropped.values())


@dataclass
class Facts:
    """Counts of the records, and of those who made what is in them."""

    counts: Counts = field(default_factory=Counts)
    makers: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in MAKERS})
    featured: int = 0  # videos with features

    def add(self, record: Record) -> None:
        """Count a record that is in the dataset."""
        self.counts.add(record)
        for name, found in self.makers.items():
            value = record.models.get(name)
            if isinstance(value, str) and (value in found or len(found) < NAMED):
                found[value] += 1

    def weights(self) -> list[str]:
        """Return the names of the known weights behind the dataset, sorted."""
        values = [value for found in self.makers.values() for value in found]
        used = {name for name in WEIGHTS if any(name in value for value in values)}
        for value in values:
            used |= set(STARTS.get(value, ()))
        return sorted(used)


def falls(left_out: Iterable[Failure], kept: int, stages: Sequence[str]) -> list[Fall]:
    """Return what each stage left out, in the recipe's order; reasons that differ in numbers alone are one."""
    lost: dict[str, Counter[str]] = {}
    for failure in left_out:
        lost.setdefault(failure.stage, Counter())[common_reason(failure)] += 1
    entered = kept + sum(sum(reasons.values()) for reasons in lost.values())
    order = [SOURCE, *stages, *sorted(set(lost) - {SOURCE, *stages})]
    found = []
    for stage in order:
        reasons = sorted(lost.get(stage, Counter()).items(), key=lambda pair: (-pair[1], pair[0]))
        fall = Fall(stage, entered, dict(reasons))
        entered = fall.kept
        found.append(fall)
    return found


def common_reason(failure: Failure) -> str:
    """Return a failure's reason as it reads for every video: without the video's id, with # for each number."""
    return NUMBER.sub("#", failure.reason.removeprefix(f"{failure.id}: "))


def told(
    facts: Facts, fallen: Sequence[Fall], files: Sequence[Written], settings: ExportSettings, how: JsonValue
) -> dict[str, JsonValue]:
    """Return `dataset.json`: everything that machines may ask. how: of each stage, the settings that decide it."""
    counts = facts.counts
    licences: dict[str, JsonValue] = {name: WEIGHTS[name].licence for name in facts.weights()}
    return {
        "name": settings.name,
        "licence": settings.licence,
        "stepline": __version__,
        "record_version": VERSION,
        "videos": counts.kept,
        "left_out": fallen[0].entered - counts.kept,
        "hours": round(counts.hours, 4),
        "steps": counts.steps,
        "steps_placed": counts.placed,
        "sentences": counts.sentences,
        "with_features": facts.featured,
        "tasks": len(counts.tasks),
        "languages": _sorted(counts.languages),
        "step_statuses": _sorted(counts.statuses),
        "step_licences": _sorted(counts.licences),
        "dropped_steps": _sorted(counts.dropped_steps),
        "dropped_sentences": _sorted(counts.dropped_sentences),
        "stages": [
            {"stage": f.stage, "entered": f.entered, "kept": f.kept, "dropped": dict(f.dropped)} for f in fallen
        ],
        "makers": {name: _sorted(found) for name, found in facts.makers.items()},
        "weights": licences,  # name -> licence
        "settings": how,
        "biases": list(biases(counts)),
        "files": [{"path": each.path, "bytes": each.bytes, "sha256": each.sha256} for each in files],
    }


def without_folders(value: JsonValue) -> JsonValue:
    """Return settings in which every path is its last name: folders of a machine are nobody else's business."""
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_folders(each) for each in value]
    if isinstance(value, str) and PATH.fullmatch(value):
        return f"{value.partition(':')[0]}:{value.rpartition('/')[2]}" if ":" in value else value.rpartition("/")[2]
    return value


def _sorted(counter: Counter[str]) -> dict[str, JsonValue]:
    return {name: counter[name] for name in sorted(counter, key=lambda name: (-counter[name], name))}
