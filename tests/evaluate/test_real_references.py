import gzip
import json
from pathlib import Path

import pytest

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import score
from stepline.evaluate.report import report

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared annotations are not beside the project")


@pytest.fixture
def whenact():
    path = DATA / "whenact" / "narrated_actions.json.gz"
    return path, json.loads(gzip.decompress(path.read_bytes()))


@needs_data
def test_the_spoken_centre_of_whenact_scores_the_known_509(tmp_path, whenact):
    path, clips = whenact
    seconds = {
        id: [(action["spoken"][0] + min(action["spoken"][1], 60)) / 2 for action in clip["actions"]]
        for id, clip in clips.items()
    }
    (tmp_path / "p.json").write_text(json.dumps(seconds))
    made = report(evaluate("whenact", tmp_path / "p.json", path))
    found = made.metrics["R@1"]
    assert found.items == 2105 - 8  # windows without length are left out of the reference, and told
    assert found.value * found.items / 2105 == pytest.approx(0.5093, abs=1e-4)
    assert any('"span: has no length": 8' in note for note in made.notes)
    assert made.sources == 115  # clips of one video are drawn together
    assert made.missing == made.extra == ()


@needs_data
@pytest.mark.parametrize(("benchmark", "file"), [("youcook2", "youcook2/val.json.gz")])
@pytest.mark.parametrize("convention", ["grounding", "segmentation"])
def test_the_reference_scores_1_against_itself(tmp_path, benchmark, file, convention):
    path = DATA / file
    tree = json.loads(gzip.decompress(path.read_bytes()))
    rows = {
        id: [[*span, text] for span, text in zip(video["timestamps"], video["sentences"], strict=True)]
        for id, video in tree.items()
    }
    (tmp_path / "p.json").write_text(json.dumps(rows))
    found = evaluate(benchmark, tmp_path / "p.json", path, convention=convention)
    assert {round(score(value), 9) for value in found.statistics.values()} == {1.0}


def test_clips_without_any_score_cannot_be_ranked(tmp_path):
    (tmp_path / "truth.json").write_text(json.dumps({"a": [0, 1], "b": 1}))
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(DatasetError, match="undefined"):
        evaluate("vnd", tmp_path / "p.json", tmp_path / "truth.json")
    (tmp_path / "p.json").write_text(json.dumps({"a": [0.2, 0.9]}))
    found = evaluate("vnd", tmp_path / "p.json", tmp_path / "truth.json")
    assert score(found.statistics["ROC-AUC"]) == score(found.statistics["AP"]) == 1
    assert found.missing == ("b",)
