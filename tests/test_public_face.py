"""`import stepline` offers a dozen names, costs nothing until one is used, and does what the README
says."""

import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from small_video import copy_demo

import stepline as package
from stepline.records import Rejected
from stepline.speech import TranscriptionResult

ROOT = Path(__file__).resolve().parents[1]
HEAVY = "numpy torch av pydantic spacy faster_whisper click scipy PIL fastapi".split()
BLIND = package.StepsSettings.model_validate_json('{"vision": {"backbone": "none"}}')


def test_importing_stepline_loads_no_heavy_library():
    code = "import json, sys, stepline; print(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    given = {"env": environment, "cwd": ROOT, "text": True}
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], **given))
    assert not set(HEAVY) & set(loaded)
    assert [name for name in loaded if name.startswith("stepline.")] == ["stepline.version"]


def test_every_public_name_is_listed_and_documented():
    shown = {name for name in dir(package) if not re.fullmatch("__.*__", name)}
    assert shown | {"__version__"} == set(package.__all__)
    for name in package.__all__:
        value = getattr(package, name)
        assert name == "__version__" or inspect.getdoc(value), name
        assert name == "__version__" or value.__name__ == name


def test_what_the_type_checker_sees_is_what_is_imported():
    modules = package._MODULES
    code = Path(package.__file__).read_text()
    typed = re.search(r"if TYPE_CHECKING:\n(.*?)\n\n", code, re.DOTALL)[1]
    for module, names in re.findall(r"from (\S+) import (.+)", typed):
        for name in names.split(", "):
            assert modules[name] == module
    assert {*modules, "__version__"} == set(package.__all__)


def test_an_unknown_name_is_an_attribute_error_that_names_the_known_ones():
    with pytest.raises(AttributeError, match="no attribute 'step'; it offers Record, "):
        package.step  # noqa: B018


def test_steps_and_transcribe_take_captions_texts_and_a_folder(
    small_video, captions_file, tmp_path
):
    record = package.steps(str(small_video), captions=str(captions_file), settings=BLIND)
    assert isinstance(record, package.Record)
    assert [step.status for step in record.steps] == ["placed"] * len(record.steps)
    assert all(step.doubt for step in record.steps)
    again = package.steps(small_video, captions=captions_file, settings=BLIND, out=tmp_path)
    assert again.steps == record.steps
    assert package.read_record(tmp_path / f"{small_video.stem}.json") == again
    assert (tmp_path / f"{small_video.stem}.html").is_file()
    lines = package.steps(
        small_video, captions=captions_file, texts=["fold the paper"], settings=BLIND
    )
    assert lines.recipe == ("fold the paper",)
    heard = package.transcribe(small_video, captions=captions_file).transcript
    sentences = [s.model_copy(update={"shown": None}) for s in record.transcript.sentences]
    assert heard == record.transcript.model_copy(update={"sentences": tuple(sentences)})


def test_a_video_without_speech_has_no_step_and_says_what_would_help_with_and_without_a_folder(
    small_video, tmp_path
):
    alone, written = (
        package.steps(small_video, settings=BLIND, out=out) for out in (None, tmp_path)
    )
    assert alone.steps == written.steps == ()
    stored = package.read_record(tmp_path / "small.json")
    assert alone.warnings == written.warnings == stored.warnings
    (advice,) = [
        line for line in alone.warnings if line.startswith("no speech to write steps from")
    ]
    assert len(advice) < 150
    assert "--captions" in advice
    lines = package.steps(small_video, texts=["fold the paper"], settings=BLIND)
    assert [step.status for step in lines.steps] == ["not_found"]
    assert any(line.startswith("no speech to find the lines by") for line in lines.warnings)


def test_speech_that_was_only_looped_over_is_not_called_silence(small_video, monkeypatch):
    loop = Rejected(what="sentence", text="I was younger.", reason="the recogniser repeated itself")
    transcript = package.Transcript(language="zh", recogniser="whisper-base")
    heard = TranscriptionResult(transcript, (loop,))
    monkeypatch.setattr("stepline.pipeline.speech.transcribe", lambda *_, **__: heard)
    advice = package.steps(small_video, settings=BLIND).warnings[-1]
    told = "there is speech (language 'zh'), but it could not be recognised reliably"
    assert advice.startswith(f"{told} (1 doubtful sentence left")


def test_the_readme_example_runs(small_video, captions_file, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "my_video.mp4").symlink_to(small_video)
    example = example.replace('"my_video.mp4"', f'"my_video.mp4", captions={str(captions_file)!r}')
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert capsys.readouterr().out.startswith("placed ")


def test_the_example_program_runs(tmp_path, monkeypatch, capsys):
    program = ROOT / "examples" / "steps_of_a_video.py"
    spoken = copy_demo(tmp_path / "spoken.mp4", 16)
    monkeypatch.setattr(sys, "argv", [str(program), str(spoken)])
    runpy.run_path(str(program), run_name="__main__")
    assert "said: " in capsys.readouterr().out
