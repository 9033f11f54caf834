"""Nothing leaves the machine: no process of the main job asks for an address or connects to one but its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stepline

DEMO = Path(stepline.__file__).parent / "demo" / "demo.mp4"
TRACER = shutil.which("strace")
LIFE = 20.0  # s; onnxruntime would look up its vendor's host once a process is 14 s old
LOOPBACK = re.compile(r'inet_addr\("127\.|inet_pton\(AF_INET6, "::1"')
MAIN_JOB = """
import sys, time
from stepline.cli import main
began = time.monotonic()
main(sys.argv[1:], standalone_mode=False)
time.sleep(max(0.0, {life} - (time.monotonic() - began)))
"""


def addresses_asked(tmp_path, code, *arguments):
    """Return the system calls of a Python process and its children that name an address beyond the machine."""
    if TRACER is None or subprocess.run([TRACER, "-qq", "true"], capture_output=True).returncode:
        pytest.skip("needs strace, and a system that allows it")
    log = tmp_path / "calls"
    command = [TRACER, "-f", "-qq", "-e", "trace=network", "-o", str(log), sys.executable, "-c", code]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    return [line for line in lines if re.search(r"sin6?_port", line) and not LOOPBACK.search(line)]


def test_a_lookup_and_a_connection_are_seen(tmp_path):
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 53))"
    assert any("192.0.2.1" in line for line in addresses_asked(tmp_path, code))


def test_the_main_job_asks_for_no_address(tmp_path):
    out = tmp_path / "out"
    code = MAIN_JOB.format(life=LIFE)
    assert addresses_asked(tmp_path, code, "steps", DEMO, "--out", out) == []
    assert list(out.glob("*.json"))


def test_what_dependencies_report_is_off_before_they_are_imported():
    code = "import os, stepline, sys; print(os.environ['ORT_DISABLE_TELEMETRY'], 'onnxruntime' in sys.modules)"
    variables = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["1", "False"], done.stderr
