from multiprocessing import Pipe

import pytest
from fake_stages import STAGES, recipe

from stepline.curate.execution.scheduler import MAX_OUTSIDE_KILLS, TaskPool, TaskWorker
from stepline.curate.execution.worker import (
    MAX_REASON_CHARS,
    TaskReply,
    TaskRequest,
    TaskRunner,
    WorkerSetup,
    remove_paths_from_reason,
)
from stepline.curate.plan import StageTask
from stepline.curate.stage import StageFailure, VideoItem
from stepline.curate.store.run_log import RunLog
from stepline.files.remote import RemotePath
from stepline.version import minor_version
from stepline.workers import Reply, WorkerDeath

REQUEST = TaskRequest(StageTask(VideoItem("a"), "read", "ab" * 32, {}))


class FakeWorker:
    """A worker as a pool sees it: what it had to do, how often it was replaced, and what it sends
    next."""

    def __init__(self, task_count, message):
        self.task, self.task_count, self.seconds = REQUEST, task_count, 1.0
        self.pid, self.is_free, self.given, self.has_gpu = 7, True, [], False
        self.is_ready, self.is_busy, self.loaded_stages = True, True, set()
        self.connection, self.other_end = Pipe()
        self.message = Reply(message) if isinstance(message, TaskReply) else message
        self.other_end.send_bytes(b"a message")

    can_do = TaskWorker.can_do

    def receive(self):
        self.connection.recv_bytes()
        return self.message

    def check(self):
        return None

    def close(self, seconds):
        self.connection.close()
        self.other_end.close()

    def restart(self):
        self.task, self.task_count = None, 0

    def submit(self, request, seconds):
        self.given.append(request)


class FakePool(TaskPool):
    """A pool whose processes are not started: tests say which workers it has."""

    def outcomes_of(self, worker):
        """Take a worker in, and return what its message means."""
        self.workers.append(worker)
        return self.finished_tasks(0)


@pytest.fixture
def pool(tmp_path):
    run_log = RunLog(RemotePath(str(tmp_path)))
    setup = WorkerSetup(recipe(), STAGES, str(tmp_path))
    pool = FakePool(setup, 1, run_log)
    yield pool
    pool.close()
    run_log.close()


@pytest.mark.parametrize(
    ("death", "kind", "reason"),
    [
        (WorkerDeath(7, None), "crash", "its process ended with exit code 7"),
        (WorkerDeath(-11, None), "crash", "its process ended with signal SIGSEGV"),
        (WorkerDeath(-9, "memory"), "memory", "it took more than 1024 MiB of memory"),
    ],
)
def test_only_a_fresh_process_shows_that_a_video_is_to_blame(pool, death, kind, reason):
    worker = FakeWorker(2, death)
    assert pool.outcomes_of(worker) == []
    pool.free_workers(useful=0)
    assert worker.given == [REQUEST]  # the fresh one gets it before anything else
    ((_, failure),) = pool.outcomes_of(FakeWorker(1, death))
    assert failure == StageFailure("a", "read", kind, reason)


@pytest.mark.parametrize("code", [-9, -15], ids=["kill", "a machine that goes down"])
def test_a_hang_is_reported_immediately_and_a_kill_from_outside_only_after_some(pool, code):
    ((_, hang),) = pool.outcomes_of(FakeWorker(2, WorkerDeath(-9, "time")))
    assert hang.kind == "hang"
    kill = WorkerDeath(code, None)
    for _ in range(MAX_OUTSIDE_KILLS - 1):
        assert pool.outcomes_of(FakeWorker(1, kill)) == []
    ((_, killed),) = pool.outcomes_of(FakeWorker(1, kill))
    assert killed.kind == "memory"


def test_memory_that_is_short_counts_in_a_fresh_process_alone_and_a_failure_in_any(pool):
    worker = FakeWorker(2, TaskReply("memory", "none was left"))
    assert pool.outcomes_of(worker) == []
    pool.free_workers(useful=0)
    assert worker.given == [REQUEST]
    ((_, failure),) = pool.outcomes_of(FakeWorker(1, TaskReply("memory", "none was left")))
    assert failure == StageFailure("a", "read", "memory", "none was left")
    assert pool.outcomes_of(FakeWorker(3, TaskReply("done"))) == [(REQUEST.task, None)]
    ((_, failure),) = pool.outcomes_of(FakeWorker(3, TaskReply("error", "no sound")))
    assert failure == StageFailure("a", "read", "error", "no sound")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("/data/in/a.mp4: no sound", "a: no sound"),
        ("No such file: '/tmp/stepline-x1/audio.wav'", "No such file: '(a path)'"),
        ("cannot use <Frame at 0x7f3a09bc1d90>\nat all", "cannot use <Frame at 0x...> at all"),
        ("see https://host/path/page, 3/4 of it and/or /this", None),
        ("(/home/ann/models/base) and /data/in/a.mp4.part", "((a path)) and a.part"),
    ],
)
def test_a_reason_holds_nothing_of_this_machine(reason, told):
    assert remove_paths_from_reason(reason, ["/data/in/a.mp4"], "a") == (told or reason)


def test_a_reason_is_one_line_of_bounded_length():
    cut = ("word " * 1000)[:MAX_REASON_CHARS] + "..."
    assert remove_paths_from_reason("word\n" * 1000, [], "a") == cut


def test_a_machine_with_another_version_than_the_drivers_computes_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    request = TaskRequest(REQUEST.task, {"captions": tmp_path / "a.txt"})
    replies = []
    for version in (minor_version("psutil"), "4.0"):
        setup = WorkerSetup(recipe(), STAGES, str(tmp_path), versions={"psutil": version})
        replies.append(TaskRunner(setup).run(request))
    assert [reply.kind for reply in replies] == ["done", "run"]
    assert replies[1].reason.endswith("the driver 4.0; install the same version on every machine")
