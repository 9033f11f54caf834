"""`stepline curate report` and `audit`: what a dataset holds, and people who check a sample of it."""

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stepline.curate.audit.sample import Sample
    from stepline.curate.audit.verdicts import Verdicts
    from stepline.curate.places import Place
    from stepline.curate.report import Report
    from stepline.curate.report_settings import ReportSettings


@click.command("report")
@click.argument("out")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. points=200.")
def report(out: str, overrides: tuple[str, ...]) -> None:
    """Write OUT/report.html again: with the audit's verdicts so far, or with other settings of the report.

    \b
    Example:
      stepline curate report dataset --set text_base=recipes
    """
    from stepline.curate.report import write_report

    place, settings = _place(out), _settings(out, overrides)
    write_report(place, settings)
    click.echo((place / "report.html").shown)


@click.command("audit")
@click.argument("out")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On this machine; 0: any free one.")
@click.option("--open", "browse", is_flag=True, help="Open a browser.")
@click.option("--import", "files", multiple=True, type=click.Path(path_type=Path), help="Verdicts saved elsewhere.")
@click.option("--table", is_flag=True, help="Print the table and end; nothing is served.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, e.g. audit_videos=20.")
def audit(out: str, port: int, browse: bool, files: tuple[Path, ...], table: bool, overrides: tuple[str, ...]) -> None:
    """Serve the report of OUT on this machine to people who check its sample; print the table they give.

    Every verdict is in OUT/audit/verdicts.jsonl before the next text is shown. Two people or more, each under their own
    name, give their agreement too.

    \b
    Example:
      stepline curate audit dataset --port 8080
    """
    from stepline.curate.audit.verdicts import take_over
    from stepline.curate.report import make_report, write_report
    from stepline.curate.report.write import local_verdicts

    place, settings = _place(out), _settings(out, overrides)
    verdicts = local_verdicts(place)
    made = make_report(place, settings)
    sample = made.findings.sample
    for file in files:
        count = take_over(file, verdicts, frozenset(asked.id for asked in sample.asked))
        click.echo(f"{file}: {count} verdicts taken over", err=True)
    if not (table or files):
        _serve(made, verdicts, port, browse)
    write_report(place, settings, made)
    _table(sample, verdicts)


def _place(out: str) -> "Place":
    from stepline.curate.ledger.inventory import RUN, read_recipe
    from stepline.curate.places import Place

    place = Place(out)
    return Place(out, read_recipe(place).places) if (place / RUN).exists() else place


def _settings(out: str, overrides: tuple[str, ...]) -> "ReportSettings":
    """Return the report settings of the run's recipe, changed as asked."""
    from stepline.curate.ledger.inventory import RUN, read_recipe
    from stepline.curate.places import Place
    from stepline.curate.report_settings import ReportSettings
    from stepline.settings import load_settings

    place = Place(out)
    known = read_recipe(place).report if (place / RUN).exists() else ReportSettings()
    tree = known.model_dump(mode="json", exclude_none=True)
    return load_settings(ReportSettings, None, [*(f"{key}={json.dumps(tree[key])}" for key in tree), *overrides])


def _serve(made: "Report", verdicts: "Verdicts", port: int, browse: bool) -> None:
    from stepline.annotate.visit import HOST
    from stepline.curate.audit.server import serve
    from stepline.errors import SettingsError

    try:
        server = serve(lambda: made.html(list(verdicts)), made.findings.sample, verdicts, port)
    except OSError as error:
        raise SettingsError(f"--port {port}: {error.strerror or error}; give another, or 0") from error
    address = f"http://{HOST}:{server.server_port}/#audit"
    click.echo(f"{address} (Ctrl-C ends)", err=True)
    if browse:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("stopped; every verdict is kept", err=True)
    finally:
        server.server_close()


def _table(sample: "Sample", verdicts: "Verdicts") -> None:
    """Print the manual check (NaSVA, Table 5) and the agreement."""
    from stepline.curate.audit.table import accords, rows
    from stepline.curate.shares import written

    given = list(verdicts)
    click.echo(f"{'texts':<24}{'checked':>8}  {'alignable':<24}well aligned")
    for row in rows(sample, given):
        click.echo(f"{row.name:<24}{row.checked:>8}  {written(row.alignable):<24}{written(row.aligned)}")
    found = accords(sample, given)
    for one in found:
        kappa = "undefined" if one.kappa is None else f"{one.kappa:.2f} [{one.low:.2f}, {one.high:.2f}]"
        name = "Cohen's" if len(one.people) == 2 else "Fleiss'"
        click.echo(f"{one.question}: {name} kappa {kappa} over {one.texts} texts by {', '.join(one.people)}")
    if not found:
        click.echo("agreement: not known until two people have checked the same texts")
