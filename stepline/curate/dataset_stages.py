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

from stepline.curate.execution.worker import peak_memory
from stepline.curate.plan import Plan, VideoStatus, iterate_statuses_before
from stepline.curate.stage import Collection, DatasetContext, Stage, StageFailure, VideoItem
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog
from stepline.processes import THREAD_VARIABLES

PARALLEL_READS = 16  # results of a stage that are read from a store at the same time


def run_dataset_stage(
    stage: Stage,
    plan: Plan,
    results: ResultStore,
    collection: Collection,
    run_log: RunLog,
    say: Callable[[str], None],
) -> Plan:
    """Run a stage over all videos unless its result is stored, and return the plan with its key.

    Args:
        stage: the stage, of kind "dataset".
        plan: stages, settings, and the keys of the dataset stages that are done.
        results: stored results of the stages that run per video.
        collection: all videos of the run, and the entries that the source refused.
        run_log: log of times and sizes.
        say: called with a progress message.

    Raises StoreError if a result of an earlier stage was removed meanwhile.
    """
    failures: dict[str, StageFailure] = {}
    unfailed: list[VideoItem] = []

    def iterate_statuses() -> Iterator[VideoStatus]:
        for status in iterate_statuses_before(stage, plan, results, collection.items):
            if status.failure is not None:
                failures[status.item.id] = status.failure
            else:
                unfailed.append(status.item)
            yield status

    # The key follows from every video. They are not held, as there may be a million.
    key = plan.dataset_key(stage, iterate_statuses(), collection.refused)
    # A folder that was finished under this key is used as it is.
    folders = StageFolders(results.out)
    if not folders.is_complete(stage.name, key):
        say(f"{stage.name}: {len(unfailed)} of {len(collection.items)} videos")

        def iterate_results(needed_stage: str) -> Iterator[tuple[VideoItem, bytes]]:
            def read_result(item: VideoItem) -> bytes:
                keys = {task.stage: task.key for task in plan.tasks_of(item)}
                return results.read_result(plan.stages[needed_stage], keys[needed_stage])

            return read_results(unfailed, read_result, remote=results.out.local is None)

        context = DatasetContext(
            folder=folders.prepare_folder(stage, key),
            items=collection.items,
            recipe=plan.recipe,
            out=results.out,
            results=iterate_results,
            failures=failures,
            refused=collection.refused,
            folders=folders.local_folders(plan.dataset_keys, stage.needs),
            stage_settings=plan.settings,
            say=say,
        )
        _run_and_log(stage, key, context, run_log)
        folders.mark_complete(stage.name, key)
    return plan.with_dataset_key(stage, key)


def _run_and_log(stage: Stage, key: str, context: DatasetContext, run_log: RunLog) -> None:
    run_log.write("start", id=None, stage=stage.name, key=key)
    # Only time in this process counts, since a dataset stage has no workers.
    cpu = time.process_time()
    wall = time.monotonic()
    with limit_threads(context.recipe.threads):
        cast(Callable[[DatasetContext], None], stage.run)(context)
    paths = context.folder.rglob("*")
    run_log.write(
        "dataset",
        id=None,
        stage=stage.name,
        key=key,
        ok=True,
        cpu=round(time.process_time() - cpu, 4),
        wall=round(time.monotonic() - wall, 4),
        peak_rss=peak_memory(),
        bytes=sum(path.stat().st_size for path in paths if path.is_file()),
    )


def read_results(
    items: Iterable[VideoItem], read_result: Callable[[VideoItem], bytes], *, remote: bool
) -> Iterator[tuple[VideoItem, bytes]]:
    """Yield each video with its stored result, in the order of the videos.

    Args:
        items: the videos.
        read_result: returns the stored result of a video.
        remote: whether to read up to PARALLEL_READS results at the same time, as an object store
            answers late.
    """
    if not remote:
        for item in items:
            yield item, read_result(item)
        return
    # A window of reads: the next ones are on their way while one is used.
    reads: deque[tuple[VideoItem, Future[bytes]]] = deque()
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="results") as pool:
        for item in items:
            reads.append((item, pool.submit(read_result, item)))
            if len(reads) > PARALLEL_READS:
                earlier, data = reads.popleft()
                yield earlier, data.result()
        for earlier, data in reads:
            yield earlier, data.result()


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Use `count` threads in all numeric libraries during a `with` block.

    The number of threads decides the last bits of a sum. Loaded libraries are set directly.
    Libraries that are loaded later read environment variables.
    """
    from threadpoolctl import threadpool_limits

    # Libraries that start later read the variables, and torch has a call of its own.
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    torch = sys.modules.get("torch")
    if torch:
        threads = torch.get_num_threads()
        torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
