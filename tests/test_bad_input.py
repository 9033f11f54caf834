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
from option_words import option_words

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """what: shown in the table; make: (scratch folder, a good video) -> arguments, after it wrote
    the bad thing; says: words the error must hold."""

    what: str
    make: Callable
    says: str


def file(name, data):
    """A bad video file."""

    def make(folder, video):
        path = folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return ["steps", path]

    return make


def captions(name, data):
    """Bad captions for a good video."""

    def make(folder, video):
        return ["steps", video, "--captions", *file(name, data)(folder, video)[1:]]

    return make


def options(*extra):
    """Bad options for a good video; {folder} stands for the scratch folder."""

    def make(folder, video):
        return ["steps", video, *(str(item).replace("{folder}", str(folder)) for item in extra)]

    return make


def written(name, data, *extra):
    """Options that name a bad file."""

    def make(folder, video):
        file(name, data)(folder, video)
        return options(*extra)(folder, video)

    return make


def toml(text):
    """A bad settings file."""
    return written("s.toml", text, "--settings", "{folder}/s.toml")


def features(values, *extra):
    """A good video with a bad array as its features."""

    def make(folder, video):
        np.save(folder / "f.npy", np.asarray(values))
        np.savez(folder / "t.npz", text=np.array(["cut"]), features=np.ones((1, 4), np.float32))
        (folder / "l.txt").write_text("cut\n")
        given = options(
            *option_words(backbone="precomputed", weights="{folder}/f.npy", texts="{folder}/l.txt"),
            *extra,
        )
        return given(folder, video)

    return make


def a_pickle(folder, video):
    """A .pth that would run code when unpickled."""

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {folder / 'exploded'}",)

    (folder / "f.pth").write_bytes(pickle.dumps(Bomb()))
    return options("--backbone", "precomputed", "--weights", "{folder}/f.pth")(folder, video)


def a_pipe(folder, video):
    os.mkfifo(folder / "pipe.mp4")
    return ["steps", folder / "pipe.mp4"]


def an_empty_folder(folder, video):
    (folder / "empty").mkdir()
    return ["steps", folder / "empty"]


def a_file_for_a_folder(folder, video):
    (folder / "taken").write_text("")
    (folder / "l.txt").write_text("cut\n")
    return [
        "steps",
        video,
        *option_words(texts=folder / "l.txt", backbone="none", out=folder / "taken"),
    ]


def half_a_video(folder, video):
    (folder / "half.mp4").write_bytes(video.read_bytes()[:600])
    return ["steps", folder / "half.mp4"]


def two_videos(*extra):
    def make(folder, video):
        (folder / "two.mp4").write_bytes(video.read_bytes())
        return options(folder / "two.mp4", *extra)(folder, video)

    return make


def a_link_to_itself(folder, video):
    (folder / "loop.mp4").symlink_to(folder / "loop.mp4")
    return ["steps", folder / "loop.mp4"]


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c6300010000050001"
)

