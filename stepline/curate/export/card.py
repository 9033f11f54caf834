"""The dataset card: a README that people read, whose head tells dataset hubs how to load it.

Its numbers are those of `dataset.json`, which `describe_dataset` makes when the last record is
written.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from stepline.curate.export.shards import COLUMNS, ExportedFile
from stepline.curate.report.collect import DatasetCounts
from stepline.curate.report.sections import biases
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure
from stepline.records import VERSION, Record
from stepline.version import __version__
from stepline.weights import known_weights

if TYPE_CHECKING:
    from jinja2 import Template

# the hubs' words
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
LANGUAGE = re.compile(r"[a-z]{2,3}")  # codes of ISO 639, the only ones that hubs take
PAPERS = {  # stage -> whose method it is
    "coarse": "Li et al., Multi-Sentence Grounding for Long-term Instructional Video (NaSVA, HowToStep), ECCV 2024",
    "sieve-swap": "Batra et al., Efficient Pre-training for Localized Instruction Generation of Procedural Videos "
    "(Sieve & Swap, ProcX), ECCV 2024",
    "judge": "Ashutosh et al., What You Say Is What You Show: Visual Narration Detection in Instructional Videos",
}


def dataset_card(
    dataset: Mapping[str, JsonValue], settings: ExportSettings, stages: Sequence[str]
) -> str:
    """Return the card of a dataset. dataset: its `dataset.json`; stages: of its recipe."""
    languages = dataset["languages"]
    codes = (
        sorted({code.split("-")[0] for code in languages}) if isinstance(languages, dict) else []
    )
    count = videos if isinstance(videos := dataset["videos"], int) else 0
    return _template().render(
        name=_plain(settings.name),
        licence=settings.licence,
        codes=[code for code in codes if LANGUAGE.fullmatch(code)],
        size=next((word for limit, word in SIZES if count < limit), "1M<n<10M"),
        tars=settings.webdataset,
        media=settings.webdataset and settings.media,
        dataset=dataset,
        columns=COLUMNS,
        settings=_settings(dataset["settings"], stages),
        papers=[paper for stage, paper in PAPERS.items() if stage in stages]
        or list(PAPERS.values())[:1],
    )


def _settings(settings: JsonValue, stages: Sequence[str]) -> dict[str, str]:
    """Return the settings of each stage as one line of code, in the recipe's order."""
    known = settings if isinstance(settings, dict) else {}
    names = [*(name for name in stages if name in known), *sorted(set(known) - set(stages))]
    lines = {name: json.dumps(known[name], ensure_ascii=False, sort_keys=True) for name in names}
    return {name: line.replace("`", "'") for name, line in lines.items() if line != "null"}


@lru_cache(maxsize=1)
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["pairs"] = pairs
    source = files("stepline.curate.export").joinpath("card.txt").read_text(encoding="utf-8")
    return environment.from_string(source)


def pairs(counted: Mapping[str, int], most: int = 6) -> str:
    """Return counts as text for a cell of a table: "en 12, de 3, 4 others"; reasons may come from
    anywhere."""
    shown = [f"{_plain(name)} {count:,}" for name, count in list(counted.items())[:most]]
    rest = sum(list(counted.values())[most:])
    return ", ".join([*shown, *([f"{rest:,} others"] if rest else [])]) or "none"


def _plain(text: Any) -> str:
    """Return text that Markdown takes as it is, on one line."""
    return re.sub(r"([|`<>\[\]*_\\])", r"\\\1", " ".join(str(text).split()))[:300]


MAKERS = ("asr", "writer", "vision", "judge")  # of a record's `models`, what the card names
NAMED = 50  # distinct makers of one kind that are counted; more would be no names
STARTS = {"conse": ("efficientnet-lite0", "minilm")}  # weights behind a name
SOURCE = "source"
NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:[.,:]\d+)*")  # but no part of a word, as in mp4
# with or without a word before it, as in clip:/weights/clip
PATH = re.compile(r"(\w+:)?[^\s:]*/[^\s:/]+")


