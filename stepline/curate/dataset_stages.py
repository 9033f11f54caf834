"""Dataset stages: each runs once, in the driver, over all videos, with a fixed number of threads."""

import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from stepline.curate.execution.supervisor import ONE_THREAD
from stepline.curate.plan import Plan, VideoStatus, video_status
from stepline.curate.stage import Collection, DatasetContext, Item, Refused, Stage
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.errors import StoreError

AT_ONCE = 16  # results of a stage that are read from a store at the same time


def run_dataset_stage(
    stage: Stage, plan: Plan, cells: ResultStore, collection: Collection, journal: RunLog, say: Callable[[str], None]
) -> Plan:
    """Make a dataset stage's folder where it is not there yet, and return the plan that knows of it.

    Raises StoreError where a video's results are missing though its stages have run.
    """
    fates = tuple(_fates(plan, cells, collection.items, stage))
    refused: JsonValue = [[one.id, one.reason] for one in collection.refused]
    key = plan.dataset_key(stage, fates, refused)
    folders = StageFolders(cells.place)
    if not folders.done(stage.name, key):
        say(f"{stage.name}: {sum(one.failure is None for one in fates)} of {len(fates)} videos")
        _run(stage, key, plan, cells, fates, collection.refused, journal, say)
        folders.finish(stage.name, key)
    return replace(plan, dataset_keys={**plan.dataset_keys, stage.name: key})


def _fates(plan: Plan, cells: ResultStore, items: Sequence[Item], stage: Stage) -> Iterator[VideoStatus]:
    before = plan.before(stage)
    for item in items:
        found = video_status(plan, cells, item, before)
        if found is None:
            raise StoreError(f"{item.id}: a result of its stages was removed while the run went on; run it again")
        yield found


def _run(
    stage: Stage,
    key: str,
    plan: Plan,
    cells: ResultStore,
    fates: Sequence[VideoStatus],
    refused: Sequence[Refused],
    journal: RunLog,
    say: Callable[[str], None],
) -> None:
    folders = StageFolders(cells.place)

    def results(name: str) -> Iterator[tuple[Item, bytes]]:
        kept = (one for one in fates if one.failure is None)
        return read_ahead(kept, lambda one: cells.read(plan.stages[name], one.key(name)), cells.place.local is None)

    gathered = DatasetContext(
        folder=folders.started(stage, key),
        items=[one.item for one in fates],
        recipe=plan.recipe,
        out=cells.place,
        results=results,
        failures={one.item.id: one.failure for one in fates if one.failure is not None},
        refused=refused,
        folders=here(folders, plan.dataset_keys, stage.needs),
        say=say,
    )
    journal.write("start", id=None, stage=stage.name, key=key)
    cpu, wall = time.process_time(), time.monotonic()
    with fixed_threads(plan.recipe.threads):
        cast(Callable[[DatasetContext], None], stage.run)(gathered)
    took = {"cpu": round(time.process_time() - cpu, 4), "wall": round(time.monotonic() - wall, 4)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    size = sum(path.stat().st_size for path in gathered.folder.rglob("*") if path.is_file())
    journal.write("dataset", id=None, stage=stage.name, key=key, ok=True, **took, peak_rss=peak, bytes=size)


def read_ahead(
    fates: Iterable[VideoStatus], read: Callable[[VideoStatus], bytes], far: bool
) -> Iterator[tuple[Item, bytes]]:
    """Yield each item with its result, in order. far: in a store, where reading one by one would be mostly waiting."""
    if not far:
        yield from ((one.item, read(one)) for one in fates)
        return
    coming: deque[tuple[Item, Future[bytes]]] = deque()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cells") as pool:
        for one in fates:
            coming.append((one.item, pool.submit(read, one)))
            if len(coming) > AT_ONCE:
                item, data = coming.popleft()
                yield item, data.result()
        yield from ((item, data.result()) for item, data in coming)


def here(folders: StageFolders, keys: Mapping[str, str], needs: Sequence[str]) -> dict[str, Path]:
    """Return the folders of those needs that are dataset stages, on this machine."""
    return {need: folders.here(need, keys[need]) for need in needs if need in keys}


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Have numeric libraries use a number of threads, whatever the machine has: it decides the last bits of a sum.

    Those that are loaded already are told, those that will be find it in the environment.
    """
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, str(count)))
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else count
    if torch:
        torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
