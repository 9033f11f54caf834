"""What is heard does not depend on how many threads the machine has for sums."""

import os
import subprocess
import sys

from stepline.cli.steps import DEMO_VIDEO

COMMAND = ["-m", "stepline", "transcribe", str(DEMO_VIDEO), "--format", "json", "--to", "20"]


def transcript(threads):
    """The demo's transcript where OpenMP and OpenBLAS have a number of threads."""
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    environment.pop("OPENBLAS_NUM_THREADS", None)
    program = [sys.executable, *COMMAND]
    return subprocess.run(program, env=environment, capture_output=True, check=True).stdout


def test_a_transcript_is_the_same_with_any_number_of_threads():
    assert transcript("1") == transcript("2")
