"""One verdict on a step, in the same words wherever it is told."""

import json

import pytest
from output_samples import sample_record

from stepline.datasets.label_studio import read as read_label_studio
from stepline.outputs import OUTPUTS, OutputExtras, step_table
from stepline.outputs.verdict import headline, step_verdict, verdict_lines
from stepline.storage import from_json, to_json

LIKELY = "2 likely shown, by the words (about 87 of 100 such steps are)"


@pytest.fixture
def by_words():
    """The lemonade: two steps by their words alone, at .86 and .88, one of them unclear, one seen."""
    record = sample_record()
    first, second, third, fourth, *_, last = record.steps
    steps = (
        first.model_copy(update={"basis": "words", "score": 0.86}),
        second.model_copy(update={"basis": "words", "score": 0.88}),
        third.model_copy(update={"basis": "words", "status": "unclear"}),
        fourth.model_copy(update={"basis": "pictures"}),
        last,
    )
    return record.model_copy(update={"steps": steps})


def written(name, record):
    return OUTPUTS[name].write(record, OutputExtras())


def test_a_shown_step_of_an_old_record_is_shown_as_before():
    record = sample_record()
    assert {step.basis for step in record.steps} == {None}
    assert "basis" not in to_json(record)
    assert headline(record.steps) == "10 shown, 1 said, not shown, 1 not found"
    assert "◐" not in step_table(record).split("●", 1)[0]
    assert "(about" not in step_table(record)


def test_the_headline_reports_the_videos_one_figure_once(by_words):
    lines = verdict_lines(by_words.steps)
    assert lines["likely"] == LIKELY
    assert headline(by_words.steps) == f"1 shown, {LIKELY}, 1 unclear, 1 not found"


def test_the_basis_is_stored_in_the_json(by_words):
    stored = json.loads(to_json(by_words))
    assert [step.get("basis") for step in stored["steps"]] == [
        "words",
        "words",
        "words",
        "pictures",
        None,
    ]
    assert from_json(to_json(by_words)) == by_words


def test_the_terminal_has_the_headline_a_mark_for_each_verdict_and_no_repeated_figure(by_words):
    table = step_table(by_words)
    assert f"5 steps, 1 shown, {LIKELY}, 1 unclear, 1 not found, from" in table
    marks = [line.split()[0] for line in table.splitlines() if line.startswith("  ")]
    assert marks == ["◐", "◐", "?", "●", "×"]
    assert "86%" not in table
    assert "88%" not in table
    assert "94%" in table


def test_the_page_draws_no_figure_for_a_step_by_its_words_and_says_the_headline(by_words):
    page = written("html", by_words)
    assert LIKELY in page
    assert "belong together" not in page
    first = page.split('id="step-1"')[1].split("</li>")[0]
    assert "Likely shown, by the words" in first
    assert 'class="score"' not in first
    fourth = page.split('id="step-4"')[1].split("</li>")[0]
    assert 'class="score"' in fourth
    for look in ("best likely", "best unclear", "best shown"):
        assert f'class="bar {look}"' in page
        assert f'class="key {look}"' in page


@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_subtitles_mark_what_is_not_plainly_shown(by_words, name):
    text = written(name, by_words)
    assert text.count("[likely shown] ") == 2
    assert text.count("[unclear] ") == 1


def test_documents_say_the_headline_and_the_doubt_of_each_step(by_words):
    text = written("markdown", by_words)
    assert LIKELY in text
    assert "0:06-0:10, likely shown" in text
    assert "0:15-0:18, unclear" in text
    assert "0:19-0:23\n" in text


def test_editors_get_the_verdict(by_words):
    timeline = json.loads(written("otio", by_words))
    markers = timeline["tracks"]["children"][0]["children"][0]["markers"]
    assert [marker["color"] for marker in markers] == ["CYAN", "CYAN", "YELLOW", "GREEN"]
    assert markers[0]["metadata"]["stepline"]["verdict"] == "likely shown"


def test_label_studio_gets_the_verdict_as_a_label_and_reads_likely_steps_back(by_words, tmp_path):
    (task,) = json.loads(written("labelstudio", by_words))
    result = task["predictions"][0]["result"]
    labels = [row["value"]["timelinelabels"] for row in result if row["type"] == "timelinelabels"]
    assert labels == [["likely shown"], ["likely shown"], ["unclear"], ["shown"], ["candidate"]]
    path = tmp_path / "label_studio.json"
    path.write_text(json.dumps([task | {"annotations": [{"result": result}]}]))
    ((record, _),) = [(entry.record, entry) for entry in read_label_studio(path)]
    assert [bool(step.spans) for step in record.reference] == [True, True, False, True]


def test_verdicts_without_a_status_go_by_the_times():
    step = sample_record().steps[0].model_copy(update={"status": None})
    assert step_verdict(step) == "shown"
    assert step_verdict(step.model_copy(update={"spans": ()})) == "unplaced"
