import errno
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepline import outputs
from stepline.cli import main, progress
from stepline.cli.errors import REMOVED_COMMANDS
from stepline.errors import StoreError
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import Correction
from stepline.outputs import OUTPUTS
from stepline.pipeline import batch
from stepline.plugins import BUILT_IN_NAMES, DEFAULT_OUTPUTS
from stepline.storage import read_record

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def finished(small_video, captions_file, tmp_path_factory):
    """One run of the main job: (result, folder)."""
    out = tmp_path_factory.mktemp("out")
    arguments = ["steps", str(small_video), "--captions", str(captions_file), "--out", str(out)]
    return CliRunner().invoke(main, arguments), out


@pytest.fixture
def job(small_video, captions_file, tmp_path):
    """The main job of the small video with its captions, into the folder of the test."""
    return "steps", small_video, "--captions", captions_file, "--out", tmp_path


NO_PICTURES = ("--backbone", "none")


def test_the_main_job_prints_the_steps_and_names_what_it_wrote(finished):
    result, out = finished
    assert result.exit_code == 0, result.output
    assert "Slice the lemons" in result.stdout
    assert "Whisk the sugar into the water until it dissolves" in result.stdout
    assert "welcome" not in result.stdout
    assert f"wrote {out / 'small.html'}" in result.stderr
    assert {path.name for path in out.iterdir()} >= {
        "small.json",
        "small.html",
        "small.vtt",
        "small.srt",
    }


def test_the_json_has_the_promised_form(finished):
    tree = json.loads((finished[1] / "small.json").read_text())
    assert next(iter(tree)) == "version"
    assert {"video", "transcript", "steps", "dropped", "settings", "models"} <= set(tree)
    assert tree["video"]["duration"] == pytest.approx(16, abs=0.3)
    promised = {*"text start end at score sources status spans said".split()}
    for step in tree["steps"]:
        assert promised <= set(step)
        assert step["status"] in ("seen", "placed", "said_only", "not_found")
        assert step["sources"]
        assert all(0 <= start < end <= 16.3 for start, end in step["spans"])


def test_every_step_cites_a_sentence_that_says_it(finished):
    record = read_record(finished[1] / "small.json")
    for step in record.steps:
        cited = " ".join(record.transcript.sentences[index].text.lower() for index in step.sources)
        assert step.text.split()[0] in cited


def test_a_second_run_does_nothing_and_changed_settings_do_it_again(
    finished, small_video, captions_file, stepline
):
    _, out = finished
    before = (out / "small.json").stat().st_mtime_ns
    job = ("steps", small_video, "--captions", captions_file, "--out", out)
    again = stepline(*job)
    assert again.exit_code == 0
    assert "done before" in again.stderr
    assert "Slice the lemons" in again.stdout
    assert "correction" not in again.stderr
    assert (out / "small.json").stat().st_mtime_ns == before
    changed = stepline(*job, *NO_PICTURES)
    assert "done before" not in changed.stderr
    assert (out / "small.json").stat().st_mtime_ns > before


