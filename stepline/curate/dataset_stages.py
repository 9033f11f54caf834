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
from stepline.curate.plan import Plan, VideoStatus, video_status
from stepline.curate.stage import Collection, DatasetContext, Stage, VideoItem
from stepline.curate.store.manifests import MANIFESTS_FOLDER, write_manifest
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import RunLog, inventory
from stepline.errors import StoreError
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
    """Make a dataset stage's folder where it is not there yet, and return the plan that knows of
    it.

    Raises StoreError where a video's results are missing though its stages have run.
    """
    # The key follows from every video. `status` finds it without a look at each.
    out = results.out
    videos = _statuses(stage, plan, results, collection)
    key = plan.dataset_key(stage, videos, collection.refused)
    failures = {}
    unfailed = []
    for video in videos:
        if video.failure is not None:
            failures[video.item.id] = video.failure
        else:
            unfailed.append(video)
    digest = plan.dataset_digest(stage, failures.values(), inventory(out).content)
    manifest = out / f"{MANIFESTS_FOLDER}/{stage.name}.json"
    write_manifest(manifest, {"of": digest, "key": key})

    # A folder that was finished under this key is used as it is.
    folders = StageFolders(out)
    if not folders.is_complete(stage.name, key):
        say(f"{stage.name}: {len(unfailed)} of {len(videos)} videos")

        def results_of(need: str) -> Iterator[tuple[VideoItem, bytes]]:
            def read_result(video: VideoStatus) -> bytes:
                return results.read(plan.stages[need], video.key(need))

            return read_results(unfailed, read_result, remote=out.local is None)

        context = DatasetContext(
            folder=folders.begin(stage, key),
            items=[video.item for video in videos],
            recipe=plan.recipe,
            out=out,
            results=results_of,
            failures=failures,
            refused=collection.refused,
            folders=folders.local_folders(plan.dataset_keys, stage.needs),
            stage_settings=plan.settings,
            say=say,
        )
        _run(stage, key, context, run_log)
        folders.complete(stage.name, key)
    return plan.with_dataset_key(stage, key)


def _statuses(
    stage: Stage, plan: Plan, results: ResultStore, collection: Collection
) -> list[VideoStatus]:
    """Return what became of each video in the stages before a dataset stage."""
    before = plan.video_stages_before(stage)
    statuses = []
    for item in collection.items:
        status = video_status(plan, results, item, before)
        if status is None:
            what = f"{item.id}: a result of its stages was removed while the run went on"
            raise StoreError(f"{what}; run it again")
        statuses.append(status)
    return statuses


def _run(stage: Stage, key: str, context: DatasetContext, run_log: RunLog) -> None:
    """Run a dataset stage in its folder, and log what it took."""
    run_log.write("start", id=None, stage=stage.name, key=key)
    # Only time in this process counts, since a dataset stage has no workers.
    cpu = time.process_time()
    wall = time.monotonic()
    with fixed_threads(context.recipe.threads):
        run = cast(Callable[[DatasetContext], None], stage.run)
        run(context)
    sizes = [path.stat().st_size for path in context.folder.rglob("*") if path.is_file()]
    run_log.write(
        "dataset",
        id=None,
        stage=stage.name,
        key=key,
        ok=True,
        cpu=round(time.process_time() - cpu, 4),
        wall=round(time.monotonic() - wall, 4),
        peak_rss=peak_memory(),
        bytes=sum(sizes),
    )


def read_results(
    videos: Iterable[VideoStatus], read_result: Callable[[VideoStatus], bytes], *, remote: bool
) -> Iterator[tuple[VideoItem, bytes]]:
    """Yield each item with its result, in order. remote: ahead of time, for one by one would be
    mostly waiting."""
    if not remote:
        for video in videos:
            yield video.item, read_result(video)
        return
    # A window of reads: the next ones are on their way while one is used.
    reads: deque[tuple[VideoItem, Future[bytes]]] = deque()
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="results") as pool:
        for video in videos:
            reads.append((video.item, pool.submit(read_result, video)))
            if len(reads) > PARALLEL_READS:
                item, data = reads.popleft()
                yield item, data.result()
        for item, data in reads:
            yield item, data.result()


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Set the number of threads of numeric libraries, whatever the machine has: it decides the last
    bits of a sum.

    Libraries that are loaded already are set. Those that will be loaded read the environment.
    """
    from threadpoolctl import threadpool_limits

    # Libraries that start later read the variables, and torch has a call of its own.
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    torch = sys.modules.get("torch")
    threads = count
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
