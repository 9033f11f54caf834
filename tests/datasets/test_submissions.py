import json

import pytest
from official_forms import write

from stepline import datasets
from stepline.datasets.htstep import read_queries
from stepline.errors import DatasetError
from stepline.records import Record, Span, Step, Video


def record(*steps, id="a"):
    return Record(id=id, video=Video(id=id), steps=steps)


PLACED = record(
    Step(id="514", text="Stir.", spans=(Span(5.0, 9.0), Span(1.0, 2.0)), at=6.9, score=0.5),
    Step(id="513", text="Boil.", spans=(Span(0.0, 3.5),), at=0.0, score=0.25),
)
EMPTY = record(id="b")


def test_densevid_results_are_read_back(tmp_path):
    path = tmp_path / "results.json"
    datasets.write_densevid(datasets.segments([PLACED, EMPTY]), path)
    first = json.loads(path.read_text())["results"]["a"][0]
    assert first == {"sentence": "Boil.", "timestamp": [0.0, 3.5]}
    read = datasets.read_predictions(path).segments
    assert {video: [row[:3] for row in rows] for video, rows in read.items()} == {
        "a": [(0.0, 3.5, "Boil."), (5.0, 9.0, "Stir.")],
        "b": [],
    }


def test_ht_step_seconds_go_in_the_order_of_the_steps_and_none_is_made_up(tmp_path):
    path = tmp_path / "result.json"
    datasets.write_htstep_result([PLACED], path)
    assert json.loads(path.read_text()) == {"a": [6, 0]}
    with pytest.raises(DatasetError, match="step 1 has no `at`"):
        datasets.write_htstep_result([record(Step(id="1", text="Wait."))], tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


def test_the_servers_headlines_are_read_in_its_order(tmp_path):
    path = write(tmp_path / "test.json", {"a": {"step_headline": ["Stir.", "Boil."]}})
    assert read_queries(path) == {"a": ("Stir.", "Boil.")}


def test_ht_step_grounding_has_a_row_per_span(tmp_path):
    path = tmp_path / "p.csv"
    datasets.write_htstep_grounding([PLACED, EMPTY], path)
    lines = ["video-id,t-start,t-end,label,score", "a,5.0,9.0,514,0.5", "a,1.0,2.0,514,0.5"]
    assert path.read_text().splitlines()[:3] == lines
    assert len(path.read_text().splitlines()) == 1 + 3


@pytest.mark.parametrize(
    ("id", "score", "message"),
    [("x", 0.5, "step id 'x' is not a global_step_index"), ("5", None, "step 5 has no score")],
)
def test_ht_step_grounding_needs_label_and_score(tmp_path, id, score, message):
    step = Step(id=id, text="a", spans=(Span(0, 1),), score=score)
    with pytest.raises(DatasetError, match=message):
        datasets.write_htstep_grounding([record(step)], tmp_path / "p.csv")