@dataclass(frozen=True)
class StageLosses:
    """What a stage left out. entered: videos that reached it; dropped: reason -> videos, the
    commonest first."""

    stage: str
    entered: int
    dropped: Mapping[str, int]

    @property
    def kept(self) -> int:
        """Videos that left it."""
        return self.entered - sum(self.dropped.values())


def stage_losses(
    left_out: Iterable[StageFailure], kept: int, stages: Sequence[str]
) -> list[StageLosses]:
    """Return what each stage left out, in the recipe's order; reasons that differ in numbers alone
    are one."""
    lost: dict[str, Counter[str]] = {}
    for failure in left_out:
        # As the reason reads for every video: without the video's id, with # for each number.
        reason = NUMBER.sub("#", failure.reason.removeprefix(f"{failure.id}: "))
        lost.setdefault(failure.stage, Counter())[reason] += 1
    entered = kept + sum(reasons.total() for reasons in lost.values())
    losses = []
    for stage in (SOURCE, *stages, *sorted(set(lost) - {SOURCE, *stages})):
        losses.append(StageLosses(stage, entered, _sorted(lost.get(stage, Counter()))))
        entered = losses[-1].kept
    return losses


@dataclass
class DatasetFacts:
    """Counts of the records, and of those who made what is in them."""

    counts: DatasetCounts = field(default_factory=DatasetCounts)
    makers: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in MAKERS}
    )
    featured: int = 0  # videos with features

    def add(self, record: Record) -> None:
        """Count a record that is in the dataset."""
        self.counts.add(record)
        for name, counter in self.makers.items():
            value = record.models.get(name)
            if isinstance(value, str) and (value in counter or len(counter) < NAMED):
                counter[value] += 1

    def weights(self) -> list[str]:
        """Return the names of the known weights behind the dataset, sorted."""
        values = [value for counter in self.makers.values() for value in counter]
        used = {name for name in known_weights() if any(name in value for value in values)}
        return sorted(used.union(*(STARTS.get(value, ()) for value in values)))


def describe_dataset(
    facts: DatasetFacts,
    losses: Sequence[StageLosses],
    files: Sequence[ExportedFile],
    settings: ExportSettings,
    stage_settings: JsonValue,
) -> dict[str, JsonValue]:
    """Return `dataset.json`: all that machines may ask. stage_settings: of each stage, what decides
    it."""
    counts = facts.counts
    stages: list[JsonValue] = [
        {
            "stage": loss.stage,
            "entered": loss.entered,
            "kept": loss.kept,
            "dropped": dict(loss.dropped),
        }
        for loss in losses
    ]
    return {
        "name": settings.name,
        "licence": settings.licence,
        "stepline": __version__,
        "record_version": VERSION,
        "videos": counts.kept,
        "left_out": losses[0].entered - counts.kept,
        "hours": round(counts.hours, 4),
        "steps": counts.steps,
        "steps_placed": counts.placed,
        "sentences": counts.sentences,
        "with_features": facts.featured,
        "tasks": len(counts.tasks),
        "languages": _json(counts.languages),
        "step_statuses": _json(counts.statuses),
        "step_licences": _json(counts.licences),
        "dropped_steps": _json(counts.dropped_steps),
        "dropped_sentences": _json(counts.dropped_sentences),
        "stages": stages,
        "makers": {name: _json(counter) for name, counter in facts.makers.items()},
        "weights": {name: known_weights()[name].licence for name in facts.weights()},
        "settings": stage_settings,
        "biases": list(biases(counts)),
        "files": [
            {"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in files
        ],
    }


def without_folders(value: JsonValue) -> JsonValue:
    """Return settings in which every path is its last name: folders of a machine are nobody else's
    business."""
    if isinstance(value, dict):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    if isinstance(value, str) and PATH.fullmatch(value):
        return (
            f"{value.partition(':')[0]}:{value.rpartition('/')[2]}"
            if ":" in value
            else value.rpartition("/")[2]
        )
    return value


def _sorted(counter: Counter[str]) -> dict[str, int]:
    """Return the counts, the largest first."""
    return dict(sorted(counter.items(), key=lambda pair: (-pair[1], pair[0])))


def _json(counter: Counter[str]) -> dict[str, JsonValue]:
    return {**_sorted(counter)}
