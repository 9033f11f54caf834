"""--from and --to: only a part is heard and looked at; what is found there is what the whole video
gives there."""

from pathlib import Path

import numpy as np
import pytest
from small_video import draw_video

import stepline as package
from stepline.cli.options import parse_time
from stepline.media import MediaReader
from stepline.media.clips import join_tracks
from stepline.media.container import OpenMedia
from stepline.pipeline.part import crop_features, to_whole_video_times
from stepline.records import (
    Alignment,
    FeatureSequence,
    Record,
    Sentence,
    Span,
    Step,
    Transcript,
    Video,
)
from stepline.storage import read_record


def read(path, part=None, **wanted):
    reader = MediaReader(path, part=part, **wanted)
    return list(reader), reader


@pytest.mark.parametrize("part", [Span(4.0, 9.0), Span(5.5, 1000.0), Span(0.0, 3.0)])
def test_the_frames_of_a_part_are_those_of_the_whole(small_video, part):
    whole, _ = read(small_video, frame_rate=2.0, sound=False)
    some, reader = read(small_video, part, frame_rate=2.0, sound=False)
    inside = [frame for frame in whole if part.start <= frame.time < part.end]
    assert [frame.time + part.start for frame in some] == pytest.approx(
        [frame.time for frame in inside]
    )
    assert all((one.image == other.image).all() for one, other in zip(some, inside, strict=True))
    assert reader.end == pytest.approx(min(part.end, 16.0) - part.start, abs=0.1)
    assert reader.warnings == ()


def test_the_sound_of_a_part_is_that_of_the_whole(small_video):
    whole, _ = read(small_video, frame_rate=None, sound=True)
    some, reader = read(small_video, Span(4.0, 9.0), frame_rate=None, sound=True)
    heard, part = (np.concatenate([block.samples for block in blocks]) for blocks in (whole, some))
    assert len(part) == pytest.approx(5 * 16_000, abs=1200)
    assert reader.end == 5.0
    lags = [
        np.abs(part[2000:40_000] - heard[64_000 + lag :][2000:40_000]).mean()
        for lag in range(-1200, 1200)
    ]
    # the same hum, moved by no more than a frame of sound
    assert min(lags) < 2e-3 < np.median(lags)


def test_what_lies_before_a_part_is_not_decoded(tmp_path, monkeypatch):
    path, taken, decode = draw_video(tmp_path / "v.mp4", seconds=60), [], OpenMedia.decode
    monkeypatch.setattr(
        OpenMedia, "decode", lambda self, packet: taken.append(packet.pts) or decode(self, packet)
    )
    frames, _ = read(path, Span(50.0, 52.0), frame_rate=1.0, sound=False)
    assert [frame.time for frame in frames] == [0.5, 1.5]
    assert len(taken) < 600 * 0.6


def test_the_steps_of_a_part_are_those_of_the_whole_there(
    small_video, captions_file, tmp_path, stepline
):
    given = ("steps", small_video, "--captions", captions_file, "--backbone", "none", "--clips")
    assert stepline(*given, "--out", tmp_path / "whole").exit_code == 0
    some = stepline(*given, "--from", "0:07", "--to", "14", "--out", tmp_path / "part")
    assert some.exit_code == 0, some.stderr
    whole, part = (read_record(tmp_path / name / "small.json") for name in ("whole", "part"))
    late = [sentence for sentence in whole.sentences if sentence.span.start >= 7]
    assert [step.text for step in part.steps] == [
        step.text for step in whole.steps if step.said.start >= 7
    ]
    words = ([word for s in told for word in s.words] for told in (part.sentences, late))
    for found, known in ((part.sentences, late), words):
        for one, other in zip(found, known, strict=True):
            assert one.text == other.text
            times = ((told.span.start, told.span.end) for told in (one, other))
            assert next(times) == pytest.approx(next(times), abs=1e-5)
    assert part.video.duration == pytest.approx(whole.video.duration, abs=0.1)
    assert part.settings["inputs"] == whole.settings["inputs"] | {"part": [7.0, 14.0]}
    again = stepline(*given, "--from", "7", "--to", "0:14", "--out", tmp_path / "part")
    assert "done before with the same settings" in again.stderr
    other = stepline(*given, "--out", tmp_path / "part")
    assert "done before" not in other.stderr
    said = stepline(
        "transcribe", small_video, "--captions", captions_file, "--from", "7", "--format", "srt"
    )
    assert said.stdout.startswith("1\n00:00:07,000 --> ")


