import errno
import io
import json
import os
import shutil

import numpy as np
import pytest
from file_bytes import file_bytes
from option_words import option_words
from PIL import Image
from small_video import write_pictures

from stepline.media.frames import MAX_KEYFRAME_BYTES
from stepline.outputs.text import picture_seconds
from stepline.pipeline.output_files import (
    KEYFRAME_PIXELS,
    MIN_STEPS_FOR_SMALL_KEYFRAMES,
    SMALL_KEYFRAME_PIXELS,
    extract_keyframes,
)
from stepline.pipeline.sources import find_videos
from stepline.records import Record, Span, Step, Video
from stepline.storage import read_record


@pytest.fixture
def run(small_video, captions_file, tmp_path, stepline):
    """Runs the main job on speech alone into tmp_path/out."""
    common = ("--captions", captions_file, "--backbone", "none", "--out", tmp_path / "out")
    return lambda *options: stepline("steps", small_video, *common, *options)


def test_videos_come_in_the_order_named_and_a_folder_sorted(tmp_path):
    for name in ("b.mp4", "a.MOV", "c.mkv", ".hidden.mp4", "notes.txt"):
        (tmp_path / name).touch()
    found = find_videos([tmp_path / "c.mkv", tmp_path])
    assert [path.name for path in found] == ["c.mkv", "a.MOV", "b.mp4"]


