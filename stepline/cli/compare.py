"""The command that aligns the steps of many videos of one task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    PATH_TYPE,
    device_options,
    json_option,
    out_option,
    settings_options,
)
from stepline.cli.weights import offer_weights

if TYPE_CHECKING:
    from stepline.compare import TaskComparison


@click.command()
@click.argument("folder", type=PATH_TYPE)
@out_option("Folder for comparison.json and .html.", "comparison")
@click.option(
    "--as-texts",
    "texts_file",
    type=PATH_TYPE,
    help="A file for the common procedure, one step per line, as `--texts` of steps, ground "
    "and live takes it.",
)
@json_option
@settings_options("One setting, e.g. compare.common_share=0.3.")
@device_options
def compare(
    folder: Path, out: Path, texts_file: Path | None, as_json: bool, **options: Any
) -> None:
    """Align the steps of many videos of one task.

    \b
    Example:
      stepline compare out --as-texts recipe.txt

    FOLDER holds what `stepline steps` wrote for several videos. The comparison shows what most of
    them do, in which orders, and what only some do. It also has amounts and times with their
    spread, and the seconds of each video. Videos of something else are left out.
    """
    from stepline.compare.procedure import compare as compare_records
    from stepline.compare.read import read_folder
    from stepline.compare.settings import CompareRunSettings
    from stepline.compare.write import to_json, to_lines, write_comparison
    from stepline.files.atomic_files import write_atomic
    from stepline.settings import load_settings

    settings = load_settings(CompareRunSettings, options["settings_file"], options["overrides"])
    offer_weights()
    comparison = compare_records(read_folder(folder), settings.compare)
    for record in comparison.left_out:
        print_message(f"left out {record.id}: {record.reason}", urgent=True)

    # the files
    paths = write_comparison(comparison, out)
    if texts_file is not None:
        write_atomic(texts_file, to_lines(comparison))
        paths.append(texts_file)
    print_data(to_json(comparison) if as_json else _table(comparison), end="")
    print_message(*(f"wrote {path}" for path in paths))


def _table(comparison: "TaskComparison") -> str:
    """Return a line for each common step: how many videos do it, and what it is."""
    from stepline.compare.write import step_text

    # The table has the common steps alone. The files have all.
    total = len(comparison.videos)
    common = comparison.common_steps
    rest = len(comparison.steps) - len(common)
    head = f"{comparison.title}: {len(common)} steps common to {total} videos, {rest} of only some"
    lines = [f"  {step.videos:>3} of {total}  {step_text(step)}" for step in common]
    return "\n".join([head, "", *lines, ""])