CASES = (
    # videos
    Case("no such file", lambda folder, video: ["steps", folder / "none.mp4"], "none.mp4"),
    Case("an empty file", file("empty.mp4", b""), "empty"),
    Case("text renamed to .mp4", file("text.mp4", "hello, I am text\n" * 50), "text.mp4"),
    Case("random bytes", file("noise.mp4", bytes(range(256)) * 64), "noise.mp4"),
    Case("zeros", file("zeros.mkv", bytes(4096)), "zeros.mkv"),
    Case(
        "an HTML page (a failed download)",
        file("page.mp4", "<!doctype html><title>404</title>" * 20),
        "page.mp4",
    ),
    Case("a picture renamed to .mp4", file("picture.mp4", PNG), "picture.mp4"),
    Case("a video whose index is cut off", half_a_video, "half.mp4"),
    Case("a folder without videos", an_empty_folder, "no video in this folder"),
    Case("a pipe in place of a file", a_pipe, "pipe.mp4"),
    Case(
        "a playlist that points elsewhere",
        file("list.m3u8", "#EXTM3U\n#EXTINF:9,\n/etc/passwd\n"),
        "list.m3u8",
    ),
    Case(
        "a concat script",
        file("list.mp4", "ffconcat version 1.0\nfile /etc/hostname\n"),
        "list.mp4",
    ),
    Case(
        "a session description",
        file("s.mp4", "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n"),
        "s.mp4",
    ),
    Case("a link that leads to itself", a_link_to_itself, "loop.mp4"),
    Case("a video longer than allowed", options("--set", "media.max_duration=5"), "max_duration"),
    Case("a video larger than allowed", options("--set", "media.max_bytes=1000"), "max_bytes"),
    # captions
    Case("no such captions", options("--captions", "{folder}/none.srt"), "none.srt"),
    Case("empty captions", captions("c.srt", ""), "c.srt"),
    Case("binary junk as captions", captions("c.srt", bytes(range(256)) * 8), "c.srt"),
    Case("captions without a time", captions("c.srt", "Hello\nworld\n"), "c.srt"),
    Case("a WebVTT header and nothing else", captions("c.vtt", "WEBVTT\n\n"), "c.vtt"),
    Case("broken JSON as captions", captions("c.json", '{"segments": [{"start": 1.0,'), "c.json"),
    Case("JSON of another kind", captions("c.json", '{"hello": 1}'), "c.json"),
    Case("JSON null", captions("c.json", "null"), "c.json"),
    Case(
        "captions whose times are NaN",
        captions("c.json", '{"segments": [{"start": NaN, "end": NaN, "text": "a"}]}'),
        "",
    ),
    Case("captions without an end", options("--captions", "/dev/zero"), "larger than 256 MiB"),
    Case(
        "JSON that nests without an end",
        captions("c.json", "[" * 100_000),
        "nested deeper than 100",
    ),
    Case(
        "a number of too many digits",
        captions("c.json", '{"segments": [{"start": ' + "1" * 5000),
        "c.json",
    ),
    Case("a csv without the columns", captions("c.csv", "a,b\n1,2\n"), "c.csv"),
    Case("captions of an unknown kind", captions("c.docx", "PK\x03\x04"), "c.docx"),
    # lines
    Case("no such lines", options("--texts", "{folder}/none.txt"), "none.txt"),
    Case(
        "empty lines", written("l.txt", "\n \n1.\n", "--texts", "{folder}/l.txt"), "no line of text"
    ),
    Case(
        "lines that are not text",
        written("l.txt", b"\xff\xfe\x00\xd8", "--texts", "{folder}/l.txt"),
        "UTF-8",
    ),
    # settings
    Case("an unknown setting", options("--set", "asr.bean=5"), "did you mean"),
    Case("an unknown section", options("--set", "asrr.beam=5"), "did you mean"),
    Case("a setting of the wrong type", options("--set", "asr.beam=many"), "asr.beam"),
    Case("a setting out of range", options("--set", "asr.beam=0"), "at least 1 and at most 20"),
    Case(
        "a setting that would take the machine",
        options("--set", "vision.frame_size=100000"),
        "at most 4096",
    ),
    Case("a setting near infinity", options("--set", "asr.pause=1e300"), "asr.pause"),
    Case(
        "more threads than a machine has", options("--set", "media.threads=5000"), "media.threads"
    ),
    Case("a setting that is not a number", options("--set", "vision.rate=nan"), "vision.rate"),
    Case("an override without a value", options("--set", "asr.beam"), "section.key=value"),
    Case("no such settings file", options("--settings", "{folder}/none.toml"), "none.toml"),
    Case(
        "broken TOML",
        written("s.toml", "[asr\nbeam=1", "--settings", "{folder}/s.toml"),
        "not valid TOML",
    ),
    Case("settings without an end", options("--settings", "/dev/zero"), "larger than 0.25 MiB"),
    Case("TOML: an array too deep", toml("a = " + "[" * 100_000), "nested deeper than 100"),
    Case(
        "TOML: a table too deep",
        toml("[" + ".".join("a" * 100_000) + "]"),
        "nested deeper than 100",
    ),
    Case("TOML: a key too deep", toml(".".join("a" * 100_000) + " = 1"), "nested deeper than 100"),
    Case("TOML: inline tables too deep", toml("a = " + "{a=" * 60_000), "nested deeper than 100"),
    Case(
        "TOML: a number of too many digits", toml("[asr]\nbeam = " + "1" * 10_000), "not valid TOML"
    ),
    Case("a setting of too many digits", options("--set", "asr.beam=" + "1" * 10_000), "asr.beam"),
    Case("a setting too deep", options("--set", ".".join("a" * 5000) + "=1"), "section.key=value"),
    Case("a value too deep", options("--set", "asr.beam=" + "[" * 5000), "nested deeper than 100"),
    Case(
        "captions for two videos",
        two_videos("--captions", "{folder}/c.srt"),
        "--captions is for one video",
    ),
    Case("an unknown device", options("--device", "tpu"), "give auto, cpu, cuda, cuda:N or mps"),
    # models and features
    Case("no such recogniser", options("--model", "whisper-enormous"), "whisper-enormous"),
    Case("a folder without a recogniser", options("--model", "{folder}"), "model.bin"),
    Case("no such network that describes", options("--describe", "{folder}/none"), "no such file"),
    Case(
        "a file that is not a network that describes",
        written("m.safetensors", "no", "--describe", "{folder}/m.safetensors"),
        "not a ProcX network",
    ),
    Case("no such checkpoint", options("--backbone", "clip", "--weights", "{folder}/none"), "none"),
    Case(
        "a checkpoint folder without one",
        options("--backbone", "clip", "--weights", "{folder}"),
        "",
    ),
    Case("ready features without a file", options("--backbone", "precomputed"), "vision.path"),
    Case("features with NaN", features([[np.nan] * 4] * 16), "NaN"),
    Case("features of the wrong shape", features(np.zeros(16, np.float32)), "(T, D)"),
    Case("features that are whole numbers", features(np.zeros((16, 4), np.int64)), "float"),
    Case(
        "features without those of the texts",
        features(np.ones((16, 4), np.float32)),
        "vision.texts",
    ),
    Case(
        "texts without features",
        features(np.ones((16, 4), np.float32), "--set", "vision.texts={folder}/x.npz"),
        "x.npz",
    ),
    Case("a file that would run code", a_pickle, "f.pth"),
    Case(
        "a damaged feature file",
        written("f.npy", "no", "--backbone", "precomputed", "--weights", "{folder}/f.npy"),
        "f.npy",
    ),
    # language models
    Case(
        "two language models",
        options(
            *option_words(
                writer="llm",
                set=["writing.llm.base_url=http://127.0.0.1:9/v1", "writing.llm.gguf=m.gguf"],
            )
        ),
        "llm.base_url",
    ),
    Case(
        "no such GGUF",
        options("--writer", "llm", "--set", "writing.llm.gguf={folder}/none.gguf"),
        "none.gguf",
    ),
    Case(
        "a damaged GGUF",
        written(
            "m.gguf", "GGUF? no", "--writer", "llm", "--set", "writing.llm.gguf={folder}/m.gguf"
        ),
        "m.gguf",
    ),
    Case(
        "a server that is not there",
        options("--writer", "llm", "--set", "writing.llm.base_url=http://127.0.0.1:9/v1"),
        "127.0.0.1:9",
    ),
    Case(
        "two vision-language models",
        options(
            *option_words(
                set=[
                    "vision.vlm.base_url=http://127.0.0.1:9/v1",
                    "vision.vlm.gguf=m.gguf",
                    "vision.vlm.projector=p.gguf",
                ]
            )
        ),
        "vision.vlm: needs one of two settings",
    ),
    Case("a dry run without a language model", options("--dry-run"), "vision.vlm.base_url=URL"),
    Case(
        "captions and translation",
        options("--translate", "--captions", "c.srt"),
        "--translate is for speech",
    ),
    Case(
        "translation by an English model",
        options("--translate", "--model", "whisper-tiny.en"),
        "asr.translate",
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
    Case("a page's captions of a file", options("--captions", "site"), "which has no page"),
    # places
    Case("a file where the folder should be", a_file_for_a_folder, "cannot be a folder"),
    Case(
        "a folder whose name no disk takes",
        options("--out", "{folder}/" + "o" * 300),
        "name too long",
    ),
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
