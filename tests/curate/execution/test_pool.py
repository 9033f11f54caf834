import pytest
from fake_stages import STAGES, recipe

from stepline.curate.execution.messages import (
    MAX_REASON_CHARS,
    TaskReply,
    TaskRequest,
    WorkerSetup,
    portable_reason,
)
from stepline.curate.execution.pool import OUTSIDE_KILLS, WorkerDeath, WorkerPool, WorkerProcess
from stepline.curate.execution.worker import TaskRunner
from stepline.curate.plan import StageTask
from stepline.curate.stage import StageFailure, VideoItem
from stepline.curate.store.run_log import RunLog
from stepline.remote import RemotePath
from stepline.version import minor_version

REQUEST = TaskRequest(StageTask(VideoItem("a"), "read", "ab" * 32, {}))


class FakeWorker:
    """A worker as a pool sees it: what it had to do, and how often it was replaced."""

    def __init__(self, request_count, requests=(REQUEST,)):
        self.requests, self.request_count, self.seconds = list(requests), request_count, 1.0
        self.pid, self.is_free, self.given, self.has_gpu = 7, True, [], False

    can_do = WorkerProcess.can_do

    def restart(self):
        self.requests, self.request_count = [], 0

    def submit(self, requests):
        self.given += requests


@pytest.fixture
def pool(tmp_path):
    """A pool whose processes are not started."""
    made = WorkerPool(
        WorkerSetup(recipe(), STAGES, str(tmp_path)), 1, RunLog(RemotePath(str(tmp_path))), tmp_path
    )
    yield made
    made._run_log.close()


@pytest.mark.parametrize(
    ("death", "kind", "reason"),
    [
        (WorkerDeath(7, None), "crash", "its process ended with exit code 7"),
        (WorkerDeath(-11, None), "crash", "its process ended with signal SIGSEGV"),
        (WorkerDeath(-9, "memory"), "memory", "it took more than 1024 MiB of memory"),
    ],
)
def test_only_a_fresh_process_tells_that_a_video_is_to_blame(pool, death, kind, reason):
    worker = FakeWorker(request_count=2)
    assert pool._outcomes_of(worker, death) == []
    pool._workers = [worker]
    pool.free_workers(useful=0)
    assert worker.given == [REQUEST]  # the fresh one gets it before anything else
    (outcome,) = pool._outcomes_of(FakeWorker(request_count=1), death)
    assert outcome.failure == StageFailure("a", "read", kind, reason)


@pytest.mark.parametrize("code", [-9, -15], ids=["kill", "a machine that goes down"])
def test_a_hang_is_told_at_once_and_a_kill_from_outside_only_after_some(pool, code):
    (hang,) = pool._outcomes_of(FakeWorker(request_count=2), WorkerDeath(-9, "time"))
    assert hang.failure.kind == "hang"
    for _ in range(OUTSIDE_KILLS - 1):
        assert pool._outcomes_of(FakeWorker(request_count=1), WorkerDeath(code, None)) == []
    (killed,) = pool._outcomes_of(FakeWorker(request_count=1), WorkerDeath(code, None))
    assert killed.failure.kind == "memory"


OTHER = TaskRequest(StageTask(VideoItem("b"), "read", "cd" * 32, {}))


@pytest.mark.parametrize(
    "message",
    [
        WorkerDeath(-9, "time"),
        WorkerDeath(-9, "memory"),
        WorkerDeath(-11, None),
        WorkerDeath(-9, None),
        [TaskReply("memory"), TaskReply("memory")],
    ],
    ids=["time", "memory", "crash", "kill", "told"],
)
def test_of_several_together_each_is_done_by_itself_before_one_is_blamed(pool, message):
    assert pool._outcomes_of(FakeWorker(request_count=1, requests=(REQUEST, OTHER)), message) == []
    worker = FakeWorker(request_count=5)
    pool._workers = [worker]
    for _ in range(2):
        pool.free_workers(useful=0)
    assert worker.given == [REQUEST, OTHER]
    assert not pool._kills


def test_of_several_together_each_has_its_own_reply(pool):
    together = FakeWorker(request_count=3, requests=(REQUEST, OTHER))
    done, failed = pool._outcomes_of(together, [TaskReply("done"), TaskReply("error", "no sound")])
    assert (done.request, done.failure) == (REQUEST, None)
    assert (failed.request, failed.failure) == (
        OTHER,
        StageFailure("b", "read", "error", "no sound"),
    )
    assert not together.requests


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("/data/in/a.mp4: no sound", "a: no sound"),
        (
            "[Errno 2] No such file: '/tmp/stepline-x1/audio.wav'",
            "[Errno 2] No such file: '(a path)'",
        ),
        ("cannot use <Frame at 0x7f3a09bc1d90>\nat all", "cannot use <Frame at 0x...> at all"),
        (
            "see https://host/path/page, 3/4 of it and/or /this",
            "see https://host/path/page, 3/4 of it and/or /this",
        ),
        ("(/home/ann/models/base) and /data/in/a.mp4.part", "((a path)) and a.part"),
    ],
)
def test_a_reason_holds_nothing_of_this_machine(reason, told):
    assert portable_reason(reason, ["/data/in/a.mp4"], "a") == told


def test_a_reason_is_one_line_of_bounded_length():
    assert portable_reason("word\n" * 1000, [], "a") == ("word " * 1000)[:MAX_REASON_CHARS] + "..."


def test_a_machine_with_another_version_than_the_drivers_computes_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    request = TaskRequest(REQUEST.task, {"captions": tmp_path / "a.txt"})
    replies = [
        TaskRunner(WorkerSetup(recipe(), STAGES, str(tmp_path), versions={"psutil": version})).run(
            [request]
        )[0]
        for version in (minor_version("psutil"), "4.0")
    ]
    assert [reply.kind for reply in replies] == ["done", "run"]
    assert replies[1].reason.endswith("the driver 4.0; install the same version on every machine")
