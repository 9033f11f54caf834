"""Every command starts in the installation that docs/install.md names for it, and nothing else is
needed."""

import json
import re
import shutil
import signal
import subprocess

import pytest
from installs import ENVIRONMENT, ROOT, install_command, run_installed

from stepline.cli import COMMANDS

VIDEO = "media/small.mp4"
CAPTIONS = ("--captions", "captions/small.srt")
ALIGNER = ("--aligner", "networks/aligner.safetensors")
YOUCOOK = "youcook2:references/youcook2.json"
STORE = ("--features", "store")
# what makes the files that a command needs: command -> command lines
PREPARATIONS = {
    "search": [("steps", VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out")],
    "compare": [("steps", VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out")],
    "mcp": [("steps", VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out")],
    "learn": [("steps", VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out")],
    "train": [("features", "import", "features", "--out", "store", "--backbone", "conse")],
    "refine": [("features", "import", "features", "--out", "store", "--backbone", "conse")],
    "sieve-swap": [("text-base", "build", "recipes.json", "--out", "base", "--licence", "MIT")],
}
# a cheap call of each command; those that serve are ended by Ctrl-C
CALLS = {
    "steps": (VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out"),
    "demo": ("--out", "out"),
    "ground": ("features/a1.npy", "--texts", "lines.txt", *ALIGNER),
    "judge": (VIDEO, *CAPTIONS, "--out", "out"),
    "describe": ("features/a1.npy", "--model", "networks/procx.safetensors", "--out", "out"),
    "predict": (
        *("htm-align", *ALIGNER, "--features", "features"),
        *("--reference", "references/htm_align.json", "--out", "predicted.json"),
    ),
    "calibrate": (
        *("htm-align", *ALIGNER, "--features", "features"),
        *("--reference", "references/htm_align.json"),
    ),
    "export-onnx": ("networks/aligner.safetensors", "--out", "aligner.onnx"),
    "summarize": (VIDEO, *CAPTIONS, "--out", "out"),
    "transcribe": (VIDEO, *CAPTIONS),
    "live": (VIDEO, "--speed", "100", "--backbone", "none", "--out", "out"),
    "search": ("out", "lemons"),
    "compare": ("out",),
    "shots": (VIDEO, "--out", "out"),
    "keys": ("add", "keys.json", "shop", "--role", "read"),
    "studio": ("out", "--port", "0"),
    "mcp": ("out",),
    "doctor": (),
    "weights": ("list",),
    "datasets": (),
    "completion": ("bash",),
    "schema": ("--out", "schemas"),
    "evaluate": (
        "vnd",
        "--predictions",
        "predictions/vnd.json",
        "--reference",
        "references/vnd.json",
    ),
    "annotate": ("vnd", "out/small.json", "--out", "vnd", "--port", "0"),
    "features": ("import", "features", "--out", "store", "--backbone", "conse"),
    "excluded": ("youcook2=references/youcook2.json", "--out", "excluded.txt"),
    "sieve-swap": (
        *("narrations", "--text-base", "base", "--out", "swapped"),
        *("--set", "pairing.validation_iou=1"),
    ),
    "train": (
        *("procx", *STORE, "--steps", YOUCOOK, "--out", "run", "--set", "train.epochs=1"),
        *("--set", "model.rows=16", "--set", "vocabulary.size=300"),
    ),
    "refine": (YOUCOOK, *STORE, "--out", "refined"),
    "curate": ("media", "--recipe", "features", "--out", "dataset"),
    "text-base": ("build", "recipes.json", "--out", "base", "--licence", "MIT"),
    "learn": ("out", "--export", "corrected"),
}

# these find too little in such small files, and say so
NEED_MORE_DATA = {
    "compare": "of which no two show the same task",
    "calibrate": "add videos",
    "refine": "give records with texts",
}
NEED_MORE_DATA["learn"] = "no corrected video"
SERVERS = {"studio": "open http://", "annotate": "http://"}  # what is printed once one serves
ROW = re.compile(r"\| `pip install \"?\.(?:\[(\w+)\])?\"?` \| (.*) \|")


def documented_installs():
    """The extra that docs/install.md names for each command, "" for none."""
    extras = {}
    for row in ROW.finditer((ROOT / "docs" / "install.md").read_text()):
        for command in re.findall(r"`([\w-]+)`", row[2]):
            extras[command] = row[1] or ""
    return extras


INSTALLS = documented_installs()


@pytest.fixture
def folder(tmp_path):
    """A folder with the inputs of the golden cases."""
    shutil.copytree(ROOT / "tests" / "golden" / "inputs", tmp_path, dirs_exist_ok=True)
    (tmp_path / "media" / "broken.mp4").unlink()
    (tmp_path / "lines.txt").write_text("Whisk the batter\n")
    videos = json.loads((tmp_path / "references" / "youcook2.json").read_text())
    recipes = [{"id": id, "title": id, "steps": v["sentences"]} for id, v in videos.items()]
    (tmp_path / "recipes.json").write_text(json.dumps(recipes))
    return tmp_path


def test_the_docs_name_an_installation_for_every_command():
    assert INSTALLS.keys() == {command.name for command in COMMANDS} == CALLS.keys()


@pytest.mark.parametrize("command", sorted(CALLS.keys() - SERVERS.keys()))
def test_a_command_starts_in_its_installation(command, folder):
    extras = [INSTALLS[command]] if INSTALLS[command] else []
    for preparation in PREPARATIONS.get(command, ()):
        assert run_installed(["train"], *preparation, cwd=folder).returncode == 0
    call = (command, *CALLS[command])
    result = run_installed(extras, *call, cwd=folder, stdin=subprocess.DEVNULL)
    assert "not installed" not in result.stderr
    if command in NEED_MORE_DATA:
        assert NEED_MORE_DATA[command] in result.stderr
    else:
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", sorted(SERVERS))
def test_a_server_starts_in_its_installation(command, folder):
    for preparation in PREPARATIONS["search"]:
        assert run_installed([], *preparation, cwd=folder).returncode == 0
    program = install_command([], command, *CALLS[command])
    pipe = subprocess.PIPE
    with subprocess.Popen(program, cwd=folder, env=ENVIRONMENT, stderr=pipe, text=True) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if SERVERS[command] in line:
                process.send_signal(signal.SIGINT)
                break
        lines += process.stderr.readlines()
    assert process.returncode == 0, lines


def test_a_recipe_that_trains_nothing_needs_the_extra_data_alone(folder):
    call = ("curate", "media", "--recipe", "visual_narration", "--out", "narrations_that_show")
    result = run_installed(["data"], *call, cwd=folder)
    assert result.returncode == 0, result.stderr
