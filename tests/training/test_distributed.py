import sys

import pytest
import torch

from stepline.errors import ModelError
from stepline.models.training.distributed import (
    broadcast_from_first,
    call_first_then_all,
    is_first,
    peak_memory,
    rank_and_world_size,
    start_processes,
)


def test_alone_a_process_is_the_first_of_one():
    assert rank_and_world_size() == (0, 1)
    assert is_first()
    assert call_first_then_all(lambda: 7) == 7
    assert broadcast_from_first(5) == 5
    assert start_processes("cpu") == torch.device("cpu")


def test_a_gpu_that_is_not_there_is_reported(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert start_processes() == torch.device("cpu")
    with pytest.raises(ModelError, match="torch sees no GPU here"):
        start_processes("cuda")


def test_several_processes_need_accelerate(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ModelError, match="'stepline.train.'"):
        start_processes("cpu")


def test_memory_is_counted_in_bytes():
    before = peak_memory()
    held = bytearray(300 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    assert 250 * 2**20 < peak_memory() < 2**40
    assert peak_memory() >= before
