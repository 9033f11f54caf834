"""`stepline annotate`: a test set of visual narrations, made by people."""

from pathlib import Path
from typing import Any

import click

from stepline.cli.common import PATH, out_option, serve_until_stopped


@click.group()
def annotate() -> None:
    """Let people say whether the picture shows what is said, and make a test set of it."""


@annotate.command("vnd")
@click.argument("clips", type=PATH)
@out_option("Folder of answers and exports.")
@click.option("--qualification", type=PATH, help="Clips with known answers, asked first.")
@click.option("--right", type=click.IntRange(min=0), default=6, show_default=True, help="Of them that must be right.")
@click.option("--asked", type=click.IntRange(min=1), default=7, show_default=True, help="Annotators a clip.")
@click.option("--needed", type=click.IntRange(min=1), default=5, show_default=True, help="Of them who must agree.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On this machine; 0: any free one.")
@click.option("--export", "only_export", is_flag=True, help="Write the set as annotated so far, and end.")
def vnd(clips: Path, out: Path, **options: Any) -> None:
    """Serve CLIPS (records or a list of clips) on this machine to annotators; write the clips on which they agree.

    \b
    Example:
      stepline annotate vnd out/demo.json --out vnd --port 8080
    """
    from stepline.annotate import AnnotationQueue, Answers, consensus, read_clips
    from stepline.annotate.clips import check_qualifying
    from stepline.errors import SettingsError
    from stepline.storage import check_writable

    if not options["asked"] / 2 < options["needed"] <= options["asked"]:
        raise SettingsError(f"--needed {options['needed']} must be more than half of --asked {options['asked']}")
    check_writable(out)
    questions = options["qualification"]
    qualifying = check_qualifying(read_clips(questions), questions) if questions else []
    asked = {"qualifying": qualifying, "right": options["right"], "asked": options["asked"]}
    queue = AnnotationQueue(read_clips(clips), Answers(out / "answers.jsonl"), **asked)
    if not options["only_export"]:
        from stepline.annotate.server import serve

        serve_until_stopped(
            lambda: serve(queue, out / "clips", options["port"]),
            options["port"],
            notice="{address} (Ctrl-C ends and exports)",
            goodbye="stopped; every answer is kept",
        )
        verdicts = consensus(queue.annotations(), asked=options["asked"], needed=options["needed"])
        if all(verdict is None for verdict in verdicts.values()):
            click.echo(f"no clip has {options['asked']} answers that agree yet; run this again to go on", err=True)
            return
    _export(queue, out, options)


def _export(queue: Any, out: Path, options: dict[str, Any]) -> None:
    from stepline.annotate.export import LABELS, export

    found = export(queue.to_annotate, queue.annotations(), out, asked=options["asked"], needed=options["needed"])
    kappa = "undefined" if found.kappa is None else f"{found.kappa:.2f}"
    click.echo(
        f"{found.shown} shown and {found.unshown} not shown of {found.complete} clips answered by all; "
        f"Fleiss' kappa {kappa}",
        err=True,
    )
    click.echo(f"wrote {out / LABELS}", err=True)
