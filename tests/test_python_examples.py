"""The examples of docs/howto.md for Python run, and what they take is as they say."""

import inspect
import re
import shutil
from pathlib import Path

import pytest

import stepline as package
from stepline.records import Record, Span, Step, Video
from stepline.storage import write_parquet, write_record

ROOT = Path(__file__).resolve().parents[1]
BLIND = package.StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')


@pytest.fixture
def record():
    steps = (
        Step(id="1", text="Cut it", spans=(Span(2.0, 5.0), Span(7.0, 8.0)), status="placed"),
        Step(id="2", text="Wait", status="said_only"),
    )
    return Record(id="v", video=Video(id="v", duration=10.0), steps=steps)


def test_paths_may_be_strings(record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("v.mp4").write_bytes(b"")
    files = package.write_outputs(record, "out", formats=["json", "html"], media="v.mp4")
    assert files == [Path("out/v.html"), Path("out/v.json")]
    assert package.read_record("out/v.json") == record
    write_record(record, "again.json")
    write_parquet([record], "v.parquet")
    assert list(package.read_parquet("v.parquet")) == [package.read_record("again.json")]


def test_a_step_has_the_start_and_end_of_its_best_span(record):
    shown, said = record.steps
    assert (shown.start, shown.end) == (2.0, 5.0)
    assert (said.start, said.end) == (None, None)


def test_steps_takes_language_and_formats_by_the_names_of_the_command_line(
    small_video, captions_file, tmp_path
):
    options = {"captions": captions_file, "settings": BLIND}
    made = package.steps(small_video, language="es", out=tmp_path, formats="vtt", **options)
    assert made.settings["asr"]["language"] == "es"
    names = {path.suffix for path in tmp_path.iterdir() if path.is_file()}
    assert {".json", ".vtt"} <= names
    assert ".html" not in names
    with pytest.raises(package.SteplineError, match="formats='vtt': no folder to write them to"):
        package.steps(small_video, formats="vtt", **options)


def test_every_function_that_listens_takes_language(small_video, captions_file, tmp_path):
    for function in (package.steps, package.batch, package.scores, package.transcribe):
        assert "language" in inspect.signature(function).parameters
    options = {"language": "en", "settings": BLIND, "out": tmp_path, "formats": "json"}
    (result,) = package.batch(small_video, **options)
    assert result.record.settings["asr"]["language"] == "en"
    with pytest.raises(package.SteplineError, match="klingon"):
        package.transcribe(small_video, language="klingon", captions=captions_file)


def test_a_printed_record_is_the_table_of_its_steps(record):
    head, *rows = str(record).splitlines()
    assert head.startswith("v: 2 steps, ")
    assert "0:02 – 0:05" in rows[1]
    assert rows[1].endswith("Cut it")


def test_one_text_is_one_line_and_several_lines_are_several(small_video, tmp_path):
    one = package.steps(small_video, texts="slice the lemons", settings=BLIND)
    assert [step.text for step in one.steps] == ["slice the lemons"]
    two = package.steps(small_video, texts="slice the lemons\n\nwhisk it\n", settings=BLIND)
    assert [step.text for step in two.steps] == ["slice the lemons", "whisk it"]
    scores = package.scores(small_video, "slice the lemons", settings=BLIND)
    assert scores.values.shape[0] == 1
    folder = tmp_path / "films"
    folder.mkdir()
    shutil.copyfile(small_video, folder / "a.mp4")
    options = {"settings": BLIND, "out": str(tmp_path / "out"), "formats": "json"}
    (result,) = package.batch(str(folder), texts="slice the lemons", **options)
    assert result.record.steps[0].text == "slice the lemons"


def test_the_examples_of_the_docs_run(small_video, captions_file, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "howto.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 5
    shutil.copyfile(small_video, tmp_path / "v.mp4")
    (tmp_path / "videos").mkdir()
    shutil.copyfile(small_video, tmp_path / "videos" / "a.mp4")
    shutil.copyfile(captions_file, tmp_path / "v.vtt")
    monkeypatch.chdir(tmp_path)
    exec("\n".join(examples), {})
    assert "slice the lemons" in capsys.readouterr().out.lower()
    for name in ("stepline.steps", "batch(", "scores(", "read_record(", "write_outputs(", ".start"):
        assert name in "\n".join(examples)
