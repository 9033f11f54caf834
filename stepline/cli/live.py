"""`stepline live`: the steps of a file, a stream or a camera while it runs, as lines of JSON."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.errors import print_data, print_message
from stepline.cli.options import (
    PluginChoice,
    device_options,
    out_option,
    path_option,
    settings_from_options,
    settings_options,
)
from stepline.cli.weights import offer_weights

if TYPE_CHECKING:
    from stepline.live.events import LiveEvent


@click.command()
@click.argument("source")
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0, min_open=True, max=1000.0),
    default=1.0,
    help="Speed of a file, as a multiple of its own pace.",
)
@click.option(
    "--lag",
    type=click.FloatRange(min=0.0, max=120.0),
    default=2.0,
    help="Seconds to wait for more evidence of what is shown.",
)
@path_option(
    "--texts",
    help="The lines of a recipe to follow, one per line, or comparison.json of `stepline compare`.",
)
@out_option("Folder for the events, WebVTT and what a stream sent.", default="out")
@path_option("--at-end", help="Folder for what `stepline steps` writes, at the end.")
@click.option("--force", is_flag=True, help="Start again, and forget an earlier run.")
@click.option("--model", help="Recogniser, as of `stepline steps`.")
@click.option("--language", help="Language of the speech, a code of ISO 639-1 such as es or de.")
@click.option(
    "--backbone",
    type=PluginChoice("backbones"),
    help="Encoder of the pictures. none: sound only, so every step is only said.",
)
@settings_options("One setting, e.g. links.attempts=20.")
@device_options
def live(source: str, **options: Any) -> None:
    """Report the steps of a stream while it runs.

    \b
    Example:
      stepline live stepline/cli/demo/demo.mp4 --speed 100 --backbone none --out out

    Prints one JSON line per event. A run that was killed continues where it stopped.

    SOURCE is a file (it may still grow), an address of http(s), rtsp, rtmp, udp or srt, camera,
    microphone, or camera+microphone.
    """
    from stepline.compare.task_graph import LinesToFind, read_lines_to_find
    from stepline.live.events import LiveOptions
    from stepline.live.run import LiveJob, run_live

    settings = settings_from_options(options)
    offer_weights()
    lines = read_lines_to_find(options["texts"]) if options["texts"] else LinesToFind(())
    live_options = LiveOptions(options["lag"], lines.texts, lines.graph)
    job = LiveJob(
        source, options["out"], options["at_end"], options["speed"], options["force"], live_options
    )

    def emit(event: "LiveEvent") -> None:
        print_data(json.dumps(event.model_dump(mode="json"), ensure_ascii=False))
        # A program that reads the events gets each when it comes.
        sys.stdout.flush()

    with _stop_at_interrupt() as stop:
        files = run_live(job, settings, emit, stop=stop)
    print_message(*(f"wrote {file}" for file in files))


@contextmanager
def _stop_at_interrupt() -> "Iterator[threading.Event]":
    """Yield an event that the first Ctrl-C sets. The second Ctrl-C ends the process."""
    # The usual handler comes back with the first Ctrl-C, so that the second one ends the process.
    stop = threading.Event()
    usual = signal.getsignal(signal.SIGINT)

    def interrupt(*_: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, usual)
        print_message("ending; press Ctrl-C again to leave immediately", urgent=True)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, usual)
