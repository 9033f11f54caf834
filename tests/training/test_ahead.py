import threading
import time

import pytest

from stepline.training.loop import EACH, Ahead


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_the_order_of_their_jobs(workers):
    def work(job):
        time.sleep(0.01 if job % 3 == 0 else 0)
        return job * job

    assert list(Ahead(range(20), work, workers)) == [job * job for job in range(20)]
    assert list(Ahead([], work, workers)) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_where_its_result_would(workers):
    def work(job):
        if job == 3:
            raise ValueError("job 3")
        return job

    results, seen = iter(Ahead(range(9), work, workers)), []
    with pytest.raises(ValueError, match="job 3"):
        for result in results:
            seen.append(result)
    assert seen == [0, 1, 2]


def test_it_is_only_so_far_ahead_and_stops_when_it_is_closed():
    begun = []
    ahead = Ahead(range(1000), begun.append, 2)
    results = iter(ahead)
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 2 * EACH + 1
    ahead.close()
    left = len(begun)
    time.sleep(0.05)
    assert len(begun) == left
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_the_wait_for_results_is_measured():
    gate = threading.Event()
    ahead = Ahead([0], lambda job: gate.wait(10), 1)
    threading.Timer(0.2, gate.set).start()
    assert list(ahead) == [True]
    assert ahead.waited > 0.1
