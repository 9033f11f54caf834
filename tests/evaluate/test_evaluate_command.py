import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from stepline.cli.evaluate import evaluate
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import BENCHMARKS
from stepline.evaluate.benchmarks import evaluate as scored

ODD = ["", "[]", "3", "null", '{"a": {"b": {}}}', '{"a": 1, "a": 2}', "{", "\u0000", '{"a": NaN}']
LABELS = {f"v{n}": [n % 2, 1, 0] for n in range(40)}


@pytest.fixture
def files(tmp_path):
    for name, shift in {"truth": 0, "one": 0.4, "other": 0.9}.items():
        tree = {id: [y + shift * (k % 2) for k, y in enumerate(ys)] for id, ys in LABELS.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(evaluate, [str(a) for a in arguments], catch_exceptions=False)


def test_without_a_benchmark_all_are_listed():
    lines = run().output.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_alone_says_its_rules(name):
    output = run(name).output
    for convention, found in BENCHMARKS[name].conventions.items():
        assert convention in output
        assert found.rule in output


def test_scores_are_printed_with_protocol_and_interval(files):
    result = run("vnd", "--predictions", files / "one.json", "--reference", files / "truth.json")
    assert "vnd/official" in result.stdout
    assert "ROC-AUC    1.0000  [1.0000, 1.0000]        40     120  vnd/official" in result.stdout


def test_json_against_another_system_and_a_row_a_video(files):
    import pyarrow.parquet as parquet

    result = run(
        "vnd", "--predictions", files / "one.json", "--reference", files / "truth.json", "--against",
        files / "other.json", "--per-video", files / "rows.parquet", "--json", "--draws", 50, "--seed", 3,
    )  # fmt: skip
    tree = json.loads(result.stdout)
    assert tree["videos"] == 40
    assert tree["bootstrap"]["seed"] == 3
    assert tree["against"]["videos"] == 40
    assert parquet.read_table(files / "rows.parquet").num_rows == 40
    assert "rows.parquet" in result.stderr


def test_wrong_use_is_one_clear_error(files):
    with pytest.raises(DatasetError, match="did you mean 'htm-align'"):
        run("htm_align")
    with pytest.raises(DatasetError, match="--reference is lacking"):
        run("vnd", "--predictions", files / "one.json")
    with pytest.raises(DatasetError, match="no convention 'officially'; did you mean 'official'"):
        scored("vnd", files / "one.json", files / "truth.json", convention="officially")
    with pytest.raises(DatasetError, match="none.json"):
        scored("vnd", files / "none.json", files / "truth.json")


@pytest.mark.parametrize("name", ["htm-align", "crosstask", "vnd", "ivsum"])
def test_a_subset_that_cannot_be_chosen_is_refused_and_not_passed_over(files, name):
    with pytest.raises(DatasetError, match="states no subsets"):
        scored(name, files / "one.json", files / "truth.json", subset="val")


@pytest.mark.parametrize(("name", "convention"), [("youcook2", "vidchapters"), ("ivsum", "official")])
def test_a_convention_that_skips_videos_blames_empty_or_foreign_predictions_and_not_the_reference(
    tmp_path, name, convention
):
    truth = {"youcook2": {"a": {"timestamps": [[0, 1]], "sentences": ["x"]}}, "ivsum": {"a": [1, 0]}}[name]
    given = {"youcook2": {"b": [[0, 1, "x"]]}, "ivsum": {"b": [1, 0]}}[name]
    (tmp_path / "r.json").write_text(json.dumps(truth))
    for tree, rule in (({}, "p.json: empty"), (given, "p.json: no id is in the reference")):
        (tmp_path / "p.json").write_text(json.dumps(tree))
        with pytest.raises(DatasetError, match=rule):
            scored(name, tmp_path / "p.json", tmp_path / "r.json", convention=convention)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("content", ODD)
def test_no_file_however_odd_is_scored_or_crashes(tmp_path, name, content):
    (tmp_path / "odd.json").write_text(content)
    for convention in BENCHMARKS[name].conventions:
        with pytest.raises(DatasetError):
            scored(name, tmp_path / "odd.json", tmp_path / "odd.json", convention=convention)


def test_importing_the_command_imports_nothing_heavy():
    code = "import sys, stepline.cli.evaluate; print({'numpy', 'pydantic', 'scipy', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
