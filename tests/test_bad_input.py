"""Every way a run can be given something wrong: one line that names the cure, exit code 1, nothing
left behind.

`python tests/test_bad_input.py` prints the table as Markdown, as docs/errors.md shows it.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "golden" / "expected" / "demo" / "demo.json"


@dataclass(frozen=True)
class Case:
    """what: shown in the table; make: (scratch folder, a good video) -> arguments, after it wrote
    the bad thing; says: words the error must hold."""

    what: str
    make: Callable
    says: str


def options(words):
    """Options for a good video; {folder} stands for the scratch folder."""

    def make(folder, video):
        return ["steps", video, *words.replace("{folder}", str(folder)).split()]

    return make


def option(what, words, says):
    """Bad options for a good video."""
    return Case(what, options(words), says)


def setting(what, assignment, says):
    return option(what, f"--set {assignment}", says)


def bad_file(what, words, data, says=None):
    """A bad file; words: options that name it for a good video, or its own name, a bad video's.
    says: its name unless given."""
    name = words.rpartition("{folder}/")[2]

    def make(folder, video):
        path = folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return ["steps", path] if words == name else options(words)(folder, video)

    return Case(what, make, name if says is None else says)


def captions(what, name, data, says=None):
    return bad_file(what, f"--captions {{folder}}/{name}", data, says)


def toml(what, text, says="nested deeper than 100"):
    return bad_file(what, "--settings {folder}/s.toml", text, says)


def features(what, values, says, words=""):
    """A good video with a bad array as its features."""

    def make(folder, video):
        np.save(folder / "f.npy", np.asarray(values))
        np.savez(folder / "t.npz", text=np.array(["cut"]), features=np.ones((1, 4), np.float32))
        (folder / "l.txt").write_text("cut\n")
        given = "--backbone precomputed --weights {folder}/f.npy --texts {folder}/l.txt "
        return options(given + words)(folder, video)

    return Case(what, make, says)


def a_pickle(folder, video):
    """A .pth that would run code when unpickled."""

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {folder / 'exploded'}",)

    (folder / "f.pth").write_bytes(pickle.dumps(Bomb()))
    return options("--backbone precomputed --weights {folder}/f.pth")(folder, video)


def a_pipe(folder, video):
    os.mkfifo(folder / "pipe.mp4")
    return ["steps", folder / "pipe.mp4"]


def an_empty_folder(folder, video):
    (folder / "empty").mkdir()
    return ["steps", folder / "empty"]


def a_file_for_a_folder(folder, video):
    (folder / "taken").write_text("")
    (folder / "l.txt").write_text("cut\n")
    given = "--texts {folder}/l.txt --backbone none --out {folder}/taken"
    return options(given)(folder, video)


def half_a_video(folder, video):
    (folder / "half.mp4").write_bytes(video.read_bytes()[:600])
    return ["steps", folder / "half.mp4"]


def captions_for_two_videos(folder, video):
    (folder / "two.mp4").write_bytes(video.read_bytes())
    return options("{folder}/two.mp4 --captions {folder}/c.srt")(folder, video)


def a_link_to_itself(folder, video):
    (folder / "loop.mp4").symlink_to(folder / "loop.mp4")
    return ["steps", folder / "loop.mp4"]


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c6300010000050001"
)

LLM = "--writer llm --set writing.llm"
VLM = "--set vision.vlm"
SERVER = "base_url=http://127.0.0.1:9/v1"

CASES = (
    # videos
    Case("no such file", lambda folder, video: ["steps", folder / "none.mp4"], "none.mp4"),
    bad_file("an empty file", "empty.mp4", b"", "empty"),
    bad_file("text renamed to .mp4", "text.mp4", "hello, I am text\n" * 50),
    bad_file("random bytes", "noise.mp4", bytes(range(256)) * 64),
    bad_file("zeros", "zeros.mkv", bytes(4096)),
    bad_file(
        "an HTML page (a failed download)", "page.mp4", "<!doctype html><title>404</title>" * 20
    ),
    bad_file("a picture renamed to .mp4", "picture.mp4", PNG),
    Case("a video whose index is cut off", half_a_video, "half.mp4"),
    Case("a folder without videos", an_empty_folder, "no video in this folder"),
    Case("a pipe in place of a file", a_pipe, "pipe.mp4"),
    bad_file("a playlist that points elsewhere", "list.m3u8", "#EXTM3U\n#EXTINF:9,\n/etc/passwd\n"),
    bad_file("a concat script", "list.mp4", "ffconcat version 1.0\nfile /etc/hostname\n"),
    bad_file(
        "a session description", "s.mp4", "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n"
    ),
    Case("a link that leads to itself", a_link_to_itself, "loop.mp4"),
    setting("a video longer than allowed", "media.max_duration=5", "max_duration"),
    setting("a video larger than allowed", "media.max_bytes=1000", "max_bytes"),
    # captions
    option("no such captions", "--captions {folder}/none.srt", "none.srt"),
    captions("empty captions", "c.srt", ""),
    captions("binary junk as captions", "c.srt", bytes(range(256)) * 8),
    captions("captions without a time", "c.srt", "Hello\nworld\n"),
    captions("a WebVTT header and nothing else", "c.vtt", "WEBVTT\n\n"),
    captions("broken JSON as captions", "c.json", '{"segments": [{"start": 1.0,'),
    captions("JSON of another kind", "c.json", '{"hello": 1}'),
    captions(
        "a record in place of captions",
        "c.json",
        RECORD.read_bytes(),
        "write its outputs with stepline.",
    ),
    captions("JSON null", "c.json", "null"),
    captions(
        "captions whose times are NaN",
        "c.json",
        '{"segments": [{"start": NaN, "end": NaN, "text": "a"}]}',
        "",
    ),
    option("captions without an end", "--captions /dev/zero", "larger than 256 MiB"),
    captions("JSON that nests without an end", "c.json", "[" * 100_000, "nested deeper than 100"),
    captions("a number of too many digits", "c.json", '{"segments": [{"start": ' + "1" * 5000),
    captions("a csv without the columns", "c.csv", "a,b\n1,2\n"),
    captions("captions of an unknown kind", "c.docx", "PK\x03\x04"),
    # lines
    option("no such lines", "--texts {folder}/none.txt", "none.txt"),
    bad_file("empty lines", "--texts {folder}/l.txt", "\n \n1.\n", "no line of text"),
    bad_file("lines that are not text", "--texts {folder}/l.txt", b"\xff\xfe\x00\xd8", "UTF-8"),
    # settings
    setting("an unknown setting", "asr.bean=5", "did you mean"),
    setting("an unknown section", "asrr.beam=5", "did you mean"),
    setting("a setting of the wrong type", "asr.beam=many", "asr.beam"),
    setting("a setting out of range", "asr.beam=0", "at least 1 and at most 20"),
    setting("a setting that would take the machine", "vision.frame_size=100000", "at most 4096"),
    setting("a setting near infinity", "asr.pause=1e300", "asr.pause"),
    setting("more threads than a machine has", "media.threads=5000", "media.threads"),
    setting("a setting that is not a number", "vision.rate=nan", "vision.rate"),
    setting("an override without a value", "asr.beam", "section.key=value"),
    option("no such settings file", "--settings {folder}/none.toml", "none.toml"),
    toml("broken TOML", "[asr\nbeam=1", "not valid TOML"),
    option("settings without an end", "--settings /dev/zero", "larger than 0.25 MiB"),
    toml("TOML: an array too deep", "a = " + "[" * 100_000),
    toml("TOML: a table too deep", "[" + ".".join("a" * 100_000) + "]"),
    toml("TOML: a key too deep", ".".join("a" * 100_000) + " = 1"),
    toml("TOML: inline tables too deep", "a = " + "{a=" * 60_000),
    toml("TOML: a number of too many digits", "[asr]\nbeam = " + "1" * 10_000, "not valid TOML"),
    setting("a setting of too many digits", "asr.beam=" + "1" * 10_000, "asr.beam"),
    setting("a setting too deep", ".".join("a" * 5000) + "=1", "section.key=value"),
    setting("a value too deep", "asr.beam=" + "[" * 5000, "nested deeper than 100"),
    Case("captions for two videos", captions_for_two_videos, "--captions is for one video"),
    option("an unknown device", "--device tpu", "give auto, cpu, cuda, cuda:N or mps"),
    # models and features
    option("no such recogniser", "--model whisper-enormous", "whisper-enormous"),
    option("a folder without a recogniser", "--model {folder}", "model.bin"),
    option("no such network that describes", "--describe {folder}/none", "no such file"),
    bad_file(
        "a file that is not a network that describes",
        "--describe {folder}/m.safetensors",
        "no",
        "not a ProcX network",
    ),
    option("no such checkpoint", "--backbone clip --weights {folder}/none", "none"),
    option("a checkpoint folder without one", "--backbone clip --weights {folder}", ""),
    option("ready features without a file", "--backbone precomputed", "vision.path"),
    features("features with NaN", [[np.nan] * 4] * 16, "NaN"),
    features("features of the wrong shape", np.zeros(16, np.float32), "(T, D)"),
    features("features that are whole numbers", np.zeros((16, 4), np.int64), "float"),
    features("features without those of the texts", np.ones((16, 4), np.float32), "vision.texts"),
    features(
        "texts without features",
        np.ones((16, 4), np.float32),
        "x.npz",
        "--set vision.texts={folder}/x.npz",
    ),
    Case("a file that would run code", a_pickle, "f.pth"),
    bad_file("a damaged feature file", "--backbone precomputed --weights {folder}/f.npy", "no"),
    # language models
    option("two language models", f"{LLM}.{SERVER} --set writing.llm.gguf=m.gguf", "llm.base_url"),
    option("no such GGUF", LLM + ".gguf={folder}/none.gguf", "none.gguf"),
    bad_file("a damaged GGUF", LLM + ".gguf={folder}/m.gguf", "GGUF? no"),
    option("a server that is not there", f"{LLM}.{SERVER}", "127.0.0.1:9"),
    option(
        "two vision-language models",
        f"{VLM}.{SERVER} {VLM}.gguf=m.gguf {VLM}.projector=p.gguf",
        "vision.vlm: needs one of two settings",
    ),
    option("a dry run without a language model", "--dry-run", "vision.vlm.base_url=URL"),
    option("captions and translation", "--translate --captions c.srt", "--translate is for speech"),
    option(
        "translation by an English model", "--translate --model whisper-tiny.en", "asr.translate"
    ),
    # links; no answer is waited for
    Case(
        "a link to a private address",
        lambda folder, video: ["steps", "http://127.0.0.1:9/v.mp4"],
        "private address",
    ),
    Case(
        "a link where no server answers",
        lambda folder, video: (
            "steps http://127.0.0.1:9/v.mp4 --set links.private=true --set links.attempts=1".split()
        ),
        "see whether its server is up",
    ),
    option("a page's captions of a file", "--captions site", "which has no page"),
    # places
    Case("a file where the folder should be", a_file_for_a_folder, "cannot be a folder"),
    option("a folder whose name no disk takes", "--out {folder}/" + "o" * 300, "name too long"),
)


def arguments(case, folder, video, captions_file):
    """Return the case's command line, with captions so that a good video has something to say."""
    given = [str(item) for item in case.make(folder, video)]
    speechless = "--captions" in given or "--texts" in given or "--model" in given
    if not speechless and not (len(given) > 2 and given[2].endswith(".mp4")):
        given += ["--captions", str(captions_file)]
    return given if "--out" in given else [*given, "--out", str(folder / "out")]


