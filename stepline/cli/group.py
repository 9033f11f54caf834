"""A group of commands that ends with one line, not a traceback, when something is wrong."""

import sys
from typing import Any

import click

from stepline.errors import SteplineError


class Group(click.Group):
    """A group whose commands end with one line and exit code 1 on a SteplineError."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command; say what is wrong in one line."""
        try:
            return super().invoke(context)
        except SteplineError as error:
            complain(error)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("stepline: stopped; what was finished is kept", err=True)
            sys.exit(130)


def complain(error: SteplineError) -> None:
    """Print an error as one line on stderr."""
    click.echo(f"stepline: {' '.join(str(error).split())}", err=True)
