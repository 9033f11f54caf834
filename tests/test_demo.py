"""The demo video, end to end, against the script that it was drawn from."""

import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from installs import documented_installs
from summary_checks import check_summary

import stepline
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import Correction, DeleteEdit
from stepline.storage import read_record, write_record

DEMO = Path(stepline.__file__).parent / "cli" / "demo"
GOLDEN = Path(__file__).parent / "golden" / "expected" / "demo"


@pytest.fixture(scope="module")
def truth():
    return read_record(DEMO / "demo_truth.json")


@pytest.fixture(scope="module")
def found():
    """The record of the demo, which tests/test_golden.py finds in what is written today."""
    record = read_record(GOLDEN / "demo.json")
    video = record.video.model_copy(update={"path": str(DEMO / "demo.mp4")})
    return record.model_copy(update={"video": video})


def test_the_demo_prints_its_table_and_names_its_page(found, tmp_path, stepline, monkeypatch):
    """What it runs, tests/test_golden.py runs in the installation that it needs."""
    asked = []

    def run_video(request, settings, output, *, progress):
        asked.append((request.path, settings.asr.compute, output.out))
        return SimpleNamespace(record=found)

    monkeypatch.setattr("stepline.pipeline.batch.run_video", run_video)
    assert documented_installs()["demo"] == ""
    write_record(found, tmp_path / "demo.json")
    identity, edits = video_id("demo.json"), (DeleteEdit(do="delete", step=found.steps[0].id),)
    new = Correction(id="1", video=identity, by="Ann", when=0.0, base=0, edits=edits)
    with closing(CorrectedLibrary(tmp_path)) as corrected:
        corrected.correct(identity, new)
    result = stepline("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert asked == [(DEMO / "demo.mp4", "float32", tmp_path)]
    assert result.stdout == (GOLDEN / "table.txt").read_text()
    told, page_line, studio_line = result.stderr.splitlines()[-3:]
    assert told.startswith("1 correction is not in these pages and files")
    assert page_line == f"open {tmp_path / 'demo.html'} in a browser"
    assert studio_line.startswith(f"`stepline studio {tmp_path}` ")


def words(text):
    return set(re.findall(r"[a-z]+", text.lower()))


def partner(found, true):
    """The written step that is spoken within the same words as a true one, and shares most of
    them."""
    near = [
        step
        for step in found.steps
        if step.said and step.said.overlap(true.said) > step.said.duration / 2
    ]
    return max(near, key=lambda step: len(words(step.text) & words(true.text)), default=None)


def test_every_true_step_is_written(found, truth):
    for true in truth.reference:
        step = partner(found, true)
        assert step is not None, true.text
        assert words(true.text.split()[0]) <= words(step.text), (true.text, step.text)


def test_every_step_is_placed_by_its_words(found, truth):
    # two of nine steps are drawn far from their words
    shown = [true for true in truth.reference if true.spans]
    assert len(shown) == 9
    steps = [partner(found, true) for true in shown]
    assert all(step.status == "placed" and step.doubt is None for step in steps)
    right = []
    for true, step in zip(shown, steps, strict=True):
        if any(step.at in span for span in true.spans):
            right.append(true.text)
    assert len(right) == 7
    assert not {"pour the flour into the bowl", "put some strawberries on the pancakes"} & {*right}


def test_chat_is_not_a_step(found, truth):
    for step in found.steps:
        assert any(step.said.overlap(true.said) > 0 for true in truth.reference), step.text


def test_the_summary_keeps_every_step_and_not_the_greeting(found, tmp_path):
    heard = check_summary(found, tmp_path)
    assert "welcome" not in heard
    assert "thanks for watching" not in heard
    assert "slice the banana" in heard
