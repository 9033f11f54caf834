"""The dataset card: a README that people read, whose head tells dataset hubs how to load it."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from stepline.curate.export.rows import COLUMNS
from stepline.curate.settings import ExportSettings

if TYPE_CHECKING:
    from jinja2 import Template

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))  # the hubs' words
LANGUAGE = re.compile(r"[a-z]{2,3}")  # codes of ISO 639, the only ones that hubs take
PAPERS = {  # stage -> whose method it is
    "coarse": "Li et al., Multi-Sentence Grounding for Long-term Instructional Video (NaSVA, HowToStep), ECCV 2024",
    "sieve-swap": "Batra et al., Efficient Pre-training for Localized Instruction Generation of Procedural Videos "
    "(Sieve & Swap, ProcX), ECCV 2024",
    "judge": "Ashutosh et al., What You Say Is What You Show: Visual Narration Detection in Instructional Videos",
}


def card(told: Mapping[str, JsonValue], settings: ExportSettings, stages: Sequence[str]) -> str:
    """Return the card of a dataset. told: its `dataset.json`; stages: of its recipe."""
    languages = told["languages"]
    codes = sorted({code.split("-")[0] for code in languages}) if isinstance(languages, dict) else []
    videos = told["videos"]
    count = videos if isinstance(videos, int) else 0
    return _template().render(
        name=_plain(settings.name),
        licence=settings.licence,
        codes=[code for code in codes if LANGUAGE.fullmatch(code)],
        size=next((word for limit, word in SIZES if count < limit), "1M<n<10M"),
        media=settings.webdataset and settings.media,
        told=told,
        columns=COLUMNS,
        settings=_settings(told["settings"], stages),
        papers=[paper for stage, paper in PAPERS.items() if stage in stages] or list(PAPERS.values())[:1],
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

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters["pairs"] = pairs
    source = files("stepline.curate.export").joinpath("card.txt").read_text(encoding="utf-8")
    return environment.from_string(source)


def pairs(counted: Mapping[str, int], most: int = 6) -> str:
    """Return counts as text for a cell of a table: "en 12, de 3, 4 others"; reasons may come from anywhere."""
    shown = [f"{_plain(name)} {count:,}" for name, count in list(counted.items())[:most]]
    rest = sum(list(counted.values())[most:])
    return ", ".join([*shown, *([f"{rest:,} others"] if rest else [])]) or "none"


def _plain(text: Any) -> str:
    """Return text that Markdown takes as it is, on one line."""
    return re.sub(r"([|`<>\[\]*_\\])", r"\\\1", " ".join(str(text).split()))[:300]
