"""Files as their authors release them: a .pth of NaSVA's wherever a grounding network is taken,
benchmarks whole."""

import itertools
import json

import numpy as np
import pytest
import torch
from aligner_samples import WIDTH, released_layout, tiny
from option_words import option_words

from stepline.curate.stage import Recipe, VideoContext, VideoItem
from stepline.curate.stages import per_video
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    GroundedSteps,
    dump_result,
    pack_features,
    unpack_arrays,
)
from stepline.datasets.htstep import read_queries
from stepline.errors import ModelError
from stepline.models.nasva.benchmarks import read_benchmark_questions
from stepline.models.nasva.checkpoint import load_aligner, read_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.training.network import FeatureSpace
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, Step, Transcript
from stepline.settings import load_settings
from stepline.storage import from_json, read_record

LINES = ("chop the onion", "fry it", "add the rice", "stir")
VIDEOS = ("one", *map(str, range(2, 21)))  # enough for a calibration
RELEASED = {"heads": 8, "feature_scale": "none", "attention_dropout": 0.1, "dropout": 0.1}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same network as released.pth and ours.safetensors, features, text vectors, and an
    HTM-Align of 20 videos."""
    folder = tmp_path_factory.mktemp("released")
    torch.manual_seed(3)
    network = Aligner(tiny(**RELEASED)).eval()
    for weight in network.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    torch.save(released_layout(network), folder / "released.pth")
    write_aligner(network, folder / "ours.safetensors")
    rng = np.random.default_rng(0)
    (folder / "features").mkdir()
    (folder / "texts").mkdir()
    for id in VIDEOS:
        rows, vectors = rng.normal(size=(30, WIDTH)), rng.normal(size=(len(LINES), WIDTH))
        torch.save(torch.tensor(rows, dtype=torch.float32), folder / "features" / f"{id}.pth.tar")
        told = {"vid": id, "text": list(LINES), "start": [0.0, 4.0, 8.0, 12.0]}
        told |= {"end": [3.0, 7.0, 11.0, 15.0], "features": torch.tensor(vectors).float()}
        torch.save(told, folder / "texts" / f"{id}.pth")
    truth = [[k % 2, 5.0 * k, 5.0 * k + 4, line] for k, line in enumerate(LINES)]
    (folder / "htm_align.json").write_text(json.dumps(dict.fromkeys(VIDEOS, truth)))
    (folder / "lines.txt").write_text("\n".join(LINES))
    return folder


def inputs(files, **more):
    """Options that name the features and the vectors of the texts."""
    return option_words(features=files / "features", texts=files / "texts", **more)


def both(files, run):
    """Return what a command makes with the released file and with ours."""
    return [run(files / name) for name in ("released.pth", "ours.safetensors")]


def test_the_released_network_is_loaded_as_its_copy_in_our_format(files, tmp_path):
    aligner, ours = both(files, load_aligner)
    assert aligner.network.settings == ours.network.settings == tiny(**RELEASED)
    assert not aligner.network.training
    assert aligner.space == FeatureSpace("unknown", "unknown", 1.0)
    weights = (one.network.state_dict() for one in (aligner, ours))
    torch.testing.assert_close(*weights, atol=0, rtol=0)
    (tmp_path / "epoch-12").write_bytes((files / "released.pth").read_bytes())  # whatever its name
    assert read_aligner(tmp_path / "epoch-12").settings == ours.network.settings


def test_predict_answers_alike_with_the_released_network_and_its_copy(stepline, files, tmp_path):
    out, truth = tmp_path / "out.json", files / "htm_align.json"

    def run(path):
        given = inputs(files, reference=truth, aligner=path, out=out)
        result = stepline("predict", "htm-align", *given)
        assert result.exit_code == 0, result.output
        return json.loads(out.read_text())

    released, ours = both(files, run)
    assert released == ours
    given = option_words(aligner=files / "released.pth", features=files / "features")
    bare = stepline("predict", "htm-align", *given, "--reference", truth, "--out", out).stderr
    assert "vectors 12 wide of an encoder that it does not name; give --texts" in bare


def test_ground_answers_alike_with_the_released_network_and_its_copy(stepline, files):
    def run(path):
        given = ("--texts", files / "lines.txt", "--text-features", files / "texts" / "one.pth")
        video = files / "features" / "one.pth.tar"
        result = stepline("ground", video, *given, "--aligner", path, "--json")
        assert result.exit_code == 0, result.output
        return from_json(result.stdout).steps

    released, ours = both(files, run)
    assert released == ours
    assert [step.status for step in released] == ["placed"] * len(LINES)  # nothing is calibrated


def test_steps_takes_it_for_ready_features(stepline, files, small_video, captions_file, tmp_path):
    def run(path, *more):
        given = option_words(captions=captions_file, texts=files / "lines.txt", out=tmp_path)
        ready = [f"path={files}/features/one.pth.tar", f"texts={files}/texts/one.pth", *more]
        settings = [f"vision.{one}" for one in ("backbone=precomputed", *ready)]
        used = option_words(format="json", aligner=path, set=settings)
        return stepline("steps", small_video, *given, *used)

    def steps(path):
        result = run(path, "unit=false")
        assert result.exit_code == 0, result.output
        return read_record(tmp_path / "small.json").steps

    released, ours = both(files, steps)
    assert released == ours
    assert any(step.spans for step in released)
    unscaled = run(files / "released.pth").stderr
    assert "set vision.unit=false, with internvideo or ready features" in unscaled


def test_calibrate_takes_it_and_stores_the_fit_next_to_it(stepline, files, tmp_path):
    path = tmp_path / "released.pth"
    path.write_bytes((files / "released.pth").read_bytes())
    given = inputs(files, reference=files / "htm_align.json", aligner=path)
    result = stepline("train", "calibrate", "htm-align", *given)
    assert result.exit_code == 0, result.output
    assert set(load_aligner(path).calibration.modes) == {"narration"}
    assert "`steps` and `curate` need ht-step or crosstask" in result.stderr


def test_a_curated_dataset_is_grounded_by_it(files):
    def run(path):
        ready = [f"path={files}/features", f"texts={files}/texts/one.pth"]
        vision = [f"vision.{one}" for one in ("backbone=precomputed", "unit=false", *ready)]
        changes = [f"steps.{one}" for one in (*vision, f"nasva.aligner.path={path}")]
        recipe = load_settings(Recipe, None, changes)
        steps = tuple(Step(id=str(k), text=line) for k, line in enumerate(LINES))
        rows = torch.load(files / "features" / "one.pth.tar", weights_only=True).numpy()
        features = FeatureSequence(rows, 1.0, "precomputed")
        coarse = CoarseSteps(duration=30.0, transcript=Transcript(), steps=steps)
        pictures = pack_features(VisualFeatures(features, end=30.0))
        cells = {"coarse": dump_result(coarse), "encode": pictures}
        done = per_video.run_ground(VideoContext(VideoItem("one"), recipe, results=cells))
        return unpack_arrays(GroundedSteps, done)[0].steps

    released, ours = both(files, run)
    assert released == ours


def test_a_rate_that_it_does_not_take_is_refused(stepline, files):
    texts = option_words(texts=files / "lines.txt", text_features=files / "texts" / "one.pth")
    given = option_words(aligner=files / "released.pth", set="vision.rate=2")
    result = stepline("ground", files / "features" / "one.pth.tar", *texts, *given)
    assert "trained at 1 rows per second, given are 2; set vision.rate=1" in result.stderr


def test_what_no_weight_shows_is_said_where_it_cannot_be_as_released(tmp_path):
    torch.save(released_layout(Aligner(tiny(width=36))), tmp_path / "other.pth")
    with pytest.raises(ModelError, match="36 wide, not a multiple of the 8 attention heads of the"):
        read_aligner(tmp_path / "other.pth")


def predict_and_score(stepline, files, tmp_path, truth):
    """Return the predictions for an HTM-Align of one video, and the scores that `evaluate` gives
    them."""
    (tmp_path / "htm_align.json").write_text(json.dumps({"one": truth}))
    truth, out = ("--reference", tmp_path / "htm_align.json"), tmp_path / "out.json"
    given = inputs(files, aligner=files / "ours.safetensors", out=out)
    result = stepline("predict", "htm-align", *truth, *given)
    assert result.exit_code == 0, result.output
    scored = stepline("evaluate", "htm-align", "--predictions", out, *truth, "--json")
    assert scored.exit_code == 0, scored.output
    return json.loads(out.read_text())["one"], json.loads(scored.stdout)["metrics"]


def test_a_sentence_shown_for_a_moment_counts_as_officially(stepline, files, tmp_path):
    marks = (0, 1.0, 3.0), (1, 5.0, 5.0), (1, 9.0, 8.0), (1, 20.0, 25.0)
    truth = [[*mark, line] for mark, line in zip(marks, LINES, strict=True)]
    predicted, _ = predict_and_score(stepline, files, tmp_path, truth)
    assert len(predicted["seconds"]) == len(predicted["spans"]) == len(LINES)
    second = predicted["seconds"][1]
    # TAN: floor(start) <= second <= ceil(end)
    for moment, hits in ((second + 0.4, 1), (second - 0.4, 1), (second + 1.0, 0)):
        marks = (0, 1.0, 3.0), (1, moment, moment), (0, 5.0, 8.0), (0, 5.0, 8.0)
        truth = [[*mark, line] for mark, line in zip(marks, LINES, strict=True)]
        _, metrics = predict_and_score(stepline, files, tmp_path, truth)
        assert metrics["R@1"]["value"] == hits


def test_blanks_around_a_text_do_not_hide_its_vector(stepline, files, tmp_path):
    plain, padded = (
        [[k % 2, 5, 9, form.format(line)] for k, line in enumerate(LINES)]
        for form in ("{}", " {}\n")
    )
    (one, _), (other, _) = (
        predict_and_score(stepline, files, tmp_path, truth) for truth in (plain, padded)
    )
    assert one == other


def test_a_moment_is_a_shown_sentence_to_a_calibration(files, tmp_path):
    truth = [[1, 5.0, 5.0, "a"], [0, 6.0, 6.0, "b"]]
    (tmp_path / "htm_align.json").write_text(json.dumps({"one": truth, "two": [[1, 1, 2, " "]]}))
    questions = read_benchmark_questions("htm-align", tmp_path / "htm_align.json")
    assert [question.truth for question in questions.questions] == [(True, False)]
    assert questions.count_reasons() == {"a text of it is empty or cannot be stored": 1}


@pytest.fixture
def htstep(tmp_path):
    """A release of HT-Step: annotations of train and validation, and the server's queries of the
    test splits."""
    folder = tmp_path / "htstep"
    folder.mkdir()
    head = "global_step_index,activity,step_index,variation,variation_index,headline,paragraph\n"
    rows = [f"{k},Make rice,{k},none,,{line},\n" for k, line in enumerate(LINES)]
    (folder / "taxonomy.csv").write_text(head + "".join(rows))
    splits = {"train": ["2"], "val_seen": ["one", "3"]}
    splits |= {"test_seen": ["4", "5"], "test_unseen": ["6"]}
    (folder / "video_splits.json").write_text(json.dumps(splits))
    shown = [{"id": 0, "segment": [3.0, 9.5]}, {"id": 2, "segment": [20, 25.5]}]
    annotations = {
        id: {"subset": subset, "activity": "Make rice", "annotations": shown}
        for subset in ("train", "val_seen")
        for id in splits[subset]
    }
    (folder / "annotations.json").write_text(json.dumps(annotations))
    queries = {
        id: {"step_headline": [LINES[k] for k in order]}
        for id, order in (("4", (3, 1)), ("6", (0, 1, 0)))
    }
    (folder / "htm_test_input_headline.json").write_text(json.dumps(queries))
    return folder


def answer_htstep(stepline, files, reference, out, *more):
    given = inputs(files, reference=reference, out=out, aligner=files / "released.pth")
    return stepline("predict", "ht-step", *given, *more)


@pytest.mark.parametrize(("subset", "asked"), [("test_seen", {"4": 2}), ("test_unseen", {"6": 3})])
def test_ht_steps_hidden_splits_are_answered_as_its_server_asks(
    stepline, files, htstep, tmp_path, subset, asked
):
    out = tmp_path / "result.json"
    result = answer_htstep(stepline, files, htstep, out, "--subset", subset)
    assert result.exit_code == 0, result.output
    queries = read_queries(htstep / "htm_test_input_headline.json", subset)
    given = json.loads(out.read_text())
    assert {id: len(seconds) for id, seconds in given.items()} == asked
    for second in itertools.chain(*given.values()):
        assert isinstance(second, int)
        assert 0 <= second < 30
    if subset == "test_seen":
        assert queries == {"4": (LINES[3], LINES[1]), "5": ()}
        unasked = "not asked: 1 videos of the reference: the server's file names no headlines of it"
        assert unasked in result.stderr
    else:
        assert given["6"][0] == given["6"][2]  # the same headline twice


def test_the_servers_file_alone_is_a_reference(stepline, files, htstep, tmp_path):
    alone, out = tmp_path / "queries.json", tmp_path / "result.json"
    alone.write_bytes((htstep / "htm_test_input_headline.json").read_bytes())
    assert answer_htstep(stepline, files, alone, out).exit_code == 0
    assert sorted(json.loads(out.read_text())) == ["4", "6"]
    refused = answer_htstep(stepline, files, alone, out, "--subset", "test_seen").stderr
    assert "which videos are in 'test_seen'; put video_splits.json next to it" in refused


def test_ht_steps_validation_has_the_same_form_and_is_scored(stepline, files, htstep, tmp_path):
    out = tmp_path / "result.json"
    assert answer_htstep(stepline, files, htstep, out, "--subset", "val_seen").exit_code == 0
    given = json.loads(out.read_text())
    assert {id: len(seconds) for id, seconds in given.items()} == {"one": 4, "3": 4}
    words = option_words(predictions=out, reference=htstep, subset="val_seen")
    scored = stepline("evaluate", "ht-step", *words, "--json")
    hits = [3.0 <= seconds[0] <= 9.5 for seconds in given.values()]
    hits += [20 <= seconds[2] <= 25.5 for seconds in given.values()]
    assert json.loads(scored.stdout)["metrics"]["R@1"]["value"] == np.mean(hits)


def test_what_hidden_splits_cannot_give_is_refused(stepline, files, htstep, tmp_path):
    test = ("--subset", "test_seen")
    table = answer_htstep(stepline, files, htstep, tmp_path / "out.csv", *test).stderr
    assert "name a .json" in table
    given = inputs(files, reference=htstep, aligner=files / "ours.safetensors")
    calibrated = stepline("train", "calibrate", "ht-step", *given, *test).stderr
    assert "truth of these videos of ht-step is hidden; calibrate on others, such as" in calibrated
    (htstep / "htm_test_input_headline.json").unlink()
    refused = answer_htstep(stepline, files, htstep, tmp_path / "out.json", *test)
    assert "test_seen are hidden; put htm_test_input_headline.json" in refused.stderr
    assert refused.exit_code == 1


@pytest.mark.parametrize(("benchmark", "mode"), [("htm-align", "narration"), ("ht-step", "step")])
def test_the_answers_are_those_of_the_released_code(
    stepline, shared_path, tmp_path, benchmark, mode
):
    folder = shared_path("nasva_parity")
    with np.load(folder / "tiny_inputs.npz") as file:
        given = dict(file)
    with np.load(folder / "tiny_expected.npz") as file:
        wanted = file[f"{mode}_pred_time"]
    (tmp_path / "features").mkdir()
    (tmp_path / "texts").mkdir()
    questions, expected = {}, {}
    for row, id in enumerate(("one", "two")):
        seconds, texts = (
            int((~given[f"{name}_padding_mask"][row]).sum()) for name in ("video", "text")
        )
        lines = [f"line {k % 3}" for k in range(texts)]  # wordings that come again
        video = torch.from_numpy(given["video"][row, :seconds])
        torch.save(video, tmp_path / "features" / f"{id}.pth.tar")
        told = {"vid": id, "text": lines, "features": torch.from_numpy(given["text"][row, :texts])}
        torch.save(told, tmp_path / "texts" / f"{id}.pth")
        rows = [[1, 1.0, 2.0, line] for line in lines]
        questions[id] = rows if benchmark == "htm-align" else {"step_headline": lines}
        expected[id] = wanted[row, :texts].tolist()
    (tmp_path / "asked.json").write_text(json.dumps(questions))
    network = option_words(
        aligner=folder / "tiny_checkpoint_fp32.pth", set="nasva.aligner.compete=0"
    )
    words = inputs(tmp_path, reference=tmp_path / "asked.json", out=tmp_path / "out.json")
    result = stepline("predict", benchmark, *network, *words)
    assert result.exit_code == 0, result.output
    answers = json.loads((tmp_path / "out.json").read_text())
    if benchmark == "htm-align":
        answers = {id: answer["seconds"] for id, answer in answers.items()}
    assert answers == expected
