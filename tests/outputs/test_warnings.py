"""A step that says what not to do is marked in every output."""

import io
import json

import docx
import pytest
from output_samples import make_step

from stepline.outputs import OUTPUTS, OutputExtras, step_table
from stepline.outputs.text import WARNING_MARK, step_line
from stepline.records import Record, Step, Video
from stepline.storage import from_json, to_json
from stepline.writing.types import instruction_kind


@pytest.fixture
def warned():
    """A minute of three steps, the second a warning."""
    texts = ("cool the burn", "don't burst the blisters", "cover the burn")
    steps = [
        make_step(k, text, ((20.0 * k - 20, 20.0 * k),), status="placed").model_copy(
            update={"kind": instruction_kind(text)}
        )
        for k, text in enumerate(texts, start=1)
    ]
    return Record(id="burn", video=Video(id="burn", duration=60.0), steps=tuple(steps))


def read_lines(name, content):
    """The lines of an output that a person reads."""
    if name == "docx":
        return [paragraph.text for paragraph in docx.Document(io.BytesIO(content)).paragraphs]
    return content.splitlines()


# The alignment is numbers. Media hold no texts but chapters.
@pytest.mark.parametrize(
    "name", [name for name in OUTPUTS if name not in ("json", "mp4", "mkv", "alignment")]
)
@pytest.mark.parametrize("order", ["don't burst", "be careful not to burst"])
def test_every_output_marks_what_is_not_to_be_done(warned, name, order):
    first, step, last = warned.steps
    step = step.model_copy(update={"text": f"{order} the blisters"})
    warned = warned.model_copy(update={"steps": (first, step, last)})
    lines = read_lines(name, OUTPUTS[name].write(warned, OutputExtras()))
    told = [line for line in lines if "burst the blisters" in line.lower()]
    assert told
    mark = "⚠ Avoid" if name == "html" else WARNING_MARK.strip()
    if name in ("html", "labelstudio"):
        assert any(mark in line for line in lines)
    elif name in ("chapters", "jsonld", "recipe"):  # whose readers see that it says "don't"
        assert [mark in line for line in told] == [order != "don't burst"] * len(told)
    else:
        assert all(mark in line.replace("\\", "") for line in told)
    plain = OUTPUTS[name].write(
        warned.model_copy(update={"steps": warned.steps[:1] * 3}), OutputExtras()
    )
    assert plain is None or not any(mark in line for line in read_lines(name, plain))


def test_the_terminal_marks_it_too(warned):
    assert f"{WARNING_MARK}Don't burst the blisters" in step_table(warned)


def test_a_warning_is_a_tip_of_the_how_to(warned):
    steps = json.loads(OUTPUTS["jsonld"].write(warned, OutputExtras()))["step"]
    kinds = [step.get("itemListElement", [{}])[0].get("@type") for step in steps]
    assert kinds == [None, "HowToTip", None]


def test_the_json_holds_the_kind_and_an_older_record_without_one_says_do(warned):
    tree = json.loads(to_json(warned))
    assert [step["kind"] for step in tree["steps"]] == ["do", "avoid", "do"]
    for step in tree["steps"]:
        del step["kind"]
    assert [step.kind for step in from_json(json.dumps(tree)).steps] == ["do"] * 3


ORDERS = """\
avoid: don't move the person unless necessary
avoid: do not use ice
avoid: Never lift with your back
avoid: avoid touching the wires
avoid: be careful not to burn the sugar
avoid: make sure you don't overmix
avoid: try not to tear it
avoid: don’t stir
do: don't forget to stir
do: do the dishes
do: notch the edge
do: stir, but don't beat it
do: never forget the salt""".splitlines()


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_not_to_do_is_one_to_avoid(order):
    kind, _, text = order.partition(": ")
    assert instruction_kind(text) == kind


def test_a_step_without_words_keeps_no_mark_alone():
    assert step_line(Step(id="1", text="\x07", kind="avoid")) == ""
