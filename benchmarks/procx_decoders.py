"""ProcX's choices of proposals on videos with gaps and without. See research/procx/decoders.py.

    python benchmarks/procx_decoders.py --form tasty --worlds 2 3 4
    python benchmarks/procx_decoders.py --form youcook2 --worlds 2 3 4 --seeds 0 1 2
        --rate 3e-3 --steps 600

With the rate and steps of procx_arms.py its networks are taken, not trained again. Goes on where it
was stopped.
"""

import argparse
import json
import logging
from pathlib import Path

from research.procx.decoders import DecoderStudy, as_markdown
from research.procx.rows import BENCHMARK_FORMS

RESULT_PATH = Path(__file__).resolve().parent / "results" / "procx_decoders.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=BENCHMARK_FORMS, required=True)
    parser.add_argument("--worlds", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rate", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--folder", type=Path, default=Path("out/procx-arms"), help="keeps networks"
    )
    parser.add_argument("--result", type=Path, default=RESULT_PATH)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    command = "python benchmarks/procx_decoders.py --form FORM"
    study = DecoderStudy(args.folder, args.result, command)
    for world in args.worlds:
        for seed in args.seeds:
            study.run(args.form, world, seed, args.rate, args.steps)
    results = json.loads(args.result.read_text(encoding="utf-8"))
    print(as_markdown(results))


if __name__ == "__main__":
    main()
