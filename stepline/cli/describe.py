"""`stepline describe`: the steps of videos without a word."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepline.cli.group import complain
from stepline.cli.options import chosen_settings
from stepline.cli.progress import progress_bars
from stepline.cli.steps import BACKBONES, FORMATS, printed
from stepline.errors import SettingsError, SteplineError

if TYPE_CHECKING:
    from stepline.jobs import Wanted
    from stepline.pipeline import Request, StepsSettings
    from stepline.records import Record


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", "describer", required=True, type=click.Path(path_type=Path), help="A network of "
              "`stepline train procx`: its file or folder.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("described"), show_default=True,
              help="Folder.")  # fmt: skip
@click.option("--speech", is_flag=True, help="Read what is said as well, for a network that was trained with speech.")
@click.option("--captions", type=click.Path(path_type=Path), help="With --speech: captions instead of recognition.")
@click.option("--count", type=click.IntRange(min=0), help="Steps to tell, instead of as many as the network counts.")
@click.option("--backbone", type=click.Choice(BACKBONES[:-1]), help="What sees the picture: as in training.")
@click.option("--weights", help="The backbone's checkpoint or feature file.")
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, help="This output beside the JSON.")
@click.option("--clips", is_flag=True, help="Cut an mp4 of every step; videos only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of several sources a line each, not a table.")
@click.option("--force", is_flag=True, help="Do again what is done.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. procx.choose=apart.")
def describe(sources: tuple[Path, ...], **options: Any) -> None:
    """Find the steps of SOURCES and say what is done in each, from the pictures alone.

    SOURCES: videos, folders of them, or files of ready features.

    \b
    Example:
      stepline describe silent.mp4 --model run --format html
    """
    from stepline.descriptions import are_features
    from stepline.jobs import Wanted, find_videos, name_videos
    from stepline.pipeline import Request

    settings = _settings(options)
    formats = tuple(dict.fromkeys((*options["formats"], "json")))
    wanted = Wanted(options["out"], formats, clips=options["clips"], force=options["force"])
    ready = [path for path in sources if are_features(path)]
    rest = find_videos(path for path in sources if path not in ready)
    named = name_videos(rest, wanted.out) | {path.name.split(".")[0]: path for path in ready}
    if len(named) < len(rest) + len(ready):
        raise SettingsError("two sources have the same name; give each a folder of its own with --out")
    if len(named) > 1 and options["captions"] is not None:
        raise SettingsError("--captions is for one video; run each video with its own captions file")
    if options["captions"] is not None and not settings.procx.speech:
        raise SettingsError("--captions is read only with --speech; add that, or leave --captions out")
    if ready and options["clips"]:
        raise SettingsError(f"--clips: {ready[0]} holds features, no picture to cut; leave --clips out")
    failed = 0
    for identity, path in named.items():
        try:
            record = _one(Request(path, identity, options["captions"]), settings, wanted, ready=path in ready)
        except SteplineError as error:
            complain(error)
            failed += 1
            continue
        click.echo(printed(record, as_json=options["as_json"], alone=len(named) == 1), nl=False)
    if len(named) > 1:
        click.echo(f"{len(named) - failed} of {len(named)} sources done, {failed} failed", err=True)
    sys.exit(1 if failed else 0)


def _settings(options: dict[str, Any]) -> "StepsSettings":
    given = ["procx.when=alone"]
    given += ["procx.speech=true"] if options["speech"] else []
    given += [f"procx.count={options['count']}"] if options["count"] is not None else []
    return chosen_settings({**options, "overrides": [*options["overrides"], *given]})


def _one(request: "Request", settings: "StepsSettings", wanted: "Wanted", *, ready: bool) -> "Record":
    """Describe one source, write its files, and say what there is to know."""
    from stepline.descriptions import describe_features
    from stepline.jobs import run
    from stepline.show import write_outputs

    if ready:
        record = describe_features(request, settings)
        files = tuple(write_outputs(record, wanted.out, formats=wanted.formats))
    else:
        with progress_bars() as progress:
            done = run(request, settings, wanted, progress)
        record, files = done.record, done.files
    for warning in record.warnings:
        click.echo(f"warning: {request.path.name}: {warning}", err=True)
    for file in files:
        click.echo(f"wrote {file}", err=True)
    return record
