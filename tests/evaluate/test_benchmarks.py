import gzip
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from metric_cases import segments, values
from option_words import option_words

from lab.cli import lab
from stepline.cli import main
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import BENCHMARKS, evaluate
from stepline.evaluate.bootstrap import point_estimate
from stepline.evaluate.report import report

ODD = ["", "[]", "3", "null", '{"a": {"b": {}}}', '{"a": 1, "a": 2}', "{", "\u0000", '{"a": NaN}']
LABELS = {f"v{n}": [n % 2, 1, 0] for n in range(40)}


@pytest.fixture
def files(tmp_path):
    for name, shift in {"truth": 0, "one": 0.4, "other": 0.9}.items():
        tree = {id: [y + shift * (k % 2) for k, y in enumerate(ys)] for id, ys in LABELS.items()}
        (tmp_path / f"{name}.json").write_text(json.dumps(tree))
    return tmp_path


def run(*arguments):
    words = ["evaluate", *map(str, arguments)]
    return CliRunner().invoke(main, words, catch_exceptions=False)


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

    names = {"predictions": "one.json", "reference": "truth.json", "against": "other.json"}
    names["per_video"] = "rows.parquet"
    paths = option_words(**{option: files / name for option, name in names.items()})
    result = run("vnd", *paths, "--json", *option_words(draws=50, seed=3))
    tree = json.loads(result.stdout)
    assert tree["videos"] == 40
    assert tree["bootstrap"]["seed"] == 3
    assert tree["against"]["videos"] == 40
    assert parquet.read_table(files / "rows.parquet").num_rows == 40
    assert "rows.parquet" in result.stderr


