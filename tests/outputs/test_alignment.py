"""The alignment as a small file next to the record, and back; scores of own lines; the notebook."""

import html
import math

import numpy as np
import pytest
from click.testing import CliRunner
from output_samples import sample_record

import stepline
from stepline.cli import main
from stepline.errors import SettingsError, StoreError
from stepline.outputs.alignment import alignment_npz
from stepline.records import Alignment


def test_scores_of_a_hundredth_or_more_are_read_back(tmp_path):
    values = np.array([[0.0, 0.5, 0.009], [0.01, 0.0, 1.0], [0.0, 0.0, 0.0]], np.float32)
    path = tmp_path / "v.alignment.npz"
    path.write_bytes(alignment_npz(Alignment(("a", "bé", "c"), values, 2.0, "probability")))
    again = stepline.read_alignment(path)
    assert again.texts == ("a", "bé", "c")
    assert (again.rate, again.kind) == (2.0, "probability")
    np.testing.assert_array_equal(again.scores, np.where(values < 0.01, 0, values))
    with np.load(path) as stored:
        assert stored["data"].tolist() == pytest.approx([0.5, 0.01, 1.0])
        assert stored["columns"].tolist() == [1, 0, 2]
        assert stored["starts"].tolist() == [0, 1, 3, 3]


def test_an_hour_of_a_hundred_steps_is_a_small_file():
    values = np.zeros((100, 3600), np.float32)
    for step in range(100):
        values[step, 36 * step : 36 * step + 12] = 0.8
    alignment = Alignment(tuple(map(str, range(100))), values, 1.0, "probability")
    assert len(alignment_npz(alignment)) < 20_000


def test_what_is_not_an_alignment_is_an_error_with_a_cure(tmp_path):
    path = tmp_path / "v.alignment.npz"
    with pytest.raises(StoreError, match="stepline steps --format alignment --force"):
        stepline.read_alignment(path)
    path.write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(StoreError, match="no alignment that can be read"):
        stepline.read_alignment(path)


@pytest.fixture
def talk(tmp_path):
    path = tmp_path / "c.srt"
    cues = ("First, slice the lemons thinly.", "Then pour the juice into the bowl.")
    rows = [
        f"{n + 1}\n00:00:{4 * n:02},500 --> 00:00:{4 * n + 3:02},000\n{text}\n"
        for n, text in enumerate(cues)
    ]
    path.write_text("\n".join(rows))
    return path


def test_the_command_keeps_the_alignment_next_to_the_record(small_video, talk, tmp_path):
    out = tmp_path / "out"
    command = ["steps", small_video, "--captions", talk, "--out", out, "--backbone", "none"]
    result = CliRunner().invoke(main, [*map(str, command), "--format", "alignment"])
    assert result.exit_code == 0, result.output
    alignment = stepline.read_alignment(out / f"{small_video.stem}.alignment.npz")
    record = stepline.read_record(out / f"{small_video.stem}.json")
    assert alignment.texts == tuple(step.text for step in record.steps)
    again = CliRunner().invoke(main, [*map(str, command), "--format", "alignment"])
    assert again.exit_code == 0
    assert "earlier" in again.output or "already" in again.output or "done" in again.output


def test_scores_are_those_that_place_the_lines(small_video, talk):
    settings = stepline.StepsSettings.model_validate({"vision": {"backbone": "none"}})
    texts = ["slice the lemons", "pour the juice into the bowl"]
    values, times = stepline.scores(small_video, texts, captions=talk, settings=settings)
    assert values.shape == (2, len(times))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(times, np.arange(len(times)))
    record = stepline.steps(small_video, texts=texts, captions=talk, settings=settings)
    for row, step in zip(values, record.steps, strict=True):
        # The pictures do not confirm the words, which then give the time: 0.7 s after their middle.
        assert (step.status, step.basis) == ("placed", None)
        assert step.at == math.floor(step.said.center + 0.7) + 0.5
        assert abs(times[row.argmax()] + 0.5 - step.at) <= 1
        assert step.spans[0].start <= times[row.argmax()] < step.spans[0].end
    with pytest.raises(SettingsError, match="at least one text"):
        stepline.scores(small_video, [])


def test_a_notebook_displays_the_page_of_a_record():
    record = sample_record()
    shown = record._repr_html_()
    assert shown.startswith("<iframe ")
    assert html.unescape(shown.split('srcdoc="')[1].rsplit('"', 1)[0]) == record.to_html()
    assert "http://" not in record.to_html().replace("http://www.w3.org/2000/svg", "")
    assert len(shown) < 150_000
