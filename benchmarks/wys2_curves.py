"""WYS2's features and scores in summaries, by the number of labels. See research/wys2/curves.py.

    python benchmarks/wys2_curves.py --seeds 0 1 2

Prints tau, mean over worlds, one row per input. The file benchmarks/results/wys2_curves.json is
written after every world.
"""

import argparse
import json
from pathlib import Path
from statistics import mean

from research.wys2.curves import INPUT_NAMES, LABEL_COUNTS, CurveSize, run_curves

RESULT_PATH = Path(__file__).resolve().parent / "results" / "wys2_curves.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--result", type=Path, default=RESULT_PATH)
    args = parser.parse_args()
    command = "python benchmarks/wys2_curves.py --seeds 0 1 2"
    run_curves(args.seeds, CurveSize(), args.result, command)
    taus: dict[tuple[str, int], list[float]] = {}
    for rows in json.loads(args.result.read_text())["worlds"].values():
        for row in rows:
            taus.setdefault((row["input"], row["labels"]), []).append(row["tau"])
    for name in INPUT_NAMES:
        means = [mean(taus[name, labels]) for labels in LABEL_COUNTS]
        print(f"{name:20}", *(f"{tau:.3f}" for tau in means))


if __name__ == "__main__":
    main()
