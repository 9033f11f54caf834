"""`stepline excluded`: a list of the videos that no training set may hold."""

from pathlib import Path

import click


@click.command()
@click.argument("datasets", nargs=-1, required=True, metavar="DATASET=PATH...")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The list file to write.")
def excluded(datasets: tuple[str, ...], out: Path) -> None:
    """List the videos of evaluation sets, to be kept out of training sets with `--exclude`.

    \b
    Example:
      stepline excluded youcook2=youcookii_annotations_trainval.json htm-align=htm_align.json --out excluded.txt
    """
    from stepline.datasets.excluded import excluded_from, write_excluded
    from stepline.errors import SettingsError

    sources = []
    for given in datasets:
        name, equals, path = given.partition("=")
        if not equals or not path:
            raise SettingsError(f"{given!r}: write it as DATASET=PATH, for example youcook2=annotations.json")
        sources.append((name, Path(path)))
    found = excluded_from(sources)
    write_excluded(found, out)
    for name, count in found.counts().items():
        click.echo(f"{name:<14} {count:>7} videos")
    click.echo(f"{'together':<14} {len(found):>7} videos")
    click.echo(f"wrote {out}", err=True)
