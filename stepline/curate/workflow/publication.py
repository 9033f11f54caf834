"""What a workflow publishes: the reviewed data set with its card, licence and splits, and the
aligner where it is better."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from stepline.curate.export.card import ReviewFacts
from stepline.curate.export.dataset import DatasetContents, export_dataset, publish
from stepline.curate.settings import ExportSettings
from stepline.curate.workflow.curation import Curation
from stepline.files.remote import RemotePath
from stepline.records import Record

PUBLISHED_FOLDER = "published"  # below OUT
ALIGNER_FOLDER = "aligner"  # below that
WORK_FOLDER = "export"  # in which a data set is made before it is published


def publish_reviewed(
    curation: Curation,
    records: Sequence[Record],
    review: ReviewFacts,
    *,
    held_out: frozenset[str],
    stages: tuple[str, ...],
    settings: ExportSettings,
    home: Path,
) -> Path:
    """Write the reviewed records below OUT as a data set to publish. Return its folder.

    records: sorted by id. home: in which it is made first, so that what is published is whole.
    """
    # What a killed call left is made again.
    work = home / WORK_FOLDER
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    contents = DatasetContents(
        records=lambda: iter(records),
        left_out=curation.left_out,
        items=curation.items,
        stages=stages,
        settings=dict(curation.settings),
        features=curation.features,
        held_out=held_out,
        review=review,
    )
    export_dataset(contents, work, settings)
    # The files go to their place only when all are written.
    target = curation.out / PUBLISHED_FOLDER
    publish(work, RemotePath(str(target)))
    shutil.rmtree(work)
    return target


def publish_aligner(run: Path | None, folder: Path) -> Path | None:
    """Copy the network of a run next to the data set, and return where it is. Without a run, remove
    what an earlier one left there."""
    target = folder / ALIGNER_FOLDER
    if target.exists():
        shutil.rmtree(target)
    if run is None:
        return None
    # Whole or not there: the copy gets its name at the end.
    partial = folder / f".{ALIGNER_FOLDER}"
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir()
    for file in sorted(run.glob("aligner*")):
        shutil.copyfile(file, partial / file.name)
    partial.rename(target)
    return target
