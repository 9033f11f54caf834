"""Narrations sieved, and swapped for human-written steps, over all gathered videos (Sieve & Swap, section 4)."""

from collections.abc import Iterator

from stepline.curate.stage import Failure, Gathered
from stepline.curate.stages.dataset import RECORDS, read_left_out, write_dataset
from stepline.errors import SettingsError
from stepline.records import Record
from stepline.sieve_swap.settings import SieveSwapSettings

RUN = "run"  # in the stage's folder; `stepline sieve-swap` makes the same
NO_STEP = "no sentence of it is swapped or kept"


def sieve_swap(gathered: Gathered) -> None:
    """Swap the narrations of all videos, or go on where a run was killed."""
    from stepline.sieve_swap.collection import Job, run
    from stepline.sieve_swap.text_base import open_base

    settings = gathered.recipe.sieve_swap
    if settings.base is None:
        raise SettingsError("sieve_swap.base is not set; name the folder of a text base")
    told = SieveSwapSettings(pairing=settings.pairing, match=settings.match)
    source = gathered.folders["gather"] / RECORDS
    base, out = open_base(settings.base), gathered.folder / RUN
    run(Job(source, base, out, told, say=gathered.say))
    left_out = read_left_out(gathered.folders["gather"])
    kept: list[Record] = []
    for record in _made(gathered):
        if record.steps:
            kept.append(record)
        else:
            reason = next((one.reason for one in record.dropped if one.what == "video"), NO_STEP)
            left_out[record.id] = Failure(record.id, "sieve-swap", "left out", reason)
    write_dataset(gathered.folder, sorted(kept, key=lambda record: record.id), left_out)


def _made(gathered: Gathered) -> Iterator[Record]:
    """Yield what the run made of every video, in any order; the split is in the record's settings."""
    from stepline.sieve_swap.shards import LEFT_OUT, TRAIN, VALIDATION
    from stepline.store import read_parquet

    for split in (TRAIN, VALIDATION, LEFT_OUT):
        for file in sorted((gathered.folder / RUN / split).glob("*.parquet")):
            yield from read_parquet(file)
