"""The commands on the keys with which programs use a studio."""

from datetime import UTC, datetime
from pathlib import Path

import click

from stepline.cli.errors import Group, print_data, print_message
from stepline.cli.options import PATH_TYPE


@click.group(cls=Group)
def keys() -> None:
    """Make, list and revoke keys with which programs use a studio.

    A key outlives restarts. FILE holds the hash of each key, and only its owner can read it.

    \b
    Example:
      stepline keys add keys.json shop --role read
      stepline studio out --keys keys.json
    """


@keys.command("add")
@click.argument("file", type=PATH_TYPE)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(("read", "edit", "admin")),
    default="read",
    show_default=True,
    help="What it may do: read, edit (also correct, upload and start jobs), admin (also remove).",
)
def add_key(file: Path, name: str, role: str) -> None:
    """Make a key, and print it once.

    \b
    Example:
      stepline keys add keys.json shop --role edit
    """
    from stepline.studio.keys import KEY_ROLES, KeyFile

    key_role = KEY_ROLES[[*KEY_ROLES].index(role)]  # type: ignore[arg-type]
    print_data(KeyFile(file).add(name, key_role))
    print_message(f"{name} may {role}; keep this key now, because {file} holds only its hash")


@keys.command("list")
@click.argument("file", type=PATH_TYPE)
def list_keys(file: Path) -> None:
    """List the names and roles of the keys in FILE.

    \b
    Example:
      stepline keys list keys.json
    """
    from stepline.studio.keys import KeyFile

    for key in KeyFile(file).all():
        date = datetime.fromtimestamp(key.created, UTC).date().isoformat()
        print_data(f"{key.name}\t{key.role}\t{date}")


@keys.command("revoke")
@click.argument("file", type=PATH_TYPE)
@click.argument("name")
def revoke_key(file: Path, name: str) -> None:
    """Revoke a key, also in a studio that is running.

    \b
    Example:
      stepline keys revoke keys.json shop
    """
    from stepline.studio.keys import KeyFile

    KeyFile(file).revoke(name)
    print_message(f"revoked {name}")
