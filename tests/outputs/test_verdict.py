"""One verdict on a step, in the same words wherever it is told."""

import json

import pytest
from output_samples import sample_record

from stepline.datasets.label_studio import read as read_label_studio
from stepline.outputs import OUTPUTS, OutputExtras, step_table
from stepline.outputs.verdict import headline, picture_scores, step_verdict
from stepline.storage import from_json, to_json

DOUBT = "the pictures hardly fit"


@pytest.fixture
def mixed():
    """The lemonade: two placed steps, one of them in doubt, three seen, one of them by a person, one
    not found."""
    record = sample_record()
    first, second, third, fourth, fifth, *_, last = record.steps
    placed = {"status": "placed", "basis": None}
    steps = (
        first.model_copy(update={**placed, "score": 0.86}),
        second.model_copy(update={**placed, "score": 0.88, "doubt": DOUBT}),
        third.model_copy(update={"basis": "person", "score": 1.0}),
        fourth.model_copy(update={"score": 0.94}),
        fifth.model_copy(update={"score": 0.6}),
        last,
    )
    return record.model_copy(update={"steps": steps})


def written(name, record):
    return OUTPUTS[name].write(record, OutputExtras())


def test_the_headline_counts_each_verdict_and_has_no_rate(mixed):
    verdicts = "placed doubtful seen seen seen not_found"
    assert [*map(step_verdict, mixed.steps)] == verdicts.split()
    assert headline(mixed.steps) == "3 seen, 1 placed, 1 placed?, 1 not found"


@pytest.mark.parametrize("basis", ["image_text", "vlm", "screen"])
def test_a_number_is_told_only_where_a_calibrated_network_gives_steps_different_ones(mixed, basis):
    assert picture_scores(mixed) == {"4": 0.94, "5": 0.6}
    others = [step.model_copy(update={"basis": basis}) for step in mixed.steps[2:5]]
    assert picture_scores(mixed.model_copy(update={"steps": tuple(others)})) == {}
    same = [step.model_copy(update={"score": 0.9}) for step in mixed.steps]
    assert picture_scores(mixed.model_copy(update={"steps": tuple(same)})) == {}


def test_status_basis_and_doubt_are_stored_in_the_json(mixed):
    stored = json.loads(to_json(mixed))["steps"]
    assert [step["status"] for step in stored[:4]] == ["placed", "placed", "seen", "seen"]
    assert [step.get("basis") for step in stored[:4]] == [None, None, "person", "network"]
    assert [step.get("doubt") for step in stored[:3]] == [None, DOUBT, None]
    assert "doubt" not in stored[0]
    assert from_json(to_json(mixed)) == mixed


def test_the_terminal_has_the_headline_and_a_mark_for_each_verdict(mixed):
    table = step_table(mixed)
    assert "6 steps, 3 seen, 1 placed, 1 placed?, 1 not found, from" in table
    marks = [line.split()[0] for line in table.splitlines() if line.startswith("  ")]
    assert marks == ["◐", "?", "●", "●", "●", "×"]
    assert [part for part in table.split() if part.endswith("%")] == ["94%", "60%"]


def test_the_page_says_the_verdict_its_reason_and_a_figure_where_there_is_one(mixed):
    page = written("html", mixed)
    assert "1 placed?" in page
    steps = [page.split(f'id="step-{n}"')[1].split('id="step-')[0] for n in range(1, 6)]
    assert '<span class="badge placed">Placed</span>' in steps[0]
    assert f"<bdi>{DOUBT}</bdi>" in steps[1]
    assert ['class="score"' in step for step in steps] == [False, False, False, True, True]
    for look in ("best placed", "best doubtful", "best seen"):
        assert f'class="bar {look}"' in page
        assert f'class="key {look}"' in page


@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_subtitles_mark_what_is_in_doubt(mixed, name):
    text = written(name, mixed)
    assert text.count("[placed?] ") == text.count("[") == 1


def test_documents_say_the_headline_and_the_verdict_of_each_step(mixed):
    text = written("markdown", mixed).replace("\\", "")
    assert "6 steps: 3 seen, 1 placed, 1 placed?, 1 not found" in text
    assert "0:06-0:10, placed · 4 s\n" in text
    assert "0:10-0:15, placed? · 5 s\n" in text
    assert "0:19-0:23, seen · 4 s\n" in text


def test_editors_get_the_verdict(mixed):
    timeline = json.loads(written("otio", mixed))
    markers = timeline["tracks"]["children"][0]["children"][0]["markers"]
    assert [marker["color"] for marker in markers] == ["CYAN", "YELLOW", "GREEN", "GREEN", "GREEN"]
    assert markers[1]["metadata"]["stepline"]["verdict"] == "placed?"


@pytest.mark.parametrize(
    "labels", [{}, {"placed": "likely shown", "placed?": "unclear", "seen": "shown"}]
)
def test_label_studio_gets_the_verdict_as_a_label_and_reads_it_and_earlier_ones_back(
    mixed, tmp_path, labels
):
    (task,) = json.loads(written("labelstudio", mixed))
    result = task["predictions"][0]["result"]
    regions = [row["value"] for row in result if row["type"] == "timelinelabels"]
    given = [value["timelinelabels"][0] for value in regions]
    assert given == ["placed", "placed?", "seen", "seen", "candidate", "seen"]
    for value, label in zip(regions, given, strict=True):
        value["timelinelabels"] = [labels.get(label, label)]
    path = tmp_path / "label_studio.json"
    path.write_text(json.dumps([task | {"annotations": [{"result": result}]}]))
    (entry,) = read_label_studio(path)
    assert [bool(step.spans) for step in entry.record.reference] == [True, False, True, True, True]
