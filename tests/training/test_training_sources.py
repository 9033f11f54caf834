"""What every trainer asks of a video before it trains on it; what is left out is told with its
reason."""

import numpy as np
import pytest

from stepline.datasets.excluded import ExcludedVideos
from stepline.features import FeatureStore, FeatureWriter
from stepline.models.training import sources
from stepline.models.training.batches import is_held_out
from stepline.models.training.sources import TrainingVideoFilter, format_reasons
from stepline.records import FeatureSequence


def features(rows=8, width=4, rate=1.0, backbone="clip"):
    return FeatureSequence(np.ones((rows, width), np.float32), rate, backbone)


def in_store(folder, **videos):
    with FeatureWriter(folder) as writer:
        for id, found in videos.items():
            writer.add(id, found.values, rate=found.rate, backbone=found.backbone)
    return FeatureStore(folder)


@pytest.mark.parametrize("stored", [False, True])
def test_a_video_that_fits_has_no_flaw_and_comes_once(tmp_path, stored):
    given = {"a": features(), "b": features()}
    join = TrainingVideoFilter(in_store(tmp_path, **given) if stored else given, slack=1.0)
    assert join.reason_to_omit("a", 8.5, key="a") is None
    assert join.reason_to_omit("a", 8.5, key="a") == (sources.SEEN_TWICE, "")
    assert join.reason_to_omit("b", 10.0, key="b") == (sources.OTHER_LENGTH, "10 s and 8 s")
    assert join.reason_to_omit("c", key="c") == (sources.NO_FEATURES, "")
    assert join.reason_to_omit("a") is None  # without a key it comes as often as it likes
    assert join.omitted == []


@pytest.mark.parametrize(
    ("other", "reason", "value"),
    [
        (features(width=5), sources.OTHER_WIDTH, "video 5, not 4"),
        (features(backbone="s3d"), sources.OTHER_BACKBONE, "video s3d, not clip"),
        (features(rate=2.0), sources.OTHER_RATE, "video 2, not 1"),
        (features(rows=0), sources.NO_ROWS, ""),
    ],
)
def test_features_must_be_of_the_first_videos_kind(other, reason, value):
    join = TrainingVideoFilter({"a": features(), "b": other}, requires_same_rate=True)
    assert join.reason_to_omit("a") is None
    assert join.reason_to_omit("b") == (reason, value)
    loose = TrainingVideoFilter({"a": features(), "b": other})
    assert loose.reason_to_omit("a") is None
    assert (loose.reason_to_omit("b") is None) == (reason == sources.OTHER_RATE)


def test_vectors_of_the_texts_must_be_there_and_alike(tmp_path):
    vectors = in_store(tmp_path, a=features(width=3))
    join = TrainingVideoFilter({"a": features(), "b": features()})
    assert join.reason_to_omit("a", vectors=vectors) is None
    assert join.reason_to_omit("b", vectors=vectors) == (sources.NO_VECTORS, "")
    assert join.specs["text"].width == 3


def test_what_is_left_out_is_counted_by_its_reason():
    join = TrainingVideoFilter({}, excluded=ExcludedVideos({"x": ("youcook2",)}))
    for video in ("x", "y", "z"):
        join.omit("video", video, join.reason_to_omit(video))
    join.omit("step", "w", join.reason_to_omit("w", missing="it has no text"), "cut")
    assert [(row.what, row.id, row.reason, row.text) for row in join.omitted] == [
        ("video", "x", sources.EXCLUDED_REASON, ""),
        ("video", "y", sources.NO_FEATURES, ""),
        ("video", "z", sources.NO_FEATURES, ""),
        ("step", "w", "it has no text", "cut"),
    ]
    assert format_reasons(join.omitted).startswith(f"2 x {sources.NO_FEATURES}, 1 x ")
    assert format_reasons([]) == "nothing was given"


def test_the_id_alone_decides_whether_a_video_is_held_out():
    ids = [f"v{number}" for number in range(400)]
    held = {id for id in ids if is_held_out(id, 0.25)}
    assert 60 < len(held) < 140
    assert held < {id for id in ids if is_held_out(id, 0.5)}
    assert not any(is_held_out(id, 0.0) for id in ids)
    assert all(is_held_out(id, 1.0) for id in ids)