def table_row(case, said, folder, videos):
    """Return the row of a case in docs/errors.md."""
    said = said.replace(f"{folder}/", "").replace(str(folder), "folder")
    said = said.replace(f"{videos}/", "").replace("|", "\\|")
    return f"| {case.what} | {said} |"


def shape(text):
    """Return a text without what differs from machine to machine: sizes and cut paths."""
    return re.sub(r"\d+ bytes|max_bytes=\d+|\S*…o+", "", text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_input_is_one_line_with_the_cure(
    case, small_video, captions_file, tmp_path, stepline
):
    result = stepline(*arguments(case, tmp_path, small_video, captions_file))
    assert result.exit_code == 1, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("stepline: ")]
    assert len(errors) == 1, result.stderr
    assert case.says in errors[0]
    page = (ROOT / "docs" / "errors.md").read_text()
    assert shape(table_row(case, errors[0], tmp_path, small_video.parent)) in shape(page)
    assert len(errors[0]) < 500
    assert "Traceback" not in result.output
    assert not (tmp_path / "exploded").exists()
    assert [path for path in tmp_path.rglob("*") if ".partial" in path.name] == []
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_leaves_the_earlier_result_whole(
    small_video, captions_file, tmp_path, stepline, limited_file_size
):
    run = ("steps", small_video, "--captions", captions_file, "--out", tmp_path)
    run += ("--backbone", "none")
    assert stepline(*run).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with limited_file_size(2000):
        result = stepline(*run, "--force", "--set", "nasva.ground.grow=0.6")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    assert "free some space" in result.stderr
    (page,) = tmp_path.glob("*.html")
    assert page.read_bytes() == before[page]
    assert [path for path in tmp_path.iterdir() if ".partial" in path.name] == []


