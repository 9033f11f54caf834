"""The process that does units of work: `python -m stepline.curate.workers.child FD PARENT`, started by a supervisor.

It holds models between units, dies with its parent, and may itself hang, crash or be killed: nobody waits for it.
"""

import ctypes
import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from stepline.curate.workers.bench import Bench
from stepline.curate.workers.order import Ready

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
LOOK = 1.0  # seconds between looks at who the parent is, where the system does not tell


def main(pipe: int, parent: int) -> None:
    """Do what comes through a pipe until it ends."""
    began = time.monotonic()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    die_with(parent)
    connection = Connection(pipe)
    try:
        bench = Bench(pickle.loads(connection.recv_bytes()))
        connection.send(Ready(time.monotonic() - began, time.process_time()))
        while True:
            connection.send(bench.do(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
