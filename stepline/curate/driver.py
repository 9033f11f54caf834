"""A run of `stepline curate` from its source to its dataset and report.

The videos go through their stages (execution/), then come the stages over all of them, and so
on in the recipe's order. Everything in OUT is found again by its name, so a run continues where an
earlier one ended, however that ended:

    OUT/run.json, items.jsonl, refused.jsonl        the recipe, the videos, what was left out of the source
    OUT/cells, failures                             results of tasks (a stage of a video), and why there are none
    OUT/stages/STAGE/KEY/                           what a dataset stage made
    OUT/timings/*.jsonl, driver.json                what each task took; who works on the run
    OUT/dataset/                                    what the export stage publishes
    OUT/features/                                   the store that the features stage makes

A dataset stage runs once, here, over all videos, with a fixed number of threads.
"""

import contextlib
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from stepline.curate.execution.local import run_locally
from stepline.curate.execution.scheduler import FinishedVideo, Phase
from stepline.curate.execution.worker import peak_memory
from stepline.curate.plan import Plan, VideoStatus, iterate_statuses_before, video_status
from stepline.curate.stage import (
    DATASET_FOLDER,
    Collection,
    DatasetContext,
    Recipe,
    SourceEntry,
    Stage,
    StageFailure,
    StageTable,
    VideoItem,
    resolve_stages,
)
from stepline.curate.store.lock import RunLock, lock_run
from stepline.curate.store.results import ResultStore, StageFolders, remove_partials
from stepline.curate.store.run_log import RunLog, write_inventory
from stepline.errors import DatasetError
from stepline.files.atomic_files import check_writable
from stepline.files.remote import RemotePath
from stepline.limits import parse_json
from stepline.networks.device import core_count
from stepline.processes import THREAD_VARIABLES, set_variables
from stepline.records import Rejected
from stepline.version import __version__

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
    torch = sys.modules.get("torch")
    if torch:
        threads = torch.get_num_threads()
        torch.set_num_threads(count)
    try:
        with set_variables(dict.fromkeys(THREAD_VARIABLES, str(count))), threadpool_limits(count):
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)


log = logging.getLogger(__name__)

SECONDS_PER_HOUR = 3600


@dataclass
class PhaseProgress:
    """Progress of the videos through one phase: consecutive stages that run per video.

    Attributes:
        total: number of videos.
        finished: number of videos whose stages are all done, or one of which failed.
        finished_earlier: number of the finished videos that an earlier run had completed.
        failures_by_kind: number of failed videos by kind of failure.
        start_time: start time in seconds, on the clock `time.monotonic`.
    """

    total: int
    finished: int = 0
    finished_earlier: int = 0
    failures_by_kind: Counter[str] = field(default_factory=Counter)
    start_time: float = field(default_factory=time.monotonic)

    def count(self, failure: StageFailure | None, *, earlier: bool) -> None:
        """Count one finished video.

        Args:
            failure: its first failure. None if all its stages are done.
            earlier: whether an earlier run had completed the video.
        """
        self.finished += 1
        self.finished_earlier += earlier
        if failure is not None:
            self.failures_by_kind[failure.kind] += 1

    @property
    def failed(self) -> int:
        """Number of failed videos, without those that a filter of the recipe leaves out."""
        return self.failures_by_kind.total() - self.failures_by_kind["left out"]

    @property
    def seconds(self) -> float:
        """Seconds since the phase began."""
        return time.monotonic() - self.start_time

    @property
    def rate(self) -> float | None:
        """Videos per hour that this run has finished itself. None before the first."""
        # What an earlier run did took no time of this one.
        worked = self.finished - self.finished_earlier
        return worked / (max(self.seconds, 1e-9) / SECONDS_PER_HOUR) if worked else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds to the end of the phase. None while no rate is known."""
        rate = self.rate
        return (self.total - self.finished) / rate * SECONDS_PER_HOUR if rate else None


@dataclass(frozen=True)
class RunRequest:
    """The arguments of a curation run.

    Attributes:
        recipe: stages and settings.
        out: URL or path of the output folder, also called OUT.
        stages: all known stages by name.
        source: URL or path of the videos: a folder, a list or HowTo100M's table.
        limit: number of videos to use, the first by id. None: all.
        retry_failed: whether failed tasks are tried again.
        on_progress: called whenever a video is finished.
        say: called with a progress message.
    """

    recipe: Recipe
    out: str
    stages: StageTable
    source: str = ""
    limit: int | None = None
    retry_failed: bool = False
    on_progress: Callable[[PhaseProgress], None] = lambda progress: None  # noqa: ARG005
    say: Callable[[str], None] = log.info


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a curation run.

    Attributes:
        videos: number of videos.
        failures: first failure of each video that failed or was left out, by any stage, in the order
            of the ids.
        refused: entries that the source refused.
        plan: stages, settings, and the keys of the dataset stages.
        seconds: wall time.
    """

    videos: int
    failures: tuple[StageFailure, ...]
    refused: tuple[Rejected, ...]
    plan: Plan
    seconds: float


