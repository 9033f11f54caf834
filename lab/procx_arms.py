"""ProcX's comparisons with several training seeds, every arm at its own rate. See
lab/procx/arms.py.

    python lab/procx_arms.py tune --folder out/procx-arms
    python lab/procx_arms.py compare --folder out/procx-arms --worlds 2 3 4 --seeds 0 1 2

With --patience each training is validated every 300 steps, its best network is taken, and rates are
chosen by the validation score. Results are in procx_plateau.json.

Goes on where it was stopped. It writes lab/results/procx_arms.json after every training.
`show` prints tables. Several may run at the same time in one folder, for worlds or arms that
differ.
"""

import argparse
import json
import logging
from pathlib import Path

from lab.procx.arms import STUDY_STAGES, TUNING_OPTIONS, ArmStudy, as_markdown
from lab.procx.comparisons import ARM_TRIALS, TUNED_ARMS

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("tune", "compare", "show"))
    parser.add_argument(
        "--folder", type=Path, default=Path("out/procx-arms"), help="keeps networks and predictions"
    )
    parser.add_argument("--arms", nargs="+", choices=tuple(ARM_TRIALS), default=list(TUNED_ARMS))
    parser.add_argument("--worlds", nargs="+", type=int)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--option",
        nargs=2,
        action="append",
        metavar=("RATE", "STEPS"),
        help="of tuning, several times",
    )
    parser.add_argument(
        "--patience",
        type=int,
        default=0,
        help="validation scores without a better one (0: the steps decide)",
    )
    args = parser.parse_args()
    name = "procx_arms.json"
    patience_option = ""
    if args.patience:
        name = "procx_plateau.json"
        patience_option = f" --patience {args.patience}"
    result = RESULTS_FOLDER / name
    logging.basicConfig(level=logging.INFO)
    # as the results file names it
    command = f"python lab/procx_arms.py tune{patience_option}; ... compare{patience_option}"
    study = ArmStudy(args.folder, result, command, patience=args.patience)
    if args.stage == "tune":
        options = [(float(rate), int(steps)) for rate, steps in args.option or TUNING_OPTIONS]
        study.tune(args.arms, args.worlds or (0, 1), options)
    elif args.stage == "compare":
        study.compare(args.arms, args.worlds or (2, 3, 4), args.seeds)
    else:
        study.write({stage: study.cells(stage) for stage in STUDY_STAGES})
    print(as_markdown(json.loads(result.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
