"""Every video's results in one place: records, and a store of features; videos that came before are left out."""

from collections.abc import Iterable, Iterator

import numpy as np

from stepline import __version__
from stepline.curate.items import Item
from stepline.curate.stage import Failure, Gathered
from stepline.curate.stages.dataset import FEATURES, write_dataset
from stepline.curate.stages.duplicates import Duplicates
from stepline.curate.stages.parts import Grounded, Judged, Looked, Placed, Probed, from_bytes, unpack
from stepline.features import FeatureWriter
from stepline.records import Matrix, Record, Video

Row = dict[str, bytes]  # stage -> cell, of one item


def gather(gathered: Gathered) -> None:
    """Write the records and features of all videos but the repeated ones."""
    left_out = {one.id: Failure(one.id, "source", "left out", one.reason) for one in gathered.refused}
    left_out |= gathered.failures
    repeated = _repeated(gathered)
    left_out |= repeated
    writer = gathered.recipe.steps.writing.writer
    with FeatureWriter(gathered.folder / FEATURES) as features:
        rows = ((item, row) for item, row in _rows(gathered) if item.id not in repeated)
        count = write_dataset(gathered.folder, _records(rows, features, writer), left_out)
    gathered.say(f"{count} videos gathered, {len(repeated)} that came before, {len(left_out)} left out in all")


def _rows(gathered: Gathered) -> Iterator[tuple[Item, Row]]:
    """Yield each item with its cells, sorted by id; one item in memory at a time."""
    names = ("probe", "transcribe", "encode", "coarse", "ground", "judge")
    stages = [name for name in names if name in gathered.recipe.stages]
    streams = [gathered.results(name) for name in stages]
    for cells in zip(*streams, strict=True):
        yield cells[0][0], {name: data for name, (_, data) in zip(stages, cells, strict=True)}


def _repeated(gathered: Gathered) -> dict[str, Failure]:
    duplicates = Duplicates(gathered.recipe.gather)
    found: dict[str, Failure] = {}
    for item, row in _rows(gathered):
        probed, placed = from_bytes(Probed, row["probe"]), from_bytes(Placed, row["coarse"])
        _, arrays = unpack(Looked, row["encode"])
        looks: Matrix | None = arrays["looks"].astype(np.float32) if "looks" in arrays else None
        signature = duplicates.sign(item.id, placed.duration, probed.digest, placed.transcript, looks)
        reason = duplicates.reason(signature)
        if reason is not None:
            found[item.id] = Failure(item.id, "gather", "left out", reason)
    return found


def _records(rows: Iterable[tuple[Item, Row]], features: FeatureWriter, writer: str) -> Iterator[Record]:
    """Yield the records, adding the features of each to the store; what cannot be added is a warning of its record."""
    for item, row in rows:
        record = record_of(item, row, writer)
        looked, arrays = unpack(Looked, row["encode"])
        if "features" not in arrays or looked.backbone is None:
            yield record
            continue
        values = arrays["features"].astype(np.float16)
        flaw = features.flaw(item.id, values)
        if flaw is None:
            features.add(item.id, values, rate=looked.rate, backbone=looked.backbone)
            yield record
        else:
            told = f"its features are left out: {flaw[0]} {flaw[1]}".rstrip()
            yield record.model_copy(update={"warnings": (*record.warnings, told)})


def record_of(item: Item, row: Row, writer: str) -> Record:
    """Return the record of a video from its cells. Its path is left to what publishes it."""
    probed, placed = from_bytes(Probed, row["probe"]), from_bytes(Placed, row["coarse"])
    looked, _ = unpack(Looked, row["encode"])
    grounded = unpack(Grounded, row["ground"])[0] if "ground" in row else None
    judged = from_bytes(Judged, row["judge"]) if "judge" in row else None
    transcript = placed.transcript if judged is None else judged.transcript
    return Record(
        id=item.id,
        video=Video(id=item.id, duration=placed.duration, title=item.title, task=item.task, sha256=probed.digest),
        transcript=transcript,
        steps=placed.steps if grounded is None else grounded.steps,
        dropped=placed.dropped,
        warnings=(*placed.warnings, *(grounded.doubts if grounded else ())),
        models={
            "stepline": __version__,
            "asr": transcript.recogniser,
            "writer": writer,
            "vision": looked.backbone,
            "grounding": grounded.report if grounded else None,
            "judge": judged.judge if judged else None,
        },
    )
