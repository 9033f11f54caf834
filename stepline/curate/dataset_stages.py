"""Dataset stages: each runs once, in the driver, over all videos, with a fixed number of
threads."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

from stepline.curate.execution.pool import ONE_THREAD
from stepline.curate.execution.worker import peak_memory
from stepline.curate.plan import Plan, VideoStatus, video_status
from stepline.curate.stage import Collection, DatasetContext, Stage, VideoItem
from stepline.curate.store.manifests import MANIFESTS, dataset_digest, write_manifest
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog, inventory
from stepline.errors import StoreError

PARALLEL_READS = 16  # results of a stage that are read from a store at the same time


def run_dataset_stage(
    stage: Stage,
    plan: Plan,
    results: ResultStore,
    collection: Collection,
    run_log: RunLog,
    say: Callable[[str], None],
) -> Plan:
    """Make a dataset stage's folder where it is not there yet, and return the plan that knows of
    it.

    Raises StoreError where a video's results are missing though its stages have run.
    """
    videos, before = [], plan.video_stages_before(stage)
    for item in collection.items:
        status = video_status(plan, results, item, before)
        if status is None:
            raise StoreError(
                f"{item.id}: a result of its stages was removed while the run went on; run it again"
            )
        videos.append(status)
    key = plan.dataset_key(stage, videos, collection.refused)
    failed = [video.failure for video in videos if video.failure is not None]
    of = dataset_digest(plan, stage.name, failed, inventory(results.out).content)
    write_manifest(results.out / f"{MANIFESTS}/{stage.name}.json", {"of": of, "key": key})
    folders = StageFolders(results.out)
    if not folders.is_complete(stage.name, key):
        unfailed = [video for video in videos if video.failure is None]
        say(f"{stage.name}: {len(unfailed)} of {len(videos)} videos")

        def results_of(need: str) -> Iterator[tuple[VideoItem, bytes]]:
            def read(video: VideoStatus) -> bytes:
                return results.read(plan.stages[need], video.key(need))

            return read_results(unfailed, read, results.out.local is None)

        context = DatasetContext(
            folder=folders.begin(stage, key),
            items=[video.item for video in videos],
            recipe=plan.recipe,
            out=results.out,
            results=results_of,
            failures={
                video.item.id: video.failure for video in videos if video.failure is not None
            },
            refused=collection.refused,
            folders=folders.local_folders(plan.dataset_keys, stage.needs),
            say=say,
        )
        run_log.write("start", id=None, stage=stage.name, key=key)
        cpu, wall = time.process_time(), time.monotonic()
        with fixed_threads(plan.recipe.threads):
            cast(Callable[[DatasetContext], None], stage.run)(context)
        took = {
            "cpu": round(time.process_time() - cpu, 4),
            "wall": round(time.monotonic() - wall, 4),
        }
        took |= {"peak_rss": peak_memory()}
        took |= {
            "bytes": sum(
                path.stat().st_size for path in context.folder.rglob("*") if path.is_file()
            )
        }
        run_log.write("dataset", id=None, stage=stage.name, key=key, ok=True, **took)
        folders.complete(stage.name, key)
    return plan.with_dataset_key(stage, key)


def read_results(
    videos: Iterable[VideoStatus], read: Callable[[VideoStatus], bytes], remote: bool
) -> Iterator[tuple[VideoItem, bytes]]:
    """Yield each item with its result, in order. remote: ahead of time, for one by one would be
    mostly waiting."""
    if not remote:
        yield from ((video.item, read(video)) for video in videos)
        return
    reads: deque[tuple[VideoItem, Future[bytes]]] = deque()
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="results") as pool:
        for video in videos:
            reads.append((video.item, pool.submit(read, video)))
            if len(reads) > PARALLEL_READS:
                item, data = reads.popleft()
                yield item, data.result()
        yield from ((item, data.result()) for item, data in reads)


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Have numeric libraries use a number of threads, whatever the machine has: it decides the last
    bits of a sum.

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
