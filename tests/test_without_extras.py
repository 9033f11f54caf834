"""The main job as `pip install stepline` brings it: no torch, no pyarrow, no scipy."""

import json
import shutil
import subprocess
import sys

import pytest

from stepline.errors import EXTRA_PACKAGES
from stepline.storage import read_record

BLOCKED = [*EXTRA_PACKAGES, "pandas", "sklearn", "transformers"]
CURE = "needs {}, which is not installed; pip install -c constraints.txt 'stepline[{}]'"
PROGRAM = """
import sys
for package in sys.argv.pop(1).split(","):
    sys.modules[package] = None  # as if it were not installed
from stepline.cli import main
"""
RUN_ALL = """
import json
from click.testing import CliRunner
results = [CliRunner().invoke(main, call) for call in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stderr) for result in results]))
"""


def stepline_without(packages, *arguments):
    """Run a command in a process that cannot import some packages."""
    program = [sys.executable, "-c", f"{PROGRAM}main()", ",".join(packages), *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.fixture
def job(small_video, captions_file):
    return "steps", small_video, "--captions", captions_file


def test_the_main_job_imports_none_of_the_extras_and_finds_the_same(job, tmp_path, stepline):
    # torch blocked, for spaCy looks for it
    told = f"import atexit, sys\natexit.register(lambda: print(*sys.modules))\n{PROGRAM}main()"
    program = [sys.executable, "-c", told, "torch", *map(str, job), "--out", tmp_path / "without"]
    found = subprocess.run(program, capture_output=True, text=True, check=True)
    loaded = set(found.stdout.splitlines()[-1].split())
    assert {"onnxruntime", "spacy"} <= loaded
    assert loaded & {*BLOCKED} == {"torch"}
    assert stepline(*job, "--out", tmp_path / "with").exit_code == 0
    without, with_torch = (
        read_record(tmp_path / name / "small.json") for name in ("without", "with")
    )
    assert without == with_torch


NEED_TRAIN = (
    "steps {video} --aligner {folder}/official.pth",
    "steps {video} --aligner {network}",
    "steps {video} --describe {network}",
    "steps {video} --set judge.detector={network}",
    "steps {video} --set vision.backbone=s3d --set vision.path={network}",
    "train nasva --features {folder} --steps {folder} --out {folder}/run",
)
NEED_DATA = (
    "curate {videos} --recipe features --out {folder}/run",
    "text-base build {texts} --out {folder}/base",
)


@pytest.mark.parametrize(
    ("commands", "package", "extra"),
    [(NEED_TRAIN, "torch", "train"), (NEED_DATA, "pyarrow", "data")],
)
def test_what_needs_an_extra_says_which_in_one_line(
    commands, package, extra, small_video, tmp_path
):
    (tmp_path / "x.safetensors").write_bytes(b"x")
    (tmp_path / "official.pth").write_bytes(b"x")
    (tmp_path / "texts.txt").write_text("Cut the banana.\n")
    names = {"video": small_video, "videos": small_video.parent, "folder": tmp_path}
    names |= {"network": tmp_path / "x.safetensors", "texts": tmp_path / "texts.txt"}
    calls = [text.format(**names).split() for text in commands]
    program = [sys.executable, "-c", PROGRAM + RUN_ALL, package, json.dumps(calls)]
    told = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    cure = CURE.format(package, extra)
    for command, (exit_code, said) in zip(commands, json.loads(told), strict=True):
        assert (exit_code, said.splitlines()[-1]) == (1, f"stepline: {cure}"), command


def test_doctor_misses_no_extra_for_the_main_job():
    found = stepline_without([], "doctor", "--json")
    findings = json.loads(found.stdout)["findings"]
    assert not {found["name"] for found in findings if found["needed"]} & {*BLOCKED}


CAPTION_METRICS = ["pycocoevalcap", "snowballstemmer"]
COIN = {"class": "Cook", "duration": 9.0}
COIN["annotation"] = [{"id": "1", "label": "cut", "segment": [1, 4]}]
EXACT_BENCHMARKS = {  # name: reference, predictions
    "htm-align": ({"a": [[1, 1, 4, "Cut it."], [0, 5, 6, "Hi."]]}, {"a": [2, None]}),
    "coin": ({"database": {"a": COIN}}, {"a": {"1": 2}}),
}
FLAT_CAPTIONS = {"a": {"duration": 9.0, "timestamps": [[1, 4]], "sentences": ["Cut it."]}}


def test_every_module_of_evaluation_and_datasets_is_imported_without_the_extras():
    walk = """
import importlib, pkgutil, sys
for package in sys.argv.pop(1).split(","):
    sys.modules[package] = None
for name in ("stepline.evaluate", "stepline.datasets"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
        print(module.name)
"""
    program = [sys.executable, "-c", walk, ",".join([*BLOCKED, *CAPTION_METRICS])]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "stepline.evaluate.meteor.score" in result.stdout.split()


@pytest.mark.parametrize("name", EXACT_BENCHMARKS)
def test_exact_metrics_run_without_the_extras(name, tmp_path, stepline):
    for file, tree in zip(("truth", "predicted"), EXACT_BENCHMARKS[name], strict=True):
        (tmp_path / f"{file}.json").write_text(json.dumps(tree))
    paths = ["--predictions", tmp_path / "predicted.json", "--reference", tmp_path / "truth.json"]
    result = stepline_without([*BLOCKED, *CAPTION_METRICS], "evaluate", name, *paths)
    assert result.returncode == 0, result.stderr
    assert result.stdout == stepline("evaluate", name, *paths).stdout


def test_caption_metrics_say_which_extra_they_need(tmp_path):
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(FLAT_CAPTIONS))
    paths = ["--predictions", path, "--reference", path]
    result = stepline_without(CAPTION_METRICS, "evaluate", "youcook2", *paths)
    assert result.returncode == 1
    assert "pip install -c constraints.txt 'stepline[evaluate]'" in result.stderr.splitlines()[-1]
    # the same files are scored by exact metrics
    exact = [*paths, "--convention", "grounding"]
    assert stepline_without(CAPTION_METRICS, "evaluate", "youcook2", *exact).returncode == 0