def curate(request: RunRequest) -> tuple[RunOutcome, RemotePath]:
    """Run a recipe over its source, publish the dataset and write the report.

    Return the outcome and the output folder. Finished results are kept if the run ends early.

    Raises SteplineError if the run cannot continue, DatasetError if no video is left for the dataset. A
    dataset that was published before then stays.
    """
    from stepline.curate.export.dataset import INDEX_NAME, publish_features, publish_folder
    from stepline.curate.report.write import write_report
    from stepline.curate.sources.read import read_source

    out = output_path(request)

    # Called under the lock, so that no other run changes what is published.
    def publish_dataset(outcome: RunOutcome) -> None:
        keys = outcome.plan.dataset_keys
        folders = StageFolders(out)
        if "export" in keys:
            folder = folders.local_folder("export", keys["export"])
            if not parse_json((folder / INDEX_NAME).read_bytes())["videos"]:
                reasons = Counter(f"{each.stage}: {each.reason}" for each in outcome.failures)
                counts = "; ".join(f"{count} by {text}" for text, count in reasons.most_common(3))
                raise DatasetError(
                    f"no video is left, so {(out / DATASET_FOLDER).display_url} is not written "
                    f"({counts}); change what leaves them out, `stepline curate status "
                    f"{out.display_url}` names the videos"
                )
            publish_folder(folder, out / DATASET_FOLDER)
            write_report(out, request.recipe.report)
        if "features" in keys:
            folder = folders.local_folder("features", keys["features"])
            publish_features(folder / "features", out / "features")

    source = read_source(request.source, request.recipe.source, request.recipe.remote)
    return run_recipe(request, source, publish_dataset), out


def output_path(request: RunRequest) -> RemotePath:
    """Return the output folder of a run, as an absolute path if it is local.

    So worker processes with another working folder find it too.
    """
    out = RemotePath(request.out, request.recipe.remote)
    if out.local is None:
        return out
    # A relative path means another folder to a worker elsewhere.
    return replace(out, url=os.path.abspath(out.local))


def run_recipe(
    request: RunRequest,
    source: Iterable[SourceEntry],
    at_end: Callable[[RunOutcome], None] | None = None,
) -> RunOutcome:
    """Run all stages of a recipe over the videos of a source and return the outcome.

    Args:
        request: recipe, output folder and options.
        source: videos and refused entries, in any order.
        at_end: called with the outcome while the output folder is still locked.

    Raises SettingsError for an invalid recipe or if another process works on the output folder,
    DatasetError for an empty source. Missing models and a full disk also end the run.
    """
    began = time.monotonic()
    cpu = time.process_time()
    recipe = request.recipe
    out = output_path(request)
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, request.stages))
    if out.local is not None:
        check_writable(out.local)
    with lock_run(out) as lock:
        # The videos, written down before any work.
        if lock.was_killed:
            remove_partials(out)
        collection = collect_items(source, request.limit)
        items = collection.items
        write_inventory(out, recipe, collection, request.source)

        # Each phase is either stages per video, or stages over all of them.
        results = ResultStore(out)
        with contextlib.closing(RunLog(out)) as run_log:
            run_log.write(
                "run",
                version=__version__,
                libraries=plan.library_versions(),
                engine=recipe.engine.name,
                cores=core_count(),
                videos=len(items),
                seconds=time.monotonic() - began,
            )
            for stages in plan.phases():
                if stages[0].kind == "video":
                    _run_video_stages(request, plan, results, stages, items, run_log, lock)
                    if recipe.engine.name == "ray":
                        results = ResultStore(out)  # other machines have written to it
                    continue
                for stage in stages:
                    lock.require_ownership()
                    plan = run_dataset_stage(stage, plan, results, collection, run_log, request.say)
            run_log.write(
                "ended",
                seconds=round(time.monotonic() - began, 3),
                cpu=round(time.process_time() - cpu, 3),
            )

        # The first failure of each video that has one. What the source refused has its own list.
        names = [stage.name for stage in plan.video_stages]
        statuses = (video_status(plan, results, item, names) for item in items)
        failures = StageFolders(out).read_failures(plan.dataset_keys)
        failures |= {
            status.item.id: status.failure for status in statuses if status and status.failure
        }
        outcome = RunOutcome(
            len(items),
            tuple(each for _, each in sorted(failures.items()) if each.stage in plan.stages),
            tuple(collection.refused),
            plan,
            time.monotonic() - began,
        )
        if at_end is not None:
            lock.require_ownership()
            at_end(outcome)
    return outcome


def _run_video_stages(
    request: RunRequest,
    plan: Plan,
    results: ResultStore,
    stages: Sequence[Stage],
    items: Sequence[VideoItem],
    run_log: RunLog,
    lock: RunLock,
) -> None:
    """Run consecutive video stages on the engine of the recipe.

    Videos that failed in an earlier phase take no part.
    """
    names = tuple(stage.name for stage in stages)
    progress = PhaseProgress(len(items))
    before = plan.video_stages_before(stages[0])

    def count(video: FinishedVideo) -> None:
        # Another driver may have taken the lock, if this machine seemed dead.
        lock.require_ownership()
        progress.count(video.failure, earlier=not video.ran_any_task)
        request.on_progress(progress)

    def unfailed_items() -> Iterator[VideoItem]:
        # A video that failed in an earlier phase takes no part in this one.
        for item in items:
            status = video_status(plan, results, item, before) if before else None
            if status is None or status.failure is None:
                yield item

    phase = Phase(plan, results, names, request.retry_failed, count)
    request.on_progress(progress)
    if request.recipe.engine.name == "ray":
        from stepline.curate.execution.ray import run_on_ray

        run_on_ray(phase, unfailed_items())
    else:
        run_locally(phase, unfailed_items(), run_log)


def collect_items(source: Iterable[SourceEntry], limit: int | None) -> Collection:
    """Return the videos of a source, and its refused entries, both sorted by id.

    limit: number of videos to keep, the first by id. None: all.

    Raises DatasetError if there is no video.
    """
    # By id, so that a run does not depend on the order of its source.
    entries = sorted(source, key=lambda entry: entry.id)
    items = [entry for entry in entries if isinstance(entry, VideoItem)]
    refused = [entry for entry in entries if isinstance(entry, Rejected)]
    if not items:
        raise DatasetError(
            f"the source holds no video to work on ({len(refused)} refused); name another"
        )
    return Collection(items[:limit], refused)
