"""Paper A end to end on drawn and spoken videos, through the command line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from option_words import option_words

from stepline.curate.stages.gather import read_stage_failures
from stepline.storage import read_parquet

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["train.train.epochs=2", "refine.train.epochs=2", "refine.rounds.teacher_epochs=2"]


def called(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=environment)


@pytest.mark.slow
def test_the_recipe_howtostep_refuses_a_copy_and_places_the_steps_that_are_shown(tmp_path):
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed, and drawn videos need its voice")
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    called("lab/curate_corpus.py", corpus, "--videos", 12)
    settings = [part for setting in SHORT for part in ("--set", setting)]
    options = option_words(recipe="lab/curate_howtostep.toml", out=out)
    called("-m", "stepline", "curate", corpus / "videos.csv", *options, *settings)
    (gathered,) = (out / "stages" / "gather").glob("*/records.parquet")
    assert len(list(read_parquet(gathered))) == 11
    assert (
        read_stage_failures(gathered.parent)["howto_00009"].reason == "it is a copy of howto_00000"
    )
    (refined,) = (out / "stages" / "refine").glob("*/records.parquet")
    steps = [step for one in read_parquet(refined) for step in one.steps]
    assert all(bool(step.spans) == (step.status in ("seen", "placed")) for step in steps)