@pytest.fixture
def library(small_video, tmp_path):
    """A folder with the record of a video that a person corrected."""
    from stepline.library.corrected_library import CorrectedLibrary, video_id
    from stepline.library.corrections import ChangeEdit, Correction
    from stepline.records import Record, Step, Video
    from stepline.storage import write_record

    folder = tmp_path / "library"
    folder.mkdir()
    film = shutil.copyfile(small_video, folder / "small.mp4")
    video = Video(id="small", path=str(film), duration=16.0)
    step = Step(id="a", text="Slice it")
    write_record(Record(id="small", video=video, steps=(step,)), folder / "small.json")
    library = CorrectedLibrary(folder)
    id = video_id("small.json")
    edits = (ChangeEdit(do="change", step="a", text="Cut it", status="said_only"),)
    library.correct(id, Correction(id="1", video=id, by="Ann", when=0.0, base=0, edits=edits))
    library.close()
    return folder


def test_corrected_videos_are_exported_with_the_extra_data_alone(library, tmp_path):
    (library / "torn.json").write_bytes((library / "small.json").read_bytes()[:-9])
    command = ["curate", "corrections", library, "--export", tmp_path / "data"]
    missing = stepline_without(["pyarrow"], *command)
    assert CURE.format("pyarrow", "data") in missing.stderr
    assert not (tmp_path / "data").exists()  # so that the next run may write it
    others = [package for package, extra in EXTRA_PACKAGES.items() if extra != "data"]
    result = stepline_without(others, *command)
    assert result.returncode == 0, result.stderr
    assert "left out torn.json" in result.stderr
    assert "1 videos to train on" in result.stderr
    assert len(list((tmp_path / "data" / "features").glob("*.safetensors"))) == 1
    assert read_record(tmp_path / "data" / "records" / "small.json").steps[0].text == "Cut it"


def test_assistants_need_the_extra_mcp(library):
    result = stepline_without(["mcp"], "mcp", library)
    assert CURE.format("mcp", "mcp") in result.stderr
