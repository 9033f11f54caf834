"""The command line: a thin command a verb. Data on stdout, talk on stderr; exit 0 done, 1 an error,
2 wrong usage."""

import logging
import os

import click

# A waiting OpenMP thread must sleep, not spin: on a busy machine spinning makes a run 6x slower.
# Set before torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from stepline.cli.annotate import annotate
from stepline.cli.curate import curate
from stepline.cli.data import excluded, features, sieve_swap
from stepline.cli.doctor import completion, datasets, doctor
from stepline.cli.errors import Group, LogLines, log
from stepline.cli.evaluate import calibrate, evaluate, export_onnx, predict
from stepline.cli.keys import keys
from stepline.cli.live import live
from stepline.cli.one_video import ground, judge, summarize, transcribe
from stepline.cli.options import offer_verbosity, verbosity_options
from stepline.cli.refine import refine
from stepline.cli.steps import demo, describe, steps
from stepline.cli.studio import learn, mcp, search, studio
from stepline.cli.text_base import text_base
from stepline.cli.train import train
from stepline.cli.weights import weights
from stepline.version import __version__

COMMANDS = (
    steps,
    demo,
    ground,
    judge,
    describe,
    predict,
    calibrate,
    export_onnx,
    summarize,
    transcribe,
    live,
    search,
    studio,
    keys,
    learn,
    mcp,
    doctor,
    weights,
    datasets,
    completion,
    evaluate,
    annotate,
    features,
    excluded,
    sieve_swap,
    train,
    refine,
    curate,
    text_base,
)


@click.group(
    cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="stepline")
@verbosity_options()
@click.option("--debug", is_flag=True, help="Show the trace of an error, for a report.")
def main(debug: bool) -> None:
    """Turn narrated how-to videos into clean, time-aligned steps."""
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    lines = logging.StreamHandler()
    lines.setFormatter(LogLines("%(levelname).1s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[lines])  # at the level WARNING, unless --verbose has set another
    if not logging.getLogger().isEnabledFor(logging.INFO):
        logging.getLogger("faster_whisper").setLevel(logging.ERROR)


for command in COMMANDS:
    main.add_command(command)
    offer_verbosity(command)
