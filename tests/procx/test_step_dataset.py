import numpy as np
import pytest
from silent_videos import SECONDS, features, records, write_videos

from stepline.errors import DatasetError, ShapeError
from stepline.features import FeatureStore
from stepline.models.procx.settings import DataSettings
from stepline.models.procx.train import NO_STEP, STEP_AFTER_END, default_step_source, gather_samples
from stepline.models.training.sources import (
    EXCLUDED_REASON,
    NO_FEATURES,
    NO_ROWS,
    OTHER_LENGTH,
    OTHER_WIDTH,
    SEEN_TWICE,
    read_records,
)
from stepline.records import FeatureSequence, Record, Sentence, Span, Step, Video
from stepline.storage import write_parquet, write_record


def gathered(told=None, given=None, excluded=frozenset(), **settings):
    told = records() if told is None else told
    given = {one.video.id: features(one) for one in told} if given is None else given
    return gather_samples(told, given, DataSettings(**settings), excluded=excluded)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"target": "reference"}, "plain"),
        ({"target": "steps"}, "plain"),
        ({"target": "narration"}, "now we plain"),
        ({"target": "steps", "wording": "said"}, "now we plain"),  # only-sieve
    ],
)
def test_the_setting_says_which_steps_are_asked_for(settings, wanted):
    sample = gathered(**settings)[0]
    plain = records()[0].reference[0].text
    assert sample.sentences[0] == wanted.replace("plain", plain)
    assert sample.spans == ((2.0, 8.0), (13.0, 19.0))
    assert sample.duration == SECONDS


def test_a_step_that_is_only_said_lies_where_it_is_said():
    record = records(1)[0]
    said = tuple(step.model_copy(update={"spans": ()}) for step in record.steps)
    assert gathered([record.model_copy(update={"steps": said})])[0].spans == (
        (2.0, 8.0),
        (13.0, 19.0),
    )


def test_a_hundred_steps_are_all_kept():
    steps = tuple(
        Step(id=str(k), text=f"step {k}", spans=(Span(k * 0.2, k * 0.2 + 0.1),)) for k in range(100)
    )
    record = records(1)[0].model_copy(update={"steps": steps})
    found = gathered([record])
    assert found.counts == (100,)
    assert len(found[0].spans) == 100
    assert not found.omitted


def test_what_is_left_out_is_reported():
    one, two, three, four, five, six, seven = records(7)
    long = two.model_copy(update={"video": Video(id="v1", duration=90.0)})
    empty = three.model_copy(update={"steps": ()})
    late = four.model_copy(
        update={"steps": (Step(id="0", text="late", spans=(Span(30.0, 40.0),)), *four.steps)}
    )
    given = {record.id: features(record) for record in (one, two, three, four, six, seven)}
    given["v5"] = FeatureSequence(np.zeros((SECONDS, 3), np.float32), 1.0, "drawn")
    given["v6"] = FeatureSequence(np.zeros((0, 8), np.float32), 1.0, "drawn")
    found = gathered([one, one, long, empty, late, five, six, seven], given)
    every = (SEEN_TWICE, OTHER_LENGTH, NO_STEP, STEP_AFTER_END, NO_FEATURES, OTHER_WIDTH, NO_ROWS)
    assert found.count_reasons() == dict.fromkeys(every, 1)
    assert found.videos == ("v0", "v3")
    (past,) = [each for each in found.omitted if each.reason == STEP_AFTER_END]
    assert (past.id, past.text, past.value) == ("v3", "late", "30 s of 24 s")


def test_evaluation_videos_are_kept_out():
    found = gathered(excluded=frozenset({"v1", "v2"}))
    assert found.count_reasons() == {EXCLUDED_REASON: 2}
    assert "v1" not in found.videos


def test_nothing_left_is_an_error_that_says_why():
    with pytest.raises(ShapeError, match=f"2 x {NO_FEATURES}"):
        _ = gathered(records(2), {}).spec


def test_features_that_hold_nan_are_refused_when_they_are_read(tmp_path):
    store, _ = write_videos(tmp_path, 2)
    shard = next(store.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-2:] = b"\xff\x7f"  # the last half float of v1: NaN
    shard.write_bytes(data)
    found = gather_samples(records(2), FeatureStore(store))
    assert found[0].id == "v0"
    with pytest.raises(ShapeError, match="v1: .*NaN"):
        _ = found[1]


def test_held_out_videos_are_chosen_by_their_ids():
    told = records(40)
    kept, out = gathered(told).split(0.25)
    assert sorted((*kept.videos, *out.videos)) == sorted(record.id for record in told)
    assert 0 < len(out) < 20
    again = gathered(told[::-1]).split(0.25)[1]
    assert set(again.videos) == set(out.videos)
    assert gathered(told).split(0.0)[1].videos == ()


def test_sources_are_records_or_a_public_dataset(tmp_path):
    _, flat = write_videos(tmp_path, 2)
    dataset = f"youcook2:{flat}"
    assert default_step_source(dataset) == "reference"
    assert [record.id for record in read_records(dataset)] == ["v0", "v1"]
    assert [record.id for record in read_records(dataset, subset="val")] == []
    parts = tmp_path / "swapped"
    parts.mkdir()
    write_parquet(records(2), parts / "a.parquet")
    write_record(Record(id="z", video=Video(id="z")), parts / "z.json")
    assert default_step_source(str(parts)) == "steps"
    assert [record.id for record in read_records(str(parts))] == ["v0", "v1", "z"]
    with pytest.raises(DatasetError, match="leave --subset out"):
        list(read_records(str(parts), subset="val"))
    with pytest.raises(DatasetError, match="no such file or folder"):
        list(read_records(str(tmp_path / "none")))


def test_a_blank_sentence_is_not_a_step():
    record = records(1)[0]
    blank = Sentence(text="  ", span=Span(20.0, 21.0))
    told = record.transcript.model_copy(update={"sentences": (*record.transcript.sentences, blank)})
    found = gathered([record.model_copy(update={"transcript": told})], target="narration")
    assert found.counts == (2,)
    assert found.count_reasons() == {"the step has no text": 1}
