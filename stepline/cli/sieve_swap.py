"""`stepline sieve-swap`: narration replaced by human-written steps."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.progress import progress_bars

if TYPE_CHECKING:
    from stepline.sieve_swap.collection import Job, Outcome
    from stepline.sieve_swap.settings import SieveSwapSettings

VARIANTS = ("raw", "only-sieve", "swap", "mix")
HEARD = "heard"  # folder in --out for what is said in given video files


@click.command("sieve-swap")
@click.argument("videos", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--text-base", "base", required=True, type=click.Path(path_type=Path), help="A base, or texts for one.")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--exclude", multiple=True, type=click.Path(path_type=Path), help="A list of evaluation videos.")
@click.option("--variant", type=click.Choice(VARIANTS), help="What becomes of a sentence that tells a step.")
@click.option("--settings", "file", type=click.Path(path_type=Path), help="A TOML file of settings (docs/settings.md).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. match.similarity=0.7.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def sieve_swap(videos: tuple[Path, ...], base: Path, out: Path, **options: Any) -> None:
    """Sieve the narration of VIDEOS and swap it for the nearest human-written steps of a text base.

    VIDEOS: records (.parquet, .json, .jsonl or a folder of them), HowTo100M's caption.json or csv of each video, or
    video files, which are transcribed first. A run that was stopped goes on where it was when it is asked for again.

    \b
    Example:
      stepline sieve-swap records --text-base base --out swapped --exclude excluded.txt
    """
    from stepline.datasets.excluded import read_excluded
    from stepline.sieve_swap.collection import Job, run
    from stepline.sieve_swap.report import write_report
    from stepline.sieve_swap.text_base import prepared_base

    settings = _settings(options)
    job = Job(
        videos=_records(videos, out),
        base=prepared_base(base, out / "text_base", settings.text_base),
        out=out,
        settings=settings,
        excluded=read_excluded(options["exclude"]),
        say=lambda line: click.echo(line, err=True),
    )
    outcome = run(job)
    files = write_report(job, outcome)
    click.echo(outcome.statistics.model_dump_json() if options["as_json"] else _told(job, outcome))
    for written in files:
        click.echo(f"wrote {written}", err=True)


def _settings(options: dict[str, Any]) -> "SieveSwapSettings":
    from stepline.settings import load_settings
    from stepline.sieve_swap.settings import SieveSwapSettings

    given = [f"match.variant={json.dumps(options['variant'])}"] if options["variant"] else []
    return load_settings(SieveSwapSettings, options["file"], [*options["overrides"], *given])


def _records(videos: tuple[Path, ...], out: Path) -> Path:
    """Return where the records are: as given, or what is heard in given video files, each transcribed once."""
    from stepline.errors import MediaError, SettingsError, SteplineError
    from stepline.jobs import find_videos, listen, name_videos
    from stepline.pipeline import StepsSettings
    from stepline.sieve_swap.videos import SUFFIXES
    from stepline.store import write_record

    if len(videos) == 1 and _holds_records(videos[0], SUFFIXES):
        return videos[0]
    if any(path.suffix in SUFFIXES for path in videos):
        raise SettingsError("VIDEOS: give one file or folder of records, or video files, not both; join records first")
    heard, failed = out / HEARD, 0
    named = name_videos(find_videos(videos), heard)
    for identity, path in named.items():
        if (heard / f"{identity}.json").is_file():
            continue
        try:
            with progress_bars() as progress:
                record = listen(path, None, StepsSettings(), progress)
        except SteplineError as error:
            click.echo(f"error: {error}", err=True)
            failed += 1
            continue
        title = record.video.model_copy(update={"id": identity, "title": path.stem.replace("_", " ")})
        write_record(record.model_copy(update={"id": identity, "video": title}), heard / f"{identity}.json")
    if failed == len(named):
        raise MediaError(f"none of {len(named)} videos could be heard; see above")
    return heard


def _holds_records(path: Path, suffixes: tuple[str, ...]) -> bool:
    if not path.is_dir():
        return path.suffix in suffixes or not path.exists()
    return any(file.suffix in suffixes for file in path.rglob("*"))


def _told(job: "Job", outcome: "Outcome") -> str:
    """Return the counts as a table."""
    counted = outcome.statistics
    groups = {
        "videos": counted.videos,
        "sentences": counted.sentences,
        "swaps": counted.checks,
        "evaluation videos kept out": counted.excluded,
    }
    lines = [
        f"{head}\n" + "\n".join(f"  {count:>9,}  {name}" for name, count in counts.items())
        for head, counts in groups.items()
        if counts
    ]
    return "\n".join([*lines, f"open {job.out / 'report.html'}"])
