"""`stepline doctor` and `stepline datasets`: what is here, and what can be read."""

import sys

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, which models are found, what is missing and how to get it.

    \b
    Example:
      stepline doctor
    """
    from stepline import doctor as examination

    findings = examination.examine()
    click.echo(examination.as_json(findings) if as_json else examination.as_text(findings))
    sys.exit(1 if any(finding.needed and not finding.found for finding in findings) else 0)


@click.command()
@click.argument("name", required=False)
def datasets(name: str | None) -> None:
    """List the public datasets that can be read; of NAME, tell where to get it and what is read.

    \b
    Example:
      stepline datasets youcook2
    """
    from stepline.datasets import describe

    click.echo(describe(name), nl=False)
