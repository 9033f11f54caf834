"""Two processes train ProcX as one does, by the command's own path; seeds come one after another."""

import json
import os
import socket

import pytest
import torch
from silent_videos import train_command, write_videos

from stepline.cli import main
from stepline.training.run_folder import LOG

pytest.importorskip("accelerate", reason="several processes need the extra `train`")

# contrast compares the sentences that one process holds, so that only without it two are as one
SETTINGS = ("train.epochs=4", "train.batch=4", "train.learning_rate=1e-3", "vocabulary.size=300",
            "data.held_out=0.2", "loss.contrast_weight=0.0")  # fmt: skip


def one_of_two(rank, port, arguments):
    """What torchrun would start."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    torch.set_num_threads(1)
    main(arguments, standalone_mode=False)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, stepline):
    store, flat = write_videos(tmp_path, 9)
    told = {}
    for name in ("one", "two"):
        arguments = train_command(store, f"youcook2:{flat}", tmp_path / name, *SETTINGS, options=("--seeds", "2"))
        if name == "one":
            made = stepline(*arguments)
            assert made.exit_code == 0, made.stderr
        else:
            with socket.socket() as found:
                found.bind(("127.0.0.1", 0))
                port = found.getsockname()[1]
            torch.multiprocessing.spawn(one_of_two, (port, arguments), nprocs=2)
        lines = (tmp_path / name / "seed-1" / LOG).read_text().splitlines()
        told[name] = [json.loads(line) for line in lines]
    assert len(told["one"]) == len(told["two"]) >= 8
    for key in ("loss", "score"):
        one, two = ([line[key] for line in lines if key in line] for lines in (told["one"], told["two"]))
        assert two == pytest.approx(one, abs=1e-3)
    seeds = [json.loads((tmp_path / name / "seeds.json").read_text()) for name in ("one", "two")]
    assert seeds[1]["loss"]["mean"] == pytest.approx(seeds[0]["loss"]["mean"], abs=1e-3)
