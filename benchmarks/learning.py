"""What corrections of some real clips do for the others: python benchmarks/learning.py CLIPS
--cache DIR [--splits 10]

CLIPS, DIR as for real_clips.py. The labels stand for a careful person: each written step that
matches a labelled one gets its verdict and, where it is shown, its seconds. What matches none is
deleted, and what is missing is added. `python -m research.refit` learns from such corrections and
is measured

    all        on all clips, each maker (first word of the file's name) held out in turn, as the command measures it
    splits     by ten corrected clips of several makers, on the clips of the other makers, drawn anew `--splits` times:
               what it accepted of the ten, and what that does to the held-out clips
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from correspondence import maker
from real_clips import RESULTS, matched, pictures, records

from research.refit.corrected_videos import report
from research.refit.refit import CorrectedVideo, held_out_figures, refit
from stepline.errors import DatasetError
from stepline.library.corrections import (
    AddEdit,
    ChangeEdit,
    Correction,
    DeleteEdit,
    Edit,
    corrected,
)
from stepline.pipeline.request import StepsSettings
from stepline.records import Record, Span, Step
from stepline.settings import validate

CORRECTED = 10  # clips of a split


def correction(record: Record, truth: dict[str, Any]) -> Correction:
    """Return the edits by which a person makes the steps of a record those of the labels."""
    pairs = {step.id: label for label, step in matched(truth["steps"], record.steps)}
    edits: list[Edit] = []
    for step in record.steps:
        label = pairs.get(step.id)
        if label is None:
            edits.append(DeleteEdit(do="delete", step=step.id))
        elif label.get("shown"):
            edits.append(
                ChangeEdit(do="change", step=step.id, span=_nearest(label, step), status="shown")
            )
        else:
            edits.append(ChangeEdit(do="change", step=step.id, status="said"))
    found = [id(label) for label in pairs.values()]
    for number, label in enumerate(truth["steps"]):
        if id(label) not in found and label.get("kind") != "tip":
            span = Span(*map(float, label["shown"][0])) if label.get("shown") else None
            edits.append(AddEdit(do="add", id=f"added {number}", text=label["text"], span=span))
    return Correction(
        id="labels", video=record.id, by="labels", when=0.0, base=0, edits=tuple(edits)
    )


def _nearest(label: dict[str, Any], step: Step) -> Span:
    """Return the labelled span that the step's own overlaps most, else the one nearest to its
    words."""
    spans = [Span(*map(float, pair)) for pair in label["shown"]]
    said = step.said.center if step.said else 0.0
    return max(
        spans, key=lambda span: (step.spans[0].iou(span) if step.spans else 0.0, -span.gap(said))
    )


def split(
    videos: Sequence[CorrectedVideo], seed: int
) -> tuple[list[CorrectedVideo], list[CorrectedVideo]]:
    """Return ten clips of whole makers, drawn at random, and the clips of the others."""
    makers = sorted({video.source for video in videos})
    chosen: list[CorrectedVideo] = []
    for name in np.random.default_rng(seed).permutation(makers):
        of_maker = [video for video in videos if video.source == name]
        if len(chosen) + len(of_maker) <= CORRECTED:
            chosen += of_maker
    names = {video.source for video in chosen}
    return chosen, [video for video in videos if video.source not in names]


def corrected_videos(clips: Path, cache: Path) -> list[CorrectedVideo]:
    """Return the narrated clips as if a person had corrected each by its labels."""
    labels = json.loads((clips / "labels.json").read_text())
    truths = {}
    for name, truth in labels.items():
        if any(step.get("spoken") for step in truth["steps"]):
            truths[name] = truth
    written = records(clips, list(truths), cache)
    videos = []
    for name, truth in truths.items():
        record = written[name]
        if record.steps:
            by_person = corrected(record, [correction(record, truth)]).record
            seen = pictures(clips / name, cache)
            videos.append(CorrectedVideo(record, by_person, seen, maker(name)))
    return videos


def learnt_tree(result: Any) -> dict[str, Any]:
    """Return what was learnt as the settings of a run."""
    ground = dict(result.settings.get("nasva.ground", {}))
    return {"nasva": {"ground": ground}, "judge": dict(result.settings.get("judge", {}))}


def figure_rows(figures: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each part as JSON."""
    return {part: [asdict(row) for row in rows] for part, rows in figures.items()}


def print_figures(start: tuple[str, ...], figures: Any, accepted: list[str]) -> None:
    """Print the figures of a split. start: the first cells of each row."""
    for part, rows in figures.items():
        for row in rows:
            change = f"{row.change:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
            numbers = (f"{row.before:.3f}", f"{row.after:.3f}", change)
            cells = (*start, str(part in accepted), row.name, *numbers)
            print(f"| {' | '.join(cells)} |", flush=True)


def measure_split(videos: list[CorrectedVideo], seed: int) -> dict[str, Any] | None:
    """Learn from some makers and look at the others. None where too little was corrected."""
    corrected_ones, others = split(videos, seed)
    try:
        learnt = refit(corrected_ones)
    except DatasetError as error:
        print(f"| {seed} | {error} |", flush=True)
        return None
    settings = validate(StepsSettings, learnt_tree(learnt))
    figures = held_out_figures(others, StepsSettings(), settings)
    accepted = [part for part in learnt.figures if part not in learnt.refusals]
    start = (str(seed), str(len(corrected_ones)), str(learnt.sources))
    print_figures(start, figures, accepted)
    return {
        "seed": seed,
        "corrected": len(corrected_ones),
        "held out": len(others),
        "accepted": accepted,
        "figures": figure_rows(figures),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    args = parser.parse_args()
    videos = corrected_videos(args.clips, args.cache)
    result = refit(videos)
    print(report(result), flush=True)
    rows = []
    print("| split | corrected | makers | accepted | figure | before | after | difference [95 %] |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in range(args.splits):
        row = measure_split(videos, seed)
        if row is not None:
            rows.append(row)
    out = {
        "clips": len(videos),
        "figures": figure_rows(result.figures),
        "refusals": dict(result.refusals),
        "splits": rows,
    }
    (RESULTS / "learning.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
