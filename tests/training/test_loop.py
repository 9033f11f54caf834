import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.models.training.batches import LazySamples
from stepline.models.training.loop import (
    BATCHES_AHEAD,
    HeldOutScorer,
    Loss,
    TrainingTask,
    fit,
    prefetch,
)
from stepline.models.training.run import LOG_FILE
from stepline.models.training.settings import CHECKPOINT_FILE, TrainSettings

QUICK = TrainSettings(epochs=3, batch=2, learning_rate=1e-2, save_every=2)


class Sum:
    def __init__(self, total, count):
        self.total, self.count = total, torch.tensor(count)


def draw(samples, chance):
    """Move each height a little."""
    return [sample + chance.normal(0, 0.01, 2).astype(np.float32) * [0, 1] for sample in samples]


def losses(model, samples):
    """Learn to give a line's height."""
    points = torch.from_numpy(np.stack(samples)).float()
    return [Sum((model(points[:, :1]).squeeze(1) - points[:, 1]).square().sum(), len(samples))]


def task(count=7):
    x = np.random.default_rng(0).normal(size=(count, 1)).astype(np.float32)
    return TrainingTask(
        list(np.hstack((x, 2 * x))), lambda sample: int(sample[0] > 0), draw, losses
    )


def network(dropout=0.2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1))


class Interrupted(Exception):
    pass


def stop_after(step):
    def report(progress):
        if progress.step == step:
            raise Interrupted

    return report


def weights(folder):
    return {key: value.tolist() for key, value in load_file(folder / CHECKPOINT_FILE).items()}


@pytest.mark.parametrize("step", [1, 2, 3, 7, 11])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, step):
    fit(network(), task(), QUICK, tmp_path / "whole")
    with pytest.raises(Interrupted):
        fit(network(), task(), QUICK, tmp_path / "parts", stop_after(step))
    torch.manual_seed(99)  # whatever the new process draws first
    seen = []
    fit(network(), task(), QUICK, tmp_path / "parts", lambda progress: seen.append(progress.step))
    assert seen[0] == step // 2 * 2 + 1  # after the last checkpoint
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert (tmp_path / "parts" / LOG_FILE).read_text() == (
        tmp_path / "whole" / LOG_FILE
    ).read_text()


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_loop import QUICK, fit, network, task
fit(network(), task(), QUICK, Path({folder!r}), lambda progress: time.sleep(0.05))
"""


def test_a_run_killed_at_any_moment_loses_only_what_came_after_its_checkpoint(tmp_path):
    code = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    child = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / CHECKPOINT_FILE).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    fit(network(), task(), QUICK, tmp_path / "killed")
    fit(network(), task(), QUICK, tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert left == {CHECKPOINT_FILE, LOG_FILE}


def test_it_learns_and_reports_each_step(tmp_path):
    told = []
    settings = TrainSettings(epochs=40, batch=4, learning_rate=3e-2)
    fit(network(), task(), settings, tmp_path, told.append)
    assert [progress.step for progress in told] == list(range(1, 81))
    assert np.mean([progress.loss for progress in told[-10:]]) < 0.3 * np.mean(
        [p.loss for p in told[:10]]
    )
    assert told[0].learning_rate == 3e-2
    assert told[-1].learning_rate < 1e-4
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 81))


def test_a_finished_run_is_not_run_again(tmp_path):
    fit(network(), task(), QUICK, tmp_path)
    seen = []
    model = fit(network(), task(), QUICK, tmp_path, seen.append)
    assert seen == []
    assert model[0].bias.tolist() == weights(tmp_path)["model.0.bias"]


def test_another_run_in_the_folder_is_refused(tmp_path):
    fit(network(), task(), QUICK, tmp_path)
    with pytest.raises(SettingsError, match="another run, with other settings or samples"):
        fit(network(), task(), QUICK.model_copy(update={"seed": 1}), tmp_path)
    with pytest.raises(SettingsError, match="another run"):
        fit(network(), task(8), QUICK, tmp_path)
    with pytest.raises(ModelError, match="a checkpoint of another network"):
        fit(nn.Linear(1, 1), task(), QUICK, tmp_path)
    (tmp_path / CHECKPOINT_FILE).write_bytes(b"damaged")
    with pytest.raises(ModelError, match="remove it to start again"):
        fit(network(), task(), QUICK, tmp_path)


def test_nothing_to_train_on_and_a_loss_that_is_not_finite_are_reported(tmp_path):
    with pytest.raises(ShapeError, match="no sample is left"):
        fit(network(), task(0), QUICK, tmp_path)
    with pytest.raises(SettingsError, match="patience=2: nothing is held out"):
        fit(network(), task(), QUICK.model_copy(update={"patience": 2}), tmp_path)

    def loss(model, samples):
        return [Sum(model[0].bias.sum() * float("nan"), 1)]

    broken = TrainingTask(task().samples, len, draw, loss)
    with pytest.raises(ShapeError, match="step 1: the loss is nan"):
        fit(network(), broken, QUICK, tmp_path)


def test_one_step_is_adamws_by_hand(tmp_path):
    """Weight 2, gradient 3 cut to norm 1: m = 0.1 and v = 0.001 are both set right to 1, so the
    step is the rate."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(2.0)

    def loss(model, samples):
        return [Sum(3 * model.weight.sum(), 1)]

    pull = TrainingTask([0.0], int, lambda samples, chance: samples, loss)
    fit(
        model, pull, TrainSettings(epochs=1, batch=1, learning_rate=0.1, weight_decay=0.5), tmp_path
    )
    assert model.weight.item() == pytest.approx(
        2 * (1 - 0.1 * 0.5) - 0.1 * 1 / (1 + 1e-8), abs=1e-6
    )
    saved = load_file(tmp_path / CHECKPOINT_FILE)
    # (1 - 0.9) of the gradient after the cut
    assert saved["optimizer.0.exp_avg"].item() == pytest.approx(0.1)
    assert saved["optimizer.0.exp_avg_sq"].item() == pytest.approx(0.001)
    torchs = nn.Linear(1, 1, bias=False)
    torchs.weight.data.fill_(2.0)
    torchs.weight.grad = torch.ones(1, 1)
    torch.optim.AdamW(torchs.parameters(), lr=0.1, weight_decay=0.5).step()
    assert model.weight.item() == pytest.approx(torchs.weight.item(), abs=1e-6)


