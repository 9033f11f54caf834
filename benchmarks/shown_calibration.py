"""How far P(shown) can be believed, by where it comes from: python benchmarks/shown_calibration.py
CLIPS --cache DIR

CLIPS and DIR are those of `real_clips.py`. Kinds of clips: "narrated"
with labelled steps that someone says, "silent" with steps and no word, "talk" such as show nothing.
written: what the main job makes of them, where a labelled step is the same or the clip shows
nothing. Given: the labelled steps as `--texts`. Of talk, sentences of it. "words" and "pictures"
are what a step that is shown or unclear rests on (`basis`). The rest, said or not found, is "none".
ECE: mean distance of P(shown) from the share that is shown, ten bins.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import real_clips

from stepline.evaluate.calibration import calibration_error
from stepline.records import Record, Step

RESULT_PATH = Path(__file__).resolve().parent / "results" / "shown_calibration.json"


@dataclass(frozen=True)
class JudgedStep:
    """A step's P(shown) and whether it is shown. basis: what it rests on."""

    kind: str
    steps: str
    basis: str
    probability: float
    is_shown: bool


def kind_of(truth: dict[str, Any]) -> str:
    """Return the kind of a labelled clip."""
    if not truth["steps"]:
        return "talk"
    if any(step.get("spoken") for step in truth["steps"]):
        return "narrated"
    return "silent"


def judged_step(kind: str, steps: str, step: Step, is_shown: bool) -> JudgedStep:
    """Return a step of a record with its truth."""
    return JudgedStep(kind, steps, step.basis or "none", step.score or 0.0, is_shown)


def judged_steps(
    truths: dict[str, Any], records: dict[str, Record], clips: Path, cache: Path
) -> Iterator[JudgedStep]:
    """Yield the written and the given steps of all clips."""
    for name, truth in truths.items():
        kind = kind_of(truth)
        record = records[name]
        labels = truth["steps"]
        if kind == "talk":
            for step in record.steps:
                yield judged_step(kind, "written", step, is_shown=False)
        for label, step in real_clips.matched(labels, record.steps):
            yield judged_step(kind, "written", step, bool(label.get("shown")))
        lines = [label["text"] for label in labels] or truth["not_steps"]
        if not lines:
            continue
        pictures = real_clips.pictures(clips / name, cache)
        grounding = real_clips.placed_anew(record, pictures, lines)
        for number, step in enumerate(grounding.steps):
            is_shown = bool(labels and labels[number].get("shown"))
            yield judged_step(kind, "given", step, is_shown)


def figures(steps: list[JudgedStep]) -> dict[str, float]:
    """Return how many there are, mean P(shown), the share that is shown, and the ECE."""
    probabilities = np.array([step.probability for step in steps])
    is_shown = np.array([step.is_shown for step in steps])
    return {
        "steps": len(steps),
        "mean P(shown)": round(float(probabilities.mean()), 3),
        "shown": round(float(is_shown.mean()), 3),
        "ECE": round(calibration_error(is_shown, probabilities), 3),
    }


def table(steps: list[JudgedStep]) -> dict[str, dict[str, float]]:
    """Return the figures by source."""
    groups: dict[str, list[JudgedStep]] = {}
    for step in steps:
        groups.setdefault(f"{step.steps}, {step.kind}", []).append(step)
        groups.setdefault(f"{step.steps}, by {step.basis}", []).append(step)
        groups.setdefault(f"{step.steps}, all", []).append(step)
    return {name: figures(groups[name]) for name in sorted(groups)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    options = parser.parse_args()
    truths = json.loads((options.clips / "labels.json").read_text(encoding="utf-8"))
    records = real_clips.records(options.clips, list(truths), options.cache)
    rows = table(list(judged_steps(truths, records, options.clips, options.cache)))
    print("| | steps | mean P(shown) | shown | ECE |\n|---|---|---|---|---|")
    for name, row in rows.items():
        cells = " | ".join(str(value) for value in row.values())
        print(f"| {name} | {cells} |")
    RESULT_PATH.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
