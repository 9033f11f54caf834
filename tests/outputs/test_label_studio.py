"""The task for Label Studio, by its documented JSON and its own validator."""

import json
import logging
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from output_samples import make_step

from stepline.datasets.label_studio import read
from stepline.errors import DatasetError
from stepline.outputs import WebAddresses, write_outputs
from stepline.records import Record, Video

DOCS = Path(__file__).resolve().parents[2] / "docs" / "outputs.md"


def interface():
    """The labelling interface of docs/outputs.md."""
    return re.search(r"<View>.*?</View>", DOCS.read_text(encoding="utf-8"), re.DOTALL)[0]


@pytest.fixture
def task(tmp_path):
    def write(record, **options):
        media = tmp_path / "videos" / "my v.mp4"
        (path,) = write_outputs(
            record, tmp_path / "out", media=media, formats=["labelstudio"], **options
        )
        (tree,) = json.loads(path.read_text(encoding="utf-8"))
        return tree

    return write


def test_the_video_has_the_address_that_label_studio_opens(task, record):
    web = WebAddresses(media="/data/local-files/?d=videos/")
    assert task(record, web=web)["data"]["video"] == "/data/local-files/?d=videos/my%20v.mp4"
    web = WebAddresses(media="https://cdn.example.org/v")
    assert task(record, web=web)["data"]["video"] == "https://cdn.example.org/v/my%20v.mp4"
    web = WebAddresses("https://example.org/out")
    assert task(record, web=web)["data"]["video"] == "https://example.org/videos/my%20v.mp4"


def test_a_path_of_the_record_is_not_handed_on(record, tmp_path):
    video = record.video.model_copy(update={"path": "/home/ann/secret/v.mp4"})
    for path, expected in ((video.path, "v.mp4"), (None, video.id)):
        taken = record.model_copy(update={"video": video.model_copy(update={"path": path})})
        (file,) = write_outputs(taken, tmp_path, formats=["labelstudio"])
        (tree,) = json.loads(file.read_text(encoding="utf-8"))
        assert tree["data"]["video"] == expected


def test_without_an_address_one_line_names_the_option(task, record, caplog):
    with caplog.at_level(logging.WARNING):
        assert task(record)["data"]["video"] == "../videos/my%20v.mp4"
        task(record, web=WebAddresses(media="https://a.org"))
    (line,) = [row.getMessage() for row in caplog.records]
    assert line.endswith(
        "mint-lemonade.labelstudio.json: Label Studio opens only addresses; give the video's by "
        "--media-url"
    )


def test_every_result_belongs_to_a_tag_of_the_documented_interface(task, record):
    """The form is that of https://labelstud.io/tags/timelinelabels and .../textarea, perRegion."""
    view = ElementTree.fromstring(interface())
    tags = {tag.get("name"): tag for tag in view.iter() if tag.get("name")}
    labels = {label.get("value") for label in tags["status"]}
    tree = task(record)
    assert tags["video"].get("value") == "$video"
    assert tags["video"].get("frameRate") == "$frame_rate"
    (prediction,) = tree["predictions"]
    assert len(prediction["result"]) == 22  # 11 spans, a label and a text each
    for row in prediction["result"]:
        tag = tags[row["from_name"]]
        assert row["type"] == tag.tag.lower()
        assert row["to_name"] == tag.get("toName") == "video"
        ((start, end),) = [(r["start"], r["end"]) for r in row["value"]["ranges"]]
        assert 1 <= start <= end <= tree["data"]["duration"] * tree["data"]["frame_rate"]
        if row["type"] == "timelinelabels":
            assert set(row["value"]["timelinelabels"]) <= labels
        else:
            assert tag.get("perRegion") == "true"


def test_label_studios_own_validator_takes_it(task, record):
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    view = sdk.LabelInterface(interface())
    tree = task(record)
    assert view.validate_prediction(tree["predictions"][0], return_errors=True) == []
    assert all(tree["data"].get(tag.value_name) for tag in view.objects)


def test_a_further_span_is_a_candidate_unless_people_marked_it(task):
    placed = make_step(1, "fold", ((1.0, 2.0), (5.0, 6.0)), status="placed")
    marked = make_step(2, "glue", ((7.0, 8.0), (9.0, 10.0)))
    tree = task(Record(id="v", video=Video(id="v", duration=20.0), steps=(placed, marked)))
    labels = [
        row["value"]["timelinelabels"][0]
        for row in tree["predictions"][0]["result"]
        if row["type"] == "timelinelabels"
    ]
    assert labels == ["placed", "candidate", "placed", "placed"]


def read_export(tmp_path, data):
    value = {"ranges": [{"start": 1, "end": 30}, {"start": 61, "end": 75}]}
    rows = [
        {"id": "a", "type": "timelinelabels", "value": value | {"timelinelabels": ["seen"]}},
        {"id": "a", "type": "textarea", "value": value | {"text": ["Fold it"]}},
    ]
    path = tmp_path / "label_studio.json"
    task = {"data": {"video": "https://a.org/v.mp4"} | data, "annotations": [{"result": rows}]}
    path.write_text(json.dumps([task]))
    (entry,) = read(path)
    (step,) = entry.record.reference
    return [(span.start, span.end) for span in step.spans]


@pytest.mark.parametrize("key", ["frame_rate", "fps", "frameRate", "FPS", "video-fps"])
def test_the_ranges_of_a_region_are_frames_at_the_rate_of_its_task(tmp_path, key):
    # Frames 1 to 30 and 61 to 75, at 10 frames per second.
    assert read_export(tmp_path, {key: "10", "duration": 60.0}) == [(0.0, 3.0), (6.0, 7.5)]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"duration": 60.0}, "states no frame rate"),
        ({"fps": None}, "states no frame rate"),
        ({"frame_rate": 0}, r"states the frame rates \[0.0\]"),
        ({"frame_rate": 24, "fps": 10}, r"states the frame rates \[10.0, 24.0\]"),
    ],
)
def test_no_rate_is_assumed(tmp_path, data, fault):
    with pytest.raises(DatasetError, match=fault + '.*give "frame_rate"'):
        read_export(tmp_path, data)
