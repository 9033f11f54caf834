"""Two processes train the real network as one does, by the command's own path, also when killed and resumed."""

import json
import os
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_run import kill, log, started, wait_until
from training_data import command, write_stores

from stepline.cli import main
from stepline.training.run_folder import CHECKPOINT

pytest.importorskip("accelerate", reason="several processes need the extra `train`")

SETTINGS = ("batch=3", "learning_rate=1e-3", "save_every=4")
STILL = ("--set", "model.dropout=0.0")  # each process draws its own dropout, so equality needs none
LOSSES = 1e-5
WEIGHTS = 1e-4  # measured: 1.0e-5, in biases of keys, whose gradient is rounding alone and which AdamW enlarges


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run(arguments):
    """Run the command in this process, to its end."""
    main(arguments, standalone_mode=False)


def one_of_two(rank, port, arguments):
    """What torchrun would start: train, be stopped between checkpoints, and take the run up again."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    import stepline.training.loop as loop

    step = loop._step

    def stopped(*given, **named):
        if named["drawn"].step == 10:
            raise Stopped
        return step(*given, **named)

    loop._step = stopped
    with pytest.raises(Stopped):
        run(arguments)
    loop._step = step
    run(arguments)


class Stopped(Exception):
    pass


def compare(one, two):
    found, expected = log(two), log(one)
    assert [line["step"] for line in found] == list(range(1, 25))
    assert len(expected) == 24
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in expected], abs=LOSSES)
    scores = [[line["score"] for line in lines if "score" in line] for lines in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=LOSSES)
    weights = [load_file(folder / CHECKPOINT) for folder in (two, one)]
    names = [name for name in weights[1] if name.startswith("model.")]
    torch.testing.assert_close(*({name: each[name] for name in names} for each in weights), atol=WEIGHTS, rtol=0)


@pytest.fixture
def stores(tmp_path):
    return write_stores(tmp_path / "stores")


def test_two_processes_train_as_one_also_when_stopped_and_resumed(tmp_path, stores, stepline):
    held = (*STILL, "--set", "data.held_out=0.3", "--set", "data.held_out_score=loss")
    settings = ("epochs=6", *SETTINGS)  # 12 samples are left: 24 steps
    assert stepline(*command(stores, tmp_path / "one", *settings, options=held)).exit_code == 0
    arguments = command(stores, tmp_path / "two", *settings, options=held)
    torch.multiprocessing.spawn(one_of_two, (free_port(), arguments), nprocs=2)
    compare(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_torchrun_killed_in_mid_epoch_and_started_again_ends_as_one_process(tmp_path, stores, stepline):
    settings = ("epochs=4", *SETTINGS)  # 16 samples: 24 steps; of the last batch of an epoch, one process has nothing
    assert stepline(*command(stores, tmp_path / "one", *settings, options=STILL)).exit_code == 0
    arguments = command(stores, tmp_path / "two", *settings, options=STILL)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    child = started(arguments, *launcher)
    checkpoint = tmp_path / "two" / CHECKPOINT
    wait_until(checkpoint.exists, child)
    kill(child)
    assert len(log(tmp_path / "two")) < 24
    assert started(arguments, *launcher).wait(timeout=300) == 0
    compare(tmp_path / "one", tmp_path / "two")
    assert json.loads((tmp_path / "two" / "run.json").read_text())["data"]["samples"] == 16
    assert Path(tmp_path / "two" / "aligner.safetensors").exists()
