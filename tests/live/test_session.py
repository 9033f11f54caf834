"""A live run: what it tells, once each; how it goes on after a kill; its files; the record at its
end."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from live_server import cut_stream
from option_words import option_words
from small_video import draw_video, encode_video, measure_activity
from spoken import Hearer, loudness, sound, speak
from web_server import serve

from stepline.errors import SettingsError
from stepline.live import speech
from stepline.live.events import LiveLog, LiveOptions, LiveStep, RunFiles
from stepline.live.pictures import LiveVision
from stepline.live.run import LiveJob, LiveSession, run_live
from stepline.live.shown_steps import NOT_CONFIRMED_YET
from stepline.live.source import Gap
from stepline.live.spoken_steps import match_steps
from stepline.media import Frame, MediaReader
from stepline.pipeline.batch import run_video
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Sentence, Span, Step
from stepline.settings import load_settings
from stepline.vision.settings import VisionSettings

TEXT = "Hello and welcome. First slice the lemons. Then pour the juice into the bowl. Now whisk it until it is smooth."


class Clock:
    """A source without threads: the test says which second it is."""

    def __init__(self, paced=False):
        self.now = self.end = 0.0
        self.paced, self.reason = paced, "the source ended"


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Makes sessions on one log, that hear the words given; their events go to a list."""
    monkeypatch.setattr(speech, "detect_voice", loudness)

    def make(words, *, backbone=None, settings=None, **options):
        told = []
        log = LiveLog(tmp_path / "v.events.jsonl")
        files = RunFiles("v", log, tmp_path / "v.vtt", tmp_path / "v.rows")
        given = (files, settings or StepsSettings(), told.append, LiveOptions(**options), backbone)
        made = LiveSession(*given, recognise=Hearer(words, unsure=0.3))
        made.sources = (Clock(),)
        return made, told

    return make


@pytest.fixture
def own_pictures(monkeypatch):
    """The pictures belong to what is said, as in a film: colours can not say so."""
    monkeypatch.setattr("stepline.grounding.inputs._correspondence_log_odds", lambda _: 1.0)


def play(session, blocks, frames=()):
    """Give a session sound and pictures in the order of time."""
    for block in blocks:
        for frame in frames:
            if block.start <= frame.time < block.start + 1:
                session.add_frame(frame)
        session.sources[0].now = session.sources[0].end = block.start + 1
        session.advance([block])


class Colours:
    """A backbone whose rows are mean colours."""

    name, dim = "colours", 3

    def encode_images(self, pictures):
        rows = pictures.reshape(len(pictures), -1, 3).mean(1).astype(np.float32) + 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def encode_texts(self, texts):
        return np.full((len(texts), 3), 3**-0.5, np.float32)


