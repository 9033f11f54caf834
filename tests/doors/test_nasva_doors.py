"""From the files of NaSVA's authors to their numbers: features, texts and a network in, answers and
scores out.

The expected numbers are what Lzq5/Video-Text-Alignment @c3517ed gave on these very files on a CPU:
`HTMAlignDataset`, `HTMStepDataset` and `HTMDataset`, `DETR`, `SimilarityLoss`, `Checkpointer`,
`evaluate_htmalign`, `evaluate_htmstep`, `read_assignment` and `get_recalls`. Its two modules that do
not exist were empty, its paths were those of the files, and `use_text_pos`, which no line sets, was
False. The mean average precision of HT-Step's windows is what facebookresearch/htstep @cca1dea,
`eval_article_grounding.py`, gave for the file that is written here.
"""

import json

import htstep_files
import nasva_files
import numpy as np
import pytest
import second_opinion
import torch
from aligner_samples import released_layout, tiny
from option_words import option_words

from stepline.cli.options import preset_files
from stepline.models.nasva.checkpoint import load_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerRunSettings
from stepline.models.nasva.train import AlignerSources, make_aligner_task, prepare_aligner_run
from stepline.settings import load_settings

HTM_ALIGN_SECONDS = {
    "aligned-one": [15, 10, 15, 15, 15, 15],
    "aligned-two": [59, 59, 60, 60, 60],
    "aligned-three": [19],
}
HTM_ALIGN_RECALL = 4 / 10  # the video that only talks is left out, as the whole rule leaves it out
HT_STEP_SECONDS = {
    "stepped-one": [5, 5, 5, 5],
    "stepped-two": [14, 14],
    "stepped-three": [2, 24, 2, 2, 24],
}
HT_STEP_WINDOW_PRECISION = 0.5788888888888889
CROSSTASK_SECONDS = {
    "crossed-one": [8, 8, 8],
    "crossed-two": [12, 12, 12],
    "crossed-three": [2, 13, 7, 2],
}
CROSSTASK_RECALLS = {"16815": 1 / 2, "23521": 1 / 3}
TRAINING = {  # texts before 1,200 s, their rows; loss and norm of its gradient by order of the texts
    "texts": {"told-one": 4, "told-two": 2, "told-three": 2},
    "rows": {"told-one": 19, "told-two": 13, "told-three": 6},
    "loss": {"in order": 3.9915109, "shuffled": 4.0115404},
    "gradient": {"in order": 35.918800, "shuffled": 36.173557},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The corpus and epoch-20.pth, a network with the names and shapes of the authors'."""
    folder = tmp_path_factory.mktemp("nasva")
    nasva_files.write_corpus(folder)
    htstep_files.write_release(folder / "htstep_release")
    sizes = {"encoder_layers": 2, "heads": 8, "feed_forward": 2048, "projection": 16}
    width = nasva_files.WIDTH
    network = Aligner(tiny(video_width=width, text_width=width, text_positions=1024, **sizes))
    layout = released_layout(network)
    shapes = {name: tuple(value.shape) for name, value in layout["model_state_dict"].items()}
    layout["model_state_dict"] |= nasva_files.network_state(shapes)
    torch.save(layout, folder / "epoch-20.pth")
    return folder


@pytest.fixture
def run(files, stepline, monkeypatch):
    """Type a command in the folder of the files."""
    monkeypatch.chdir(files)

    def typed(*words, **options):
        result = stepline(*words, *option_words(**options))
        assert result.exit_code == 0, result.output
        return result.stdout

    return typed


ASKED = {"preset": "paper", "aligner": "epoch-20.pth", "features": "internvideo"}


def test_htm_align_has_the_authors_seconds_and_recall(run, files):
    asked = ASKED | {"texts": "htm_align_text", "reference": "htm_align.json"}
    run("predict", "htm-align", **asked, out="htm.json")
    answers = json.loads((files / "htm.json").read_text())
    found = {id: answer["seconds"] for id, answer in answers.items()}
    assert found.pop("talks-only")
    assert found == HTM_ALIGN_SECONDS
    scored = {"predictions": "htm.json", "reference": "htm_align.json", "convention": "nasva"}
    metrics = json.loads(run("evaluate", "htm-align", "--json", **scored))["metrics"]
    assert metrics["R@1"]["value"] == pytest.approx(HTM_ALIGN_RECALL)


def test_ht_step_has_the_authors_result_file(run, files):
    asked = ASKED | {"texts": "htstep_text", "reference": "htstep/htm_test_input_headline.json"}
    run("predict", "ht-step", **asked, out="result.json")
    assert json.loads((files / "result.json").read_text()) == HT_STEP_SECONDS


def test_ht_step_has_the_windows_that_its_program_scores(run, files):
    """The program reads no JSON of seconds, and Stepline scores no windows."""
    asked = ASKED | {"texts": "htstep_text", "reference": "htstep_release", "subset": "val_seen"}
    run("predict", "ht-step", **asked, out="windows.csv")
    found = second_opinion.ht_step_windows(files / "windows.csv", files / "htstep_release")
    assert found == pytest.approx(HT_STEP_WINDOW_PRECISION, abs=1e-12)


def test_crosstask_has_the_authors_seconds_and_recalls(run, files):
    asked = ASKED | {"texts": "crosstask_text", "reference": "crosstask_release"}
    run("predict", "crosstask", **asked, out="crosstask.json")
    answers = json.loads((files / "crosstask.json").read_text())
    tasks = {id: task for id, (task, *_) in nasva_files.CROSSTASK.items()}
    assert answers == {f"{tasks[id]}_{id}": seconds for id, seconds in CROSSTASK_SECONDS.items()}
    scored = {"predictions": "crosstask.json", "reference": "crosstask_release"}
    scored = run("evaluate", "crosstask", "--json", **scored, convention="each-all")
    recall = sum(CROSSTASK_RECALLS.values()) / 2  # the mean over tasks
    assert json.loads(scored)["metrics"]["average R@1"]["value"] == pytest.approx(recall)


@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_a_training_batch_has_the_authors_loss(run, files, tmp_path, order):
    run("features", "import", "internvideo", backbone="internvideo", out=tmp_path / "internvideo")
    told = tmp_path / "narrations"
    run("features", "import", "whisperx_text", backbone="internvideo", out=told)
    settings = load_settings(AlignerRunSettings, preset=preset_files("train nasva")["released"])
    sources = AlignerSources(tmp_path / "internvideo", narrations=str(told))
    samples = list(prepare_aligner_run(sources, tmp_path / "run", settings).samples)
    assert {one.id.split()[0]: len(one.text) for one in samples} == TRAINING["texts"]
    assert {one.id.split()[0]: int(one.positive.sum()) for one in samples} == TRAINING["rows"]
    if order == "shuffled":
        rng = np.random.default_rng(0)
        samples = [one.shuffle_texts(rng) for one in samples]
    network = load_aligner(files / "epoch-20.pth").network
    (loss,) = make_aligner_task(samples, settings.loss).losses(network, samples)
    loss.mean.backward()
    gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
    norm = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
    assert loss.mean.item() == pytest.approx(TRAINING["loss"][order], rel=1e-5)
    assert norm.item() == pytest.approx(TRAINING["gradient"][order], rel=1e-4)
