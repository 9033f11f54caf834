"""ProcX's choices of proposals on videos with gaps and without. See research/procx/decoders.py.

    python benchmarks/procx_decoders.py --form tasty --worlds 2 3 4
    python benchmarks/procx_decoders.py --form youcook2 --worlds 2 3 4 --seeds 0 1 2
        --rate 3e-3 --steps 600
    python benchmarks/procx_decoders.py --form youcook2 --arm "ProcX, Sieve & Swap" --patience 3
        --rate 2e-3 --steps 3000

With the arm, rate, steps and patience of procx_arms.py its networks are taken, not trained again.
Goes on where it was stopped. With --patience results are in procx_decoders_plateau.json.
"""

import argparse
import json
import logging
from pathlib import Path

from research.procx.comparisons import ARM_TRIALS
from research.procx.decoders import DecoderStudy, as_markdown
from research.procx.rows import BENCHMARK_FORMS

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=BENCHMARK_FORMS, required=True)
    parser.add_argument("--arm", choices=tuple(ARM_TRIALS), default="ProcX")
    parser.add_argument("--worlds", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rate", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--folder", type=Path, default=Path("out/procx-arms"), help="keeps networks"
    )
    parser.add_argument(
        "--patience", type=int, default=0, help="as of the arm's training in procx_arms.py"
    )
    parser.add_argument("--result", type=Path, help="default: one file with patience, one without")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    name = "procx_decoders.json"
    command = "python benchmarks/procx_decoders.py --form FORM"
    if args.patience:
        name = "procx_decoders_plateau.json"
        command += f" --arm {args.arm!r} --patience {args.patience}"
    result = args.result or RESULTS_FOLDER / name
    study = DecoderStudy(args.folder, result, command, arm=args.arm, patience=args.patience)
    for world in args.worlds:
        for seed in args.seeds:
            study.run(args.form, world, seed, args.rate, args.steps)
    results = json.loads(result.read_text(encoding="utf-8"))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