def test_clips_that_were_cut_are_not_taken_for_videos(tmp_path):
    for name in ("v.mp4", "out/v.json", "out/v.clips/01-cut.mp4", "film.clips/mine.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {path.name for path in find_videos([tmp_path])} == {"v.mp4", "mine.mp4"}


def test_steps_of_the_same_seconds_have_pictures_of_their_own(small_video):
    def shown(number, start, end, at):
        return Step(id=str(number), text="cut", spans=(Span(start, end),), at=at, status="placed")

    rows = (shown(1, 2, 8, 4.5), shown(2, 2, 8, 4.5), shown(3, 2, 8, 4.5), shown(4, 9, 12, 10.5))
    rows += tuple(shown(number, 12.0, 14.0, 13.0) for number in range(5, 9))
    record = Record(id="v", video=Video(id="v"), steps=rows)
    seconds = {"1": 3.0, "2": 5.0, "3": 7.0, "4": 10.5, "5": 12.5, "6": 12.5, "7": 13.5, "8": 13.5}
    assert picture_seconds(record) == seconds
    found = extract_keyframes(record, small_video)
    assert len({found[str(number)] for number in (1, 2, 3, 4)}) == 4
    # of four steps in two seconds: one a second
    assert len({found[str(number)] for number in range(5, 9)}) == 2


@pytest.mark.parametrize(("size", "expected"), [((640, 480), (480, 360)), ((480, 640), (360, 480))])
def test_pictures_have_at_most_that_many_pixels_and_bytes(tmp_path, size, expected):
    film = draw_noise(tmp_path / "noise.mp4", size)
    rows = tuple(
        Step(id=str(n), text="cut", spans=(Span(n, n + 1),), at=n + 0.5, status="placed")
        for n in range(2)
    )
    sizes = {1: KEYFRAME_PIXELS, MIN_STEPS_FOR_SMALL_KEYFRAMES: SMALL_KEYFRAME_PIXELS}
    for count, longest in sizes.items():
        many = [
            row.model_copy(update={"id": f"{row.id} {n}"}) for n in range(count) for row in rows
        ]
        record = Record(id="v", video=Video(id="v"), steps=tuple(many))
        pictures = extract_keyframes(record, film).values()
        sizes = {Image.open(io.BytesIO(jpeg)).size for jpeg in pictures}
        scale = longest / KEYFRAME_PIXELS
        assert sizes == {(round(expected[0] * scale), round(expected[1] * scale))}
        assert max(map(len, pictures)) <= MAX_KEYFRAME_BYTES


def draw_noise(path, size):
    """Two seconds of a picture of so much detail that a JPEG of it is heavy."""
    noise = np.random.default_rng(0).integers(0, 255, (size[1] // 32, size[0] // 32, 3))
    image = np.kron(noise, np.ones((32, 32, 1))).astype(np.uint8)
    return write_pictures(path, 10 * [image], 5)


def test_outputs_that_an_earlier_run_did_not_write_are_written(run, tmp_path):
    assert run("--format", "json").exit_code == 0
    more = run("--clips")
    assert "done before" not in more.stderr
    assert (tmp_path / "out" / "small.html").exists()
    assert list((tmp_path / "out" / "small.clips").iterdir())
    assert "done before" in run("--clips").stderr


@pytest.mark.parametrize("name", ["small.vtt", "small.html"])
def test_an_output_of_other_settings_does_not_pass_for_done(run, tmp_path, name):
    other = ("--set", "nasva.ground.shown_threshold=0.95")
    assert run().exit_code == 0
    old = (tmp_path / "out" / name).read_bytes()
    assert run(*other, "--format", "json").exit_code == 0
    again = run(*other)
    assert "done before" not in again.stderr
    assert (tmp_path / "out" / name).read_bytes() != old
    assert "done before" in run(*other).stderr


def test_clips_of_another_result_do_not_stay(run, tmp_path):
    assert run("--clips").exit_code == 0
    clips = tmp_path / "out" / "small.clips"
    assert list(clips.iterdir())
    assert run("--force").exit_code == 0
    assert list(clips.iterdir())
    assert run("--set", "nasva.ground.shown_threshold=0.95").exit_code == 0
    assert not list(clips.iterdir())


@pytest.mark.parametrize(
    "suffix", [".srt", ".vtt", ".json", ".html", ".chapters.txt", ".howto.jsonld"]
)
def test_a_users_own_file_is_not_written_over_unless_asked(run, tmp_path, suffix):
    mine = tmp_path / "out" / f"small{suffix}"
    mine.parent.mkdir()
    mine.write_bytes(b"mine\xff")
    refused = run()
    assert refused.exit_code == 1
    assert f"{mine}: an output would be written over this file" in refused.stderr
    assert ("no record small.json" in refused.stderr) == (suffix != ".json")
    assert "--overwrite" in refused.stderr
    assert run("--force").exit_code == 1
    assert mine.read_bytes() == b"mine\xff"
    assert list(mine.parent.glob("[!.]*")) == [mine]
    assert run("--overwrite").exit_code == 0
    assert not mine.exists() or mine.read_bytes() != b"mine\xff"
    assert "done before" in run().stderr


def test_a_file_that_another_format_would_not_touch_is_in_no_ones_way(run, tmp_path):
    mine = tmp_path / "out" / "small.srt"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert run("--format", "html").exit_code == 0
    assert run("--format", "srt").exit_code == 1
    assert mine.read_text() == "mine"


def test_subtitles_that_a_person_corrected_are_their_own(run, tmp_path):
    assert run().exit_code == 0
    mine = tmp_path / "out" / "small.srt"
    mine.write_text(mine.read_text().replace("lemons", "limes"))
    other = ("--set", "nasva.ground.shown_threshold=0.95")
    assert run(*other).exit_code == 1
    assert "limes" in mine.read_text()
    assert run(*other, "--overwrite").exit_code == 0
    assert "limes" not in mine.read_text()


def test_a_folder_in_the_place_of_an_output_is_refused_before_anything_is_written(run, tmp_path):
    (tmp_path / "out" / "small.html").mkdir(parents=True)
    assert run().exit_code == 1
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["small.html"]


def test_a_full_disk_leaves_all_outputs_of_a_video_or_none(run, tmp_path, monkeypatch):
    """The n-th file that is flushed finds no space: what stood before stands, whole, and nothing
    else."""
    out, flush = tmp_path / "out", os.fsync
    assert run("--clips").exit_code == 0
    before = file_bytes(out)
    other = ("--clips", "--set", "nasva.ground.shown_threshold=0.95")
    flushed = len(before)
    for first in (False, True):
        if first:
            shutil.rmtree(out)
        for nth in range(flushed):
            left = [nth]

            def full(file, left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                flush(file)

            monkeypatch.setattr(os, "fsync", full)
            result = run(*other)
            monkeypatch.setattr(os, "fsync", flush)
            if left[0] >= 0:  # fewer files than in the first run
                break
            assert result.exit_code == 1
            assert "No space left on device" in result.stderr
            assert file_bytes(out) == ({} if first else before)


def test_captions_are_never_overwritten(small_video, captions_file, tmp_path, stepline):
    mine = shutil.copy(captions_file, tmp_path / "small.srt")
    before = mine.read_bytes()
    result = stepline(
        "steps", small_video, "--captions", mine, "--backbone", "none", "--out", tmp_path
    )
    assert result.exit_code == 1
    assert "would be written over this file" in result.stderr
    assert mine.read_bytes() == before
    given = ("--captions", mine, "--backbone", "none", "--out", tmp_path, "--format", "chapters")
    assert stepline("steps", small_video, *given).exit_code == 0  # writes no .srt
    assert mine.read_bytes() == before


def test_a_name_that_is_not_utf8_is_one_line_and_the_rest_goes_on(
    small_video, captions_file, tmp_path, stepline
):
    folder = os.fsencode(tmp_path / "videos")
    os.mkdir(folder)
    shutil.copy(os.fsencode(small_video), folder + b"/bad\xff.mp4")
    shutil.copy(os.fsencode(small_video), folder + b"/good.mp4")
    lines = tmp_path / "lines.txt"
    lines.write_text("move the square\n")
    common = ("--texts", lines, "--backbone", "none", "--jobs", "1", "--out", tmp_path / "out")
    result = stepline("steps", tmp_path / "videos", *common)
    assert result.exit_code == 1
    assert "its name is not UTF-8" in result.stderr
    assert (tmp_path / "out" / "good.json").exists()


def test_two_folders_with_one_name_are_told_apart_wherever_the_run_starts(
    small_video, captions_file, tmp_path, stepline, monkeypatch
):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(small_video, tmp_path / name / "v.mp4")
        monkeypatch.chdir(tmp_path / name)
        common = option_words(
            captions=captions_file, backbone="none", format="json", out=tmp_path / "out"
        )
        assert stepline("steps", "v.mp4", *common).exit_code == 0
    paths = {read_record(file).video.path for file in (tmp_path / "out").glob("*.json")}
    assert paths == {str(tmp_path / name / "v.mp4") for name in ("one", "two")}


def test_captions_of_another_video_give_no_step_at_its_end(run, small_video, tmp_path, stepline):
    late = tmp_path / "late.srt"
    cues = (
        "00:02,000 --> 00:04,000\nSlice the lemons.\n",
        "05:00,000 --> 05:04,000\nPour the juice.\n",
    )
    late.write_text("\n".join(cues))
    out = tmp_path / "out"
    result = stepline("steps", small_video, "--captions", late, "--backbone", "none", "--out", out)
    assert result.exit_code == 0, result.output
    assert [step.text for step in read_record(out / "small.json").steps] == ["slice the lemons"]
    assert "1 of 2 sentences are said after the video ends" in result.stderr


def test_no_time_lies_past_the_duration(run, tmp_path):
    assert run().exit_code == 0
    record = read_record(tmp_path / "out" / "small.json")
    assert max(span.end for step in record.steps for span in step.spans) <= record.video.duration


def test_chapters_that_cannot_be_are_explained_to_who_asks_for_them(run):
    assert "no chapters: 16 s of video" in run("--format", "chapters", "-q").stderr


def test_the_json_of_several_videos_is_a_line_each(small_video, tmp_path, stepline):
    lines = tmp_path / "lines.txt"
    lines.write_text("move the square\n")
    for name in ("a.mp4", "b.mp4"):
        shutil.copy(small_video, tmp_path / name)
    options = ("--texts", lines, "--backbone", "none", "--jobs", "1", "--json")
    result = stepline("steps", tmp_path, *options, "--out", tmp_path / "out")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["a", "b"]