def test_wrong_use_is_one_clear_error(files):
    for words, cure in (
        (["htm_align"], "did you mean 'htm-align'"),
        (["vnd", "--predictions", files / "one.json"], "--reference is missing"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        assert cure in result.stderr
    with pytest.raises(DatasetError, match="no convention 'officially'; did you mean 'official'"):
        evaluate("vnd", files / "one.json", files / "truth.json", convention="officially")
    with pytest.raises(DatasetError, match="none.json: no such predictions; correct the path"):
        evaluate("vnd", files / "none.json", files / "truth.json")


@pytest.mark.parametrize("name", ["htm-align", "crosstask", "vnd", "ivsum"])
def test_a_subset_that_cannot_be_chosen_is_refused_and_not_passed_over(files, name):
    with pytest.raises(DatasetError, match="states no subsets"):
        evaluate(name, files / "one.json", files / "truth.json", subset="val")


@pytest.mark.parametrize(
    ("name", "convention", "truth", "given"),
    [
        (
            "youcook2",
            "vidchapters",
            {"a": {"timestamps": [[0, 1]], "sentences": ["x"]}},
            {"b": [[0, 1, "x"]]},
        ),
        ("ivsum", "official", {"a": [1, 0]}, {"b": [1, 0]}),
    ],
)
def test_a_convention_that_skips_videos_blames_empty_or_foreign_predictions_and_not_the_reference(
    tmp_path, name, convention, truth, given
):
    (tmp_path / "r.json").write_text(json.dumps(truth))
    for tree, rule in (({}, "p.json: empty"), (given, "p.json: no id is in the reference")):
        (tmp_path / "p.json").write_text(json.dumps(tree))
        with pytest.raises(DatasetError, match=rule):
            evaluate(name, tmp_path / "p.json", tmp_path / "r.json", convention=convention)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("content", ODD)
def test_no_file_however_odd_is_scored_or_crashes(tmp_path, name, content):
    (tmp_path / "odd.json").write_text(content)
    for convention in BENCHMARKS[name].conventions:
        with pytest.raises(DatasetError):
            evaluate(name, tmp_path / "odd.json", tmp_path / "odd.json", convention=convention)


def test_importing_the_command_imports_nothing_heavy():
    code = "import sys, stepline.cli.evaluate; print({'numpy', 'pydantic', 'scipy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


ROOT = Path(__file__).resolve().parents[2]
EVALUATION = ROOT / "docs" / "evaluation.md"


def shown_commands():
    yield from re.findall(r"`(stepline evaluate[^`]*)`", EVALUATION.read_text())
    yield from re.findall(r"^    \$ (stepline .+)$", EVALUATION.read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", sorted(set(shown_commands())))
def test_every_command_of_the_page_parses(line):
    program, *words = shlex.split(line)
    if program == "python" and words[:2] == ["-m", "lab"]:
        lab.commands[words[2]].make_context(words[2], words[3:])
        return
    if program == "python":
        assert (ROOT / words[0]).is_file()
        return
    if words == ["evaluate", "BENCHMARK", "--predictions", "P", "--reference", "R"]:
        return
    context = main.commands[words[0]].make_context(words[0], words[1:])
    benchmark, convention = context.params.get("benchmark"), context.params.get("convention")
    if benchmark is not None:
        assert convention is None or convention in BENCHMARKS[benchmark].conventions


def test_the_page_holds_the_exact_rule_of_every_protocol():
    page = EVALUATION.read_text()
    for benchmark in BENCHMARKS.values():
        assert f"| {benchmark.name}: {benchmark.description} |" in page
        for convention in benchmark.conventions.values():
            assert convention.rule in page


DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the shared annotations are not beside the project"
)


@pytest.fixture
def whenact(tmp_path):
    """WhenAct in its official form, and the shared file that joins its two files."""
    path = DATA / "whenact" / "narrated_actions.json.gz"
    clips = json.loads(gzip.decompress(path.read_bytes()))
    spoken, shown = {}, {}
    for id, clip in clips.items():
        actions = clip["actions"]
        spoken[id] = [[a["text"], a["spoken"], int(not a["visible"])] for a in actions]
        shown[id] = [[a["text"], *a["shown"]] for a in actions if a["shown"]]
    (tmp_path / "mapped_actions_time_label.json").write_text(json.dumps(spoken))
    (tmp_path / "dict_all_annotations_ordered.json").write_text(json.dumps(shown))
    return tmp_path, clips


@needs_data
def test_the_spoken_centre_of_whenact_scores_the_known_509(tmp_path, whenact):
    path, clips = whenact
    seconds = {
        id: [(action["spoken"][0] + min(action["spoken"][1], 60)) / 2 for action in clip["actions"]]
        for id, clip in clips.items()
    }
    (tmp_path / "p.json").write_text(json.dumps(seconds))
    made = report(evaluate("whenact", tmp_path / "p.json", path))
    found = made.metrics["R@1"]
    assert found.items == 2105 - 8  # windows without length are left out of the reference, and told
    assert found.value * found.items / 2105 == pytest.approx(0.5093, abs=1e-4)
    assert any('"span: has no length": 8' in note for note in made.notes)
    assert made.sources == 115  # clips of one video are drawn together
    assert made.scores.missing == made.scores.extra == ()


@needs_data
@pytest.mark.parametrize(("benchmark", "file"), [("youcook2", "youcook2/val.json.gz")])
@pytest.mark.parametrize("convention", ["grounding", "segmentation"])
def test_the_reference_scores_1_against_itself(tmp_path, benchmark, file, convention):
    path = DATA / file
    tree = json.loads(gzip.decompress(path.read_bytes()))
    rows = segments(tree)
    (tmp_path / "p.json").write_text(json.dumps(rows))
    found = evaluate(benchmark, tmp_path / "p.json", path, convention=convention)
    assert {round(point_estimate(value), 9) for value in found.statistics.values()} == {1.0}


def test_clips_without_any_score_cannot_be_ranked(tmp_path):
    (tmp_path / "truth.json").write_text(json.dumps({"a": [0, 1], "b": 1}))
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(DatasetError, match="undefined"):
        evaluate("vnd", tmp_path / "p.json", tmp_path / "truth.json")
    (tmp_path / "p.json").write_text(json.dumps({"a": [0.2, 0.9]}))
    found = evaluate("vnd", tmp_path / "p.json", tmp_path / "truth.json")
    assert values(found) == {"ROC-AUC": 1, "AP": 1}
    assert found.missing == ("b",)
    clips = json.dumps({"v:w:0": 1, "v:w:1": 0, "a": 0})
    (tmp_path / "truth.json").write_text(clips)
    found = evaluate("vnd", tmp_path / "truth.json", tmp_path / "truth.json")
    assert found.sources == ("v:w", "v:w", "a")


def test_every_function_that_the_page_names_is_in_its_file():
    named = re.findall(r"`(stepline/[\w/]+\.py):(\w+)`((?:, `\w+`)*)", EVALUATION.read_text())
    assert len(named) > 10
    for file, first, others in named:
        text = (ROOT / file).read_text()
        for name in (first, *re.findall(r"\w+", others)):
            assert re.search(rf"^(def|class) {name}\b", text, re.MULTILINE), (file, name)
