"""Stored results come back from their bytes, and equal values give equal bytes."""

import numpy as np
import pytest

from stepline.curate.stages import intermediate
from stepline.errors import StoreError
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, Span, Step
from stepline.vision import Activity, ScreenText


def test_a_part_comes_back_from_its_bytes():
    step = Step(id="1", text="chop", said=Span(1.0, 2.5), spans=(Span(3.0, 4.0),))
    grounded = intermediate.GroundedSteps(steps=(step,), kind="probability", report={"lag": 0.5})
    data = intermediate.dump_result(grounded)
    loaded = intermediate.load_result(intermediate.GroundedSteps, data)
    assert (loaded, intermediate.dump_result(loaded)) == (grounded, data)


def test_arrays_come_back_and_the_same_values_give_the_same_bytes():
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(2, dtype=np.float16)}
    header = intermediate.FeatureHeader(backbone="conse", cuts=(1.5,))
    data = intermediate.pack_arrays(header, arrays)
    looked, back = intermediate.unpack_arrays(intermediate.FeatureHeader, data)
    assert looked == header
    assert sorted(back) == ["a", "b"]
    assert np.array_equal(back["b"], arrays["b"])
    assert data == intermediate.pack_arrays(looked, dict(reversed(arrays.items())))


def test_a_damaged_cell_is_reported_as_one():
    with pytest.raises(StoreError, match="is not a ProbeResult"):
        intermediate.load_result(intermediate.ProbeResult, b"{}")
    with pytest.raises(StoreError, match="has no arrays of FeatureHeader"):
        intermediate.unpack_arrays(intermediate.FeatureHeader, b"not safetensors at all")


def test_pictures_come_back_with_their_motion_and_shots():
    values = np.array([[0.6, 0.8], [1.0, 0.0]], dtype=np.float32)
    still = np.zeros(2, np.float32)
    activity = Activity(still, (1.0,), 1.0, still, np.zeros((2, 192), np.float32))
    lines = (ScreenText("Stir", Span(0.0, 2.0), 0.1),)
    rows = FeatureSequence(values, 1.0, "conse")
    visual = VisualFeatures(rows, activity, None, 2.0, ("dark",), lines)
    seen = intermediate.unpack_features(intermediate.pack_features(visual))
    assert np.allclose(seen.features.values, values, atol=1e-3)
    assert (seen.on_screen, seen.activity.cuts) == (lines, (1.0,))
    assert (seen.end, seen.warnings, seen.backbone) == (2.0, ("dark",), None)
    nothing = intermediate.unpack_features(intermediate.pack_features(VisualFeatures()))
    assert (nothing.features, nothing.activity, nothing.on_screen) == (None, None, ())


def test_seconds_are_kept_to_the_millisecond_and_never_infinite():
    assert intermediate.round_seconds(3.14159) == 3.142
    assert intermediate.round_seconds(float("inf")) == 0.0
