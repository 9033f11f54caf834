"""Scripts as files, and the rules they obey."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from research.drawn_videos import Script, make_script, read_script, true_record, write_script
from research.drawn_videos.script import Scene, Shot, TrueStep, Utterance
from stepline.errors import DatasetError
from stepline.records import Span

TALK = Scene(kind="talk", place="kitchen")
CUT = Scene(kind="table", place="kitchen", action="cut", item="knife", target="lemon")


def script(**changes: object) -> Script:
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


def test_a_script_survives_its_file(tmp_path: Path) -> None:
    made = make_script(7)
    write_script(made, tmp_path / "script.json")
    assert read_script(tmp_path / "script.json") == made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"duration": 7.0}, "shots end at"),
        ({"shots": (Shot(span=Span(0.0, 2.0), scene=TALK), Shot(span=Span(3.0, 6.0), scene=CUT))}, "follow each other"),
        ({"utterances": (Utterance(at=3.0, text="b"), Utterance(at=1.0, text="a"))}, "sorted"),
        ({"steps": (TrueStep(id="1", text="x", utterance=9),)}, "names utterance 9"),
        ({"steps": (TrueStep(id="1", text="x", utterance=0, spans=(Span(5.0, 7.0),)),)}, "the video at"),
        ({"steps": (TrueStep(id="1", text="x", utterance=0, spans=(Span(1.0, 4.0),)),)}, "no hands"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        script(**changes)


def test_a_file_that_is_no_script_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"id": "x"}')
    with pytest.raises(DatasetError, match=r"bad\.json: not a script") as caught:
        read_script(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)


def test_truth_needs_spoken_times() -> None:
    with pytest.raises(DatasetError, match="render it first"):
        true_record(script())


def test_truth_holds_the_words_and_the_steps() -> None:
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
