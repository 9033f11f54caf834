import json
import os
import signal
import time
from dataclasses import replace

import pytest
from fake_stages import STAGES
from option_words import option_words

from stepline.cli.curate import _sigterm_as_interrupt
from stepline.curate.stage import StageFailure
from stepline.curate.stages.gather import write_dataset


@pytest.fixture
def films(tmp_path, monkeypatch):
    """A folder of "videos" and a recipe of fake stages; the command line finds these stages by
    name."""
    monkeypatch.setattr("stepline.curate.stages.STAGE_TABLE", STAGES)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "films").mkdir()
    for name, text in {"a": "one two", "b": "silent", "c": "odd", "d": "three"}.items():
        (tmp_path / "films" / f"{name}.mp4").write_text(text)
    (tmp_path / "fake.toml").write_text('stages = ["read", "count", "double", "total"]\n')
    return tmp_path


def test_a_run_says_what_went_through_and_status_reports_it_again(films, stepline):
    options = option_words(recipe=films / "fake.toml", out=films / "out", workers=1)
    asked = ("curate", films / "films", *options)
    done = stepline(*asked)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(films / "out")
    assert "4 of 4 videos" in done.stderr
    assert "error: c: read: ZeroDivisionError: by nothing" in done.stderr
    assert "2 of 4 videos went through, 2 left out or failed, 0 not taken" in done.stderr
    again = stepline(*asked, "--json")
    counts = {key: json.loads(again.stdout)[key] for key in ("videos", "failed", "refused")}
    assert counts == {"videos": 4, "failed": 2, "refused": 0}
    shown = stepline("curate", "status", films / "out")
    rows = {line.split()[0]: line.split()[1:4] for line in shown.stdout.splitlines()[1:6]}
    assert "no process works on it now" in shown.stdout
    assert rows["read"] == ["2", "2", "0"]
    assert rows["total"] == ["1", "0", "0"]
    told = json.loads(stepline("curate", "status", films / "out", "--json").stdout)
    assert [failure["id"] for failure in told["failures"]] == ["b", "c"]


def test_stages_over_all_videos_name_whom_they_leave_out_and_no_empty_dataset_is_published(
    films, stepline, monkeypatch
):
    def export(gathered):
        """Leave out "a" and "d" if one thread works, else "a"."""
        kept = [] if gathered.recipe.threads == 1 else ["d"]
        lost = {id: StageFailure(id, "export", "left out", "dull") for id in {*"ad"} - {*kept}}
        write_dataset(gathered.folder, [], {**lost, **gathered.failures})
        (gathered.folder / "dataset.json").write_text(json.dumps({"videos": len(kept)}))

    stage = replace(STAGES["publish"], name="export", run=export)
    monkeypatch.setattr("stepline.curate.stages.STAGE_TABLE", {**STAGES, "export": stage})
    monkeypatch.setattr("stepline.curate.report.write.write_report", lambda *_: None)
    (films / "fake.toml").write_text('stages = ["read", "count", "double", "total", "export"]\n')
    options = option_words(recipe=films / "fake.toml", out=films / "out", workers=1)
    done = stepline("curate", films / "films", *options, "--set", "threads=2")
    assert "1 of 4 videos went through, 3 left out or failed" in done.stderr
    assert "left out: a: export: dull" in done.stderr
    empty = stepline("curate", films / "films", *options, "--set", "threads=1")
    assert empty.exit_code == 1
    assert "no video is left, so " in empty.stderr
    assert "dataset is not written (2 by export: dull; 1 by read: nobody speaks" in empty.stderr
    assert json.loads((films / "out/dataset/dataset.json").read_text()) == {"videos": 1}
    shown = stepline("curate", "status", films / "out").stdout
    assert "tasks an hour in the last run; 0.0 h left at this rate" in shown
    assert all(f": {name}: " in shown for name in "abcd")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recipe", "howtostp"), "howtostp: no such recipe"),
        (("--set", "limits.second=3"), "did you mean 'limits.seconds'?"),
        (("--set", 'stages=["total"]'), "stage 'total' needs 'double' before it"),
    ],
)
def test_a_wrong_recipe_is_one_line(films, stepline, words, said):
    done = stepline(
        "curate", films / "films", "--recipe", films / "fake.toml", "--out", films / "out", *words
    )
    assert done.exit_code == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    begun = stepline("curate", "status", films)
    assert "no run of `stepline curate` has begun here" in begun.stderr


def test_a_notice_of_the_end_stops_a_run_as_ctrl_c_does():
    usual = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), _sigterm_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    assert signal.getsignal(signal.SIGTERM) == usual
