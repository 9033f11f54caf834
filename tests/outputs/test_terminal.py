"""No control character of a file, a name or an argument reaches the terminal, or an output, as
itself."""

import errno
import json
import logging
import pickle
import re
import tarfile
import unicodedata
from io import BytesIO

import numpy as np
import pytest
from click.testing import CliRunner
from output_samples import hostile_record

from stepline.cli import COMMANDS, main
from stepline.cli.errors import LogHandler, print_error
from stepline.errors import SteplineError, escape_control_characters
from stepline.outputs import OUTPUTS, OutputExtras
from stepline.storage import from_json, to_json

# A colour, the bell, C1's CSI, DEL, carriage return, an override and an isolate.
EVIL = "\x1b[31m\x07\x9b2J\x7f\r\u202e\u2066"
TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def obeyed(text):
    """The characters of a text that a terminal would obey."""
    return {
        sign
        for sign in text
        if sign in TURNS or (unicodedata.category(sign) == "Cc" and sign not in "\n\t")
    }


@pytest.fixture
def run(tmp_path):
    """Run the command line as on a terminal with colours; return what it printed on both
    streams."""

    def invoke(*arguments):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], color=True)
        printed = result.stdout_bytes.decode() + result.stderr_bytes.decode()
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
        assert obeyed(printed) == set()
        assert obeyed(result.stdout) == set()
        return result

    return invoke


@pytest.fixture
def evil_video(small_video, tmp_path):
    """The small video and its captions under names, and with words, that hold every kind of control
    character."""
    video, captions = tmp_path / f"v{EVIL}.mp4", tmp_path / f"c{EVIL}.srt"
    video.write_bytes(small_video.read_bytes())
    spoken = (
        "Slice the lemons {0} now.",
        "Then pour {0} the juice into the bowl.",
        "[{0}] Now whisk the sugar.",
    )
    cues = (
        f"{i + 1}\n00:00:{4 * i:02},500 --> 00:00:{4 * i + 3:02},000\n{text}\n"
        for i, text in enumerate(spoken)
    )
    captions.write_bytes("\n".join(cues).replace("{0}", EVIL.replace("\r", "")).encode())
    return video, captions


def test_what_is_escaped_is_what_a_terminal_obeys_and_nothing_else():
    everything = "".join(chr(code) for code in range(0x3000) if not 0xD800 <= code < 0xE000)
    shown = escape_control_characters(everything)
    assert obeyed(shown) == set()
    assert obeyed(everything) == {sign for sign in everything if sign not in shown}
    plain = "Zeile eins\n\tzweite – ünïcode 漢字 🍋"
    assert escape_control_characters(plain) == plain


