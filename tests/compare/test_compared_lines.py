"""A comparison as the lines to find in a new video: its common steps, kinds, words and orders."""

from types import SimpleNamespace

import numpy as np
import pytest

from stepline.compare import compare, read_task_graph, task_graph
from stepline.compare.task_graph import read_lines_to_find
from stepline.compare.write import to_json
from stepline.errors import SettingsError
from stepline.live.spoken_steps import SpokenSteps
from stepline.pipeline.networks import Networks, describe_inputs
from stepline.pipeline.request import Request, StepsSettings
from stepline.records import Record, Span, Step, Video
from stepline.storage import read_record

# the salt before the onions in one; garlic between the common steps in one; no oil in one
SOUPS = {
    "ann": ("chop the onions", "crush the garlic cloves", "boil water in a pot", "add some salt"),
    "bob": ("boil water in a pot", "add some salt", "chop the onions"),
    "cat": ("chop the onions", "boil water in a pot", "add a pinch of salt"),
}
NEW = """1
00:00:01,000 --> 00:00:04,000
First boil water in a pot.

2
00:00:06,000 --> 00:00:09,000
Then chop the onions into small cubes.

3
00:00:11,000 --> 00:00:14,000
And do not let it burn.
"""


def make_record(id, texts):
    steps = []
    for number, text in enumerate((*texts, "let it burn")):
        span = Span(10.0 * number, 10.0 * number + 5.0)
        kind = "avoid" if text == "let it burn" else "do"
        steps.append(Step(id=str(number), text=text, kind=kind, spans=(span,), status="placed"))
    return Record(id=id, video=Video(id=id), steps=tuple(steps))


@pytest.fixture(scope="module")
def comparison():
    return compare([make_record(id, texts) for id, texts in SOUPS.items()])


@pytest.fixture
def file(comparison, tmp_path):
    path = tmp_path / "comparison.json"
    path.write_text(to_json(comparison), encoding="utf-8")
    return path


def row_of(comparison, text):
    """Return the number of the line that has these words in some video."""
    for number, step in enumerate(comparison.common_steps):
        if text in {step.text, *(occurrence.text for occurrence in step.occurrences)}:
            return number
    raise AssertionError(text)


def test_common_steps_are_the_lines_with_their_kinds(comparison):
    graph = task_graph(comparison)
    assert graph.lines == tuple(step.text for step in comparison.common_steps)
    assert len(graph.lines) == 4
    assert graph.kinds[row_of(comparison, "let it burn")] == "avoid"
    assert graph.kinds.count("do") == 3
    assert graph.videos == 3


def test_orders_that_vary_are_near_even(comparison):
    graph = task_graph(comparison)
    before = np.array(graph.before)
    onions = row_of(comparison, "chop the onions")
    water = row_of(comparison, "boil water in a pot")
    salt = row_of(comparison, "add some salt")
    # two of three videos, and one more of either order
    assert before[onions, water] == pytest.approx(3 / 5)
    assert before[water, salt] == pytest.approx(4 / 5)
    assert np.allclose(before + before.T, 1.0)


def test_the_graph_is_read_from_the_file(comparison, file):
    assert read_task_graph(file) == task_graph(comparison)
    assert read_lines_to_find(file).texts == task_graph(comparison).lines
    text = file.with_name("lines.txt")
    text.write_text("chop it\n")
    assert read_lines_to_find(text) == (("chop it",), None)


def test_what_is_not_a_comparison_is_one_line_with_its_cure(comparison, tmp_path, stepline):
    path = tmp_path / "other.json"
    for content in ("[]", '{"version": 1}', "{"):
        path.write_text(content)
        with pytest.raises(SettingsError, match="stepline compare"):
            read_lines_to_find(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_lines_to_find(tmp_path / "none.json")
    steps = tuple(step.model_copy(update={"common": False}) for step in comparison.steps)
    with pytest.raises(SettingsError, match="compare.common_share"):
        task_graph(comparison.model_copy(update={"steps": steps}))


def test_steps_finds_the_lines_of_a_comparison(comparison, file, tmp_path, stepline):
    captions = tmp_path / "new.srt"
    captions.write_text(NEW)
    out = tmp_path / "out"
    done = stepline("steps", captions, "--texts", file, "--out", out)
    assert done.exit_code == 0, done.stderr
    record = read_record(out / "new.json")
    graph = task_graph(comparison)
    assert record.recipe == graph.lines
    assert tuple(step.kind for step in record.steps) == graph.kinds
    onions = record.steps[row_of(comparison, "chop the onions")]
    assert onions.said.start == 6.0
    assert record.settings["inputs"]["graph"]["videos"] == 3


def test_a_comparison_is_placed_as_its_lines_in_a_text(comparison, file, tmp_path, stepline):
    captions = tmp_path / "new.srt"
    captions.write_text(NEW)
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(task_graph(comparison).lines))
    records = []
    for texts in (file, lines):
        out = tmp_path / texts.stem
        done = stepline("steps", captions, "--texts", texts, "--out", out)
        assert done.exit_code == 0, done.stderr
        records.append(read_record(out / "new.json"))
    for step, other in zip(records[0].steps, records[1].steps, strict=True):
        assert step == other.model_copy(update={"kind": step.kind})


def test_an_order_of_videos_needs_a_comparison(file, tmp_path, stepline, small_video):
    lines = tmp_path / "lines.txt"
    lines.write_text("chop the onions\n")
    options = ("--aligner", tmp_path / "none", "--order", "compared")
    done = stepline("ground", small_video, "--texts", lines, *options)
    assert done.exit_code == 1
    assert "is not a comparison" in done.stderr
    # with one it gets as far as the network that is not there
    done = stepline("ground", small_video, "--texts", file, *options)
    assert done.exit_code == 1
    assert "is not a comparison" not in done.stderr


def test_a_live_run_announces_the_lines_with_their_kinds(comparison):
    graph = task_graph(comparison)
    events = []
    log = SimpleNamespace(steps={})
    said = (log, lambda what, **fields: events.append(fields), StepsSettings())
    spoken = SpokenSteps(*said, graph.lines, graph)
    spoken.announce_lines()
    assert tuple(event["text"] for event in events) == graph.lines
    assert tuple(event["kind"] for event in events) == graph.kinds


def test_a_record_of_a_graph_is_another_one_than_of_its_lines(comparison, small_video):
    graph = task_graph(comparison)
    settings = StepsSettings()
    alone = Request(small_video, "small", texts=graph.lines)
    with_graph = Request(small_video, "small", texts=graph.lines, graph=graph)
    assert "graph" not in describe_inputs(alone, settings, Networks())["inputs"]
    described = describe_inputs(with_graph, settings, Networks())
    assert described != describe_inputs(alone, settings, Networks())


def test_python_takes_a_graph_as_texts(comparison, tmp_path):
    from stepline import steps

    captions = tmp_path / "new.srt"
    captions.write_text(NEW)
    graph = task_graph(comparison)
    record = steps(captions, texts=graph)
    assert record.recipe == graph.lines
    assert tuple(step.kind for step in record.steps) == graph.kinds
