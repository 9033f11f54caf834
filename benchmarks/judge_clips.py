"""Judges the sentences of the shared real clips and compares P(shown) with what a person saw.

    python benchmarks/judge_clips.py --out DIR

Truth is for the clip that a person marked (steps_seen.json). A sentence may be spoken mostly within
a marked step's spoken span. It is shown when the picture shows the step for half a second or more
of the sentence's clip (3 s at least), else not. Sentences of no marked step are chat, and count as
not shown. The other English clips have no marks: their numbers are listed, not scored. One video: a
check, not a measurement.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from stepline.atomic_files import write_atomic
from stepline.errors import DatasetError
from stepline.evaluate.ranking import roc_auc
from stepline.pipeline.batch import run_video
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Record, Sentence, Span
from stepline.wys2.judge import judged_span

ROOT = Path(__file__).resolve().parents[1]
CLIPS = ROOT.parent / "shared" / "data" / "videos"
RESULT = ROOT / "benchmarks" / "results" / "judge_clips.json"
MARKED = "howto100m_money_clip"
UNMARKED = ("cocoa_tv_chef", "mixing_bowl_hosts", "hair_chat")
OVERLAP = 0.5  # s of the clip that must show the step, as in fit_judge.py


def marked_as(sentence: Sentence, marked: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Return whether a sentence describes a marked step, and whether the picture shows it while it
    is said."""
    steps = [
        one
        for one in marked
        if Span(*one["spoken"]).overlap(sentence.span) > sentence.span.duration / 2
    ]
    clip = judged_span(sentence.span)
    return bool(steps), any(
        Span(*span).overlap(clip) >= OVERLAP for one in steps for span in one["shown"]
    )


def judged(stem: str, out: Path) -> Record:
    return run_video(
        Request(CLIPS / f"{stem}.mp4", stem), StepsSettings(), OutputOptions(out, ("json",))
    ).record


def rows(record: Record, marked: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    found = []
    for sentence in record.sentences:
        row: dict[str, Any] = {"start": sentence.span.start, "shown": sentence.shown}
        if marked is not None:
            row["told"], row["seen"] = marked_as(sentence, marked)
        found.append(row)
    return found


def scores(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts, accuracy at .5 and ROC-AUC, null where all are of one kind."""
    seen = np.array([row["seen"] for row in found], dtype=np.float64)
    shown = np.array([row["shown"] for row in found], dtype=np.float64)
    try:
        area: float | None = round(roc_auc(seen, shown), 3)
    except DatasetError:
        area = None
    right = int(((shown > 0.5) == (seen > 0.5)).sum())
    return {"sentences": len(found), "seen": int(seen.sum()), "right at .5": right, "AUC": area}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the records, reused when run again"
    )
    out = parser.parse_args().out
    marked = json.loads((CLIPS / "steps_seen.json").read_text())[f"{MARKED}.mp4"]["steps"]
    found = rows(judged(MARKED, out), marked)
    told = [row for row in found if row["told"]]
    report: dict[str, Any] = {
        MARKED: {"all": scores(found), "of marked steps": scores(told), "sentences": found}
    }
    for stem in UNMARKED:
        report[stem] = {"sentences": rows(judged(stem, out), None)}
    write_atomic(RESULT, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
