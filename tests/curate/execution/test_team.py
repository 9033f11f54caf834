import pytest
from fake_stages import STAGES, recipe

from stepline.curate.execution.messages import TaskRequest, WorkerSetup
from stepline.curate.execution.pool import KILLS, WorkerPool
from stepline.curate.execution.supervisor import WorkerDeath
from stepline.curate.remote import RemotePath
from stepline.curate.stage import Item, StageFailure, StageTask
from stepline.curate.store.run_log import RunLog

ORDER = TaskRequest(StageTask(Item("a"), "read", "ab" * 32, {}))


class Workers:
    """A worker as a team sees it: what it had to do, and how often it was replaced."""

    def __init__(self, served):
        self.order, self.served, self.seconds, self.process, self.free, self.given = ORDER, served, 1.0, 7, True, []

    def restart(self):
        self.order, self.served = None, 0

    def give(self, order):
        self.given.append(order)


@pytest.fixture
def team(tmp_path):
    """A team whose processes are not started."""
    made = WorkerPool(WorkerSetup(recipe(), STAGES, str(tmp_path)), 1, RunLog(RemotePath(str(tmp_path))), tmp_path)
    yield made
    made._journal.close()


@pytest.mark.parametrize(
    ("died", "kind", "reason"),
    [
        (WorkerDeath(7, None), "crash", "its process ended with exit code 7"),
        (WorkerDeath(-11, None), "crash", "its process ended with signal SIGSEGV"),
        (WorkerDeath(-9, "memory"), "memory", "it took more than 1024 MiB of memory"),
    ],
)
def test_only_a_fresh_process_tells_that_a_video_is_to_blame(team, died, kind, reason):
    worker = Workers(served=2)
    assert team._judged(worker, died) is None
    team._workers = [worker]
    team._repeat()
    assert worker.given == [ORDER]  # the fresh one gets it before anything else
    assert team._judged(Workers(served=1), died).failure == StageFailure("a", "read", kind, reason)


def test_a_hang_is_told_at_once_and_a_kill_from_outside_only_after_some(team):
    assert team._judged(Workers(served=2), WorkerDeath(-9, "time")).failure.kind == "hang"
    for _ in range(KILLS - 1):
        assert team._judged(Workers(served=1), WorkerDeath(-9, None)) is None
    assert team._judged(Workers(served=1), WorkerDeath(-9, None)).failure.kind == "memory"
