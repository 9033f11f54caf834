"""Scripts of drawn videos: what fits together, and what the script of a seed is like."""

from itertools import pairwise

import pytest
from pydantic import ValidationError

from lab.drawn_videos import (
    Script,
    ScriptSettings,
    make_script,
    read_script,
    true_record,
    write_script,
)
from lab.drawn_videos.layout import distance, free_spans
from lab.drawn_videos.script import Scene, Shot, TrueStep, Utterance
from lab.drawn_videos.script_generator import spoken_length
from lab.drawn_videos.speech import choose_voice
from lab.drawn_videos.tasks import chat_lines, read_tasks
from stepline.errors import DatasetError
from stepline.records import Span

TALK = Scene(kind="talk", place="kitchen")
CUT = Scene(kind="table", place="kitchen", action="cut", item="knife", target="lemon")


STEP = TrueStep(id="1", text="cut the lemon", utterance=1, spans=(Span(3.0, 6.0),))


def shots(first_end):
    return Shot(span=Span(0.0, first_end), scene=TALK), Shot(span=Span(3.0, 6.0), scene=CUT)


def script(**changes):
    said = Utterance(at=0.5, text="Hello."), Utterance(at=3.0, text="Cut the lemon.")
    fields = {"id": "small", "seed": 1, "title": "Lemons", "task": "lemons", "duration": 6.0}
    fields |= {"shots": shots(3.0), "utterances": said, "steps": (STEP,)}
    return Script.model_validate({**fields, **changes})


def other_step(**changes):
    return {"steps": (STEP.model_copy(update={"utterance": 0, **changes}),)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"duration": 7.0}, "shots end at"),
        ({"shots": shots(2.0)}, "follow each other"),
        ({"utterances": (Utterance(at=3.0, text="b"), Utterance(at=1.0, text="a"))}, "sorted"),
        (other_step(utterance=9), "names utterance 9"),
        (other_step(spans=(Span(5.0, 7.0),)), "the video at"),
        (other_step(spans=(Span(1.0, 4.0),)), "no hands"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, reason):
    with pytest.raises(ValidationError, match=reason):
        script(**changes)


def test_a_script_survives_its_file_and_another_file_is_named_in_one_line(tmp_path):
    made = make_script(7)
    write_script(made, tmp_path / "script.json")
    assert read_script(tmp_path / "script.json") == made
    (tmp_path / "bad.json").write_text('{"id": "x"}')
    with pytest.raises(DatasetError, match=r"bad\.json: not a script") as caught:
        read_script(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)


def test_truth_holds_the_words_and_the_steps_and_needs_spoken_times():
    with pytest.raises(DatasetError, match="render it first"):
        true_record(script())
    said = (
        Utterance(at=0.5, text="Hello.", span=Span(0.5, 1.0)),
        Utterance(at=3.0, text="Cut it.", span=Span(3.0, 4.0)),
    )
    record = true_record(script(utterances=said))
    assert [sentence.text for sentence in record.transcript.sentences] == ["Hello.", "Cut it."]
    (step,) = record.reference
    assert (step.said, step.spans, step.at) == (Span(3.0, 4.0), (Span(3.0, 6.0),), 4.5)
    assert record.steps == ()


@pytest.fixture(scope="module")
def scripts():
    return [make_script(seed) for seed in range(50)]


def estimated(script, utterance):
    each = script.utterances[utterance]
    return Span(each.at, each.at + spoken_length(each.text, choose_voice(script.seed).speed))


def test_the_same_seed_gives_the_same_script():
    assert make_script(3) == make_script(3)
    assert make_script(3) != make_script(4)


def test_there_are_many_tasks_and_every_step_can_be_drawn_and_said():
    assert len(read_tasks()) >= 14
    assert all(8 <= len(task.steps) <= 12 for task in read_tasks())
    assert all(len(set(step.say)) >= 2 for task in read_tasks() for step in task.steps)
    assert len({task.name for task in read_tasks()}) == len(read_tasks())


def test_a_video_is_as_long_as_asked_and_holds_steps_a_greeting_and_chat(scripts):
    settings = ScriptSettings()
    for script in scripts:
        assert settings.shortest <= script.duration <= settings.longest + 1
        assert len(script.steps) >= 8
        assert script.utterances[0].text in chat_lines().greeting
        assert script.utterances[-1].text in chat_lines().outro
        assert len(script.utterances) >= len(script.steps) + 4


def test_most_steps_are_shown_soon_after_they_are_said_some_far_from_it_and_some_never(scripts):
    steps = [(script, step) for script in scripts for step in script.steps]
    shown = [(estimated(script, step.utterance), *step.spans[:1]) for script, step in steps]
    pairs = [pair for pair in shown if len(pair) == 2]
    assert 0.10 <= 1 - len(pairs) / len(steps) <= 0.20
    offsets = [span.start - said.start for said, span in pairs if distance(span, said) < 5.0]
    assert 0.18 <= 1 - len(offsets) / len(pairs) <= 0.34
    assert 0.0 <= sum(offsets) / len(offsets) <= 2.5
    lengths = sorted(span.duration for _, span in pairs)
    assert 5.0 <= lengths[len(lengths) // 2] <= 8.0
    assert lengths[0] >= 3.0


def test_only_one_step_is_shown_at_a_time_inside_the_video_with_its_own_action(scripts):
    tasks = {task.name: task for task in read_tasks()}
    for script in scripts:
        shown = [(span, step) for step in script.steps for span in step.spans]
        shown.sort(key=lambda pair: pair[0].start)
        assert all(first.end <= second.start for (first, _), (second, _) in pairwise(shown))
        assert shown[-1][0].end <= script.duration
        for span, step in shown:
            scenes = [shot.scene for shot in script.shots if shot.span.overlap(span) > 0]
            wanted = [each for each in tasks[script.task].steps if each.text == step.text]
            drawn, wanted = (
                {(each.action, each.item, each.target) for each in some}
                for some in (scenes, wanted)
            )
            assert drawn <= wanted
        for table in (shot.span for shot in script.shots if shot.scene.kind == "table"):
            # hands work only where a step is true
            assert any(span.start <= table.start and table.end <= span.end for span, _ in shown)


def test_free_spans_are_what_is_left_and_distance_is_zero_where_spans_touch():
    free = [Span(1.0, 2.0), Span(3.0, 5.0), Span(6.0, 8.0)]
    assert free_spans([Span(2.0, 3.0), Span(5.0, 6.0)], 1.0, 8.0) == free
    assert distance(Span(0.0, 2.0), Span(2.0, 3.0)) == 0.0
    assert distance(Span(0.0, 2.0), Span(5.5, 6.0)) == 3.5
