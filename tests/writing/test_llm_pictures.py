"""The language-model writer with pictures beside the speech: what it is shown, and what its steps
rest on."""

import json

import numpy as np
import pytest
from llm_fakes import Answers, FakeServer, bag_of_words, talk

from stepline.llm.pictures import VideoPictures, with_pictures
from stepline.pipeline.describe import insert_described_steps
from stepline.records import Alignment, Span, Step
from stepline.storage import read_record
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.llm.prompts import Chunk, build_prompt, picture_prompt, split_citation
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

SPEECH = talk(
    "Take the lemon and cut the lemon in half.",
    "Now press this on that one.",
    "Pour the juice in a jug.",
)
SILENT = "seen, not said: a picture at {} s, by the writer"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def write(*behaviours, start=0.0, again=(), **settings):
    """What the writer makes of SPEECH beside four pictures of 48 s, and the bodies that went to the
    server.

    again: numbers of pictures with which the same server is asked after that.
    """
    quick = {"pause": 0.0, "timeout": 5.0, "deadline": 20.0, "pictures": 4} | settings
    pictures = VideoPictures(
        lambda seconds: {second: str(second).encode() for second in seconds}, 48.0, start
    )
    with FakeServer(*behaviours) as server:
        options = LlmSettings(base_url=server.url, **quick)
        written = [
            write_llm(
                SPEECH,
                options.model_copy(update={"pictures": count}),
                embed=bag_of_words,
                pictures=pictures,
            )
            for count in (options.pictures, *again)
        ]
        return written[0], list(server.asked)


LINES = """1. Cut the lemon in half
2. Press the lemon on the juicer [B]
3. Wipe table [D]
4. Pour the juice in a jug
5. Sing shanties
6. Open window [E]"""


def test_a_step_rests_on_what_is_said_or_on_a_picture_or_is_left_out():
    written, _ = write(Answers.says(LINES))
    steps = {step.text: step for step in written.steps}
    assert list(steps) == [line[3:].partition(" [")[0] for line in LINES.split("\n")[:4]]
    assert steps["Cut the lemon in half"].sources == (0,)
    assert steps["Cut the lemon in half"].seen == ()
    named = steps["Press the lemon on the juicer"]
    assert named.sources
    assert named.seen == ("for: the writer names what a picture at 18.0 s shows",)
    silent = steps["Wipe table"]
    assert (silent.sources, silent.said, silent.at, silent.seen) == (
        (),
        None,
        42.0,
        (SILENT.format("42.0"),),
    )
    assert [(one.text, one.reason) for one in written.dropped] == [
        ("Sing shanties", "no sentence supports it"),
        ("Open window", "no sentence supports it"),  # a picture that it was not shown
    ]
    assert "pictures went to http" in written.notes[0]
    assert "those at 6.0, 18.0, 30.0, 42.0 s" in written.notes[0]


def test_seconds_are_given_in_the_whole_video_where_a_part_is_looked_at():
    written, _ = write(Answers.says(LINES), start=100.0)
    silent = next(step for step in written.steps if not step.sources)
    assert (silent.at, silent.seen) == (42.0, (SILENT.format("142.0"),))
    assert "106.0" in written.notes[0]


def test_the_request_is_held_to_the_byte():
    _, (body,) = write(Answers.says(LINES))
    text = build_prompt(picture_prompt(), Chunk(1, (0, 1, 2), SPEECH.sentences))
    expected = with_pictures(text, [b"6.0", b"18.0", b"30.0", b"42.0"], in_one_image=False)
    assert json.dumps(body["messages"][0]["content"]) == json.dumps(expected)
    assert [part["text"] for part in expected[1::2]] == ["A:", "B:", "C:", "D:"]


