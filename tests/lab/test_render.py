"""Rendering: a small video that holds what its script says, and the committed demo."""

import json
import shutil
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lab.drawn_videos as world
import stepline
from lab.drawn_videos import RenderSettings, Script, read_script, render, true_record, write_script
from lab.drawn_videos import __main__ as command
from lab.drawn_videos.motions import MOTIONS_BY_ACTION
from lab.drawn_videos.paint import Pen
from lab.drawn_videos.scene_renderer import SceneRenderer
from lab.drawn_videos.script import Scene, Shot, TrueStep, Utterance
from lab.drawn_videos.speech import (
    RATE,
    choose_voice,
    loudness_envelope,
    schedule_utterances,
    synthesize_speech,
)
from lab.drawn_videos.things import THINGS_BY_NAME
from stepline.errors import MediaError
from stepline.records import Span
from stepline.storage import read_record

DEMO = Path(stepline.__file__).parent / "cli" / "demo"
SMALL = RenderSettings(width=160, height=96, frame_rate=6)

needs_voice = pytest.mark.skipif(
    shutil.which("espeak-ng") is None,
    reason="espeak-ng is not installed (apt-get install espeak-ng)",
)


def small_script():
    cut = {"kind": "table", "place": "kitchen", "action": "cut", "item": "knife"}
    scene = Scene(**cut, target="lemon", props=("cutting board",))
    talk = Scene(kind="talk", place="kitchen")
    return Script(
        id="small",
        seed=5,
        title="Lemons",
        task="lemons",
        duration=6.0,
        shots=(Shot(span=Span(0.0, 2.0), scene=talk), Shot(span=Span(2.0, 6.0), scene=scene)),
        utterances=said("Hello there, everybody.", 0.6, "Now cut the lemon."),
        steps=(TrueStep(id="1", text="cut the lemon", utterance=1, spans=(Span(2.0, 6.0),)),),
    )


def said(first, at, second):
    return Utterance(at=0.2, text=first), Utterance(at=at, text=second)


def durations(path):
    """Return seconds of picture, seconds of sound and the number of frames, as the file says."""
    import av

    with av.open(str(path)) as file:
        picture, sound = file.streams.video[0], file.streams.audio[0]
        streams = (picture, sound)
        seconds = [float(stream.duration * Fraction(stream.time_base)) for stream in streams]
        return *seconds, picture.frames


@needs_voice
def test_a_small_video_lasts_as_long_as_its_script_and_is_the_same_twice(tmp_path):
    spoken = render(small_script(), tmp_path / "a.mp4", SMALL)
    render(small_script(), tmp_path / "b.mp4", SMALL)
    picture, sound, frames = durations(tmp_path / "a.mp4")
    assert picture == pytest.approx(6.0)
    assert sound == pytest.approx(6.0, abs=0.1)
    assert frames == 36
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert true_record(spoken).reference[0].said == spoken.utterances[1].span
    first, second = (each.span for each in spoken.utterances)
    assert first.start == 0.2
    assert first.end < second.start


@needs_voice
def test_speech_that_overruns_the_script_makes_the_video_longer(tmp_path):
    utterances = said("Hello.", 5.8, "Now cut the lemon in half.")
    late = small_script().model_copy(update={"utterances": utterances})
    spoken = render(late, tmp_path / "a.mp4", SMALL)
    assert spoken.duration > 6.5
    assert durations(tmp_path / "a.mp4")[0] == pytest.approx(spoken.duration)


def test_without_the_voice_the_error_names_its_package(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MediaError, match="apt-get install espeak-ng"):
        synthesize_speech("Nobody has said this before.", choose_voice(1))


def test_an_utterance_waits_until_the_last_is_over():
    said = [Utterance(at=at, text=text) for at, text in ((1.0, "a"), (2.0, "b"), (9.0, "c"))]
    placed = schedule_utterances(said, [3.0, 1.0, 1.0])
    assert [each.span for each in placed] == [Span(1.0, 4.0), Span(4.18, 5.18), Span(9.0, 10.0)]


def test_the_mouth_opens_where_it_is_loud():
    speech = np.zeros(RATE, np.float32)
    speech[RATE // 2 :] = 0.3
    assert loudness_envelope(speech, 2, 2).tolist() == pytest.approx([0.0, 0.3 / 0.32])


def test_at_least_forty_things_can_be_drawn_and_none_is_empty():
    from random import Random

    assert len(THINGS_BY_NAME) >= 40
    for name, thing in THINGS_BY_NAME.items():
        pen = Pen(24)
        thing.draw(pen, Random(1))
        assert np.asarray(pen.image())[..., 3].mean() > 4, name


@pytest.mark.parametrize("action", sorted(MOTIONS_BY_ACTION))
def test_every_action_moves_something(action):
    stage = SceneRenderer(2, RenderSettings(width=96, height=64))
    scene = {"kind": "table", "place": "workshop", "action": action, "item": "spoon"}
    scene = Scene(**scene, target="bowl", props=("jar",))
    early, later = (stage.frame(scene, t, 6.0, 0.0, 0).astype(float) for t in (1.0, 2.6))
    assert early.shape == (64, 96, 3)
    assert np.abs(early - later).mean() > 0.4


def test_the_demo_has_what_a_first_look_needs():
    record = read_record(DEMO / "demo_truth.json")
    shown = [step for step in record.reference if step.status == "seen"]
    assert len(shown) >= 8
    gaps = [step.spans[0].pause(step.said) for step in shown if step.said]
    assert sum(gap >= 6.0 for gap in gaps) == 2
    unseen = [step.text for step in record.reference if step.status == "said_only"]
    assert unseen == ["let the batter rest for ten minutes"]
    assert len(record.transcript.sentences) >= len(record.reference) + 4


def test_the_demo_truth_belongs_to_the_committed_video():
    record = read_record(DEMO / "demo_truth.json")
    script = read_script(Path(world.__file__).parent / "demo_script.json")
    picture, sound, _ = durations(DEMO / "demo.mp4")
    assert (DEMO / "demo.mp4").stat().st_size < 2_000_000
    assert record.video.duration == pytest.approx(picture)
    assert sound == pytest.approx(picture, abs=0.1)
    true, drawn = ([(s.text, s.spans) for s in one] for one in (record.reference, script.steps))
    assert true == drawn


@needs_voice
def test_the_command_writes_a_video_with_its_truth(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "render", partial(render, settings=SMALL))
    write_script(small_script(), tmp_path / "small.json")
    assert command.main(["render", str(tmp_path / "small.json"), str(tmp_path / "small.mp4")]) == 0
    assert "1 true steps" in capsys.readouterr().out
    tree = json.loads((tmp_path / "small_truth.json").read_text())
    assert tree["reference"][0]["spans"] == [[2.0, 6.0]]


def test_a_missing_script_is_one_line_and_exit_code_one(tmp_path, capsys):
    assert command.main(["render", str(tmp_path / "none.json"), str(tmp_path / "a.mp4")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
