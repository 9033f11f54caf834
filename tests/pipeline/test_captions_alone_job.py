import json
import shutil

import pytest
from small_video import CAPTIONS

from stepline.grounding.correspondence import TALK_WARNING
from stepline.outputs import USUAL
from stepline.outputs.verdict import VERDICT_TEXTS
from stepline.pipeline.sources import CAPTIONS_ALONE, find_inputs, find_videos
from stepline.storage import read_record

ROWS = (
    (0.5, 3.0, "Hello everyone and welcome back to my channel."),
    (3.5, 6.0, "First slice the lemons."),
    (7.0, 10.0, "Then pour the juice into the bowl."),
    (11.0, 14.0, "Now whisk the sugar into the water until it dissolves."),
)
# formats that are made from the video
PICTURE_FORMATS = ("mp4", "mkv")


def write_captions(folder, suffix):
    """Write the same captions in one of the forms and return the path."""
    path = folder / f"talk{suffix}"
    if suffix == ".srt":
        path.write_text(CAPTIONS)
    elif suffix == ".vtt":
        path.write_text("WEBVTT\n\n" + CAPTIONS.replace(",", "."))
    elif suffix == ".sbv":
        blocks = [f"0:00:{start:06.3f},0:00:{end:06.3f}\n{text}\n" for start, end, text in ROWS]
        path.write_text("\n".join(blocks))
    elif suffix == ".csv":
        lines = [f"{start},{end},{text}" for start, end, text in ROWS]
        path.write_text("\n".join(["start,end,text", *lines]))
    else:
        starts, ends, texts = zip(*ROWS, strict=True)
        path.write_text(json.dumps({"start": starts, "end": ends, "text": texts}))
    return path


@pytest.fixture
def run(tmp_path, stepline):
    """Runs the main job on captions alone into tmp_path/out."""
    captions = write_captions(tmp_path, ".srt")
    return lambda *options: stepline("steps", captions, "--out", tmp_path / "out", *options)


@pytest.mark.parametrize("suffix", [".srt", ".vtt", ".sbv", ".csv", ".json"])
def test_captions_alone_give_steps_placed_by_words(suffix, tmp_path, stepline):
    captions = write_captions(tmp_path, suffix)
    result = stepline("steps", captions, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    record = read_record(tmp_path / "out" / "talk.json")
    juice = next(step for step in record.steps if "juice" in step.text)
    assert 7.0 <= juice.said.start < juice.said.end <= 10.0
    assert {step.status for step in record.steps} == {"said_only"}
    assert not any(step.spans for step in record.steps)
    assert CAPTIONS_ALONE in record.warnings
    assert CAPTIONS_ALONE in result.stderr
    # the warning names the verdict of the table, and no other
    count = len(record.steps)
    assert f"talk: {count} steps, {count} said only," in result.stdout
    assert [text for text in VERDICT_TEXTS.values() if text in CAPTIONS_ALONE] == ["said only"]
    assert TALK_WARNING not in record.warnings


def test_the_page_of_captions_alone_has_no_video(run, tmp_path):
    formats = [name for name in USUAL if name not in PICTURE_FORMATS]
    result = run(*(part for name in formats for part in ("--format", name)))
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "out" / "talk.html").read_text()
    assert "Pour the juice" in page
    assert "talk.srt" not in page.partition("<script")[0]
    assert "<video" not in page


@pytest.mark.parametrize("name", ["docx", "otio", "labelstudio"])
def test_a_format_that_needs_no_picture_is_written(name, run):
    result = run("--format", name)
    assert result.exit_code == 0, result.stderr


def test_a_copy_of_the_video_and_other_captions_are_refused(run, captions_file):
    for options, cure in (
        (("--format", "mp4"), "none is given; leave mp4 out"),
        (("--captions", captions_file), "leave --captions out"),
    ):
        result = run(*options)
        assert result.exit_code == 1
        assert cure in result.stderr


def test_a_part_of_captions_has_the_steps_said_in_it(run, tmp_path):
    result = run("--from", "6.5", "--to", "10.5")
    assert result.exit_code == 0, result.stderr
    (step,) = read_record(tmp_path / "out" / "talk.json").steps
    assert 7.0 <= step.said.start < step.said.end <= 10.0


def test_the_same_captions_are_not_worked_on_twice(run, tmp_path):
    run()
    assert "done before" in run().stderr
    (tmp_path / "talk.srt").write_text(CAPTIONS.replace("juice", "syrup"))
    assert "syrup" in run().stdout


def test_a_guessed_encoding_is_said_and_another_can_be_named(tmp_path, stepline):
    path = tmp_path / "talk.srt"
    path.write_bytes("1\n00:00:01,000 --> 00:00:06,000\nНакройте ожог пленкой.\n".encode("cp1251"))
    result = stepline("transcribe", path)
    assert "Накройте" in result.stdout
    assert "read as cp1251" in result.stderr
    assert "--encoding" in result.stderr
    result = stepline("transcribe", path, "--encoding", "cp1251")
    assert "Накройте" in result.stdout
    assert "--encoding" not in result.stderr


