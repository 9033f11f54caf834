"""Any JSON tree, and any damage to an official file, gives a result or a DatasetError of one
line."""

import copy
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from official_forms import SAMPLES

from stepline.datasets import DATASETS, DatasetRecords, read, read_predictions
from stepline.errors import DatasetError

KEYS = st.sampled_from(
    (
        "database a results timestamps sentences annotations segment start end text steps id "
        "video_id timestamp sentence chapters 00:01:20 segments duration videos version"
    ).split()
)
LEAVES = (
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    st.sampled_from([10**400, "\ud800", "00:01:20", "-1", "95.2s", "v_GLd3aX16zBg"]),
)
TREES = st.recursive(
    st.one_of(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
JSON_DATASETS = [name for name in DATASETS if name != "crosstask"]
FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def told(action):
    """Run an action that may refuse its input, with one line that names the cure."""
    try:
        return action()
    except DatasetError as error:
        assert "\n" not in str(error)
        assert ";" in str(error)
        return None


def places(tree, path=()):
    """Yield the path of every value in a tree."""
    yield path
    items = tree.items() if isinstance(tree, dict) else ()
    if isinstance(tree, list):
        items = enumerate(tree)
    for key, value in items:
        yield from places(value, (*path, key))


def replaced(tree, path, value):
    if not path:
        return value
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def read_text(name, text, sample=None):
    with tempfile.TemporaryDirectory() as folder:
        path = SAMPLES[name](Path(folder)) if sample is None else sample(Path(folder))
        file = path / "annotations.json" if path.is_dir() else path
        file.write_text(text, encoding="utf-8")
        reading = read(name, path)
        assert isinstance(reading, DatasetRecords)
        ids = [record.id for record in reading.records]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", JSON_DATASETS)
@FUZZ
@given(tree=TREES)
def test_any_tree_is_read_or_refused(name, tree):
    told(lambda: read_text(name, json.dumps(tree)))


@pytest.mark.parametrize("name", JSON_DATASETS)
@FUZZ
@given(data=st.data())
def test_any_damage_to_a_sample_is_read_or_refused(name, data):
    with tempfile.TemporaryDirectory() as folder:
        path = SAMPLES[name](Path(folder))
        tree = json.loads((path / "annotations.json" if path.is_dir() else path).read_text())
    damaged = replaced(tree, data.draw(st.sampled_from(list(places(tree)))), data.draw(TREES))
    told(lambda: read_text(name, json.dumps(damaged)))


@pytest.mark.parametrize("name", ["crosstask", "ht-step"])
@FUZZ
@given(data=st.data())
def test_any_damage_to_a_text_file_is_read_or_refused(name, data):
    with tempfile.TemporaryDirectory() as folder:
        path = SAMPLES[name](Path(folder))
        files = sorted(file for file in Path(folder).rglob("*") if file.suffix in (".csv", ".txt"))
        file = data.draw(st.sampled_from(files))
        text = file.read_text()
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        damaged = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
        file.write_text(damaged, encoding="utf-8", errors="replace")
        told(lambda: read(name, path))


@settings(FUZZ, max_examples=200)
@given(tree=TREES)
def test_any_tree_of_predictions_is_read_or_refused(tree):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps(tree))
        predictions = told(lambda: read_predictions(path))
    for segments in predictions.segments.values() if predictions else ():
        assert all(max(abs(row.start), abs(row.end)) < float("inf") for row in segments)
        # an empty caption counts as a prediction
        assert all(isinstance(row.sentence, str) for row in segments)


@settings(FUZZ, max_examples=200)
@given(text=st.text(alphabet='[]{}":,.0123456789-abc \n`', max_size=80))
def test_any_text_of_predictions_is_read_or_refused(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(text)
        told(lambda: read_predictions(path))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[{" * 50_000, "a" * 2_000_000, '{"' + "1" * 100_000 + ':": "a"}']
)
def test_hostile_predictions_do_not_hang(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    told(lambda: read_predictions(tmp_path / "a.json"))
