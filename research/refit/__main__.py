"""`python -m research.refit LIBRARY`: refit grounding and judge to what people corrected in it."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from research.refit.corrected_videos import LEARNED_NAME, learn, report
from stepline.cli.errors import print_data, print_message
from stepline.cli.options import PATH_TYPE, device_options, json_option
from stepline.cli.progress import progress_bars
from stepline.library.corrected_library import CorrectedLibrary


@click.command()
@click.argument("library", type=PATH_TYPE)
@json_option
@device_options
def refit(library: Path, as_json: bool) -> None:
    """Refit the few parameters of grounding and judge to what people corrected in LIBRARY.

    Corrected videos are held out in turn, and a change that does not clearly improve them is
    refused. What is accepted is written to LIBRARY/learned.toml, which `stepline steps --settings`
    takes.

    \b
    Example:
      python -m research.refit out
    """
    corrected_library = CorrectedLibrary(library)
    try:
        with progress_bars() as progress:
            result, videos = learn(corrected_library, progress)
    finally:
        corrected_library.close()
    if as_json:
        print_data(json.dumps(asdict(result), indent=2), end="")
    else:
        print_data(report(result, videos.left_out), end="")
    if result.settings:
        print_message(f"wrote {library / LEARNED_NAME}")
    else:
        print_message("nothing is learnt: the settings stay as they are")


if __name__ == "__main__":
    refit(prog_name="python -m research.refit")