def test_an_error_is_one_line_whatever_it_quotes():
    broken = "v\n1\r\n 2\x0b3\x1c4\x85 5\u20286\u20297.mp4\x1b[2J\u202e\n"
    for kind in (SteplineError, *SteplineError.__subclasses__()):
        assert (
            str(kind(f"{broken}: two  spaces"))
            == "v 1 2 3 4 5 6 7.mp4\\u001b[2J\\u202e : two  spaces"
        )
    assert str(pickle.loads(pickle.dumps(SteplineError(broken)))) == str(SteplineError(broken))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SteplineError("a\nb"), 1),
        (OSError(errno.EIO, "broken", "a\nb"), 1),
        (MemoryError(), 1),
        (RuntimeError("a\nb"), 70),
    ],
)
def test_a_command_ends_with_one_line_whatever_its_error_and_files_are_called(capsys, error, code):
    assert print_error(error, ["a\nb.mp4"]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("quote", ["A" * 100_000, "A " * 50_000, "/" + "a/" * 50_000])
def test_an_error_line_is_short_and_keeps_its_beginning_and_its_cure(quote):
    line = str(SteplineError(f"setting {quote}: too long; give a plain value"))
    assert len(line) < 2200
    assert line.startswith("setting ")
    assert line.endswith("; give a plain value")


def test_an_error_of_usual_length_is_printed_whole():
    line = f"{'a' * 199}: " + "a word " * 200 + "cure"
    assert str(SteplineError(line)) == line


@pytest.mark.parametrize(
    "arguments", [["demo", "--set", "A" * 100_000 + "=1"], ["demo", "--" + "A" * 100_000]]
)
def test_a_long_argument_is_quoted_shortened(run, arguments):
    assert len(run(*arguments).stderr) < 1000


def test_json_says_the_same_after_escaping():
    tree = {f"key {EVIL}": [EVIL, "plain"]}
    assert json.loads(escape_control_characters(json.dumps(tree, ensure_ascii=False))) == tree


def test_the_main_job_shows_controls_as_escapes(run, evil_video, tmp_path):
    video, captions = evil_video
    lines = tmp_path / "lines.txt"
    lines.write_text(f"slice {EVIL.replace(chr(13), '')} the lemons\npour\n", newline="")
    common = (video, "--captions", captions, "--out", tmp_path / f"o{EVIL}", "--backbone", "none")
    table = run("steps", *common)
    assert table.exit_code == 0
    assert "\\u001b" in table.output
    as_json = run("steps", *common, "--json")
    assert json.loads(as_json.stdout)["id"] == video.stem
    assert run("steps", *common, "--texts", lines, "--format", "srt").exit_code == 0


@pytest.mark.parametrize("form", ["text", "json", "srt", "vtt"])
def test_a_transcript_shows_controls_as_escapes(run, evil_video, form):
    video, captions = evil_video
    assert run("transcribe", video, "--captions", captions, "--format", form).exit_code == 0


def test_errors_and_usage_show_controls_as_escapes(run, evil_video, tmp_path):
    video, captions = evil_video
    missing = tmp_path / f"none{EVIL}"
    assert run("steps", missing).exit_code == 1
    assert run("steps", video, "--captions", missing).exit_code == 1
    assert run("steps", video, "--captions", captions, "--set", f"asr.{EVIL}=1").exit_code == 1
    assert run("steps", video, "--settings", captions).exit_code == 1
    assert run("steps", video, f"--no-such{EVIL}").exit_code == 2
    assert run("steps", video, "--format", EVIL).exit_code == 2
    assert run(f"--{EVIL}").exit_code == 2
    assert run(f"no-such{EVIL}").exit_code == 2
    assert run("datasets", EVIL).exit_code in (1, 2)
    # whatever a command takes, it is told an argument that it does not know
    for command in COMMANDS:
        assert run(command.name, missing, f"--{EVIL}={EVIL}").exit_code == 2


def test_tables_of_other_commands_show_controls_as_escapes(run, tmp_path):
    texts = tmp_path / f"how{EVIL}.txt"
    texts.write_text(f"slice the {EVIL} lemons\nwhisk the sugar\n", newline="")
    base = tmp_path / f"base{EVIL}"
    assert run("text-base", "build", texts, "--out", base, "--licence", EVIL).exit_code == 0
    assert run("text-base", "show", base).exit_code == 0
    assert run("text-base", "show", base, "--json").exit_code == 0
    assert run("text-base", "ask", base, f"slice {EVIL}").exit_code == 0
    with tarfile.open(tmp_path / f"a{EVIL}.tar", "w") as archive:
        for name, data in (
            (f"v{EVIL}.npy", b"no array"),
            ("w.npy", _npy(np.ones((4, 3), np.float32))),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    store = tmp_path / f"store{EVIL}"
    run("features", "import", tmp_path / f"a{EVIL}.tar", "--out", store)
    assert run("features", "check", store).exit_code == 0
    assert run("features", "check", store, "--json").exit_code == 0


def _npy(values):
    data = BytesIO()
    np.save(data, values)
    return data.getvalue()


def test_a_log_line_shows_controls_as_escapes(capsys):
    record = logging.LogRecord(
        "stepline", logging.WARNING, "x.py", 1, "no key frames: %s", (EVIL,), None
    )
    LogHandler().emit(record)
    assert obeyed(capsys.readouterr().err.rstrip("\n")) == set()


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name not in ("docx", "mp4", "mkv")])
def test_no_output_holds_a_control_character(name):
    record = hostile_record()
    record = record.model_copy(update={"warnings": (*record.warnings, EVIL), "id": EVIL})
    text = OUTPUTS[name].write(record, OutputExtras(media=f"v{EVIL}.mp4")) or ""
    # Text for a player or a page may turn its own direction: a page holds each text in <bdi>, a cue
    # ends at its line.
    turns = set() if name == "json" else TURNS
    assert obeyed(text) - turns == set()


def test_a_record_with_controls_is_read_back_as_it_was():
    record = hostile_record().model_copy(update={"warnings": (EVIL,)})
    assert from_json(to_json(record)) == record


def test_nothing_is_printed_but_through_the_two_functions_that_escape(request):
    for path in (request.config.rootpath / "stepline").rglob("*.py"):
        if path.parts[-2:] == ("stepline", "__init__.py"):  # an example in its docstring prints
            continue
        code = path.read_text()
        if path.parts[-2:] == ("cli", "errors.py"):
            assert all(
                "escape_control_characters(" in line
                for line in code.splitlines()
                if "click.echo(" in line
            )
        else:
            assert not re.search(
                r"^\s*(click\.echo|click\.secho|print|sys\.std(out|err)\.write)\(",
                code,
                re.MULTILINE,
            ), path
