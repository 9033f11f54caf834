"""What corrections of some real clips do for the others: python benchmarks/learning.py CLIPS
--cache DIR [--splits 10]

CLIPS, DIR as for real_clips.py. The labels stand for a careful person: each written step that tells
a labelled one gets its verdict and, where it is shown, its seconds; what tells none is deleted, and
what is missing is added. `python -m research.refit` learns from such corrections and is measured

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    truths = {
        name: truth
        for name, truth in labels.items()
        if any(step.get("spoken") for step in truth["steps"])
    }
    known = records(args.clips, list(truths), args.cache)
    videos = []
    for name, truth in truths.items():
        if known[name].steps:
            left = corrected(known[name], [correction(known[name], truth)]).record
            videos.append(
                CorrectedVideo(
                    known[name], left, pictures(args.clips / name, args.cache), maker(name)
                )
            )
    result = refit(videos)
    print(report(result), flush=True)
    rows = []
    print("| split | corrected | makers | accepted | figure | before | after | difference [95 %] |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in range(args.splits):
        chosen, held = split(videos, seed)
        try:
            learnt = refit(chosen)
        except DatasetError as error:
            print(f"| {seed} | {error} |", flush=True)
            continue
        tree: dict[str, Any] = {"nasva": {"ground": dict(learnt.settings.get("nasva.ground", {}))}}
        tree["judge"] = dict(learnt.settings.get("judge", {}))
        figures = held_out_figures(held, StepsSettings(), validate(StepsSettings, tree))
        accepted = [part for part in learnt.figures if part not in learnt.refusals]
        rows.append(
            {
                "seed": seed,
                "corrected": len(chosen),
                "held out": len(held),
                "accepted": accepted,
                "figures": {part: [asdict(row) for row in of] for part, of in figures.items()},
            }
        )
        for part, of in figures.items():
            for row in of:
                cells = [
                    str(seed),
                    str(len(chosen)),
                    str(learnt.sources),
                    str(part in accepted),
                    row.name,
                ]
                cells += [
                    f"{row.before:.3f}",
                    f"{row.after:.3f}",
                    f"{row.change:+.3f} [{row.low:+.3f}, {row.high:+.3f}]",
                ]
                print(f"| {' | '.join(cells)} |", flush=True)
    figures = {part: [asdict(row) for row in of] for part, of in result.figures.items()}
    out = {
        "clips": len(videos),
        "figures": figures,
        "refusals": dict(result.refusals),
        "splits": rows,
    }
    (RESULTS / "learning.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
