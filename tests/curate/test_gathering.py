import os
import sys

import numpy as np
import torch
from threadpoolctl import threadpool_info

from stepline.curate.gathering import fixed_threads


def test_libraries_that_are_loaded_already_use_the_recipes_threads_too():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with fixed_threads(3):
        assert {pool["num_threads"] for pool in threadpool_info()} == {3}
        assert torch.get_num_threads() == 3
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
        assert "torch" in sys.modules
    assert (torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]) == before
