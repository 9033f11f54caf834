"""`stepline annotate`: people label a test set of visual narrations (WYS2)."""

from pathlib import Path
from typing import Any

import click

from stepline.cli.errors import print_message
from stepline.cli.options import (
    PATH_TYPE,
    out_option,
    path_option,
    port_option,
    serve_until_stopped,
)
from stepline.errors import DatasetError, SettingsError
from stepline.files.atomic_files import check_writable


@click.group()
def annotate() -> None:
    """Let people label which speech the picture shows."""


@annotate.command("vnd")
@click.argument("clips", type=PATH_TYPE, nargs=-1, required=True)
@out_option("Folder of answers and exports.")
@path_option("--qualification", help="Clips with known answers, asked first.")
@click.option(
    "--right",
    type=click.IntRange(min=0),
    default=6,
    help="How many qualification answers must be correct.",
)
@click.option("--asked", type=click.IntRange(min=1), default=7, help="Annotators per clip.")
@click.option(
    "--needed", type=click.IntRange(min=1), default=5, help="How many of them must agree."
)
@port_option(help="Local port. 0: any free one.")
@click.option(
    "--export", "only_export", is_flag=True, help="Write the set as annotated so far, and end."
)
def vnd(clips: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Serve clips to annotators and keep those they agree on.

    \b
    Example:
      stepline annotate vnd out/demo.json --out vnd --port 8080

    CLIPS are records or lists of clips, such as all shards of a dataset. A relative path of a video is
    read from the working folder. The page is served on this machine.
    """
    from stepline.review import AgreementRule, AnnotationQueue, AnswerLog, consensus, read_clips
    from stepline.review.answers import LABELS_FILE, export_annotations
    from stepline.review.clips import check_qualifying

    # when annotators agree
    rule = AgreementRule(options["asked"], options["needed"])
    if not rule.annotators / 2 < rule.majority <= rule.annotators:
        raise SettingsError(
            f"--needed {rule.majority} must be more than half of --asked {rule.annotators}"
        )

    # the clips and the answers so far
    check_writable(out)
    questions = options["qualification"]
    qualifying = check_qualifying(read_clips(questions), questions) if questions else []
    queue = AnnotationQueue(
        read_clips(*clips),
        AnswerLog(out / "answers.jsonl"),
        qualifying=qualifying,
        right=options["right"],
        annotators=rule.annotators,
    )

    # the page, until it is stopped
    if not options["only_export"]:
        videos = {clip.video for clip in queue.clips.values()}
        missing = sorted(video for video in videos if not Path(video).is_file())
        if missing:
            raise DatasetError(
                f"{missing[0]}: no such file ({len(missing)} of {len(videos)} videos are missing); "
                "run this in the folder of the videos, or of their list, from which paths count"
            )
        from stepline.review.server import serve_annotation_page

        serve_until_stopped(
            lambda: serve_annotation_page(queue, out / "clips", options["port"]),
            options["port"],
            notice="{address} (Ctrl-C ends and exports)",
            goodbye="stopped; every answer is kept",
        )
        # Only answers of people who are qualified count.
        verdicts = consensus(queue.annotations(), rule)
        if all(verdict is None for verdict in verdicts.values()):
            print_message(
                f"no clip has {rule.annotators} answers that agree yet; run this again to go on"
            )
            return

    # the set on which they agree
    summary = export_annotations(queue.to_annotate, queue.annotations(), out, rule)
    kappa = "undefined" if summary.kappa is None else f"{summary.kappa:.2f}"
    print_message(
        f"{summary.shown} shown and {summary.unshown} not shown of {summary.complete} clips "
        f"answered by all; Fleiss' kappa {kappa}"
    )
    print_message(f"wrote {out / LABELS_FILE}")
