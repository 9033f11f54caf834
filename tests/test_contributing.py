"""What docs/contributing.md shows works: its plugin, its dataset, and the file to cite."""

import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from stepline.datasets import DATASETS, describe, read
from stepline.outputs import OUTPUTS
from stepline.storage import read_record
from stepline.vision import VisionSettings, load_backbone

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
MODULES = ("my_plugin", "my_dataset", "stepline.datasets.my_dataset")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that Python imports from."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in MODULES:
        sys.modules.pop(name, None)
    OUTPUTS.pop("numbered", None)


@pytest.fixture
def plugin(site):
    """The page's package, as pip would install it."""
    (configuration,) = blocks("toml")
    project = tomllib.loads(configuration)["project"]
    facts = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    facts_text = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (facts / "METADATA").write_text(facts_text)
    lines = []
    for group, points in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in points.items()]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    (site / "my_plugin.py").write_text(blocks("python")[0])


@pytest.mark.usefixtures("plugin")
def test_the_output_and_the_backbone_of_the_page_are_used_by_the_command(
    small_video, captions_file, tmp_path, stepline
):
    options = ("--captions", captions_file, "--format", "numbered", "--backbone", "brightness")
    job = ("steps", small_video, *options, "--out", tmp_path)
    result = stepline(*job)
    assert result.exit_code == 0, result.output
    record = read_record(tmp_path / "small.json")
    assert record.models["vision"] == "brightness"
    lines = (tmp_path / "small.numbered.txt").read_text().splitlines()
    assert lines[0] == f"1. {record.steps[0].text}"
    assert len(lines) == len(record.steps)
    assert "done before" in stepline(*job).stderr


@pytest.mark.usefixtures("plugin")
def test_the_backbone_of_the_page_gives_rows_of_length_one():
    backbone = load_backbone(VisionSettings(backbone="brightness"))
    pictures = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), np.uint8)
    rows = np.concatenate([backbone.encode_images(pictures), backbone.encode_texts(["a", "b"])])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    assert backbone.encode_texts([]).shape == (0, 2)


def test_the_dataset_of_the_page_is_read_and_described(site, tmp_path, monkeypatch):
    _, reader, row = blocks("python")
    (sample,) = blocks("json")
    (site / "my_dataset.py").write_text(reader)
    module = importlib.import_module("my_dataset")
    monkeypatch.setitem(sys.modules, "stepline.datasets.my_dataset", module)
    monkeypatch.setattr("stepline.datasets.my_dataset", module, raising=False)
    names = {}
    exec(row, names)
    monkeypatch.setitem(DATASETS, "my-dataset", names["ROW"])
    path = tmp_path / "my_dataset.json"
    tree = json.loads(sample)
    tree["v1"]["steps"].append({"text": "Wait", "start": 70, "end": 80})
    path.write_text(json.dumps(tree))
    reading = read("my-dataset", path)
    ((step,),) = (record.reference for record in reading.records)
    assert (step.text, step.start, step.end) == ("Peel the apple", 3.0, 9.5)
    assert reading.subsets == {"v1": "train"}
    assert [rejected.text for rejected in reading.rejected] == ["Wait"]
    assert "https://example.org/my-dataset" in describe("my-dataset")


def test_the_kinds_of_plugins_are_those_of_the_package():
    from stepline.plugins import BUILT_IN_NAMES

    assert set(re.findall(r'^\| `"stepline\.(\w+)"` \|', PAGE, re.MULTILINE)) == set(BUILT_IN_NAMES)


def test_the_file_to_cite_names_the_version_and_licence_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"]
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest.groups() == (project["version"], str(citation["date-released"]))
    assert citation["license"] == project["license"]
    names, told = ([author["name"] for author in t["authors"]] for t in (project, citation))
    assert names == told