def test_what_is_said_after_the_picture_ends_is_kept_and_its_end_counts_from_the_video(
    tmp_path, captions_file, stepline
):
    picture, sound = (
        draw_video(tmp_path / f"{seconds}.mp4", seconds=seconds, gop=20) for seconds in (10, 40)
    )
    join_tracks(picture, sound, tmp_path / "v.mkv")
    (tmp_path / "v.srt").write_text(
        captions_file.read_text().replace("00:00:11,000 --> 00:00:14", "00:00:31,000 --> 00:00:34")
    )
    given = ("steps", tmp_path / "v.mkv", "--captions", tmp_path / "v.srt", "--format", "json")
    for number, part in enumerate([(), ("--from", "3")]):
        result = stepline(*given, *part, "--out", tmp_path / str(number))
        assert "the picture ends at 10 s, before the sound" in result.stderr
        record = read_record(tmp_path / str(number) / "v.json")
        assert record.video.duration == pytest.approx(40.0, abs=0.1)
        assert record.steps[-1].said.start == pytest.approx(31.0, abs=2.0)
        assert (record.steps[-1].status, record.dropped) == ("said_only", ())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--from", "20"), "--from 20 s: the video lasts 16.1 s; give an earlier second"),
        (("--from", "9", "--to", "3"), "--from 9 --to 3: nothing is between; swap them"),
        (("--to", "0"), "--from 0 --to 0: nothing is between"),
        (("--to", "soon"), "--to 'soon': give seconds (80), minutes (1:20) or hours (1:01:20)"),
        (("--from", "9999999"), "--from '9999999': give seconds"),
    ],
)
def test_a_bad_range_is_one_line(small_video, captions_file, tmp_path, stepline, given, reason):
    found = stepline("steps", small_video, "--captions", captions_file, "--out", tmp_path, *given)
    assert found.exit_code == 1
    assert found.stderr.count("\n") == 1
    assert reason in found.stderr


def test_times_are_read_as_clocks_show_them():
    given = ("80", "1:20", "0:01:20.5", "1:2:3:4", "", "-3", "1:", "x")
    assert [parse_time(text) for text in given] == [80.0, 80.0, 80.5, None, None, None, None, None]


def test_every_time_of_a_record_moves_and_its_alignment_with_them():
    sentence = Sentence(text="cut", span=Span(1.0, 2.0))
    placed = {"spans": (Span(1.5, 3.0),), "at": 2.0, "said": Span(1.0, 2.0)}
    step = Step(id="1", text="cut", status="placed", score=0.9, **placed)
    told = {"transcript": Transcript(sentences=(sentence,)), "steps": (step,), "captions": (step,)}
    record = Record(id="v", video=Video(id="v"), **told)
    alignment = Alignment(("cut",), np.array([[0.0, 1.0]], np.float32), 1.0, "probability")
    moved, drawn = to_whole_video_times(record, alignment, 10.0)
    assert moved.sentences[0].span == Span(11.0, 12.0)
    for found in (*moved.steps, *moved.captions):
        assert (found.spans, found.at, found.said) == ((Span(11.5, 13.0),), 12.0, Span(11.0, 12.0))
    assert drawn.scores.tolist() == [[0.0] * 11 + [1.0]]


def test_ready_rows_of_a_part_are_cut_out():
    rows = FeatureSequence(np.arange(20, dtype=np.float32)[:, None], 2.0, "clip")
    assert crop_features(rows, Span(3.0, 5.0)).values[:, 0].tolist() == [6.0, 7.0, 8.0, 9.0]
    assert crop_features(rows, None) is rows


@pytest.mark.slow
def test_the_steps_heard_in_a_part_of_the_demo_are_those_heard_in_all_of_it(tmp_path, stepline):
    demo = Path(package.__file__).parent / "cli" / "demo" / "demo.mp4"
    given = ("steps", demo, "--backbone", "none")
    assert stepline(*given, "--out", tmp_path / "whole").exit_code == 0
    part = stepline(*given, "--from", "0:21", "--to", "1:08", "--out", tmp_path / "part")
    assert part.exit_code == 0
    whole, part = (read_record(tmp_path / name / "demo.json") for name in ("whole", "part"))
    inside = [step for step in whole.steps if 21 <= step.said.start < 68]
    assert len(part.steps) == len(inside) == 6
    for found, known in zip(part.steps, inside, strict=True):
        assert found.text.split()[:2] == known.text.split()[:2]
        assert found.said.start == pytest.approx(known.said.start, abs=0.3)
