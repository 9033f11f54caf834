import csv
import json
from collections import Counter

import pytest
from shared_forms import REAL, load

from stepline.datasets import read, stream
from stepline.datasets.htstep import read_taxonomy
from stepline.datasets.predictions import read_predictions
from stepline.datasets.record_builder import flaw

# records, reference steps, their spans, narrations, rejected by reason: counted in the shared two thirds
COUNTS = {
    "coin": (6806, 19950, 26818, 0, {}),
    "crosstask": (1812, 13655, 13983, 0, {}),
    "youcook2": (1218, 9416, 9416, 0, {}),
    "whenact": (861, 10198, 2097, 10198, {"span: has no length": 8}),
    "hirest": (1268, 3076, 3076, 0, {"step: has no length": 12}),
    "tutorialvqa": (53, 282, 282, 0, {}),
    "captaincook4d": (262, 3784, 3638, 0, {"span: marked as left out (-1)": 208}),
    "goal-step": (96, 5663, 5663, 0, {}),
    "epic-kitchens": (83, 6618, 6618, 0, {}),
}


@pytest.fixture
def data(shared):
    if not (shared / "data").is_dir():
        pytest.skip("needs the shared annotations beside the checkout")
    return shared / "data"


@pytest.mark.parametrize("name", REAL)
def test_real_annotations_are_read_and_counted(name, data, tmp_path):
    reading = read(name, REAL[name](data, tmp_path))
    steps = [step for record in reading.records for step in record.reference]
    heard = sum(len(record.transcript.sentences) for record in reading.records if record.transcript)
    spans = sum(len(step.spans) for step in steps)
    assert (len(reading.records), len(steps), spans, heard, reading.reasons()) == COUNTS[name]


def test_what_is_kept_and_what_is_rejected_is_all_there_is(data, tmp_path):
    videos = load(data / "hirest/hirest.json.gz")
    raw = [(*step["segment"], video["duration"]) for video in videos for step in video["steps"]]
    reasons = Counter(flaw(*map(float, row)) for row in raw)
    reading = read("hirest", REAL["hirest"](data, tmp_path))
    kept = sum(len(step.spans) for record in reading.records for step in record.reference)
    assert kept == reasons[None]
    assert len(reading.rejected) == sum(reasons.values()) - kept


def test_coin_and_youcook2_state_their_splits(data, tmp_path):
    assert Counter(read("coin", REAL["coin"](data, tmp_path)).subsets.values()) == {"training": 4799, "testing": 2007}
    youcook2 = read("youcook2", REAL["youcook2"](data, tmp_path / "yc2"))
    assert Counter(youcook2.subsets.values()) == {"train": 917, "val": 301}
    assert {len(record.id) for record in youcook2.records} == {11}  # YouTube's, without PDVC's "v_"


def test_whenact_is_joined_from_its_two_official_files_as_the_shared_file_was(data, tmp_path):
    clips = load(data / "whenact/narrated_actions.json.gz")
    spoken = {
        id: [[a["text"], a["spoken"], int(not a["visible"])] for a in clip["actions"]] for id, clip in clips.items()
    }
    shown = {id: [[a["text"], *a["shown"]] for a in clip["actions"] if a["shown"]] for id, clip in clips.items()}
    (tmp_path / "mapped_actions_time_label.json").write_text(json.dumps(spoken))
    (tmp_path / "dict_all_annotations_ordered.json").write_text(json.dumps(shown))
    official = {entry.id: entry for entry in stream("whenact", tmp_path)}
    joined = {entry.id: entry for entry in stream("whenact", data / "whenact/narrated_actions.json.gz")}
    same = [id for id, entry in joined.items() if official[id].record == entry.record]
    assert len(same) >= 850  # of 861; the others name an action twice with one window
    assert official.keys() == joined.keys()


def test_real_captaincook_steps_stay_when_they_were_left_out(data):
    reading = read("captaincook4d", data / "captaincook4d/steps.json.gz")
    unplaced = [step for record in reading.records for step in record.reference if not step.spans]
    assert 0 < len(unplaced) <= 208  # a step done twice may be left out once


def test_the_real_taxonomy_is_read_from_csv(data, tmp_path):
    activities = load(data / "htstep/taxonomy.json.gz")
    rows = [step for steps in activities.values() for step in steps]
    with (tmp_path / "taxonomy.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    taxonomy = read_taxonomy(tmp_path / "taxonomy.csv")
    assert len(taxonomy) == len(rows) == 3483
    assert len({step.activity for step in taxonomy.values()}) == len(activities) == 302


def test_ht_steps_own_example_predictions_are_read(data):
    predictions = read_predictions(data / "htstep/example_predictions_val_seen.csv.gz")
    assert predictions.rejected == ()
    assert len(predictions.segments) == 600
    first = predictions.segments["-25-1nbOki0"][0]
    assert first == (333.57538, 381.52155, "513", 0.31910652)


def test_the_shared_dense_captions_are_read(shared):
    predictions = read_predictions(shared / "metric_cases/yc2_predictions.json")
    assert predictions.rejected == ()
    assert predictions.segments["0uaKitJaqmI"][0] == (110.75, 136.08, "heat oil add chopped onion", None)