def test_the_best_network_is_kept_and_known_after_a_stop(tmp_path):
    """Scores 1, 3, 2 of three epochs: the second is kept, also when the run is stopped in
    between."""
    scores, kept = {4: 1.0, 8: 3.0, 12: 2.0}, []

    def scorer(steps):
        def score(model, samples):
            return 2 * scores[len(steps)], 2

        return HeldOutScorer([0], 1, score, lambda model: kept.append(len(steps)))

    def run(folder, steps, stop=None):
        def report(progress):
            if progress.step == stop:
                raise Interrupted

        def counting(model, samples):
            steps.append(1)
            return losses(model, samples)

        fit(
            network(), replace(task(), losses=counting), QUICK, folder, report, scorer=scorer(steps)
        )

    run(tmp_path / "whole", [])
    assert kept == [4, 8]
    lines = [json.loads(line) for line in (tmp_path / "whole" / LOG_FILE).read_text().splitlines()]
    assert {line["step"]: line["score"] for line in lines if "score" in line} == scores
    kept.clear()
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", [], stop=9)
    run(tmp_path / "parts", [1] * 8)
    assert kept == [4, 8]  # 2.0 is not better than what was kept before the stop
    assert (tmp_path / "parts" / LOG_FILE).read_text() == (
        tmp_path / "whole" / LOG_FILE
    ).read_text()


def test_training_ends_where_the_score_stops_rising(tmp_path):
    """Scores of every second epoch, 4 steps each: 1, 3, 2, 3; with patience 2 the fourth is the
    last, also after a stop."""
    settings = QUICK.model_copy(update={"epochs": 20, "patience": 2, "score_every": 2})
    scores = {8: 1.0, 16: 3.0, 24: 2.0, 32: 3.0}

    def run(folder, stop=None):
        steps = []

        def report(progress):
            steps.append(progress.step)
            if progress.step == stop:
                raise Interrupted

        def score(model, samples):
            return scores[now[0]], 1

        def counting(model, samples):
            now[0] += 1
            return losses(model, samples)

        now = [26 if (folder / CHECKPOINT_FILE).exists() else 0]
        scorer = HeldOutScorer([0], 1, score, lambda model: None)
        fit(network(), replace(task(), losses=counting), settings, folder, report, scorer=scorer)
        return steps

    assert run(tmp_path / "whole")[-1] == 32
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", stop=27)
    assert run(tmp_path / "parts") == list(range(27, 33))
    assert run(tmp_path / "parts") == []  # it has ended
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_samples_need_not_be_read_to_be_measured(tmp_path):
    read = []

    class Lazy(list):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

        def __iter__(self):
            raise AssertionError("every sample was read to learn its length")

    lazy = Lazy(task().samples)
    lengths = [int(sample[0] > 0) for sample in task().samples]
    samples = LazySamples(lambda index: lazy[index], lengths)
    fit(network(), replace(task(), samples=samples), QUICK, tmp_path / "lazy")
    fit(network(), task(), QUICK, tmp_path / "plain")
    assert weights(tmp_path / "lazy") == weights(tmp_path / "plain")
    assert sorted(read) == sorted(list(range(7)) * 3)


