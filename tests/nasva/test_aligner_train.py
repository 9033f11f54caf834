"""`stepline train nasva`, from stores on disk to networks: it learns, resumes bit for bit, and
names what is wrong.

Two processes train the real network as one does, by the command's own path, also when killed and
resumed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from aligner_samples import sample, tiny
from http_client import free_port
from option_words import option_words
from safetensors import safe_open
from safetensors.torch import load_file
from training_data import WIDTH, command, write_stores
from two_processes import be_one_of_two

from stepline.cli import main
from stepline.features import FeatureStore, FeatureWriter, RowTexts
from stepline.features.store import shard_path
from stepline.models.nasva.checkpoint import load_aligner, read_aligner, write_aligner
from stepline.models.nasva.dataset import gather_samples
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerLossSettings
from stepline.models.nasva.train import count_recall, shuffle_texts, train_aligner
from stepline.models.training.batches import collate
from stepline.models.training.run import LOG_FILE
from stepline.models.training.settings import CHECKPOINT_FILE, TrainSettings
from stepline.models.training.sources import read_labelled_texts

SAMPLES = [sample(seed, seconds=20 + seed, ordered=True) for seed in range(6)]
QUICK = TrainSettings(epochs=12, batch=3, learning_rate=3e-3, save_every=5)


def test_training_places_texts_and_resumes_bit_for_bit(tmp_path):
    network = tiny(dropout=0.1, attention_dropout=0.1, alignability=True)
    losses = []
    whole = train_aligner(
        SAMPLES, tmp_path / "whole", model=network, settings=QUICK, report=losses.append
    )
    assert losses[-1].loss < 0.6 * losses[0].loss

    def stop(progress):
        if progress.step == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_aligner(SAMPLES, tmp_path / "parts", model=network, settings=QUICK, report=stop)
    again = train_aligner(SAMPLES, tmp_path / "parts", model=network, settings=QUICK)
    for (name, weight), other in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(weight, other), name


def test_order_is_drawn_for_each_sample_or_for_all():
    chance = np.random.default_rng(0)
    each = [shuffle_texts(SAMPLES, AlignerLossSettings(), chance) for _ in range(100)]
    shares = [sum(one.ordered for one in drawn) / len(drawn) for drawn in each]
    assert 0.4 < np.mean(shares) < 0.6
    assert set(shares) > {0.5}
    whole = [shuffle_texts(SAMPLES, AlignerLossSettings(drawn="batch"), chance) for _ in range(100)]
    assert {sum(one.ordered for one in drawn) for drawn in whole} == {0, 6}
    never = shuffle_texts(SAMPLES, AlignerLossSettings(shuffled=0.0), chance)
    assert all(one is given for one, given in zip(never, SAMPLES, strict=True))


QUICK_RUN = ("epochs=4", "batch=3", "learning_rate=3e-3", "save_every=4")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return write_stores(tmp_path_factory.mktemp("stores"))


def recall(network, stores):
    """R@1 of a network on what it was trained on."""
    vectors = {kind: FeatureStore(stores / kind) for kind in ("narration", "step")}
    told = [text for kind in vectors for text in read_labelled_texts(str(stores / kind), kind)]
    batch = collate(list(gather_samples(told, FeatureStore(stores / "video"), vectors)))
    with torch.no_grad():
        hit, count = count_recall(network(batch), batch)
    return float(hit / count)


def log(folder):
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def test_an_aligner_overfits_one_batch(tmp_path, stepline):
    stores = write_stores(tmp_path / "stores", 2)
    settings = ("epochs=150", "batch=4", "learning_rate=3e-3", "save_every=1000")
    drop = ("--set", "model.dropout=0.0", "--set", "loss.shuffled=0.0")
    made = stepline(*command(stores, tmp_path / "run", *settings, options=drop))
    assert made.exit_code == 0, made.stderr
    # nothing is left to gain: 0 is where all weight is on the labels
    assert log(tmp_path / "run")[-1]["loss"] < 0.01
    assert recall(read_aligner(tmp_path / "run" / "aligner.safetensors"), stores) == 1.0


def test_an_aligner_learns_in_bf16_and_is_stored_in_float32(tmp_path, stores, stepline):
    settings = ("epochs=25", "batch=8", "learning_rate=3e-3", "bf16=true")
    assert stepline(*command(stores, tmp_path, *settings)).exit_code == 0
    losses = [line["loss"] for line in log(tmp_path)]
    assert np.mean(losses[-4:]) < 0.4 * np.mean(losses[:4])
    network = read_aligner(tmp_path / "aligner.safetensors")
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    assert recall(network, stores) > 0.8


def test_the_folder_reports_what_the_run_is(tmp_path, stores, stepline):
    held = ("--set", "data.held_out=0.3", "--json")
    made = stepline(*command(stores, tmp_path, *QUICK_RUN, options=held))
    told = json.loads(made.stdout)
    files = ("aligner.safetensors", "best.safetensors")
    assert told["files"] == [str(tmp_path / name) for name in files]
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["settings"]["model"]["video_width"] == WIDTH
    assert run["versions"]["torch"] == torch.__version__
    assert run["data"]["samples"] + run["data"]["held_out"] == 16
    scores = [line["score"] for line in log(tmp_path) if "score" in line]
    assert len(scores) == 4  # one an epoch
    assert load_aligner(tmp_path / "best.safetensors").space.video == "drawn"
    again = stepline(*command(stores, tmp_path, *QUICK_RUN, options=held))
    assert "steps" not in json.loads(again.stdout)  # it was finished


def test_one_kind_of_text_is_trained_alone(tmp_path, stores, stepline):
    assert stepline(*command(stores, tmp_path, "epochs=1", kinds=["steps"])).exit_code == 0
    assert json.loads((tmp_path / "run.json").read_text())["data"]["samples"] == 8
    nothing = stepline("train", "nasva", "--features", stores / "video", "--out", tmp_path / "none")
    assert nothing.exit_code == 1
    assert "give --narrations, --steps or both" in nothing.stderr


def started(arguments, *launcher):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    program = [sys.executable, *launcher, "-m", "stepline", *arguments]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(program, env=environment, start_new_session=True, **quiet)


def wait_until(found, child):
    deadline = time.monotonic() + 300
    while not found():
        assert time.monotonic() < deadline
        assert child.poll() is None, "it ended before it could be killed"


def kill(child):
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.slow
def test_a_run_killed_during_a_checkpoint_ends_with_the_same_bits(tmp_path, stores, stepline):
    settings = ("epochs=16", "batch=3", "learning_rate=1e-3", "save_every=1")  # 96 steps
    dropout = ("--set", "model.attention_dropout=0.1")
    folder = tmp_path / "killed"
    arguments = command(stores, folder, *settings, options=dropout)
    child = started(arguments)
    begun = folder / CHECKPOINT_FILE

    def writes_checkpoint():
        return begun.exists() and log(folder)[10:] and list(folder.glob(".last*.partial*"))

    wait_until(writes_checkpoint, child)
    kill(child)
    assert load_file(begun)  # whole: the one before, or the new one
    assert len(log(folder)) < 96  # it was killed on its way
    made = stepline(*arguments)
    assert made.exit_code == 0, made.stderr
    assert not list(folder.glob(".*partial*"))
    assert [line["step"] for line in log(folder)] == list(range(1, 97))
    whole = command(stores, tmp_path / "whole", *settings, options=dropout)
    assert stepline(*whole).exit_code == 0
    for name in (CHECKPOINT_FILE, LOG_FILE, "aligner.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
def test_a_checkpoint_is_at_most_its_interval_behind(tmp_path, stores):
    """Steps of which the log knows and the checkpoint does not are taken again: fewer than
    save_every."""
    folder = tmp_path / "run"
    child = started(command(stores, folder, "epochs=400", "batch=3", "save_every=7"))
    wait_until(lambda: (folder / CHECKPOINT_FILE).exists(), child)
    time.sleep(0.3)
    kill(child)
    with safe_open(folder / CHECKPOINT_FILE, framework="pt") as file:
        step = json.loads(file.metadata()["stepline"])["step"]
    assert step % 7 == 0
    # killed between the log's 7 lines and the checkpoint: they are taken again
    assert step <= (folder / LOG_FILE).read_text().count("\n") <= step + 7


def test_another_run_in_the_folder_is_refused(tmp_path, stores, stepline):
    assert stepline(*command(stores, tmp_path, *QUICK_RUN)).exit_code == 0
    for other in (
        command(stores, tmp_path, *QUICK_RUN, kinds=["steps"]),
        command(stores, tmp_path, *QUICK_RUN, "seed=3"),
        command(stores, tmp_path, *QUICK_RUN, options=("--set", "loss.form=release")),
    ):
        refused = stepline(*other)
        assert refused.exit_code == 1
        assert "another run, with other settings or sources; give another --out" in refused.stderr


def test_training_goes_on_from_a_network(tmp_path, stores, stepline):
    assert stepline(*command(stores, tmp_path / "first", *QUICK_RUN)).exit_code == 0
    first = tmp_path / "first" / "aligner.safetensors"
    start = ("--start", first)
    second = stepline(*command(stores, tmp_path / "second", *QUICK_RUN, options=start))
    assert second.exit_code == 0
    assert log(tmp_path / "second")[0]["loss"] < log(tmp_path / "first")[0]["loss"]
    wide = (*start, "--set", "model.width=64")
    other = stepline(*command(stores, tmp_path / "third", options=wide))
    assert "model.width=64" in other.stderr
    assert "leave it out, or leave --start out" in other.stderr


def test_the_authors_weights_are_trained_on(tmp_path, shared_path, stepline):
    path = shared_path("nasva_parity/tiny_checkpoint_fp32.pth")
    from stepline.models.nasva.checkpoint import read_released_weights

    settings, weights = read_released_weights(path)
    with_widths(tmp_path / "video", settings.video_width)
    with_widths(tmp_path / "step", settings.text_width, texts=True)
    files = option_words(features=tmp_path / "video", steps=tmp_path / "step", start=path)
    given = ["train.epochs=1", "train.learning_rate=1e-9", "train.device=cpu"]
    made = stepline("train", "nasva", *files, *option_words(out=tmp_path / "run", set=given))
    assert made.exit_code == 0, made.stderr
    trained = load_file(tmp_path / "run" / "aligner.safetensors")
    expected = {name: weights[name] for name in trained}
    torch.testing.assert_close(trained, expected, atol=1e-6, rtol=0)


def with_widths(folder, width, *, texts=False):
    lines = RowTexts(tuple("abcd"), (0.0, 4.0, 8.0, 12.0), (2.0, 6.0, 10.0, 14.0))
    with FeatureWriter(folder) as writer:
        for number in range(3):
            shape = (4 if texts else 20, width)
            values = np.random.default_rng(number).normal(size=shape).astype(np.float32)
            told = {"texts": lines} if texts else {}
            writer.add(f"v{number}", values, rate=1.0, backbone="drawn", **told)


WRONG_CHECKPOINTS = {
    "noise": "cannot be read as weights",
    "another": "not NaSVA's released network",
    "text": "not a grounding network of Stepline",
    "narrow": "give the features that it was trained on",
}


@pytest.mark.parametrize("kind", WRONG_CHECKPOINTS)
def test_a_wrong_checkpoint_is_named(tmp_path, stores, stepline, kind):
    path = tmp_path / ("start.pth" if kind in ("noise", "another") else "start.safetensors")
    if kind == "noise":
        path.write_bytes(bytes(range(256)) * 8)
    elif kind == "another":
        torch.save({"model_state_dict": {"linear.weight": torch.ones(2, 2)}}, path)
    elif kind == "text":
        path.write_text("no weights")
    else:
        write_aligner(Aligner(tiny(video_width=WIDTH + 1)), path)
    made = stepline(*command(stores, tmp_path / "run", options=("--start", path)))
    assert made.exit_code == 1
    assert WRONG_CHECKPOINTS[kind] in made.stderr
    assert made.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "aligner.safetensors").exists()


def test_features_that_became_nan_on_disk_stop_the_run_by_name(tmp_path, stepline):
    stores = write_stores(tmp_path / "stores", 2)
    path = shard_path(stores / "video", 0)
    data = bytearray(path.read_bytes())
    data[-2:] = np.float16(np.nan).tobytes()
    path.write_bytes(data)
    made = stepline(*command(stores, tmp_path / "run", *QUICK_RUN))
    assert made.exit_code == 1
    assert "hold NaN or infinity; extract them again" in made.stderr
    assert stepline("features", "check", stores / "video").exit_code == 1


def test_what_is_left_out_is_reported_and_listed(tmp_path, stores, stepline):
    part = tmp_path / "video"
    with FeatureWriter(part) as writer:
        for id in ("v1", "v3", "v4", "v7"):
            writer.add(id, FeatureStore(stores / "video").matrix(id), rate=1.0, backbone="drawn")
    excluded = tmp_path / "test.txt"
    excluded.write_text("# made by `stepline curate excluded`\nv3\tht-step\nv9\n")
    arguments = command(stores, tmp_path / "run", *QUICK_RUN, options=("--exclude", excluded))
    arguments[arguments.index("--features") + 1] = str(part)
    made = stepline(*arguments)
    assert "6 samples of 3 videos" in made.stderr
    assert "left out 8: there are no features of its video" in made.stderr
    assert "left out 2: it is excluded" in made.stderr
    omitted = (tmp_path / "run" / "omitted.jsonl").read_text().splitlines()
    assert len([*map(json.loads, omitted)]) == 10


def test_a_list_that_excludes_nothing_is_warned_of(tmp_path, stores, stepline):
    (tmp_path / "test.txt").write_text("elsewhere\tht-step\n")
    exclude = ("--exclude", tmp_path / "test.txt")
    made = stepline(*command(stores, tmp_path / "run", *QUICK_RUN, options=exclude))
    assert "warning: no video of the sources is in the lists of --exclude" in made.stderr
    assert "is excluded" not in made.stderr


def choose_other_videos(folder):
    with FeatureWriter(folder) as writer:
        writer.add("elsewhere", np.ones((20, WIDTH), np.float32), rate=1.0, backbone="drawn")
    return folder


def test_no_sample_left_and_no_store_are_errors(tmp_path, stores, stepline):
    arguments = command(stores, tmp_path / "run", *QUICK_RUN)
    # features of texts, by mistake
    arguments[arguments.index("--features") + 1] = str(stores / "step")
    mistaken = stepline(*arguments)
    assert "holds features of texts, not of videos" in mistaken.stderr
    arguments[arguments.index("--features") + 1] = str(choose_other_videos(tmp_path / "other"))
    others = stepline(*arguments).stderr
    assert "no sample is left of 16: 16 x there are no features of its video" in others
    arguments[arguments.index("--features") + 1] = str(tmp_path / "nothing")
    missing = stepline(*arguments)
    assert missing.exit_code == 1
    assert "no feature store; `stepline features import SOURCE" in missing.stderr
    wide = stepline(*command(stores, tmp_path / "wide", options=("--set", "model.video_width=768")))
    assert "model.video_width=768, the features have 12; leave the setting out" in wide.stderr


pytest.importorskip("accelerate", reason="several processes need the extra `train`")

SETTINGS = ("batch=3", "learning_rate=1e-3", "save_every=4")
STILL = ("--set", "model.dropout=0.0")  # each process draws its own dropout, so equality needs none
LOSSES = 1e-5
# measured: 1.0e-5, in biases of keys, whose gradient is rounding alone and which AdamW enlarges
WEIGHTS = 1e-4


def run(arguments):
    """Run the command in this process, to its end."""
    main(arguments, standalone_mode=False)


def one_of_two(rank, port, arguments):
    """What torchrun would start: train, be stopped between checkpoints, and take the run up
    again."""
    be_one_of_two(rank, port)
    import stepline.models.training.loop as loop

    step = loop._take_step

    def stopped(*given, **named):
        if named["batch"].step == 10:
            raise Stopped
        return step(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, step.__name__, stopped)
        with pytest.raises(Stopped):
            run(arguments)
    run(arguments)


class Stopped(BaseException):
    """As a kill: no handler of a command takes it for an error."""


def compare(one, two):
    found, expected = log(two), log(one)
    assert [line["step"] for line in found] == list(range(1, 25))
    assert len(expected) == 24
    losses = [[line["loss"] for line in lines] for lines in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=LOSSES)
    scores = [[line["score"] for line in lines if "score" in line] for lines in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=LOSSES)
    weights = [load_file(folder / CHECKPOINT_FILE) for folder in (two, one)]
    names = [name for name in weights[1] if name.startswith("model.")]
    networks = ({name: each[name] for name in names} for each in weights)
    torch.testing.assert_close(*networks, atol=WEIGHTS, rtol=0)


@pytest.fixture
def fresh_stores(tmp_path):
    return write_stores(tmp_path / "stores")


@pytest.mark.slow
def test_two_processes_train_as_one_also_when_stopped_and_resumed(tmp_path, fresh_stores, stepline):
    held = (*STILL, "--set", "data.held_out=0.3")
    settings = ("epochs=6", *SETTINGS)  # 12 samples are left: 24 steps
    one = stepline(*command(fresh_stores, tmp_path / "one", *settings, options=held))
    assert one.exit_code == 0
    arguments = command(fresh_stores, tmp_path / "two", *settings, options=held)
    torch.multiprocessing.spawn(one_of_two, (free_port(), arguments), nprocs=2)
    compare(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_torchrun_killed_in_mid_epoch_and_started_again_ends_as_one_process(
    tmp_path, fresh_stores, stepline
):
    # 16 samples: 24 steps; of the last batch of an epoch, one process has nothing
    settings = ("epochs=4", *SETTINGS)
    one = stepline(*command(fresh_stores, tmp_path / "one", *settings, options=STILL))
    assert one.exit_code == 0
    arguments = command(fresh_stores, tmp_path / "two", *settings, options=STILL)
    processes = option_words(nproc_per_node="2", master_port=str(free_port()))
    launcher = ("-m", "torch.distributed.run", *processes)
    child = started(arguments, *launcher)
    checkpoint = tmp_path / "two" / CHECKPOINT_FILE
    wait_until(checkpoint.exists, child)
    kill(child)
    assert len(log(tmp_path / "two")) < 24
    assert started(arguments, *launcher).wait(timeout=300) == 0
    compare(tmp_path / "one", tmp_path / "two")
    assert json.loads((tmp_path / "two" / "run.json").read_text())["data"]["samples"] == 16
    assert Path(tmp_path / "two" / "aligner.safetensors").exists()
