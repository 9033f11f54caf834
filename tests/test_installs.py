"""Every command starts in the installation that docs/install.md names for it, and nothing else is
needed."""

import contextlib
import json
import shutil
import signal
import subprocess

import pytest
from click.testing import CliRunner
from installs import ENVIRONMENT, ROOT, documented_installs, install_command, run_all_installed

from stepline.cli import COMMANDS, main

VIDEO = "media/small.mp4"
CAPTIONS = ("--captions", "captions/small.srt")
STEPS = ("steps", VIDEO, *CAPTIONS, "--backbone", "none", "--out", "out")
FEATURES = ("features", "import", "features", "--out", "store", "--backbone", "conse")
TEXT_BASE = ("text-base", "build", "recipes.json", "--out", "base", "--licence", "MIT")
ALIGNER = ("--aligner", "networks/aligner.safetensors")
YOUCOOK = "youcook2:references/youcook2.json"
STORE = ("--features", "store")
# what makes the folder that a command needs, and the folder
PREPARATIONS = dict.fromkeys(["train", "refine"], (FEATURES, "store"))
PREPARATIONS |= {"sieve-swap": (TEXT_BASE, "base"), "curate corrections": (STEPS, "out")}
PREPARATIONS |= dict.fromkeys("search compare mcp studio annotate".split(), (STEPS, "out"))
# a cheap call of each command; those that serve are ended by Ctrl-C
CALLS = {
    "steps": STEPS[1:],
    "ground": ("features/a1.npy", "--texts", "lines.txt", *ALIGNER),
    "judge": (VIDEO, *CAPTIONS, "--out", "out"),
    "steps --describe": ("networks/procx.safetensors", "features/a1.npy", "--out", "out"),
    "predict": (
        *("htm-align", *ALIGNER, "--features", "features"),
        *("--reference", "references/htm_align.json", "--out", "predicted.json"),
    ),
    "train calibrate": (
        *("htm-align", *ALIGNER, "--features", "features"),
        *("--reference", "references/htm_align.json"),
    ),
    "summarize": (VIDEO, *CAPTIONS, "--out", "out"),
    "transcribe": (VIDEO, *CAPTIONS),
    "live": (VIDEO, "--speed", "100", "--backbone", "none", "--out", "out"),
    "search": ("out", "lemons"),
    "compare": ("out",),
    "keys": ("add", "keys.json", "shop", "--role", "read"),
    "studio": ("out", "--port", "0"),
    "mcp": ("out",),
    "doctor": (),
    "weights": ("list",),
    "datasets": (),
    "schema": ("--out", "schemas"),
    "evaluate": "vnd --predictions predictions/vnd.json --reference references/vnd.json".split(),
    "annotate": ("vnd", "out/small.json", "--out", "vnd", "--port", "0"),
    "features": FEATURES[1:],
    "curate excluded": ("youcook2=references/youcook2.json", "--out", "excluded.txt"),
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
    "text-base": TEXT_BASE[1:],
    "curate corrections": ("out", "--export", "corrected"),
}

# these find too little in such small files, and say so
NEED_MORE_DATA = {
    "compare": "show the same task",
    "curate, training nothing": "no video is left",
    "train calibrate": "add videos",
    "refine": "give records with steps to place",
}
NEED_MORE_DATA["curate corrections"] = "no corrected video"
OPTIONS = {"--aligner", "--detector"}  # which need more than their command does
SERVERS = {"studio": "open http://", "annotate": "http://"}  # what is printed once one serves
INSTALLS = documented_installs()


def write_inputs(folder):
    """Write the inputs of the golden cases, and two files made of them."""
    shutil.copytree(ROOT / "tests" / "golden" / "inputs", folder, dirs_exist_ok=True)
    (folder / "media" / "broken.mp4").unlink()
    (folder / "lines.txt").write_text("Whisk the batter\n")
    videos = json.loads((folder / "references" / "youcook2.json").read_text())
    recipes = [{"id": id, "title": id, "steps": v["sentences"]} for id, v in videos.items()]
    (folder / "recipes.json").write_text(json.dumps(recipes))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Make the folder that a command needs, once for all that need it: prepared(command) -> path.

    It is made in this process: that its own command starts in its installation has a test.
    """
    folder = tmp_path_factory.mktemp("prepared")
    write_inputs(folder)

    def prepare(command):
        arguments, name = PREPARATIONS[command]
        if not (folder / name).exists():
            with contextlib.chdir(folder):
                result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, result.output
        return folder / name

    return prepare


def copy_prepared(command, prepared, folder):
    """Copy what a command needs into its folder, where it needs anything."""
    if command in PREPARATIONS:
        path = prepared(command)
        shutil.copytree(path, folder / path.name)


def test_the_docs_name_an_installation_for_every_command():
    assert {command.name for command in COMMANDS} <= INSTALLS.keys()
    assert INSTALLS.keys() == CALLS.keys() | OPTIONS | {
        "demo"
    }  # whose job tests/test_golden.py runs


@pytest.mark.parametrize("extra", sorted(set(INSTALLS.values())))
def test_commands_start_in_their_installation(extra, prepared, tmp_path):
    """In one process: what is not installed is found by none of them."""
    commands = [name for name in sorted(CALLS.keys() - SERVERS.keys()) if INSTALLS[name] == extra]
    calls = []
    for command in commands:
        folder = tmp_path / command
        write_inputs(folder)
        copy_prepared(command, prepared, folder)
        calls.append((str(folder), [*command.split(), *CALLS[command]]))
    if extra == "data":  # which a recipe that trains nothing does not exceed
        commands.append("curate, training nothing")
        recipe = ("media", "--recipe", "visual_narration", "--out", "narrations_that_show")
        calls.append((str(tmp_path / "curate"), ["curate", *recipe]))
    results = run_all_installed([extra] if extra else [], calls)
    for command, (exit_code, said) in zip(commands, results, strict=True):
        assert "not installed" not in said, command
        if command in NEED_MORE_DATA:
            assert NEED_MORE_DATA[command] in said
        else:
            assert exit_code == 0, (command, said)


@pytest.mark.parametrize("command", sorted(SERVERS))
def test_a_server_starts_in_its_installation(command, tmp_path, prepared):
    write_inputs(tmp_path)
    copy_prepared(command, prepared, tmp_path)
    program = install_command([], *command.split(), *CALLS[command])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program, cwd=tmp_path, env=ENVIRONMENT, stderr=pipe, text=True
    ) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if SERVERS[command] in line:
                process.send_signal(signal.SIGINT)
                break
        lines += process.stderr.readlines()
    assert process.returncode == 0, lines