def test_captions_next_to_their_video_are_not_taken_as_well(tmp_path, caplog):
    names = ["a.mp4", "a.vtt", "a.en.srt", "b.srt", "b.vtt", "c.de.vtt", "d.json", ".e.vtt"]
    for name in names:
        (tmp_path / name).touch()
    found = find_inputs([tmp_path], captions=True)
    assert [path.name for path in found] == ["a.mp4", "b.srt", "c.de.vtt"]
    assert "not used (a.en.srt, 3 in all)" in caplog.messages[0]
    assert [path.name for path in find_videos([tmp_path])] == ["a.mp4"]


def test_subtitles_that_stepline_wrote_are_not_input(run, tmp_path):
    run("--format", "vtt")
    assert (tmp_path / "out" / "talk.vtt").is_file()
    assert find_inputs([tmp_path], captions=True) == {tmp_path / "talk.srt": "captions"}


def test_a_folder_mixes_videos_and_captions(small_video, tmp_path, stepline):
    folder = tmp_path / "talks"
    folder.mkdir()
    shutil.copy(small_video, folder / "film.mp4")
    write_captions(folder, ".srt")
    options = ("--backbone", "none", "--jobs", "1")
    result = stepline("steps", folder, "--out", tmp_path / "out", *options)
    assert result.exit_code == 0, result.stderr
    assert "2 of 2 videos done" in result.stderr
    assert CAPTIONS_ALONE not in read_record(tmp_path / "out" / "film.json").warnings
    assert CAPTIONS_ALONE in read_record(tmp_path / "out" / "talk.json").warnings


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "give srt, vtt, json or a csv"),
        ("WEBVTT\n", "give other captions"),
        ("WEBVTT\n\n00:01.000 --> 00:02.000\n[music]\n", "give other captions"),
    ],
)
def test_captions_without_words_end_in_one_line_with_a_cure(text, cure, tmp_path, stepline):
    (tmp_path / "talk.vtt").write_text(text)
    result = stepline("steps", tmp_path / "talk.vtt", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert cure in result.stderr
    assert not (tmp_path / "out" / "talk.json").exists()


def test_transcribe_reads_captions_alone(tmp_path, stepline):
    result = stepline("transcribe", write_captions(tmp_path, ".srt"), "--format", "vtt")
    assert result.exit_code == 0, result.stderr
    assert "slice the lemons" in result.stdout.lower()
    assert CAPTIONS_ALONE not in result.stderr


def test_own_lines_are_found_in_captions_alone(run, tmp_path):
    lines = "pour the juice into the bowl\nwhisk the sugar into the water\n"
    (tmp_path / "recipe.txt").write_text(lines)
    result = run("--texts", tmp_path / "recipe.txt")
    assert result.exit_code == 0, result.stderr
    starts = [step.said.start for step in read_record(tmp_path / "out" / "talk.json").steps]
    assert starts == [7.0, 11.0]


def test_missing_captions_are_an_error_also_where_a_result_is_there(
    small_video, tmp_path, stepline
):
    job = ("steps", small_video, "--out", tmp_path / "out", "--backbone", "none")
    captions = write_captions(tmp_path, ".srt")
    assert stepline(*job, "--captions", captions).exit_code == 0
    for command in (job, ("transcribe", small_video)):
        missing = stepline(*command, "--captions", tmp_path / "nope.vtt")
        assert (missing.exit_code, missing.stdout) == (1, "")
        assert "nope.vtt: no such captions file; correct its path" in missing.stderr


TALK = """
Hello everyone and thank you for having me at this conference.
Today I am going to talk about a very large dataset of images and texts.
Our project began two years ago as a small group of volunteers.
We had no money and no servers, only a chat room.
The idea was that research needs open data.
People asked us why the companies do not publish theirs.
Embed the pictures using a model and keep the pairs with a high score.
It has been used by many laboratories around the world.
There was a long debate about licences and privacy.
I think that the law is not clear about it in Europe.
Get the ten thousand nearest neighbours in one second with this index.
In my opinion this is the future of the field.
We are grateful to everyone who gave us computing time.
Now I am happy to take your questions.
"""


def test_steps_of_a_talk_come_with_a_warning_that_it_is_no_how_to(tmp_path, stepline):
    cues = ["WEBVTT"]
    for number, sentence in enumerate(TALK.strip().splitlines()):
        cues.append(f"00:{number:02d}:00.000 --> 00:{number:02d}:04.000\n{sentence}")
    path = tmp_path / "talk.vtt"
    path.write_text("\n\n".join(cues))
    result = stepline("steps", path, "--out", tmp_path / "out")
    record = read_record(tmp_path / "out" / "talk.json")
    assert record.steps
    assert TALK_WARNING in record.warnings
    assert TALK_WARNING in result.stderr
    assert TALK_WARNING in (tmp_path / "out" / "talk.html").read_text()
