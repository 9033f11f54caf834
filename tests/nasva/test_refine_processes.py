"""`stepline refine` in two processes, as torchrun starts them, does as one process."""

import json

import numpy as np
import pytest
import torch
from http_client import free_port
from safetensors.torch import load_file
from simulated_stores import write_simulated
from test_refine import command
from two_processes import be_one_of_two

from lab.nasva.matrices import step_video
from lab.simulate import SimulationSettings, simulate
from stepline.cli import main
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.pseudo_labels import iterate_matrices, make_unlabelled_samples
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.storage import read_parquet

WEIGHTS = 1e-4  # as of one training in two processes (test_aligner_train.py)
STILL = (
    "--set model.dropout=0 --set model.attention_dropout=0 --set rounds.teachers=2 --set "
    "rounds.rounds=2 --set train.batch=4"
).split()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Records of 40 videos, three batches of labelling, and stores of their features and step
    vectors."""
    return write_simulated(tmp_path_factory.mktemp("dataset"), 40)


class Stopped(BaseException):
    """As a kill: no handler of a command takes it for an error."""


def one_of_two(rank, port, arguments):
    """What torchrun would start: refine, be stopped after the first round's teachers, and take the
    run up again."""
    be_one_of_two(rank, port)
    from stepline.models.nasva import refine

    choose = refine.choose_labels

    def stopped(*given):
        raise Stopped

    refine.choose_labels = stopped
    with pytest.raises(Stopped):
        main(arguments, standalone_mode=False)
    refine.choose_labels = choose
    main(arguments, standalone_mode=False)


@pytest.mark.slow
def test_two_processes_refine_as_one_also_when_stopped_and_resumed(dataset, tmp_path):
    main(command(dataset, tmp_path / "one", *STILL), standalone_mode=False)
    arguments = command(dataset, tmp_path / "two", *STILL)
    torch.multiprocessing.spawn(one_of_two, (free_port(), arguments), nprocs=2)
    one, two = tmp_path / "one", tmp_path / "two"
    for number in range(3):
        found, expected = (
            (folder / f"round-{number}" / "labels.json").read_bytes() for folder in (two, one)
        )
        assert found == expected
    reports = [json.loads((folder / "report.json").read_text()) for folder in (one, two)]
    for report in (*reports[0], *reports[1]):
        del report["cpu_seconds"]
    assert reports[0] == [pytest.approx(report) for report in reports[1]]
    assert list(read_parquet(two / "refined.parquet")) == list(
        read_parquet(one / "refined.parquet")
    )
    for name in ("round-0/teacher-1", "aligner"):
        weights = [load_file(folder / f"{name}.safetensors") for folder in (two, one)]
        torch.testing.assert_close(*weights, atol=WEIGHTS, rtol=0)
    assert not list(two.rglob("*.training"))


def test_the_shares_of_two_processes_are_the_same_bits_as_the_whole():
    samples = simulate(0, SimulationSettings(videos=40, held_out=0.0)).videos
    nowhere = [(None,) * len(one.record.steps) for one in samples]
    videos = [
        step_video(one.id, one.features(), one.vectors("step"), nowhere[k])
        for k, one in enumerate(samples)
    ]
    size = {
        "video_width": videos[0].read_inputs()[0].values.shape[1],
        "text_width": videos[0].read_inputs()[1].shape[1],
    }
    network = Aligner(
        AlignerNetworkSettings(**size, width=16, heads=2, encoder_layers=1, decoder_layers=1)
    )
    whole = dict(iterate_matrices([network], make_unlabelled_samples(videos)))
    shares = [
        dict(iterate_matrices([network], make_unlabelled_samples(videos), rank=rank, world_size=2))
        for rank in range(2)
    ]
    assert not shares[0].keys() & shares[1].keys()
    assert sorted(map(len, shares)) in ([16, 24], [8, 32])  # batches of 16, 16 and 8
    both = shares[0] | shares[1]
    assert both.keys() == whole.keys()
    for index in range(40):
        np.testing.assert_array_equal(both[index][0], whole[index][0])
