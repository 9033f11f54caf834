"""A small network, trained in the simulated world, answers its benchmarks from files, and the
answers are scored."""

import csv
import json

import numpy as np
import pytest
import torch
from aligner_samples import tiny
from option_words import option_words

from lab.simulate import EASY_WORLD, simulate, write_dataset
from lab.simulate.texts import texts as worded
from stepline.errors import DatasetError, ModelError, StoreError
from stepline.features import FeatureWriter, RowTexts
from stepline.grounding.speech import narration_labels
from stepline.models.nasva.benchmarks import (
    BenchmarkInputs,
    TextVectors,
    read_benchmark_questions,
    write_alignments,
)
from stepline.models.nasva.checkpoint import load_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerNetworkSettings, AlignerSettings
from stepline.models.nasva.train import train_aligner
from stepline.models.training.batches import Sample
from stepline.models.training.benchmark_answers import StoredFeatures
from stepline.models.training.network import FeatureSpace
from stepline.models.training.settings import TrainSettings
from stepline.records import Span

SETTINGS = AlignerSettings()
WORLD = EASY_WORLD.model_copy(update={"videos": 120, "held_out": 0.25})
SIZES = {"video_width": 128, "text_width": 128, "width": 64, "heads": 4, "feed_forward": 128}
SIZES |= {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def simulation():
    return simulate(4, WORLD)


@pytest.fixture(scope="module")
def world(simulation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_dataset(simulation, folder)
    write_crosstask(simulation, folder / "crosstask")
    return folder


@pytest.fixture(scope="module")
def trained(simulation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    samples = [
        labelled(one, style)
        for one in simulation.videos
        if one.subset == "train"
        for style in ("narration", "step")
    ]
    network = train_aligner(
        [one for one in samples if len(one.text)],
        folder / "run",
        model=AlignerNetworkSettings(**SIZES, dropout=0.0),
        settings=TrainSettings(epochs=4, batch=8, learning_rate=2e-3, save_every=1000),
    )
    write_aligner(network, folder / "aligner.safetensors", FeatureSpace("world-usual", "world"))
    return folder


def labelled(one, style):
    features = one.features().values
    spans = [Span(float(a), float(b)) for a, b in one.lines(style).times]
    shown = narration_labels(spans, len(features), "covering").astype(bool)
    return Sample(f"{one.id} {style}", features, one.vectors(style), shown, ordered=True)


def write_crosstask(simulation, folder):
    """The recipes of the held-out videos as CrossTask has them: a task is a title with its lines,
    in their order."""
    (folder / "annotations").mkdir(parents=True)
    held = [one for one in simulation.videos if one.subset != "train"]
    tasks = {one.task.number: worded(one.recipe) for one in held}
    blocks = [
        f"{n}\ntask {n}\nurl\n{len(lines)}\n{','.join(lines)}\n"
        for n, lines in sorted(tasks.items())
    ]
    (folder / "tasks_primary.txt").write_text("\n".join(blocks))
    (folder / "videos.csv").write_text("".join(f"{one.task.number},{one.id},url\n" for one in held))
    for one in held:
        rows = [
            (k + 1, *span)
            for k, step in enumerate(one.recipe.step)
            for span in one.timeline.of(int(step))
        ]
        with (folder / "annotations" / f"{one.task.number}_{one.id}.csv").open("w") as file:
            csv.writer(file).writerows(rows)


def answered(stepline, world, trained, benchmark, reference, out, *more):
    style = "narration" if benchmark == "htm-align" else "recipe"
    texts = world / "texts" / "usual" / style
    given = option_words(aligner=trained, features=world / "features" / "usual", texts=texts)
    files = option_words(reference=world / reference, out=out)
    result = stepline("predict", benchmark, *given, *files, *more)
    assert result.exit_code == 0, result.output


def evaluated(stepline, benchmark, predictions, reference, *more):
    files = option_words(predictions=predictions, reference=reference)
    result = stepline("evaluate", benchmark, *files, "--json", *more)
    return json.loads(result.stdout)


def score(*given):
    return {name: metric["value"] for name, metric in evaluated(*given)["metrics"].items()}


def held_out(simulation):
    return [one for one in simulation.videos if one.subset != "train"]


def test_htm_align_is_answered_as_its_evaluator_reads_it(
    stepline, simulation, world, trained, tmp_path
):
    out = tmp_path / "out.json"
    answered(stepline, world, trained, "htm-align", "htm_align.json", out)
    tree = json.loads(out.read_text())
    assert sorted(tree) == sorted(one.id for one in held_out(simulation))
    right = asked = 0
    for one in held_out(simulation):
        for second, window in zip(tree[one.id]["seconds"], one.narration.window, strict=True):
            if window >= 0:
                start, end = one.timeline.windows[window]
                right += start <= second <= end
                asked += 1
    scores = score(stepline, "htm-align", out, world / "htm_align.json", "--convention", "nasva")
    assert scores["R@1"] == pytest.approx(right / asked)
    assert scores["R@1"] > 0.4  # chance: 0.09
    assert score(stepline, "htm-align", out, world / "htm_align.json")["ROC-AUC alignable"] > 0.6


def test_ht_step_is_answered_in_seconds_and_in_segments(
    stepline, simulation, world, trained, tmp_path
):
    seen, truth = ("--subset", "val_seen"), world / "ht-step"
    for name in ("out.json", "out.csv"):
        answered(stepline, world, trained, "ht-step", "ht-step", tmp_path / name, *seen)
    scores = score(stepline, "ht-step", tmp_path / "out.json", truth, *seen)
    tree = json.loads((tmp_path / "out.json").read_text())
    assert all(isinstance(second, int) for seconds in tree.values() for second in seconds)
    hits = []
    for one in held_out(simulation):
        for step, second in zip(one.recipe.step, tree[one.id], strict=True):
            windows = one.timeline.windows[np.flatnonzero(one.timeline.steps == step)]
            if len(windows):
                hits.append(any(start <= second <= end for start, end in windows))
    assert scores["R@1"] == pytest.approx(np.mean(hits))
    assert scores["R@1"] > 0.45
    # The table of windows is for the official program, and is not scored as seconds.
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert {row["video-id"] for row in rows} == set(tree)
    assert all(float(row["t-start"]) < float(row["t-end"]) for row in rows)
    words = ("--predictions", tmp_path / "out.csv", "--reference", truth)
    assert "a table of windows" in stepline("evaluate", "ht-step", *words).stderr


def test_crosstask_gains_by_its_order(stepline, world, trained, tmp_path):
    found = []
    for order in ("none", "given"):
        out = tmp_path / f"{order}.json"
        answered(stepline, world, trained, "crosstask", "crosstask", out, "--order", order)
        found.append(json.loads(out.read_text()))
    files = (tmp_path / "none.json", world / "crosstask")
    scores = score(stepline, "crosstask", *files, "--convention", "each-all")
    assert scores["average R@1"] > 0.5
    assert found[0] != found[1]


def test_missing_and_broken_videos_are_named_and_listed(
    stepline, simulation, world, trained, tmp_path
):
    ids = [one.id for one in held_out(simulation)]
    features = tmp_path / "features"
    features.mkdir()
    for one in held_out(simulation)[2:]:
        torch.save(torch.from_numpy(one.features().values), features / f"{one.id}.pth.tar")
    np.save(features / f"{ids[0]}.npy", np.full((70, 128), np.nan, np.float32))
    texts = world / "texts" / "usual" / "narration"
    out, truth = tmp_path / "out.json", world / "htm_align.json"
    given = option_words(aligner=trained, features=features, texts=texts)
    job = ("predict", "htm-align", *given, *option_words(reference=truth, out=out))
    result = stepline(*job)
    assert result.exit_code == 1
    assert f"2 of {len(ids)} videos are not in" in result.stderr
    assert f"missing: {ids[1]}:" in result.stderr
    listed = json.loads((tmp_path / "out.json.missing.json").read_text())
    assert "NaN" in listed[ids[0]]
    assert "no features for video" in listed[ids[1]]
    assert sorted(json.loads(out.read_text())) == sorted(ids[2:])
    assert stepline(*job, "--allow-missing").exit_code == 0
    assert evaluated(stepline, "htm-align", out, truth)["missing"] == ids[:2]


def test_stores_stand_for_folders_of_files(simulation, world, trained, tmp_path):
    one = held_out(simulation)[0]
    aligner = load_aligner(trained)
    with FeatureWriter(tmp_path / "videos") as writer:
        writer.add(one.id, one.features().values, rate=1.0, backbone="world-usual")
    questions = read_benchmark_questions("htm-align", world / "htm_align.json").questions
    asked = [question for question in questions if question.id == one.id]
    vectors = TextVectors(world / "texts" / "usual" / "narration", aligner)
    files = BenchmarkInputs(StoredFeatures(world / "features" / "usual"), vectors)
    store = BenchmarkInputs(StoredFeatures(tmp_path / "videos"), files.vectors)
    for name, given in (("files", files), ("store", store)):
        write_alignments("htm-align", asked, aligner, given, tmp_path / f"{name}.json", SETTINGS)
    assert (tmp_path / "files.json").read_text() == (tmp_path / "store.json").read_text()


def test_a_calibration_is_fitted_stored_and_used(stepline, world, trained, tmp_path):
    file = tmp_path / "aligner.safetensors"
    file.write_bytes((trained / "aligner.safetensors").read_bytes())
    texts = world / "texts" / "usual" / "recipe"
    job = ("--aligner", file, "--features", world / "features" / "usual", "--texts", texts)
    truth = option_words(reference=world / "ht-step", subset="train")
    result = stepline("train", "calibrate", "ht-step", *job, *truth, "--json")
    assert result.exit_code == 0, result.output
    assert "fitted for narrations" not in result.stderr
    quality = json.loads(result.stdout)
    assert quality["ece_after"] < 0.5 * quality["ece_before"]
    assert quality["roc_auc_after"] > quality["roc_auc_before"]
    assert set(load_aligner(file).calibration.modes) == {"step"}
    out = tmp_path / "after.csv"
    answered(stepline, world, file, "ht-step", "ht-step", out, "--subset", "val_seen")
    scores = [float(row["score"]) for row in csv.DictReader(out.read_text().splitlines())]
    assert 0.35 < np.mean(scores) < 0.65  # half of an article's lines are shown


def test_predict_refuses_networks_features_and_references_that_do_not_match(
    stepline, world, trained, tmp_path
):
    narrow, reference = tmp_path / "narrow.safetensors", world / "htm_align.json"
    write_aligner(Aligner(tiny()), narrow)
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.json").write_text("{}")
    usual = world / "features" / "usual"
    for aligner, features, reason in (
        (narrow, usual, "its texts are vectors 12 wide of an encoder that it does not name"),
        (trained, tmp_path / "absent", "no such folder of features"),
        (trained, usual, "vectors 128 wide of 'world'; give --texts"),
        (tmp_path / "absent", usual, "no such file"),
    ):
        given = option_words(aligner=aligner, features=features, reference=reference)
        result = stepline("predict", "htm-align", *given, "--out", tmp_path / "out.json")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
        assert reason in result.stderr
    aligner = load_aligner(trained)
    asked = read_benchmark_questions("htm-align", reference).questions[:3]
    vectors = TextVectors(world / "texts" / "usual" / "narration", aligner)
    written = (tmp_path / "o", SETTINGS)
    empty = BenchmarkInputs(StoredFeatures(tmp_path / "empty"), vectors)
    with pytest.raises(DatasetError, match="none of 3 videos can be answered"):
        write_alignments("htm-align", asked, aligner, empty, *written)
    given = BenchmarkInputs(StoredFeatures(usual), vectors)
    with pytest.raises(DatasetError, match="trained on features 12 wide"):
        write_alignments("htm-align", asked, load_aligner(narrow), given, *written)
    with FeatureWriter(tmp_path / "others") as writer:
        lines = RowTexts(asked[0].texts)
        rows = np.ones((len(lines.texts), 128), np.float32)
        writer.add(asked[0].video, rows, rate=1.0, backbone="clip", texts=lines)
    given = BenchmarkInputs(StoredFeatures(usual), TextVectors(tmp_path / "others", aligner))
    with pytest.raises(DatasetError, match="trained on texts of 'world', given are 'clip'"):
        write_alignments("htm-align", asked[:1], aligner, given, *written)
    with pytest.raises(ModelError, match="give --texts"):
        TextVectors(None, load_aligner(narrow))
    with pytest.raises(StoreError, match="texts have no vector"):
        vectors.read_vectors(asked[0].video, ["a line that nobody says"])
