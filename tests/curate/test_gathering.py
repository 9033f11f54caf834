import os
import sys
import threading

import numpy as np
import torch
from threadpoolctl import threadpool_info

from stepline.curate.dataset_stages import PARALLEL_READS, fixed_threads, read_results
from stepline.curate.plan import VideoStatus
from stepline.curate.stage import Item


def test_libraries_that_are_loaded_already_use_the_recipes_threads_too():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with fixed_threads(3):
        assert {pool["num_threads"] for pool in threadpool_info()} == {3}
        assert torch.get_num_threads() == 3
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
        assert "torch" in sys.modules
    assert (torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]) == before


def test_results_in_a_store_are_read_side_by_side_and_come_in_order():
    videos = [VideoStatus(Item(f"v{number:03d}"), (), b"", None) for number in range(3 * PARALLEL_READS)]
    together = threading.Barrier(PARALLEL_READS, timeout=60)  # broken where fewer are read at a time

    def read(one):
        together.wait()
        return one.item.id.encode()

    assert list(read_results(videos, read, remote=True)) == [(one.item, one.item.id.encode()) for one in videos]


def test_results_on_a_disk_are_read_as_they_are_asked_for():
    asked = []
    videos = [VideoStatus(Item(id), (), b"", None) for id in "ab"]
    results = read_results(videos, lambda one: asked.append(one.item.id) or b"", remote=False)
    assert next(results) == (Item("a"), b"")
    assert asked == ["a"]