def test_the_same_input_gives_the_same_bytes(small_video, captions_file, tmp_path, stepline):
    for name in ("a", "b"):
        job = ("steps", small_video, "--captions", captions_file, "--out", tmp_path / name)
        result = stepline(*job)
        assert result.exit_code == 0, result.output
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_your_own_lines_are_looked_for(job, tmp_path, stepline):
    lines = tmp_path / "recipe.txt"
    lines.write_text("1. Slice the lemons\n\n- whisk sugar into water\n")
    result = stepline(*job, "--texts", lines, "--json")
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
    options = ("--texts", lines, "--backbone", "none", "--jobs", "1")
    result = stepline("steps", folder, *options, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "1 of 2 videos done, 1 failed" in result.stderr
    assert (tmp_path / "out" / "b_good.json").exists()
    assert not list((tmp_path / "out").glob("*a_bad*"))


def test_a_folder_with_a_video_without_speech_does_not_fail_and_does_not_hear_it_again(
    small_video, tmp_path, stepline
):
    job = ("steps", small_video, "--backbone", "none", "--out", tmp_path)
    first, again = stepline(*job), stepline(*job)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "warning: small.mp4: no speech to write steps from" in first.stderr
    assert "done before" in again.stderr
    assert "no step found" in again.stdout


def test_verbose_and_quiet_are_taken_after_the_command_too(job, stepline):
    job = (*job, *NO_PICTURES)
    quiet = stepline(*job, "-q")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert "Slice the lemons" in quiet.stdout
    assert stepline("-q", *job).stderr == ""
    assert "done before" in stepline(*job).stderr
    assert "stepline: none.mp4: no such file" in stepline("steps", "none.mp4", "-q").stderr
    # before the command it is taken in tests/pipeline/test_video_pool.py
    assert "I stepline" in python("-m", "stepline", *job, "--force", "-v")
    assert "I stepline" not in python("-m", "stepline", *job, "--force")


def python(*arguments):
    """What a command of its own says on stderr."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stderr


def test_where_no_bar_can_be_drawn_a_line_comes_now_and_then(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress_bars() as report:
        for second in range(0, 100, 10):
            now = float(second)
            report("listening", 2.0 * second, 200.0)
    assert (
        capsys.readouterr().err
        == "listening: 60 of 200 s\nlistening: 120 of 200 s\nlistening: 180 of 200 s\n"
    )


def test_the_time_that_a_language_model_still_needs_is_shown(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress_bars() as report:
        for second in (10, 20, 40):
            now += 60.0
            report("writing", float(second), 100.0)
    # 30 of the film's seconds took 120, and 60 are left
    assert capsys.readouterr().err.splitlines()[-1] == "writing: 40 of 100 s, 4 min left"


def test_the_page_is_opened_when_asked_for(job, tmp_path, stepline, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    assert stepline(*job, *NO_PICTURES, "--open").exit_code == 0
    assert shown == [(tmp_path / "small.html").as_uri()]
    refused = stepline(*job, *NO_PICTURES, "--open", "--format", "vtt")
    assert refused.exit_code == 1
    assert "--open shows the page of one video" in refused.stderr


def test_two_videos_of_one_name_do_not_overwrite_each_other(small_video, tmp_path, stepline):
    lines = tmp_path / "lines.txt"
    lines.write_text("move the square\n")
    common = ("--texts", lines, "--backbone", "none", "--format", "json")
    a, b = (tmp_path / name / "v.mp4" for name in "ab")
    for video in (a, b):
        video.parent.mkdir()
        video.write_bytes(small_video.read_bytes())
    # whatever came first, a video keeps its id, and nothing is done twice
    for number, runs in enumerate((((a,), (b,), (a, b), (b,)), ((a, b), (a,), (b,)))):
        out = tmp_path / f"out{number}"
        results = [stepline("steps", *videos, *common, "--out", out) for videos in runs]
        assert [result.exit_code for result in results] == [0] * len(runs)
        assert [result.stderr.count("done before") > 0 for result in results[-2:]] == [True] * 2
        owners = sorted(read_record(file).video.path for file in out.glob("*.json"))
        assert owners == [str(a), str(b)]


def test_transcribe_prints_what_is_said(small_video, captions_file, stepline):
    plain = stepline("transcribe", small_video, "--captions", captions_file)
    assert plain.exit_code == 0
    assert "First slice the lemons." in plain.stdout
    subtitles = stepline("transcribe", small_video, "--captions", captions_file, "--format", "srt")
    assert "00:00:03,500 --> 00:00:06,000" in subtitles.stdout


def test_the_command_offers_every_output_and_writes_the_usual_ones():
    assert set(BUILT_IN_NAMES["outputs"]) == set(OUTPUTS)
    assert set(DEFAULT_OUTPUTS) == set(outputs.USUAL)


def test_outputs_are_chosen_by_name_and_known_again(job, tmp_path, stepline):
    job = (*job, *(f"--format={form}" for form in ("markdown", "mp4", "otio")))
    result = stepline(*job)
    assert result.exit_code == 0, result.output
    wanted = {"small.md", "small.pictures", "small.chapters.mp4", "small.otio", "small.json"}
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == wanted
    assert "done before" in stepline(*job).stderr
    # the copy with chapters is Stepline's own
    assert "no video in this folder" in stepline("steps", tmp_path).stderr
    (tmp_path / "small.md").write_text("mine")
    refused = stepline(*job)
    assert refused.exit_code == 1
    assert "small.md: an output would be written over this file" in refused.stderr


def test_clips_are_cut_for_steps_that_have_a_place(job, tmp_path, stepline):
    result = stepline(*job, "--clips")
    assert result.exit_code == 0, result.output
    steps = read_record(tmp_path / "small.json").steps
    # the words are another film's
    placed = [step for step in steps if step.status in ("seen", "placed")]
    assert placed
    assert len(list((tmp_path / "small.clips").glob("*.mp4"))) == len(placed)


def test_files_without_the_corrections_of_people_say_so(job, tmp_path, stepline):
    assert "correction" not in stepline(*job).stderr
    id, step = video_id("small.json"), read_record(tmp_path / "small.json").steps[0].id
    edits = [{"do": "change", "step": step, "text": "Cut it"}]
    tree = {"video": id, "by": "ann", "when": 0.0, "window": ""}
    made = tree | {"id": "mine", "base": 0, "edits": edits, "undoes": None}
    undone = tree | {"id": "undo", "base": 1, "edits": [], "undoes": "mine"}
    library = CorrectedLibrary(tmp_path)
    library.correct(id, Correction.model_validate_json(json.dumps(made)))
    for each in ((*job, "--clips"), ("summarize", *job[1:])):
        assert "1 correction is not in these pages and files" in stepline(*each).stderr
    library.correct(id, Correction.model_validate_json(json.dumps(undone)))
    library.close()
    assert "correction" not in stepline(*job).stderr


def test_wrong_usage_ends_with_two(stepline):
    assert stepline("steps").exit_code == 2
    assert stepline("no-such-verb").exit_code == 2


@pytest.mark.parametrize("command", REMOVED_COMMANDS)
def test_a_removed_command_says_in_one_line_what_to_use_instead(command, stepline):
    result = stepline(*command.split(), "videos", "--out", "somewhere")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert REMOVED_COMMANDS[command] in line


def test_doctor_finds_what_the_main_job_needs(stepline):
    result = stepline("doctor")
    assert result.exit_code == 0
    assert "everything that `stepline steps` needs is here" in result.stdout
    names = {
        finding["name"] for finding in json.loads(stepline("doctor", "--json").stdout)["findings"]
    }
    assert {"whisper-tiny.en", "minilm", "efficientnet-lite0"} <= names


def test_doctor_says_how_to_get_what_is_missing(monkeypatch, stepline):
    doctor = importlib.import_module("stepline.cli.doctor")
    lost = doctor.Finding(
        "whisper-tiny.en", "speech to text", False, True, "", "stepline weights get x"
    )
    monkeypatch.setattr(doctor, "find_dependencies", lambda: (lost,))
    result = stepline("doctor")
    assert result.exit_code == 1
    assert "MISSING whisper-tiny.en" in result.stdout
    assert "stepline weights get x" in result.stdout


def test_help_loads_nothing_heavy():
    heavy = "torch,av,spacy,faster_whisper,transformers,pyarrow,scipy,numpy,jinja2"
    code = f"import sys; from stepline.cli import main; print([m for m in {heavy!r}.split(',') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def broken(monkeypatch):
    """Make `stepline doctor` fail with an error of the test's choice, and return (exit code,
    stderr) of a run."""

    def run(capsys, error, *before):
        doctor = importlib.import_module("stepline.cli.doctor")

        def fail(*_, **__):
            raise error

        monkeypatch.setattr(doctor, "find_dependencies", fail)
        with pytest.raises(SystemExit) as ended:
            main.main([*before, "doctor"], prog_name="stepline")
        return ended.value.code, capsys.readouterr().err

    return run


def test_a_fault_of_our_own_is_one_line_that_says_how_to_report_it(broken, capsys):
    code, told = broken(capsys, KeyError("text"))
    assert code == 70
    assert told.count("\n") == 1
    assert "fault of Stepline itself (KeyError: 'text')" in told
    assert "--debug" in told


def test_debug_shows_the_trace_and_the_line_last(broken, capsys):
    code, told = broken(capsys, KeyError("text"), "--debug")
    assert code == 70
    assert told.startswith("Traceback")
    assert "in fail" in told
    assert told.splitlines()[-1].startswith("stepline: ")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the output: No space left on device"),
        (OSError(errno.ELOOP, "Too many levels of links", "v.mp4"), "v.mp4: Too many levels"),
        (MemoryError(), "not enough memory"),
        (StoreError("v.json: is none;\ngive another"), "stepline: v.json: is none; give another"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_can_cure_ends_with_one(error, says, broken, capsys):
    code, told = broken(capsys, error)
    assert code == 1
    assert told.count("\n") == 1
    assert says in told


def test_a_fault_in_one_video_is_reported_and_stops_no_other(
    small_video, captions_file, tmp_path, monkeypatch, capsys
):
    (tmp_path / "a.mp4").write_bytes(small_video.read_bytes())
    run_video = batch.run_video

    def fail_once(request, *rest, **options):
        if request.id == "a":
            raise ZeroDivisionError("division by zero")
        return run_video(request, *rest, **options)

    monkeypatch.setattr(batch, "run_video", fail_once)
    (tmp_path / "l.txt").write_text("cut\n")
    videos = (tmp_path / "a.mp4", small_video)
    options = ("--texts", tmp_path / "l.txt", "--out", tmp_path / "out", "--jobs", 1)
    with pytest.raises(SystemExit) as ended:
        main.main([*map(str, ("steps", *videos, *NO_PICTURES, *options))], prog_name="stepline")
    told = capsys.readouterr().err
    assert ended.value.code == 70
    assert f"{tmp_path}/a.mp4: a fault of Stepline itself (ZeroDivisionError" in told
    assert "1 of 2 videos done, 1 failed" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["datasets"]], ids=" ".join)
def test_a_full_standard_output_is_an_error(arguments):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "stepline", *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 1
    assert all("No space left" in line for line in ended.stderr.splitlines())


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_a_terminal_that_cannot_show_a_letter_shows_its_escape(encoding):
    code = "from stepline.cli import main; import click; main.callback = None\n"
    code += "@main.command()\ndef odd(): click.echo('{\"a\": \"\\u2713 \\xe9 \\U0001f600 \\ud800\"}')\nmain(['odd'])"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, env=environment
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout.decode(encoding))["a"] == "✓ é 😀 \ud800"
