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
from real_clips import RESULTS_FOLDER, matched, pictures, records

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

MAX_CORRECTED_CLIPS = 10  # of a split
Row = dict[str, Any]


def float_span(pair: Sequence[float]) -> Span:
    """Return a labelled span."""
    start, end = pair
    return Span(float(start), float(end))


def correction(record: Record, truth: Row) -> Correction:
    """Return the edits by which a person makes the steps of a record those of the labels."""
    label_of_step = {}
    for label, step in matched(truth["steps"], record.steps):
        label_of_step[step.id] = label
    edits: list[Edit] = []
    for step in record.steps:
        label = label_of_step.get(step.id)
        if label is None:
            edits.append(DeleteEdit(do="delete", step=step.id))
        elif label.get("shown"):
            span = _nearest(label, step)
            edits.append(ChangeEdit(do="change", step=step.id, span=span, status="shown"))
        else:
            edits.append(ChangeEdit(do="change", step=step.id, status="said"))

    # what is missing, less tips
    written_labels = [id(label) for label in label_of_step.values()]
    for number, label in enumerate(truth["steps"]):
        if id(label) in written_labels or label.get("kind") == "tip":
            continue
        span = float_span(label["shown"][0]) if label.get("shown") else None
        edits.append(AddEdit(do="add", id=f"added {number}", text=label["text"], span=span))
    return Correction(
        id="labels", video=record.id, by="labels", when=0.0, base=0, edits=tuple(edits)
    )


def _nearest(label: Row, step: Step) -> Span:
    """Return the labelled span that the step's own overlaps most, else the one nearest to its
    words."""
    words_center = step.said.center if step.said else 0.0

    def likeness(span: Span) -> tuple[float, float]:
        iou = step.spans[0].iou(span) if step.spans else 0.0
        return iou, -span.gap(words_center)

    return max(map(float_span, label["shown"]), key=likeness)


def split(
    videos: Sequence[CorrectedVideo], seed: int
) -> tuple[list[CorrectedVideo], list[CorrectedVideo]]:
    """Return ten clips of whole makers, drawn at random, and the clips of the others."""
    makers = sorted({video.source for video in videos})
    rng = np.random.default_rng(seed)
    clips: list[CorrectedVideo] = []
    for name in rng.permutation(makers):
        maker_clips = [video for video in videos if video.source == name]
        if len(clips) + len(maker_clips) <= MAX_CORRECTED_CLIPS:
            clips += maker_clips
    drawn_makers = {video.source for video in clips}
    others = [video for video in videos if video.source not in drawn_makers]
    return clips, others


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
            visual = pictures(clips / name, cache)
            videos.append(CorrectedVideo(record, by_person, visual, maker(name)))
    return videos


def learnt_tree(result: Any) -> Row:
    """Return what was learnt as the settings of a run."""
    ground = dict(result.settings.get("nasva.ground", {}))
    judge = dict(result.settings.get("judge", {}))
    return {"nasva": {"ground": ground}, "judge": judge}


def figure_rows(figures: Any) -> dict[str, list[Row]]:
    """Return the figures of each part as JSON."""
    by_part = {}
    for part, rows in figures.items():
        by_part[part] = [asdict(row) for row in rows]
    return by_part


def print_figures(start: tuple[str, ...], figures: Any, accepted: list[str]) -> None:
    """Print the figures of a split. start: the first cells of each row."""
    for part, rows in figures.items():
        for row in rows:
            change = f"{row.change:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
            numbers = (f"{row.before:.3f}", f"{row.after:.3f}", change)
            cells = (*start, str(part in accepted), row.name, *numbers)
            print(f"| {' | '.join(cells)} |", flush=True)


def measure_split(videos: list[CorrectedVideo], seed: int) -> Row | None:
    """Learn from some makers and look at the others. None where too little was corrected."""
    clips, others = split(videos, seed)
    try:
        learnt = refit(clips)
    except DatasetError as error:
        print(f"| {seed} | {error} |", flush=True)
        return None
    settings = validate(StepsSettings, learnt_tree(learnt))
    figures = held_out_figures(others, StepsSettings(), settings)
    accepted = [part for part in learnt.figures if part not in learnt.refusals]
    start = (str(seed), str(len(clips)), str(learnt.sources))
    print_figures(start, figures, accepted)
    return {
        "seed": seed,
        "corrected": len(clips),
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
    (RESULTS_FOLDER / "learning.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
