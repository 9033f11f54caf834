"""`stepline search`: what is done, said and written in the videos of a folder of records."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepline.cli.errors import print_data, say
from stepline.cli.options import PATH, device_options, json_option
from stepline.cli.progress import progress_bars
from stepline.cli.weights import offer_weights

if TYPE_CHECKING:
    from stepline.library import Moment


@click.command()
@click.argument("folder", type=PATH)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--most",
    type=click.IntRange(min=1, max=100),
    default=5,
    show_default=True,
    help="Answers at most.",
)
@json_option
@device_options
def search(folder: Path, words: tuple[str, ...], most: int, as_json: bool) -> None:
    """Find what WORDS mean in the videos whose steps are in FOLDER: moments that show it, say it or
    have it on screen.

    The index lies in FOLDER and follows the records that change.

    \b
    Example:
      stepline search out "fold the egg whites"
    """
    from stepline.library.search import as_json as to_json
    from stepline.library.search import index_path, open_index
    from stepline.studio.store import open_corrections

    offer_weights()
    if (path := index_path(folder)).parent != folder:
        say(f"warning: {folder} cannot be written; the index lies in {path}", urgent=True)
    corrections = open_corrections(folder)
    index = open_index(folder, corrections)
    with progress_bars() as progress:
        update = index.update(progress)
    if not index.meaning:
        say(
            "warning: by words alone, for the weights of MiniLM are missing; `stepline weights get`",
            urgent=True,
        )
    if update.read:
        say(f"{update.read} file{'' if update.read == 1 else 's'} read into {index.path}")
    found = index.search(" ".join(words), most)
    index.close()
    if corrections is not None:
        corrections.close()
    print_data(to_json(found) if as_json else _table(found, folder), end="\n" if as_json else "")


def _table(found: "list[Moment]", folder: Path) -> str:
    from stepline.outputs.terminal import LEGEND, MARKS
    from stepline.outputs.text import clock, one_line

    if not found:
        return "nothing found\n"
    lines = []
    for moment in found:
        when = (
            ""
            if moment.start is None or moment.end is None
            else f"{clock(moment.start)} – {clock(moment.end)}"
        )
        mark = MARKS[moment.status] if moment.kind == "step" else "“"
        place = f"{one_line(moment.title)} · {folder / (moment.link or moment.file)}"
        lines += [f"  {mark} {when:<15} {one_line(moment.text)}", f"    {'':<15} {place}"]
    return "\n".join([*lines, "", f"{LEGEND}  “ said, no step rests on it", ""])