def pictures(seconds, every=8):
    """Three frames a second, of another colour every few seconds, with something that moves."""
    frames = []
    for k in range(seconds * 3):
        image = np.full((48, 64, 3), [k // (3 * every) * 60 % 250, 90, 40], np.uint8)
        image[10:20, k % 40 : k % 40 + 10] = 220
        frames.append(Frame((k + 0.5) / 3, image))
    return frames


def kinds(told):
    return [event.event for event in told]


def of_kind(told, kind):
    return [event for event in told if event.event == kind]


STEPS = ["slice the lemons", "pour the juice into the bowl", "whisk it until it is smooth"]


def test_steps_are_reported_soon_after_their_sentence_and_only_said_without_a_picture(session):
    words = speak(TEXT)
    live, told = session(words)
    play(live, sound(words, 16))
    said = of_kind(told, "step_said")
    assert [event.text for event in said] == STEPS
    assert [event.status for event in of_kind(told, "step_ended")] == ["said_only"] * 3
    assert all(event.at - event.said.end <= 3.0 for event in said)
    assert [event.sources for event in said] == [(1,), (2,), (3,)]
    assert kinds(told).count("heard") == 4


def test_steps_are_shown_and_end_where_there_is_a_picture(session, own_pictures, tmp_path):
    words = speak(TEXT)
    live, told = session(words, backbone=Colours())
    play(live, sound(words, 60), pictures(60))
    for step in "123":
        own = [event for event in told if event.step == step]
        assert kinds(own) == ["step_said", "step_shown", "step_ended"]
        assert own[1].at >= own[2].spans[0].start + 2.0
    assert (tmp_path / "v.vtt").read_text().count("-->") == 3
    assert (tmp_path / "v.rows").stat().st_size >= 55 * 3 * 4


def test_a_doubt_says_that_text_on_screen_is_not_read(session, monkeypatch):
    monkeypatch.setattr("stepline.grounding.inputs._correspondence_log_odds", lambda _: -1.0)
    words = speak(TEXT)
    live, told = session(words, backbone=Colours())
    play(live, sound(words, 60), pictures(60))
    live.finish()
    ended = [(event.status, event.doubt) for event in of_kind(told, "step_ended")]
    assert ended == [("placed", NOT_CONFIRMED_YET)] * 3


def facts(events):
    return [(event.event, event.text, event.sentence and event.sentence.text) for event in events]


def test_a_killed_run_reports_nothing_twice(session):
    words = speak(TEXT)
    whole, told = session(words)
    blocks = sound(words, 16)
    play(whole, blocks)
    expected = facts(told)
    for second in (5, 8, 11):
        whole.log.path.unlink()
        first, before = session(words)
        play(first, blocks[:second])
        again, after = session(words)
        place = int(again.log.resume_second)
        again.sources[0].now = again.sources[0].end = float(place)
        play(again, blocks[place:])
        assert facts(before + after) == expected, second
        assert [event.number for event in before + after] == list(range(len(expected)))


def test_a_run_that_was_late_goes_on_where_it_had_heard_to(session):
    words = speak(TEXT)
    late, _ = session(words)
    blocks = sound(words, 16)
    for block in blocks[:6]:
        # the wall's clock is far ahead
        late.sources[0].now, late.sources[0].end = 3 * block.start, block.start + 1
        late.advance([block])
    again, _ = session(words)
    assert late.log.sentences[-1].span.end <= again.log.resume_second <= 6.0


def test_a_run_that_fell_behind_hears_all_sentences(session):
    words = speak(f"{TEXT} {TEXT}")
    behind, told = session(words)
    behind.advance(sound(words, 40))
    behind.finish()
    assert max(window.end - window.start for window in behind.recognise.windows) <= 28
    heard = " ".join(event.sentence.text for event in told if event.event == "heard")
    assert heard.split() == [word.text.strip() for word in words]


def test_a_line_that_a_kill_cut_short_was_never_told(session, tmp_path):
    words = speak(TEXT)
    live, told = session(words)
    play(live, sound(words, 16)[:6])
    path = tmp_path / "v.events.jsonl"
    with path.open("ab") as file:
        file.write(b'{"event":"step_said","num')
    log = LiveLog(path)
    assert log.count == len(told)
    log.add("gap", 6.0, seconds=1.0)
    assert LiveLog(path).last.event == "gap"


@pytest.fixture
def rewrite(session, monkeypatch):
    """Have the steps of one sentence written again and again: of a text each, or of none."""

    def run(*texts):
        live, told = session([])
        live.log.add("heard", 1.0, sentence=Sentence(text="Cut it.", span=Span(0.0, 1.0)))
        for text in texts:
            step = {"id": "1", "text": text, "said": Span(0.0, 1.0), "sources": (0,)}
            steps = SimpleNamespace(steps=(Step(**step),) if text else ())
            monkeypatch.setattr(
                "stepline.live.spoken_steps.write_steps", lambda *_, steps=steps: steps
            )
            live._spoken.update("en")
        return live, told

    return run


def test_a_step_is_revised_once_and_then_stays(rewrite):
    live, told = rewrite("cut it", "cut it and stir", "cut it, stir and fry")
    events = [(event.event, event.text) for event in told]
    assert events == [("step_said", "cut it"), ("revised", "cut it and stir")]
    assert live.log.steps["1"].step.text == "cut it and stir"


def test_a_step_that_is_written_no_more_is_taken_back(rewrite):
    live, told = rewrite("cut it", "")
    assert kinds(told) == ["step_said", "revised"]
    assert live.log.steps["1"].withdrawn


def test_written_steps_find_those_told_before():
    def step(text, *sources):
        return Step(id="1", text=text, sources=sources)

    known = [LiveStep(step=step(*row)) for row in (("cut", 1), ("stir", 1), ("fry", 2))]
    pairs = match_steps([step("stir", 1), step("cut the onion", 1), step("serve", 3)], known)
    texts = [(a and a.text, b and b.step.text) for a, b in pairs]
    assert texts[:2] == [("stir", "stir"), ("cut the onion", "cut")]
    assert texts[2:] == [("serve", None), (None, "fry")]


@pytest.mark.slow
def test_what_is_far_back_is_forgotten_and_what_is_reported_stays_the_same(
    session, own_pictures, monkeypatch
):
    short = ["nasva.ground.context=15.0", "nasva.ground.window=30.0"]
    near = load_settings(StepsSettings, None, short)
    parts = (f"Slice {n} lemons. Then pour the juice into bowl {n}." for n in range(2, 18))
    text = " ".join(parts)
    words, told = speak(text), {}
    seconds = int(words[-1].span.end) + 4
    for forgotten in (10, 10**6):
        monkeypatch.setattr("stepline.live.shown_steps.FORGET_SECONDS", forgotten)
        live, told[forgotten] = session(words, backbone=Colours(), settings=near)
        play(live, sound(words, seconds), pictures(seconds))
        if forgotten == 10:
            assert live.shown.begin >= 20
            kept = live.shown.vision.snapshot().features.values
            assert len(kept) <= live.shown.memory_seconds + 11
            assert len(live.shown.grounded) < len(live.log.steps)
            assert live.files.rows.stat().st_size == live.files.row_count * 3 * 4
            again, nothing = session(words, backbone=Colours(), settings=near)
            assert again.shown.begin > 0
            assert again.shown.vision.known_end == math.floor(again.log.resume_second)
            assert nothing == []
        live.log.path.unlink()
        live.files.rows.unlink()
    fields = [
        [(e.event, e.step, e.text, e.second, e.spans, e.status) for e in events]
        for events in told.values()
    ]
    assert [each[:3] for each in fields[0]] == [each[:3] for each in fields[1]]
    other = [pair for pair in zip(*fields, strict=True) if pair[0] != pair[1]]
    # whether words and pictures are of one film is judged by what is remembered
    assert len(other) <= 2
    assert len({event.step for event in told[10] if event.event == "step_shown"}) > 8


def test_the_words_of_sentences_long_past_are_on_disk_alone(tmp_path):
    log = LiveLog(tmp_path / "v.events.jsonl")
    for second in range(60):
        words = tuple(speak("Cut it.", start=second + 0.1))
        sentence = Sentence(text="Cut it.", span=Span(second, second + 1), words=words)
        log.add("heard", second, sentence=sentence)
    assert [len(sentence.words) for sentence in log.sentences] == [0] * 10 + [2] * 50
    again = LiveLog(tmp_path / "v.events.jsonl")
    assert again.sentences == log.sentences
    assert log.add("gap", 70.0, seconds=1.0).number == 60
    assert len(list(again._log)) == 1


def test_gaps_are_reported(session):
    live, told = session([])
    live.advance([Gap(3.0, 2.5, "the connection ended")])
    assert [(event.event, event.at, event.seconds) for event in told] == [("gap", 3.0, 2.5)]


def test_the_vtt_grows_and_is_whole_at_each_moment(tmp_path):
    path = tmp_path / "v.vtt"
    files = RunFiles("v", LiveLog(tmp_path / "v.events.jsonl"), path)
    seen = []
    for number, start in enumerate([5.0, 9.0, 20.0, 12.0], start=1):
        shown = {"spans": (Span(start, start + 2),), "status": "placed"}
        step = Step(id=str(number), text=f"stir <{number}> --> now", **shown)
        files.log.steps[step.id] = LiveStep(step=step, ended=True)
        files.write_vtt()
        seen.append(path.read_text())
    assert all(text.startswith("WEBVTT\n\n") and text.endswith("\n") for text in seen)
    assert [text.count(" --> ") for text in seen] == [1, 2, 3, 4]
    assert seen[1].startswith(seen[0])
    assert seen[2].startswith(seen[1])
    starts = [line.split(" --> ")[0] for line in seen[3].splitlines() if " --> " in line]
    assert starts == sorted(starts)


def test_a_line_that_only_resembles_the_one_that_was_said_is_not_believed_said(session):
    words = speak("First slice the two lemons.")
    texts = ("Slice the lemons", "Pour the juice of the lemons into a glass", "Wash the lemons")
    live, told = session(words, texts=texts)
    live.announce_lines()
    play(live, sound(words, 5))
    assert [event.step for event in of_kind(told, "step_said") if event.said is not None] == ["1"]


def test_recipe_lines_are_reported_immediately_and_found_when_they_are_said(session):
    words = speak(TEXT)
    live, told = session(words, texts=("Slice the lemons", "Grill the fish"))
    live.announce_lines()
    play(live, sound(words, 16))
    assert [(event.step, event.reason) for event in told[:2]] == [("1", "given"), ("2", "given")]
    found = [event for event in of_kind(told, "step_said") if event.said is not None]
    assert [event.step for event in found] == ["1"]
    assert found[0].said.start == pytest.approx(words[3].span.start, abs=0.7)


def test_the_line_that_was_spoken_last_is_reported_as_the_current_one(session):
    words = speak(TEXT)
    texts = ("Whisk it until it is smooth", "Slice the lemons", "Grill the fish")
    live, told = session(words, texts=texts, backbone=Colours())
    live.announce_lines()
    play(live, sound(words, 16), pictures(16))
    lines = of_kind(told, "line")
    assert [event.text for event in lines] == ["Slice the lemons", "Whisk it until it is smooth"]
    again, later = session(words, texts=texts, backbone=Colours())
    assert again.log.line == lines[-1]
    assert later == []


def test_live_rows_are_those_of_the_whole_video(small_video, monkeypatch):
    from stepline.live import pictures as live_pictures

    monkeypatch.setattr(live_pictures, "METER_SECONDS", 6.0)
    monkeypatch.setattr(live_pictures, "METER_OVERLAP_SECONDS", 4.0)
    frames = list(MediaReader(small_video, frame_rate=3.0, frame_size=64, sound=False))
    vision = LiveVision(Colours(), VisionSettings())
    for frame in frames:
        vision.add(frame)
        vision.snapshot()
    live, wanted = vision.snapshot(), encode_video(frames, Colours())
    assert np.allclose(live.features.values, wanted.values[: len(live.features.values)])
    assert len(live.features.values) >= len(wanted.values) - 1
    activity, rows = measure_activity(frames), len(live.activity.motion)
    assert np.allclose(live.activity.motion, activity.motion[:rows], atol=1e-6)
    assert np.allclose(live.activity.thumbnails, activity.thumbnails[:rows], atol=1e-6)
    assert live.activity.cuts == pytest.approx([cut for cut in activity.cuts if cut < live.end])


def assert_same(tmp_path, stem, suffixes=("json", "vtt", "srt")):
    """What a live run leaves at its end is what `steps` leaves."""
    for name in (f"{stem}.{suffix}" for suffix in suffixes):
        assert (tmp_path / "end" / name).read_bytes() == (tmp_path / "own" / name).read_bytes()


@pytest.fixture
def plain_settings():
    return load_settings(StepsSettings, None, ["vision.backbone=none"])


def run(job, settings, words=(), **options):
    told = []
    files = run_live(job, settings, told.append, recognise=Hearer(list(words)), **options)
    return told, files


@pytest.mark.parametrize(
    "texts", [(), ("Slice the lemons", "Grill the fish")], ids=["steps", "a recipe"]
)
def test_a_file_runs_to_its_end_and_leaves_what_steps_leaves(
    small_video, tmp_path, plain_settings, texts
):
    folders = (tmp_path / "live", tmp_path / "end")
    job = LiveJob(str(small_video), *folders, 1000, options=LiveOptions(texts=texts))
    told, files = run(job, plain_settings)
    assert kinds(told)[0] == "started"
    assert kinds(told)[-1] == "finished"
    request = Request(small_video, small_video.stem, texts=texts)
    run_video(request, plain_settings, OutputOptions(tmp_path / "own", ("json", "vtt", "srt")))
    assert_same(tmp_path, small_video.stem)
    assert tmp_path / "live" / f"{small_video.stem}.events.jsonl" in files


def test_a_stream_that_is_cut_leaves_what_steps_leaves_of_what_came(stream, tmp_path):
    quick = ["vision.backbone=none", "links.pause=0.001", "links.attempts=2", "links.seconds=60.0"]
    settings = load_settings(StepsSettings, None, quick)
    page, _ = cut_stream(stream.read_bytes(), 4)
    with serve() as server:
        server.pages["/live.ts"] = page
        job = LiveJob(f"{server.url}/live.ts", tmp_path / "live", tmp_path / "end")
        told, files = run(job, settings)
    assert kinds(told) == ["started", "gap", "gap", "gap", "finished"]
    video = next(path for path in files if path.suffix == ".mkv")
    run_video(Request(video, video.stem), settings, OutputOptions(tmp_path / "own", ("json",)))
    assert_same(tmp_path, video.stem, ("json",))


def test_a_source_without_sound_is_said_to_have_none(tmp_path, plain_settings, caplog):
    film = draw_video(tmp_path / "silent.mp4", seconds=1, sound=False)
    told, _ = run(LiveJob(str(film), tmp_path, speed=1000), plain_settings)
    assert kinds(told) == ["started", "finished"]
    assert "no sound came" in caplog.text


def test_a_finished_run_is_begun_again_and_another_source_is_refused(
    small_video, tmp_path, plain_settings, caplog
):
    job = LiveJob(str(small_video), tmp_path, speed=1000)
    first, _ = run(job, plain_settings)
    assert "no sound came" not in caplog.text
    second, _ = run(job, plain_settings)
    assert kinds(first) == kinds(second) == ["started", "finished"]
    log = tmp_path / f"{small_video.stem}.events.jsonl"
    log.write_text(log.read_text().replace(str(small_video), "other.mp4"))
    with pytest.raises(SettingsError, match="holds a run of other.mp4.*--force"):
        run(job, plain_settings)


def test_stop_ends_a_run_with_all_it_knows(small_video, tmp_path, plain_settings):
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    told, _ = run(LiveJob(str(small_video), tmp_path, speed=1.0), plain_settings, stop=stop)
    assert kinds(told)[-1] == "finished"
    assert told[-1].reason == "stopped"


@pytest.mark.slow
def test_with_pictures_too_the_record_at_the_end_is_that_of_steps(tmp_path):
    """The whole job twice, over the demo."""
    from stepline.cli.steps import DEMO_VIDEO

    run(LiveJob(str(DEMO_VIDEO), tmp_path / "live", tmp_path / "end", speed=1000), StepsSettings())
    own = OutputOptions(tmp_path / "own", ("json", "vtt", "srt"))
    run_video(Request(DEMO_VIDEO, DEMO_VIDEO.stem), StepsSettings(), own)
    assert_same(tmp_path, DEMO_VIDEO.stem)


@pytest.mark.slow
def test_a_run_killed_in_the_middle_goes_on_within_ten_seconds(shared, tmp_path):
    from stepline.cli.steps import DEMO_VIDEO

    options = option_words(out=str(tmp_path), backbone="none")
    command = [sys.executable, "-m", "stepline", "live", str(DEMO_VIDEO), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as first:
        for line in first.stdout:
            if json.loads(line)["event"] == "step_said":
                os.kill(first.pid, signal.SIGKILL)
                break
    # what it had no time to tell, too
    kept = (tmp_path / f"{DEMO_VIDEO.stem}.events.jsonl").read_text().split("\n")[:-1]
    told = [json.loads(line) for line in kept]
    with subprocess.Popen([*command, "--speed", "10"], **pipes) as second:
        went_on = json.loads(second.stdout.readline())
        assert went_on["number"] == told[-1]["number"] + 1
        told += [went_on, *map(json.loads, second.stdout)]
    heard = [event["sentence"]["text"] for event in told if event["event"] == "heard"]
    assert len(heard) == len(set(heard))
    assert told[-1]["event"] == "finished"
