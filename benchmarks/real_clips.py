"""The main job on real clips: python benchmarks/real_clips.py CLIPS --cache DIR

CLIPS holds clips and labels.json: steps with the seconds in which they are spoken and shown (docs/real_clips.md). DIR
keeps the record of each clip; an empty one has every clip run anew. A written step and a labelled one are the same when
their texts have a cosine (MiniLM) of .65, or of .45 and are spoken within 8 s of each other; pairs are one to one, the
best total first. `at`: the second lies in a labelled span, 1 s of slack either way, of the found steps that are shown.
`voice` takes the middle of the spoken words instead, `voice + 1 s` a second later. Intervals: bootstrap over clips.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from stepline.pipeline.networks import load_networks
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import understand
from stepline.records import Record, Span, Step
from stepline.storage import read_record, write_record
from stepline.text import embed

RESULTS = Path(__file__).resolve().parent / "results"
ALIKE, NEARLY, NEAR, SLACK = 0.65, 0.45, 8.0, 1.0  # cosines; seconds
DRAWS = 2000  # bootstrap samples
PLACES: dict[str, Callable[[Step], float | None]] = {
    "stepline": lambda step: step.at,
    "voice": lambda step: None if step.said is None else (step.said.start + step.said.end) / 2,
    "voice + 1 s": lambda step: None if step.said is None else (step.said.start + step.said.end) / 2 + 1,
}


def records(clips: Path, names: Sequence[str], cache: Path) -> dict[str, Record]:
    """Return the record of each clip, by the whole main job; those in the cache are read."""
    cache.mkdir(parents=True, exist_ok=True)
    settings = StepsSettings()
    networks = load_networks(settings)
    found = {}
    for name in names:
        path = cache / f"{Path(name).stem}.json"
        if not path.exists():
            request = Request(clips / name, id=Path(name).stem)
            write_record(understand(request, settings, networks=networks).record, path)
        found[name] = read_record(path)
    return found


def matched(labels: Sequence[dict[str, Any]], steps: Sequence[Step]) -> list[tuple[dict[str, Any], Step]]:
    """Return the pairs of a labelled and a written step that are the same."""
    if not steps or not labels:
        return []
    cosine = embed([label["text"] for label in labels]) @ embed([step.text for step in steps]).T
    near = np.array([[_near(label.get("spoken"), step.said) for step in steps] for label in labels])
    same = np.where((cosine >= ALIKE) | ((cosine >= NEARLY) & near), cosine, -1.0)
    pairs = zip(*linear_sum_assignment(-same), strict=True)
    return [(labels[i], steps[j]) for i, j in pairs if same[i, j] >= 0]


def _near(spoken: Sequence[float] | None, said: Span | None) -> bool:
    if spoken is None or said is None:
        return True
    return bool(spoken[0] - NEAR <= said.end and said.start - NEAR <= spoken[1])


def counts(truth: dict[str, Any], record: Record) -> dict[str, int]:
    """Return what one clip adds to each figure: hits and of how many."""
    labels = truth["steps"]
    if not labels:
        return {"shown in clips that show nothing": sum(step.status == "shown" for step in record.steps)}
    pairs = matched(labels, record.steps)
    tips = sum(label.get("kind") == "tip" for label in labels)
    row = {
        "found": sum(label.get("kind") != "tip" for label, _ in pairs), "found of": len(labels) - tips,
        "precision": len(pairs), "precision of": len(record.steps),
        "verdict": sum(bool(label.get("shown")) == (step.status == "shown") for label, step in pairs),
        "verdict of": len(pairs),
        "always shown": sum(bool(label.get("shown")) for label, _ in pairs), "always shown of": len(pairs),
    }  # fmt: skip
    shown = [(label["shown"], step) for label, step in pairs if label.get("shown")]
    for name, place in PLACES.items():
        seconds = [(spans, place(step)) for spans, step in shown]
        row[f"at, {name}"] = sum(
            at is not None and any(a - SLACK <= at <= b + SLACK for a, b in spans) for spans, at in seconds
        )
        row[f"at, {name} of"] = len(shown)
    return row


def table(rows: Sequence[dict[str, int]]) -> dict[str, list[float]]:
    """Return figure -> [value, low, high, of how many]."""
    rng = np.random.default_rng(0)
    figures = [name for name in dict.fromkeys(key for row in rows for key in row) if f"{name} of" in rows[0]]
    found = {}
    for name in figures:
        hits, of = (np.array([row.get(key, 0) for row in rows]) for key in (name, f"{name} of"))
        draws = rng.integers(0, len(rows), size=(DRAWS, len(rows)))
        low, high = np.nanpercentile(hits[draws].sum(axis=1) / np.maximum(1, of[draws].sum(axis=1)), [2.5, 97.5])
        found[name] = [round(float(x), 3) for x in (hits.sum() / max(1, of.sum()), low, high)] + [int(of.sum())]
    return found


def main() -> None:
    """Print a table of all narrated clips, and one row a maker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    args = parser.parse_args()
    labels = json.loads((args.clips / "labels.json").read_text())
    narrated = {
        name: truth
        for name, truth in labels.items()
        if not truth["steps"] or any(step.get("spoken") for step in truth["steps"])
    }
    known = records(args.clips, list(narrated), args.cache)
    rows = {name: counts(truth, known[name]) for name, truth in narrated.items()}
    steps = [row for row in rows.values() if "found" in row]
    whole = table(steps)
    false = sum(row.get("shown in clips that show nothing", 0) for row in rows.values())
    print("| | value [95 % interval] | of |\n|---|---|---|")
    for name, (value, low, high, of) in whole.items():
        print(f"| {name} | {value:.3f} [{low:.3f}, {high:.3f}] | {of} |")
    print(f"| steps shown in clips that show nothing | {false} | |")
    makers: dict[str, list[dict[str, int]]] = {}
    for name, row in rows.items():
        if "found" in row:
            makers.setdefault(name.split("_")[0], []).append(row)
    print("\n| maker | at, stepline | at, voice | of |\n|---|---|---|---|")
    for maker, of_maker in makers.items():
        hits = [sum(row[key] for row in of_maker) for key in ("at, stepline", "at, voice", "at, voice of")]
        print(f"| {maker} | {hits[0]} | {hits[1]} | {hits[2]} |")
    result = {"table": whole, "shown in clips that show nothing": false, "clips": len(steps)}
    (RESULTS / "real_clips.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
