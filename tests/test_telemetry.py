"""Nothing leaves the machine: a command that names no server needs no network and asks for no
address beyond it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import test_golden
from option_words import option_words
from small_video import copy_demo

TRACER, APART = shutil.which("strace"), shutil.which("unshare")
LIFE = 60.0  # s; onnxruntime would look up its vendor's host once a process is 14 s old
OWN = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "::(1|ffff:127\.[0-9.]+)"')
# an address, or those who look one up
ASKED = re.compile(r"sin6?_port|systemd/resolve|hosts\\0|AF_VSOCK")

# Runs commands one after another in one process, which lives on until it is so old (argv[2], s).
COMMANDS = """
import json, sys, time
from stepline.cli import main
began = time.monotonic()
for command in json.loads(sys.argv[1]):
    try:
        main(command, standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise
time.sleep(max(0.0, float(sys.argv[2]) - (time.monotonic() - began)))
"""
# Runs a case of the golden files, which are many commands, in processes of their own where they
# would be.
CASE = """
import sys
from pathlib import Path
import test_golden
test_golden.CASES[sys.argv[1]](test_golden.fresh(Path(sys.argv[2])))
"""
# Has 127.0.0.1 answer, which a new namespace lacks too, and becomes another program.
WITH_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
TRAINING = (
    "train.epochs=1 model.width=16 model.heads=2 model.feed_forward=24 model.projection=8 "
    "model.encoder_layers=1 model.decoder_layers=1"
).split()
STAGES = "probe transcribe write filter encode coarse ground judge gather clean export".split()
STEPS = ("steps", "demo.mp4", "--out", "out")  # with the recogniser, and its voice detector
JOBS = (
    ("features", "import", "features", "--out", "store", "--backbone", "conse"),
    (
        *"train nasva --features store --steps youcook2:references/youcook2.json".split(),
        *option_words(out="net", set=TRAINING),
    ),
    (
        *"curate videos.csv --recipe recipe.toml --out data --limit 3 --workers 1".split(),
        *option_words(set=f"stages={json.dumps(STAGES)}"),
    ),
    STEPS,
)
# What the golden files' cases do not run.
OTHERS = (
    JOBS[2],
    *(
        command.split()
        for command in (
            "curate status data",
            "curate report data",
            "curate audit data --table",
            "doctor",
            "datasets",
            "transcribe demo.mp4",
            "steps media/small.mp4 --describe networks/procx.safetensors --set procx.when=alone --out told",
            "curate excluded youcook2=references/youcook2.json --out excluded.txt",
            "features extract media/small.mp4 --out extracted",
        )
    ),
)
PREDICTION = (
    "predict ht-step --aligner networks/aligner.safetensors --features features --reference "
    "references/htstep --out answers.json"
).split()


@pytest.fixture
def folder(tmp_path):
    """A folder with the golden files' inputs and the beginning of the demo."""
    folder = test_golden.fresh(tmp_path / "work")
    copy_demo(folder / "demo.mp4", 16)
    return folder


def run_python(folder, *arguments, within=()):
    """Run Python in a folder, within another program."""
    paths = os.pathsep.join((str(test_golden.ROOT), str(Path(__file__).parent), *sys.path))
    own = {"PYTHONPATH": paths, "STEPLINE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [*within, sys.executable, *map(str, arguments)]
    variables = {**os.environ, **own}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables)
    assert done.returncode == 0, done.stderr


def addresses_asked(folder, *arguments):
    """Return the system calls of a Python process and its children that name an address beyond the
    machine."""
    if TRACER is None or subprocess.run([TRACER, "-qq", "true"], capture_output=True).returncode:
        pytest.skip("needs strace, and a system that allows it")
    log = folder / "calls"
    run_python(folder, *arguments, within=(TRACER, "-f", "-qq", "-e", "trace=network", "-o", log))
    lines = filter(ASKED.search, log.read_text().splitlines())
    return [line for line in lines if not OWN.search(line)]


def run_without_network(folder, *arguments):
    """Run Python where there is no network but the machine itself."""
    alone = (APART, "-r", "-n")
    trial = [*alone, sys.executable, "-c", WITH_LOOPBACK, "-c", ""]
    if APART is None or subprocess.run(trial).returncode:
        pytest.skip("needs unshare, and a kernel that lets a user have a network namespace")
    run_python(folder, "-c", WITH_LOOPBACK, *arguments, within=alone)


def test_a_lookup_and_a_connection_are_seen(folder):
    code = "from socket import *; socket(AF_INET, SOCK_DGRAM).connect(('192.0.2.1', 53))"
    assert any("192.0.2.1" in line for line in addresses_asked(folder, "-c", code))
    with pytest.raises(AssertionError, match="Network is unreachable"):
        run_without_network(folder, "-c", code)


@pytest.mark.slow
def test_the_main_job_the_page_a_dataset_and_a_training_ask_for_no_address(folder):
    assert addresses_asked(folder, "-c", COMMANDS, json.dumps(JOBS), LIFE) == []
    for made in ("out/demo.html", "net/aligner.safetensors", "data/report.html"):
        assert (folder / made).is_file(), made


def test_the_main_job_and_a_prediction_need_no_network(folder):
    run_without_network(folder, "-c", COMMANDS, json.dumps([PREDICTION, STEPS]), 0)
    assert (folder / "out/demo.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("case", test_golden.CASES)
def test_every_command_of_the_golden_files_asks_for_no_address(folder, case):
    assert addresses_asked(folder, "-c", CASE, case, folder) == []


@pytest.mark.slow
def test_the_other_commands_ask_for_no_address(folder):
    assert addresses_asked(folder, "-c", COMMANDS, json.dumps(OTHERS), LIFE) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", test_golden.CASES)
def test_every_command_of_the_golden_files_needs_no_network(folder, case):
    run_without_network(folder, "-c", CASE, case, folder)


def test_what_dependencies_report_is_off_before_they_are_imported():
    code = "import os, stepline, sys; print(os.environ['ORT_DISABLE_TELEMETRY'], 'onnxruntime' in sys.modules)"
    variables = {k: value for k, value in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["1", "False"], done.stderr
