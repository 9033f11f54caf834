"""Workers of the studio that do no job."""

import os
import signal
import subprocess
import sys
import time


def sleep(setup, send):
    """Never end, with a child that never does. Note both processes."""
    child = subprocess.Popen(["sleep", "600"])
    with open(os.environ["PIDS"], "a") as pids:
        pids.write(f"{os.getpid()} {child.pid}\n")
    time.sleep(600)


def cut_a_message_short(setup, send):
    """Be killed in the middle of a message."""
    os.write(int(sys.argv[1]), b"\x00\x00\x10\x00 of 4096 bytes")
    os.kill(os.getpid(), signal.SIGKILL)
