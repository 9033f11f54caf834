"""Measures the whole job on drawn videos: recogniser, extractive writer and grounding, against the
script's truth.

    python benchmarks/grounding.py --cache DIR --seeds 200 230          (draws the videos)
    stepline steps DIR/*.mp4 --out OUT --format json
    python benchmarks/grounding_end_to_end.py --cache DIR --out OUT --seeds 200 230

A true step's partner is the written step that is spoken mostly within the same words and shares
most words with it. A true step without one counts as missed and as not shown. Figures as in
`grounding.py`. `at` of a step that is called "said" is empty, a miss.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from grounding import FAR, RESULTS, Item, away, markdown, with_intervals

from research.drawn_videos import read_script, true_record
from stepline.grounding.ground import ground
from stepline.records import Record, Step
from stepline.storage import read_record


def partner(steps: Sequence[Step], true: Step) -> int | None:
    """Return the place of the written step that stands for a true one, None where no step does."""
    near = [
        k
        for k, step in enumerate(steps)
        if step.said and true.said and step.said.overlap(true.said) > step.said.duration / 2
    ]
    words = set(true.text.lower().split())
    return max(near, key=lambda k: len(words & set(steps[k].text.lower().split())), default=None)


def items(seed: int, found: Record, true: Record) -> list[Item]:
    """Return what speech alone and the whole job say of each true step."""
    bare = [
        step.model_copy(update={"spans": (), "at": None, "status": None}) for step in found.steps
    ]
    alone = ground(bare, duration=found.video.duration or 0.0, transcript=found.transcript)
    rows = []
    for step in true.reference:
        k = partner(found.steps, step)
        pair = [] if k is None else [alone.steps[k], found.steps[k]]
        rows.append(
            Item(
                video=seed,
                shown=bool(step.spans),
                far=bool(step.spans) and away(step) >= FAR,
                hit=tuple(
                    any(s.at is not None and s.at in span for span in step.spans) for s in pair
                )
                or (False,) * 2,
                score=tuple(float(s.score or 0.0) for s in pair) or (0.0, 0.0),
                said_shown=tuple(s.status == "shown" for s in pair) or (False,) * 2,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of drawn videos and their scripts"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder that `stepline steps` wrote"
    )
    parser.add_argument(
        "--seeds", type=int, nargs=2, default=(200, 230), help="first seed, and one past the last"
    )
    args = parser.parse_args()
    rows: list[Item] = []
    written, true_steps = 0, 0
    for seed in range(*args.seeds):
        found = read_record(args.out / f"world_{seed:05d}.json")
        true = true_record(read_script(args.cache / f"world_{seed:05d}.json"))
        written += sum(partner(found.steps, step) is not None for step in true.reference)
        true_steps += len(true.reference)
        rows += items(seed, found, true)
    table = with_intervals(rows)
    counts = {"steps": true_steps, "written": written, "shown": sum(r.shown for r in rows)}
    counts["far"] = sum(r.far for r in rows)
    result = {"seeds": list(args.seeds), "counts": counts, "table": table}
    (RESULTS / "grounding_end_to_end.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(counts))
    print(markdown(table))


if __name__ == "__main__":
    main()
