"""A file of dense captions as `stepline predict youcook2` writes it, scored by the official programs.

The expected numbers are what they gave on these two files: `densevid_eval3/evaluate2018.py` and
`evaluate2021.py` of ttengwang/PDVC @0b025c8, `dvc_eval` of antoyang/VidChapters @fa3900c, and
fujiso/SODA @9cb3e2c. A video that is not predicted counts 0 in PDVC's programs and is free in the
others.
"""

import json

import caption_files as files
import numpy as np
import pytest
from option_words import option_words
from small_network import SENTENCES, WIDTH, tiny

from stepline.datasets.submissions import write_densevid
from stepline.models.procx.checkpoint import TrainingFeatures, write_model
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import VocabularySettings
from stepline.models.procx.vocabulary import train_vocabulary

PLACES = {"precision": 0.34375, "recall": 0.375}
PDVC = PLACES | {"CIDEr": 0.976851, "BLEU-4": 0.069127, "ROUGE-L": 0.235824}
LANGUAGE = {
    "2018": PDVC | {"METEOR": 0.124103},
    "2021": PDVC | {"METEOR": 0.136794},
    "vidchapters": {"METEOR": 0.182392, "CIDEr": 1.302469, "BLEU-4": 0.092170, "ROUGE-L": 0.314433}
    | {"precision": 0.458333, "recall": 0.5},
}
SODA = {"SODA_c": 0.205420, "SODA_c precision": 0.193930, "SODA_d": 0.499211}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_densevid(files.PREDICTED, tmp_path / "predictions.json")
    (tmp_path / "truth.json").write_text(json.dumps(files.TRUTH))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("convention", LANGUAGE)
def test_a_prediction_file_has_the_official_scores(stepline, convention):
    asked = {"predictions": "predictions.json", "reference": "truth.json"}
    words = option_words(**asked, convention=convention)
    result = stepline("evaluate", "youcook2", "--json", *words)
    assert result.exit_code == 0, result.output
    found = {name: each["value"] for name, each in json.loads(result.stdout)["metrics"].items()}
    expected = LANGUAGE[convention] | SODA
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("prefix", ["v_", ""])
def test_predictions_have_the_ids_of_their_reference(stepline, folder, prefix):
    """The official programs compare ids as they are written."""
    truth = {f"{prefix}{id.removeprefix('v_')}": entry for id, entry in files.TRUTH.items()}
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "features").mkdir()
    for id in files.TRUTH:
        rows = np.ones((20, WIDTH), dtype=np.float32)
        np.save(folder / "features" / f"{id.removeprefix('v_')}.npy", rows)
    words = train_vocabulary(SENTENCES, VocabularySettings(size=300, rare=1))
    network = ProcX(tiny(), len(words))
    write_model(network, words, folder / "procx.safetensors", TrainingFeatures("made"))
    files_of = {"model": "procx.safetensors", "features": "features", "reference": "truth.json"}
    result = stepline("predict", "youcook2", *option_words(**files_of, out="p.json"))
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "p.json").read_text())["results"].keys() == truth.keys()
