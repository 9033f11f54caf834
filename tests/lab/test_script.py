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


def script(**changes):
    fields: dict[str, object] = {
        "id": "small",
        "seed": 1,
        "title": "Lemons",
        "task": "lemons",
        "duration": 6.0,
        "shots": (Shot(span=Span(0.0, 3.0), scene=TALK), Shot(span=Span(3.0, 6.0), scene=CUT)),
        "utterances": (Utterance(at=0.5, text="Hello."), Utterance(at=3.0, text="Cut the lemon.")),
        "steps": (TrueStep(id="1", text="cut the lemon", utterance=1, spans=(Span(3.0, 6.0),)),),
    }
    return Script.model_validate({**fields, **changes})


def test_a_script_survives_its_file(tmp_path):
    made = make_script(7)
    write_script(made, tmp_path / "script.json")
    assert read_script(tmp_path / "script.json") == made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"duration": 7.0}, "shots end at"),
        (
            {
                "shots": (
                    Shot(span=Span(0.0, 2.0), scene=TALK),
                    Shot(span=Span(3.0, 6.0), scene=CUT),
                )
            },
            "follow each other",
        ),
        ({"utterances": (Utterance(at=3.0, text="b"), Utterance(at=1.0, text="a"))}, "sorted"),
        ({"steps": (TrueStep(id="1", text="x", utterance=9),)}, "names utterance 9"),
        (
            {"steps": (TrueStep(id="1", text="x", utterance=0, spans=(Span(5.0, 7.0),)),)},
            "the video at",
        ),
        (
            {"steps": (TrueStep(id="1", text="x", utterance=0, spans=(Span(1.0, 4.0),)),)},
            "no hands",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, reason):
    with pytest.raises(ValidationError, match=reason):
        script(**changes)


def test_a_file_that_is_not_a_script_is_named_in_one_line(tmp_path):
    (tmp_path / "bad.json").write_text('{"id": "x"}')
    with pytest.raises(DatasetError, match=r"bad\.json: not a script") as caught:
        read_script(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)


def test_truth_needs_spoken_times():
    with pytest.raises(DatasetError, match="render it first"):
        true_record(script())


def test_truth_holds_the_words_and_the_steps():
    said = (
        Utterance(at=0.5, text="Hello.", span=Span(0.5, 1.0)),
        Utterance(at=3.0, text="Cut it.", span=Span(3.0, 4.0)),
    )
    record = true_record(script(utterances=said))
    assert record.transcript is not None
    assert [sentence.text for sentence in record.transcript.sentences] == ["Hello.", "Cut it."]
    assert record.reference[0].said == Span(3.0, 4.0)
    assert record.reference[0].spans == (Span(3.0, 6.0),)
    assert record.reference[0].at == 4.5
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


def test_videos_last_as_long_as_asked(scripts):
    settings = ScriptSettings()
    assert all(settings.shortest <= script.duration <= settings.longest + 1 for script in scripts)


def test_every_script_holds_eight_steps_or_more_a_greeting_and_chat(scripts):
    for script in scripts:
        assert len(script.steps) >= 8
        assert script.utterances[0].text in chat_lines().greeting
        assert script.utterances[-1].text in chat_lines().outro
        assert len(script.utterances) >= len(script.steps) + 4


def test_about_a_sixth_of_the_steps_is_never_shown(scripts):
    steps = [step for script in scripts for step in script.steps]
    share = sum(not step.spans for step in steps) / len(steps)
    assert 0.10 <= share <= 0.20


def test_about_a_quarter_of_the_shown_steps_is_far_from_where_it_is_said(scripts):
    shown = [(script, step) for script in scripts for step in script.steps if step.spans]
    far = sum(
        distance(step.spans[0], estimated(script, step.utterance)) >= 5.0 for script, step in shown
    )
    assert 0.18 <= far / len(shown) <= 0.34


def test_the_other_steps_are_shown_around_a_second_after_they_are_said(scripts):
    offsets = []
    for script in scripts:
        for step in script.steps:
            said = estimated(script, step.utterance)
            if step.spans and distance(step.spans[0], said) < 5.0:
                offsets.append(step.spans[0].start - said.start)
    assert 0.0 <= sum(offsets) / len(offsets) <= 2.5


def test_shown_spans_have_the_length_asked_for(scripts):
    lengths = sorted(
        step.spans[0].duration for script in scripts for step in script.steps if step.spans
    )
    assert 5.0 <= lengths[len(lengths) // 2] <= 8.0
    assert lengths[0] >= 3.0


def test_only_one_step_is_shown_at_a_time_and_inside_the_video(scripts):
    for script in scripts:
        spans = sorted(
            (span for step in script.steps for span in step.spans), key=lambda span: span.start
        )
        assert all(first.end <= second.start for first, second in pairwise(spans))
        assert spans[-1].end <= script.duration


def test_where_a_step_is_true_its_own_action_is_drawn(scripts):
    for script in scripts:
        task = next(task for task in read_tasks() if task.name == script.task)
        for step in script.steps:
            for span in step.spans:
                scenes = [shot.scene for shot in script.shots if shot.span.overlap(span) > 0]
                drawn = {(scene.action, scene.item, scene.target) for scene in scenes}
                wanted = {
                    (each.action, each.item, each.target)
                    for each in task.steps
                    if each.text == step.text
                }
                assert drawn <= wanted


def test_hands_work_only_where_a_step_is_true(scripts):
    for script in scripts:
        shown = [span for step in script.steps for span in step.spans]
        for shot in script.shots:
            if shot.scene.kind == "table":
                assert any(
                    span.start <= shot.span.start and shot.span.end <= span.end for span in shown
                )


def test_free_spans_are_what_is_left():
    assert free_spans([Span(2.0, 3.0), Span(5.0, 6.0)], 1.0, 8.0) == [
        Span(1.0, 2.0),
        Span(3.0, 5.0),
        Span(6.0, 8.0),
    ]


def test_distance_is_zero_where_spans_touch():
    assert distance(Span(0.0, 2.0), Span(2.0, 3.0)) == 0.0
    assert distance(Span(0.0, 2.0), Span(5.5, 6.0)) == 3.5
