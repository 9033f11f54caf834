"""Worker processes: what they do, and how their ends are reported."""

import os
import subprocess
import time

import psutil
import pytest
from kills import wait_for_end

from stepline.workers import Reply, WorkerPool, WorkerProcess, WorkerReady


def start_worker(setup, send):
    """What the workers of these tests do."""

    def run(task):
        match task:
            case "exit":
                print("the last words\n", flush=True)
                os._exit(7)
            case "raise":
                raise ValueError("no\x1b such task")
            case "hang":
                time.sleep(600)
            case "hog":
                held = bytearray(os.urandom(2**20)) * 300
                time.sleep(len(held))
            case "fork":
                # it holds the pipe open
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(3)
            case "start":
                return subprocess.Popen(["sleep", "600"]).pid
        send("half done")
        return f"{setup}: {task}"

    return run


@pytest.fixture
def worker():
    process = WorkerProcess(f"{__name__}:start_worker", "setup", max_bytes=200 * 2**20)
    yield process
    process.close()


def test_a_worker_sends_messages_and_then_its_reply(worker):
    messages = []
    assert worker.run("task", on_message=messages.append) == Reply("setup: task")
    assert [type(message) for message in messages] == [WorkerReady, str]
    assert worker.is_free
    assert worker.run("other") == Reply("setup: other")
    assert worker.task_count == 2


@pytest.mark.parametrize(
    ("task", "code", "limit", "message"),
    [
        ("exit", 7, None, "exit code 7: the last words"),
        ("raise", 1, None, r"exit code 1: ValueError: no\u001b such task"),
        ("hang", -9, "time", "signal SIGKILL"),
        ("hog", -9, "memory", "signal SIGKILL"),
        ("fork", 3, None, "exit code 3"),
    ],
)
def test_the_death_of_a_worker_is_reported_with_its_cause(worker, task, code, limit, message):
    worker.run("start it")
    death = worker.run(task, seconds=2.0 if task == "hang" else 60.0)
    assert (death.code, death.limit, death.message) == (code, limit, message)
    worker.restart()
    assert worker.run("again") == Reply("setup: again")


def test_a_worker_that_does_not_start_in_time_is_ended():
    worker = WorkerProcess(f"{__name__}:start_worker", start_seconds=0.01)
    time.sleep(0.02)
    death = worker.check() or worker.receive()
    worker.close()
    assert (death.limit, worker.failed_starts) == ("time", 1)


def test_what_a_worker_started_ends_with_it(worker):
    pid = worker.run("start").value
    assert psutil.pid_exists(pid)
    worker.close()
    wait_for_end(pid)


def test_a_pool_starts_as_many_workers_as_have_work():
    with WorkerPool(lambda number: WorkerProcess(f"{__name__}:start_worker", number), 2) as pool:
        assert pool.workers == []
        pool.grow(1)
        pool.grow(5)
        for worker in pool.workers:
            worker.submit("task")
        replies, ends = set(), time.monotonic() + 60
        while len(replies) < 2 and time.monotonic() < ends:
            replies |= {m.value for _, m in pool.wait(0.5) if isinstance(m, Reply)}
        pids = [worker.pid for worker in pool.workers]
    assert replies == {"0: task", "1: task"}
    assert not any(map(psutil.pid_exists, pids))
