"""TAN's vectors of sentences and its scores of HTM-Align, in Stepline.

The expected numbers are what TengdaHan/TemporalAlignNet @28b5e04 gave on a CPU: `Word2VecTokenizer`
and `Word2VecModel` with the words and weights made here; `HTM_Align` and `test_alignment_htm` (its
overlapping windows, of 16 s here) with `TemporalAligner` of 3 + 3 layers. Its one change: the text
tower had as many words as the dictionary made here. Stepline has no network of TAN, whose scores of
every second are given.
"""

import json
from pathlib import Path

import closed_forms
import pytest
import tan_files
import torch
from option_words import option_words

from stepline.vision.s3d import TextTower, WordDictionary

EXPECTED = json.loads((Path(__file__).parent / "tan_numbers.json").read_text())


def test_sentences_have_tans_vectors():
    dictionary = WordDictionary(tan_files.WORDS)
    tower = TextTower(dictionary.size)
    shapes = {f"text_module.{name}": value.shape for name, value in tower.state_dict().items()}
    state = closed_forms.weights(shapes)
    own = {name.removeprefix("text_module."): value for name, value in state.items()}
    tower.load_state_dict(own)
    with torch.no_grad():
        vectors = tower(dictionary.tokens(list(EXPECTED["texts"]), "tan"), "tan")
    found = torch.tensor([[*row[:4], row.norm()] for row in vectors])
    wanted = torch.tensor(list(EXPECTED["texts"].values()))
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("ranked_by", ["alignability head", "best score"])
def test_htm_align_has_tans_recall_and_area(stepline, tmp_path, ranked_by):
    tan_files.write_htm_align(tmp_path)
    answers = {id: {"scores": scores} for id, scores in EXPECTED["scores"].items()}
    if ranked_by == "alignability head":
        for id, alignability in EXPECTED["alignability"].items():
            answers[id]["alignability"] = alignability
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    files = {"predictions": tmp_path / "answers.json", "reference": tmp_path / "htm_align.json"}
    result = stepline("evaluate", "htm-align", "--json", *option_words(**files))
    assert result.exit_code == 0, result.output
    found = {name: each["value"] for name, each in json.loads(result.stdout)["metrics"].items()}
    wanted = {"R@1": EXPECTED["Recall"], "ROC-AUC alignable": EXPECTED["AUC"][ranked_by]}
    assert found == pytest.approx(wanted, abs=1e-12)
