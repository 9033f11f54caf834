import html
import re

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_samples import make_step, record_of

from stepline.outputs import srt, webvtt
from stepline.outputs.subtitles import WORD_JOINER, spoken_srt, spoken_vtt
from stepline.outputs.text import one_line, sentence_case
from stepline.speech import read_captions

TIMES = re.compile(r"(\d\d+):(\d\d):(\d\d)[.,](\d{3}) --> (\d\d+):(\d\d):(\d\d)[.,](\d{3})")


def read_cues(text):
    """The blocks of a WebVTT or SRT text as (identifier, start, end, text), as strict as a player
    has to be."""
    cues = []
    for block in text.removeprefix("WEBVTT\n\n").removeprefix("WEBVTT\n").strip("\n").split("\n\n"):
        if block:
            name, times, line = block.split("\n")
            numbers = [int(part) for part in TIMES.fullmatch(times).groups()]
            start, end = (
                a * 3600 + b * 60 + c + d / 1000 for a, b, c, d in (numbers[:4], numbers[4:])
            )
            cues.append((name, start, end, line))
    return cues


def one(text, span=(1.0, 2.0)):
    return record_of(make_step(1, text, (span,), status="placed"))


def test_one_cue_for_every_step_that_is_shown_or_said_in_the_order_of_time(record):
    cues = read_cues(webvtt(record))
    assert [name for name, *_ in cues] == ["1", "2", "3", "4", "5", "6", "7", "9", "10", "8", "11"]
    assert cues[0] == ("1", 6.0, 10.0, "Bring a cup of water to the boil")
    # said until 55.9, but the next is shown from 54 on
    assert cues[8] == ("10", 51.5, 54.0, "[said only] Chill the lemonade in the fridge for an hour")


def test_a_cue_ends_where_a_later_one_begins():
    spans = ((4.224, 5.42), (5.1, 9.0), (5.1, 6.0), (8.0, 8.5))
    steps = tuple(
        make_step(number, "stir", (span,), status="placed")
        for number, span in enumerate(spans, start=1)
    )
    record = record_of(*steps)
    times = [(start, end) for _, start, end, _ in read_cues(srt(record))]
    assert times == [(4.224, 5.1), (5.1, 8.0), (5.1, 6.0), (8.0, 8.5)]


@pytest.mark.parametrize("write", [webvtt, srt])
def test_steps_that_are_only_said_can_be_left_out(record, write):
    assert "[said only] " in write(record)
    assert "[said only] " not in write(record, said=False)
    assert len(read_cues(write(record, said=False))) == 10


def test_srt_counts_its_cues_by_time(record):
    assert [int(name) for name, *_ in read_cues(srt(record))] == list(range(1, 12))


@pytest.mark.parametrize(
    ("status", "mark"), [("said_only", "said only"), ("not_found", "not found")]
)
def test_candidates_of_a_step_that_is_not_shown_are_not_cued(status, mark):
    record = record_of(make_step(1, "wait", ((3.0, 4.0),), (7.0, 8.0), status))
    assert read_cues(webvtt(record)) == [("1", 7.0, 8.0, f"[{mark}] Wait")]


def test_a_cue_past_an_hour_and_one_shorter_than_a_millisecond():
    assert "01:02:03.500 --> 01:02:04.000" in webvtt(one("x", (3723.5, 3724.0)))
    assert "00:00:01,000 --> 00:00:01,001" in srt(one("x", (1.0, 1.0001)))


def test_webvtt_escapes_what_a_player_would_read_as_markup_or_as_times():
    text = webvtt(one("a --> b & <i>c</i>\n\nNOTE d"))
    cue = "1\n00:00:01.000 --> 00:00:02.000\nA --&gt; b &amp; &lt;i&gt;c&lt;/i&gt; NOTE d\n"
    assert text == f"WEBVTT\n\n{cue}"


def test_srt_breaks_up_markup_without_changing_what_is_seen():
    line = read_cues(srt(one("mix --> <b>now</b> {\\an8}")))[0][3]
    assert not re.search(r"-->|</?b>|\{\\", line)
    assert line.replace(WORD_JOINER, "") == "Mix --> <b>now</b> {\\an8}"


def test_no_steps_give_an_empty_but_valid_file():
    assert webvtt(record_of()) == "WEBVTT\n"
    assert srt(record_of()) == ""


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_any_text_reads_back_from_both_formats(text):
    said = sentence_case(one_line(text)) or "Step 1"
    ((_, start, end, line),) = read_cues(webvtt(one(text)))
    assert (start, end) == (1.0, 2.0)
    assert html.unescape(line) == html.unescape(html.escape(said, quote=False))
    ((_, _, _, line),) = read_cues(srt(one(text)))
    assert line.replace(WORD_JOINER, "") == said.replace(WORD_JOINER, "")


@pytest.mark.parametrize("write", [spoken_vtt, spoken_srt])
def test_the_transcript_has_a_cue_for_every_sentence(record, write):
    said = [(s.span.start, s.span.end, s.text) for s in record.transcript.sentences]
    assert [
        (start, end, html.unescape(line)) for _, start, end, line in read_cues(write(record))
    ] == said
    assert read_cues(write(record_of())) == []


@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_a_players_own_reader_gives_the_cues_back(record, tmp_path, name):
    path = tmp_path / f"steps.{name}"
    path.write_text((webvtt if name == "vtt" else srt)(record))
    with av.open(str(path)) as container:
        stream = container.streams.subtitles[0]
        found = [
            (float(p.pts * p.time_base), float(p.duration * p.time_base), bytes(p).decode())
            for p in container.demux(stream)
            if p.pts is not None
        ]
    cues = read_cues(path.read_text())
    assert [round(start, 3) for start, _, _ in found] == [start for _, start, _, _ in cues]
    assert [round(start + length, 3) for start, length, _ in found] == [
        end for _, _, end, _ in cues
    ]
    assert found[0][2] == "Bring a cup of water to the boil"


@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_the_projects_own_caption_reader_reads_them(record, tmp_path, name):
    path = tmp_path / f"spoken.{name}"
    path.write_text({"vtt": spoken_vtt, "srt": spoken_srt}[name](record), encoding="utf-8")
    sentences = read_captions(path).transcript.sentences
    assert [sentence.text for sentence in sentences] == [
        sentence.text for sentence in record.transcript.sentences
    ]