def test_each_chunk_has_the_pictures_of_its_own_seconds():
    _, asked = write(Answers.says("none"), sentences_per_chunk=1, pictures=2, concurrency=1)
    seconds = [json.dumps(body).count("image_url") // 2 for body in asked]
    assert seconds == [2, 2, 2]
    written, _ = write(Answers.says(LINES), sentences_per_chunk=1, pictures=2, seed=1)
    # each to where the next one begins
    assert "those at 2.5, 7.5, 12.5, 17.5, 27.0, 41.0 s" in written.notes[0]


def test_without_pictures_a_request_is_text_and_a_letter_is_not_evidence():
    written, (body,) = write(Answers.says(LINES), pictures=0)
    assert isinstance(body["messages"][0]["content"], str)
    assert not any(step.seen for step in written.steps)
    assert all(step.sources for step in written.steps)


def test_other_pictures_are_another_question_for_the_cache():
    assert len(write(Answers.says(LINES), again=(4,))[1]) == 1
    assert len(write(Answers.says(LINES), again=(4, 3, 3))[1]) == 2


def test_a_dry_run_counts_requests_tokens_and_pictures_and_asks_no_one():
    written, asked = write(Answers.says(LINES), dry_run=True, sentences_per_chunk=1, max_tokens=100)
    assert asked == []
    assert "asked at most 3 requests" in written.notes[0]
    assert "12 pictures with them" in written.notes[0]
    assert all(step.sources for step in written.steps)


@pytest.mark.parametrize(
    ("line", "text", "letters"),
    [
        ("Press it [B]", "Press it", ("B",)),
        ("Press it [A, C, A].", "Press it", ("A", "C")),
        ("Press it (picture D)", "Press it", ("D",)),
        ("Press it [B and C]", "Press it", ("B", "C")),
        ("Use vitamin [B] twice", "Use vitamin [B] twice", ()),
        ("Press it [Z]", "Press it [Z]", ()),
    ],
)
def test_pictures_are_named_at_the_end_of_a_line(line, text, letters):
    assert split_citation(line) == (text, letters)


def test_a_step_that_no_one_says_is_shown_in_the_place_of_its_picture():
    written = (Step(id="1", text="wipe", at=9.0), Step(id="2", text="cut", sources=(0,)))
    placed = (written[1].model_copy(update={"spans": (Span(1.0, 3.0),), "status": "shown"}),)
    alignment = Alignment(("cut",), np.full((1, 16), 0.5, np.float32), 1.0, "probability")
    shots, settings = (
        [slice(0, 8), slice(8, 12), slice(12, 16)],
        VisionLanguageSettings(right=3.0, wrong=1.0),
    )
    steps, both = insert_described_steps(written, placed, alignment, shots, 16.0, settings)
    assert [step.text for step in steps] == ["wipe", "cut"]
    assert (steps[0].spans, steps[0].at, steps[0].status, steps[0].score) == (
        (Span(8.0, 12.0),),
        9.0,
        "shown",
        0.75,
    )
    assert steps[1] == placed[0]
    assert both.scores[0].tolist() == [0.0] * 8 + [0.75] * 4 + [0.0] * 4
    assert both.texts == ("wipe", "cut")
    alone, none = insert_described_steps(written[:1], (), None, shots, 16.0, settings)
    assert none is None
    assert alone == steps[:1]


def test_the_main_job_shows_its_writer_pictures_of_the_video(
    stepline, small_video, captions_file, tmp_path
):
    with FakeServer(Answers.says("1. Wave a red flag [B]")) as server:
        done = stepline(
            "steps",
            small_video,
            "--captions",
            captions_file,
            "--out",
            tmp_path / "out",
            "--writer",
            "llm",
            "--set",
            f"writing.llm.base_url={server.url}",
            "--set",
            "writing.llm.pictures=2",
            "--set",
            "vision.screen_text=false",
            "--set",
            "vision.faces=false",
        )
        asked = len(server.asked)
    assert done.exit_code == 0, done.stderr
    assert asked == 1
    record = read_record(tmp_path / "out" / f"{small_video.stem}.json")
    (step,) = record.steps
    assert (step.text, step.status, step.sources) == ("Wave a red flag", "shown", ())
    assert step.spans[0].start <= step.at <= step.spans[0].end
    assert step.seen == (SILENT.format(f"{step.at:.1f}"),)
    assert "seen, not said" in (tmp_path / "out" / f"{small_video.stem}.html").read_text()


def test_a_dry_run_of_the_writer_is_reported_by_the_command(
    stepline, small_video, captions_file, tmp_path
):
    done = stepline(
        "steps",
        small_video,
        "--captions",
        captions_file,
        "--format",
        "json",
        "--out",
        tmp_path / "out",
        "--writer",
        "llm",
        "--set",
        "writing.llm.base_url=http://127.0.0.1:9/v1",
        "--dry-run",
        "--set",
        "vision.screen_text=false",
        "--set",
        "vision.faces=false",
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "dry run: the language model that writes would be asked at most 1 requests" in done.stderr
    )
