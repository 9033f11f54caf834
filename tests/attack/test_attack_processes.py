"""What the folder that the user is in, its variables and a sudden end may do to the processes that
Stepline starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kills import children, wait_for_end

from stepline.processes import child_environment, import_folders, start_module
from stepline.workers import Reply, WorkerDeath, WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
# Names that every process imports as it starts or soon after; whoever runs one leaves a file.
MODULES = ("json", "pickle", "tempfile", "typing", "pip/__init__", "pip/__main__", "sitecustomize")


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The current folder, full of modules that leave a file where they are run."""
    folder = tmp_path / "trap"
    mark = tmp_path / "owned"
    for name in (*MODULES, "multiprocessing/__init__", "stepline/__init__", "encodings/__init__"):
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(mark)!r}, 'a').write({name!r} + chr(10))\n")
    monkeypatch.chdir(folder)
    # as `python -m` and a colon too many leave it
    monkeypatch.setattr(sys, "path", [str(folder), "", ".", *sys.path])
    monkeypatch.setenv("PYTHONPATH", f":{ROOT}")
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    monkeypatch.setenv("PYTHONINSPECT", "1")
    return mark


def owned(mark):
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize("module", ["json.tool", "pip"])
def test_a_child_runs_no_module_of_the_current_folder(trap, module):
    process = start_module(module, ["--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert b"usage" in output.lower()
    assert owned(trap) == ""


@pytest.mark.parametrize(
    "target", ["stepline.studio.worker:start_worker", "stepline.llm.local_model:LoadedModel"]
)
def test_a_worker_runs_no_module_of_the_current_folder(trap, target):
    worker = WorkerProcess(target)
    end = worker.run(None)  # no task: it ends with an error
    worker.close()
    assert isinstance(end, Reply | WorkerDeath)
    assert worker.is_ready
    assert owned(trap) == ""


def test_a_folder_that_the_user_names_in_full_stays(trap, monkeypatch):
    assert os.getcwd() not in import_folders()
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    assert os.getcwd() in import_folders()


def test_a_child_has_no_variable_that_changes_what_it_runs(monkeypatch):
    monkeypatch.setenv("PYTHONSTARTUP", "/x.py")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}bin{os.pathsep}/usr/bin")
    variables = child_environment()
    assert "PYTHONSTARTUP" not in variables
    assert variables["PYTHONHASHSEED"] == "7"
    assert variables["PATH"] == "/usr/bin"


def test_a_child_has_no_descriptor_that_it_was_not_given(tmp_path):
    (tmp_path / "listing.py").write_text("import os; print(sorted(os.listdir('/proc/self/fd')))")
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        paths = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        process = start_module("listing", stdout=subprocess.PIPE, variables=paths)
        output, _ = process.communicate(timeout=60)
    # the three streams, and that of the listing itself
    assert output == b"['0', '1', '2', '3']\n"


def kill_with_child(command, **options):
    """Start a process, kill it once it has a child, and wait until that has ended too."""
    parent = subprocess.Popen([sys.executable, *command], **options)
    ends = time.monotonic() + 60
    while not children(parent.pid):
        assert time.monotonic() < ends
        time.sleep(0.02)
    (child,) = children(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for_end(child)


def test_a_killed_parent_leaves_no_child():
    code = (
        "import subprocess, time; from stepline.processes import start_module; "
        "start_module('http.server', ['0', '--bind', '127.0.0.1'], stdout=subprocess.DEVNULL, "
        "stderr=subprocess.DEVNULL); time.sleep(600)"
    )
    kill_with_child(["-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_a_killed_download_of_weights_leaves_no_pip(tmp_path):
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text("import time; time.sleep(600)")
    variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    variables["STEPLINE_WEIGHTS"] = str(tmp_path / "weights")
    command = ["-m", "stepline", "weights", "get", "minilm"]
    kill_with_child(command, env=os.environ | variables, stderr=subprocess.DEVNULL)
