"""The log of a run on disk."""

import subprocess
import sys

from stepline.training.run_folder import StepLog

FILL = """
import pathlib, resource, sys
from stepline.errors import StoreError
from stepline.training.run_folder import StepLog
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    with StepLog(pathlib.Path(sys.argv[1]), 0) as log:
        for step in range(10_000):
            log.write({"step": step})
except StoreError as error:
    print(error)
"""


def test_a_full_disk_is_one_line_with_the_cure(tmp_path):
    path = tmp_path / "log.jsonl"
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path}: cannot be written (")
    assert "free some space and give the same command again" in done.stdout
    assert done.stderr == ""


def test_lines_after_the_checkpoint_go_also_half_ones(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    with StepLog(path, 1) as log:
        log.write({"step": 2})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