@pytest.mark.slow
def test_a_kill_at_any_write_leaves_only_whole_files_and_the_next_run_repairs(
    small_video, captions_file, tmp_path
):
    run = ["steps", small_video, "--captions", captions_file, "--out", tmp_path / "out"]
    code = """
        import os, signal, sys
        from pathlib import Path
        from stepline.files import atomic_files as store
        from stepline.cli import main
        write, left = Path.write_bytes, [int(sys.argv.pop(1))]
        def killed(path, data):
            left[0] -= 1
            if left[0] == 0:
                write(path, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(path, data)
        Path.write_bytes = killed
        main()
    """
    source = "\n".join(line[8:] for line in code.splitlines())
    for nth in (1, 3, 5):
        ended = subprocess.run(
            [sys.executable, "-c", source, str(nth), *run], check=False, capture_output=True
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        # it comes last: without it nothing counts as done
        assert not (tmp_path / "out" / "small.json").exists()
    mended = subprocess.run(
        [sys.executable, "-m", "stepline", *run], check=False, capture_output=True
    )
    assert mended.returncode == 0, mended.stderr.decode()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "small.json" in names
    assert not [name for name in names if ".partial" in name]


if __name__ == "__main__":
    import tempfile

    from click.testing import CliRunner
    from small_video import CAPTIONS, draw_video

    from stepline.cli import main

    with tempfile.TemporaryDirectory() as name:
        good = draw_video(Path(name) / "small.mp4")
        spoken = Path(name) / "small.srt"
        spoken.write_text(CAPTIONS)
        print("| what is wrong | what Stepline says |\n|---|---|")
        for index, case in enumerate(CASES):
            scratch = Path(name) / str(index)
            scratch.mkdir()
            result = CliRunner().invoke(main, arguments(case, scratch, good, spoken))
            said = " ".join(
                line for line in result.stderr.splitlines() if line.startswith("stepline: ")
            )
            print(table_row(case, said, scratch, name))