def test_threads_that_read_ahead_change_nothing(tmp_path):
    for readers in (0, 3):
        settings = QUICK.model_copy(update={"readers": readers})
        fit(network(), task(), settings, tmp_path / str(readers))
    assert weights(tmp_path / "0") == weights(tmp_path / "3")


def test_biases_do_not_decay(tmp_path):
    flat = Sum(0, 1)
    still = TrainingTask(task().samples, len, draw, lambda model, samples: [flat])
    model = nn.Sequential(nn.Linear(3, 3))
    flat.total = 0 * (model[0].weight.sum() + model[0].bias.sum())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    settings = TrainSettings(epochs=1, batch=8, learning_rate=0.1, weight_decay=0.5)
    fit(model, still, settings, tmp_path)
    assert torch.equal(model[0].bias, before["0.bias"])
    torch.testing.assert_close(model[0].weight, before["0.weight"] * 0.95)


def one_of_two(rank, folder):
    """What one process of two does: train, be stopped, and take the run up again."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    with contextlib.suppress(Interrupted):
        fit(network(0.0), task(), QUICK, folder / "two", stop_after(7))
    fit(network(0.0), task(), QUICK, folder / "two")
    torch.distributed.destroy_process_group()


def test_two_processes_do_as_one_also_when_stopped_and_resumed(tmp_path):
    """7 samples in batches of 2: of the last batch, the second process has nothing."""
    fit(network(0.0), task(), QUICK, tmp_path / "one")
    torch.multiprocessing.spawn(one_of_two, (tmp_path,), nprocs=2)
    logs = ((tmp_path / name / LOG_FILE).read_text() for name in ("one", "two"))
    one, two = ([json.loads(line) for line in log.splitlines()] for log in logs)
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], abs=1e-5)
    expected, found = (load_file(tmp_path / name / CHECKPOINT_FILE) for name in ("one", "two"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_learning_rate_rises_evenly_then_falls_as_a_cosine(tmp_path):
    told = []
    settings = TrainSettings(epochs=10, batch=4, learning_rate=1e-2, warmup=0.3)
    fit(network(), task(), settings, tmp_path, told.append)
    rates = [one.learning_rate for one in told]
    rising = round(0.3 * len(rates))
    assert rates[:rising] == pytest.approx(
        [1e-2 * (step + 1) / (rising + 1) for step in range(rising)]
    )
    assert rates[rising] == 1e-2  # the top, from which the cosine falls
    assert rates[rising:] == sorted(rates[rising:], reverse=True)
    assert rates[-1] < 2e-3


def test_a_loss_is_divided_by_what_it_is_over_and_weighted_before():
    loss = Loss(torch.tensor(6.0), torch.tensor(4))
    assert (float(loss.mean), float(loss.weighted(0.5).mean)) == (1.5, 0.75)


def test_a_loss_over_nothing_is_zero():
    assert float(Loss(torch.tensor(0.0), torch.tensor(0)).mean) == 0.0


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_the_order_of_their_jobs(workers):
    def work(job):
        time.sleep(0.01 if job % 3 == 0 else 0)
        return job * job

    assert list(prefetch(range(20), work, workers)) == [job * job for job in range(20)]
    assert list(prefetch([], work, workers)) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_where_its_result_would(workers):
    def work(job):
        if job == 3:
            raise ValueError("job 3")
        return job

    results, seen = iter(prefetch(range(9), work, workers)), []
    with pytest.raises(ValueError, match="job 3"):
        for result in results:
            seen.append(result)
    assert seen == [0, 1, 2]


def test_it_is_only_so_far_ahead_and_stops_when_it_is_closed():
    begun = []
    ahead = prefetch(range(1000), begun.append, 2)
    next(ahead)
    time.sleep(0.05)
    assert len(begun) <= 2 * BATCHES_AHEAD + 1
    ahead.close()
    left = len(begun)
    time.sleep(0.05)
    assert len(begun) == left
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
