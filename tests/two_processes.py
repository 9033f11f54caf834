"""A process as torchrun starts it, one of two."""

import os


def be_one_of_two(rank, port):
    """Make this process number `rank` of two that meet at a port of this machine."""
    import torch

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
