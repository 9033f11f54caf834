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

from grounding import (
    RESULTS_FOLDER,
    Item,
    count_steps,
    is_far,
    is_in_spans,
    markdown,
    unplaced,
    with_intervals,
)

from research.drawn_videos import read_script, true_record
from stepline.files.storage import read_record
from stepline.grounding.ground import ground
from stepline.records import Record, Step


def is_spoken_within(step: Step, true: Step) -> bool:
    """Say whether most of a step's words are within those of a true one."""
    if step.said is None or true.said is None:
        return False
    return step.said.overlap(true.said) > step.said.duration / 2


def words_of(step: Step) -> set[str]:
    """Return the words of a step's text."""
    return set(step.text.lower().split())


def partner(steps: Sequence[Step], true: Step) -> int | None:
    """Return the number of the written step for a true one, None where no step is for it."""
    true_words = words_of(true)
    best = None
    most_shared = -1
    for number, step in enumerate(steps):
        if not is_spoken_within(step, true):
            continue
        shared = len(true_words & words_of(step))
        if shared > most_shared:
            best = number
            most_shared = shared
    return best


def items(seed: int, record: Record, true: Record) -> list[Item]:
    """Return what speech alone and the whole job say of each true step."""
    bare_steps = [unplaced(step) for step in record.steps]
    duration = record.video.duration or 0.0
    alone = ground(bare_steps, duration=duration, transcript=record.transcript)
    rows = []
    for true_step in true.reference:
        number = partner(record.steps, true_step)
        # A true step without a partner is missed by both methods.
        hits = (False, False)
        scores = (0.0, 0.0)
        verdicts = (False, False)
        if number is not None:
            pair = (alone.steps[number], record.steps[number])
            hits = tuple(is_in_spans(step.at, true_step) for step in pair)
            scores = tuple(float(step.score or 0.0) for step in pair)
            verdicts = tuple(step.status == "shown" for step in pair)
        item = Item(
            video=seed,
            is_shown=bool(true_step.spans),
            far=is_far(true_step),
            hit=hits,
            score=scores,
            said_shown=verdicts,
        )
        rows.append(item)
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
    written = 0
    true_steps = 0
    for seed in range(*args.seeds):
        name = f"world_{seed:05d}.json"
        record = read_record(args.out / name)
        true = true_record(read_script(args.cache / name))
        partners = [partner(record.steps, step) for step in true.reference]
        written += sum(number is not None for number in partners)
        true_steps += len(true.reference)
        rows += items(seed, record, true)
    table = with_intervals(rows)
    counts = {"steps": true_steps, "written": written} | count_steps(rows)
    result = {"seeds": list(args.seeds), "counts": counts, "table": table}
    text = json.dumps(result, indent=2)
    (RESULTS_FOLDER / "grounding_end_to_end.json").write_text(f"{text}\n")
    print(json.dumps(counts))
    print(markdown(table))


if __name__ == "__main__":
    main()
