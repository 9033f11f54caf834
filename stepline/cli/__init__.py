"""The command line. Each command parses its options, calls one function, and prints.

Data goes to stdout, messages to stderr. Exit code 0: done, 1: an error, 2: wrong usage.
"""

import logging
import os
from itertools import chain

import click

# A waiting OpenMP thread must sleep, not spin: on a busy machine spinning makes a run 6x slower.
# Set before torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from stepline.cli.annotate import annotate
from stepline.cli.curate import curate
from stepline.cli.data import features, sieve_swap, text_base
from stepline.cli.doctor import datasets, doctor
from stepline.cli.errors import Group, LogHandler, log
from stepline.cli.evaluate import evaluate, predict
from stepline.cli.live import live
from stepline.cli.one_video import ground, judge, summarize, transcribe
from stepline.cli.options import add_verbosity_options, verbosity_options
from stepline.cli.schema import schema
from stepline.cli.steps import demo, steps
from stepline.cli.studio import compare, keys, mcp, search, studio
from stepline.cli.train import refine, train
from stepline.cli.weights import weights
from stepline.processes import mark_own_process
from stepline.version import __version__

LIST_MARGIN = 4  # columns around the names in a list of commands

# Headings of the help -> the commands below each.
COMMAND_GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Use": (steps, demo, transcribe, summarize, live, ground, judge, doctor, weights, schema),
    "Correct and search": (studio, keys, search, compare, mcp, annotate),
    "Data sets": (curate, datasets, features, text_base, sieve_swap),
    "Train": (train, refine, predict, evaluate),
}
COMMANDS = tuple(chain.from_iterable(COMMAND_GROUPS.values()))


class GroupedCommands(Group):
    """The group of all commands. Its help lists them under the headings of COMMAND_GROUPS."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, a line each."""
        # One width for all headings, so that the columns are in line.
        width = max(len(command.name or "") for command in COMMANDS)
        room = formatter.width - width - LIST_MARGIN
        for heading, commands in COMMAND_GROUPS.items():
            rows = [
                ((command.name or "").ljust(width), command.get_short_help_str(room))
                for command in commands
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


@click.group(
    cls=GroupedCommands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="stepline")
@verbosity_options()
@click.option("--debug", is_flag=True, help="Show the stack trace of an error, for a bug report.")
def main(debug: bool) -> None:
    """Turn narrated how-to videos into clean, time-aligned steps.

    \b
    Example:
      stepline steps my_video.mp4

    The steps are printed, and a page that shows them is written to the folder `out`. `stepline
    COMMAND --help` explains a command.
    """
    mark_own_process()
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    logging.basicConfig(
        handlers=[LogHandler()]
    )  # at the level WARNING, unless --verbose has set another
    if not logging.getLogger().isEnabledFor(logging.INFO):
        logging.getLogger("faster_whisper").setLevel(logging.ERROR)


for command in COMMANDS:
    main.add_command(command)
    add_verbosity_options(command)
