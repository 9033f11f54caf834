"""`stepline annotate`: a test set of visual narrations, made by people."""

from pathlib import Path
from typing import Any

import click

from stepline.cli.errors import print_message
from stepline.cli.options import PATH_TYPE, out_option, serve_until_stopped


@click.group()
def annotate() -> None:
    """Let people say whether the picture shows what is said, and make a test set of it."""


@annotate.command("vnd")
@click.argument("clips", type=PATH_TYPE)
@out_option("Folder of answers and exports.")
@click.option("--qualification", type=PATH_TYPE, help="Clips with known answers, asked first.")
@click.option(
    "--right",
    type=click.IntRange(min=0),
    default=6,
    show_default=True,
    help="Of them that must be right.",
)
@click.option(
    "--asked", type=click.IntRange(min=1), default=7, show_default=True, help="Annotators a clip."
)
@click.option(
    "--needed",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Of them who must agree.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="On this machine; 0: any free one."
)
@click.option(
    "--export", "only_export", is_flag=True, help="Write the set as annotated so far, and end."
)
def vnd(clips: Path, out: Path, **options: Any) -> None:
    """Serve CLIPS (records or a list of clips) on this machine to annotators; write the clips on
    which they agree.

    \b
    Example:
      stepline annotate vnd out/demo.json --out vnd --port 8080
    """
    from stepline.annotate import AnnotationQueue, Answers, consensus, read_clips
    from stepline.annotate.answers import LABELS, export
    from stepline.annotate.clips import check_qualifying
    from stepline.atomic_files import check_writable
    from stepline.errors import SettingsError

    if not options["asked"] / 2 < options["needed"] <= options["asked"]:
        raise SettingsError(
            f"--needed {options['needed']} must be more than half of --asked {options['asked']}"
        )
    check_writable(out)
    questions = options["qualification"]
    qualifying = check_qualifying(read_clips(questions), questions) if questions else []
    asked, right, agreement = (
        options["asked"],
        options["right"],
        {name: options[name] for name in ("asked", "needed")},
    )
    answers = Answers(out / "answers.jsonl")
    queue = AnnotationQueue(
        read_clips(clips), answers, qualifying=qualifying, right=right, asked=asked
    )
    if not options["only_export"]:
        from stepline.annotate.server import serve

        serve_until_stopped(
            lambda: serve(queue, out / "clips", options["port"]),
            options["port"],
            notice="{address} (Ctrl-C ends and exports)",
            goodbye="stopped; every answer is kept",
        )
        verdicts = consensus(queue.annotations(), **agreement)
        if all(verdict is None for verdict in verdicts.values()):
            print_message(f"no clip has {asked} answers that agree yet; run this again to go on")
            return
    summary = export(queue.to_annotate, queue.annotations(), out, **agreement)
    kappa = "undefined" if summary.kappa is None else f"{summary.kappa:.2f}"
    counts = f"{summary.shown} shown and {summary.unshown} not shown of {summary.complete} clips answered by all"
    print_message(f"{counts}; Fleiss' kappa {kappa}", f"wrote {out / LABELS}")
