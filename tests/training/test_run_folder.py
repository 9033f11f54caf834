"""A run's folder, as every trainer keeps it: claimed once, taken up again, refused to another
run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepline.errors import SettingsError, StoreError
from stepline.models.nasva.settings import (
    AlignerNetworkSettings,
    AlignerRunSettings,
    RefineRunSettings,
)
from stepline.models.procx.settings import ModelSettings, ProcxRunSettings
from stepline.models.training.run import (
    OMITTED_FILE,
    RUN_FILE,
    StepLog,
    claim_run_folder,
    fine_tuning_settings,
    result_settings,
    write_omitted,
)
from stepline.models.wys2.settings import Wys2Settings

RUNS = [AlignerRunSettings(), RefineRunSettings(), ProcxRunSettings(), Wys2Settings()]

FILL = """
import pathlib, resource, sys
from stepline.errors import StoreError
from stepline.models.training.run import StepLog
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    log = StepLog(pathlib.Path(sys.argv[1]), 0)
    for step in range(10_000):
        log.write({"step": step})
except StoreError as error:
    print(error)
"""


def test_a_full_disk_is_one_line_with_the_cure(tmp_path):
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{path}: cannot be written (")
    assert "free some space and give the same command again" in done.stdout
    assert done.stderr == ""


def test_lines_after_the_checkpoint_go_also_half_ones(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    log = StepLog(path, 1)
    log.write({"step": 2})
    log.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize("settings", RUNS)
def test_a_run_folder_is_claimed_once_and_taken_up_by_its_own_run_alone(tmp_path, settings):
    def claim(settings, **facts):
        claim_run_folder(tmp_path, result_settings(settings), facts)

    def with_train(**changes):
        return settings.model_copy(update={"train": settings.train.model_copy(update=changes)})

    claim(settings, videos=3)
    before = (tmp_path / RUN_FILE).stat().st_mtime_ns
    claim(settings, videos=3)
    assert (tmp_path / RUN_FILE).stat().st_mtime_ns == before  # what is done stays untouched
    claim(with_train(readers=7, save_every=9), videos=4)  # neither changes what is learnt
    assert json.loads((tmp_path / RUN_FILE).read_text())["videos"] == 4
    with pytest.raises(
        SettingsError, match="another run, with other settings or sources; give another --out"
    ):
        claim(with_train(epochs=settings.train.epochs + 1))
    (tmp_path / RUN_FILE).write_text("{")
    with pytest.raises(StoreError, match="cannot be read .*; remove it, or give another --out"):
        claim(settings)


def test_what_is_left_out_is_a_json_line_each(tmp_path):
    write_omitted(
        tmp_path, [{"video": "ä", "reason": "it is excluded"}, {"video": "b", "reason": "no"}]
    )
    lines = (tmp_path / OMITTED_FILE).read_text(encoding="utf-8").splitlines()
    assert lines[0] == '{"video": "ä", "reason": "it is excluded"}'
    assert [json.loads(line)["video"] for line in lines] == ["ä", "b"]


OTHER_DROPOUT = ModelSettings.model_validate({"captioner": {"dropout": 0.3}})


@pytest.mark.parametrize(
    ("own", "asked", "found"),
    [
        (AlignerNetworkSettings(width=64), AlignerNetworkSettings(dropout=0.3), ("dropout", 0.3)),
        (ModelSettings(queries=7), OTHER_DROPOUT, ("captioner", None)),
    ],
)
def test_a_network_to_train_on_keeps_its_settings_but_for_the_dropout(own, asked, found):
    changeable = ("dropout", "captioner.dropout")
    made = fine_tuning_settings(own, asked, changeable, Path("network"))
    name, value = found
    assert made.model_dump(exclude={name}) == own.model_dump(exclude={name})
    assert getattr(made, name) == (
        value if value is not None else own.captioner.model_copy(update={"dropout": 0.3})
    )
    with pytest.raises(
        SettingsError, match=r"model\..*dropout=0\.3, network has .*; it is the network's own"
    ):
        fine_tuning_settings(own, asked, (), Path("network"))
