"""What release 0.1.0 said of a step is read as what it is called today: nothing is lost."""

import json
import logging

import pytest
from pydantic import ValidationError

from stepline import records
from stepline.datasets.predictions import read_predictions
from stepline.library.corrections import ChangeEdit
from stepline.live.events import LiveEvent
from stepline.records import EARLIER_DOUBT, Record, Span, Step, Video
from stepline.storage import from_json, read_parquet, to_json, write_parquet

# a record as release 0.1.0 wrote it: (status, basis) of each step -> (status, basis, doubt) of today
EARLIER = {
    ("shown", "words"): ("placed", None, None),
    ("shown", "pictures"): ("seen", "pictures", None),
    ("shown", None): ("seen", "pictures", None),  # of a trained network or a person
    ("unclear", "words"): ("placed", None, EARLIER_DOUBT),
    ("unclear", "pictures"): ("placed", None, EARLIER_DOUBT),
    ("said", None): ("said_only", None, None),
    ("not found", None): ("not_found", None, None),
    (None, None): (None, None, None),
}


def earlier_json():
    steps = []
    for number, (status, basis) in enumerate(EARLIER, start=1):
        spans = [[5.0, 8.0]] if status in ("shown", "unclear", None) else []
        step = {"id": str(number), "text": "slice it", "start": None, "end": None, "kind": "do"}
        step |= {"at": None, "said": [1.0, 2.0], "status": status, "score": 0.9, "sources": []}
        step |= {"source_text": None, "licence": None, "alternatives": [], "spans": spans}
        steps.append(step if basis is None else step | {"basis": basis})
    video = {"id": "a", "path": None, "duration": 9.0, "title": None, "task": None, "sha256": None}
    tree = {"version": 1, "id": "a", "video": video, "transcript": None, "steps": steps}
    return json.dumps(tree | {"recipe": [], "captions": [], "reference": [], "dropped": []})


def verdicts(steps):
    return [(step.status, step.basis, step.doubt) for step in steps]


def test_a_record_of_release_0_1_0_is_read_with_the_statuses_of_today_and_one_line(caplog):
    records._warn_of_earlier_status.cache_clear()
    with caplog.at_level(logging.WARNING):
        record = from_json(earlier_json())
        from_json(earlier_json())
    assert verdicts(record.steps) == list(EARLIER.values())
    (line,) = [line for line in caplog.messages if "0.1.0" in line]
    assert "shown is now seen" in line
    # and what is written from then on is of today
    assert from_json(to_json(record)) == record
    assert '"unclear"' not in to_json(record)


def test_parquet_files_and_predictions_of_release_0_1_0_are_read(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    path = tmp_path / "records.parquet"
    write_parquet([from_json(earlier_json())], path)
    table = parquet.read_table(path)
    earlier = table.set_column(
        table.schema.get_field_index("record"), "record", arrow.array([earlier_json()])
    )
    parquet.write_table(earlier.replace_schema_metadata(table.schema.metadata), path)
    (record,) = read_parquet(path)
    assert verdicts(record.steps) == list(EARLIER.values())
    (tmp_path / "a.json").write_text(earlier_json())
    predictions = read_predictions(tmp_path / "a.json")
    assert len(predictions.segments["a"]) == 6


@pytest.mark.parametrize(
    ("earlier", "status"),
    [("shown", "seen"), ("unclear", "placed"), ("said", "said_only"), ("not found", "not_found")],
)
def test_a_correction_of_release_0_1_0_keeps_its_status(earlier, status):
    text = json.dumps({"do": "change", "step": "1", "status": earlier})
    assert ChangeEdit.model_validate_json(text).status == status


def test_a_live_log_of_release_0_1_0_is_read():
    event = {"event": "step_ended", "number": 3, "at": 9.0, "step": "1", "status": "shown"}
    event |= {"basis": "words", "spans": [{"start": 3.0, "end": 5.0}]}
    read = LiveEvent.model_validate_json(json.dumps(event))
    assert (read.status, read.basis, read.spans) == ("placed", None, (Span(3.0, 5.0),))
    with pytest.raises(ValidationError):
        LiveEvent.model_validate_json("{")


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "seen"},
        {"status": "placed", "basis": "network"},
        {"status": "said_only", "doubt": "a face"},
        {"basis": "person"},
    ],
)
def test_no_step_is_seen_without_saying_by_what(fields):
    with pytest.raises(ValidationError, match="basis|doubt"):
        Step(id="1", text="slice it", **fields)
    copied = Step(id="1", text="slice it").model_copy(update=fields)
    with pytest.raises(ValidationError, match="basis|doubt"):
        Record(id="a", video=Video(id="a"), steps=(copied,))
