"""A process that does the main job on one video after another, among others that do the same.

It gets a `VideoWorkerSetup` and then videos through a pipe, and sends back what it logs and what became
of each video: `python -m stepline.pipeline.video_worker PIPE`.
"""

import faulthandler
import logging
import pickle
import signal
import sys
import threading
import traceback
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from queue import SimpleQueue

from stepline.errors import error_line
from stepline.networks.device import set_device
from stepline.pipeline.batch import run_video
from stepline.pipeline.networks import Networks, load_networks
from stepline.pipeline.sources import VideoSource
from stepline.pipeline.video_messages import (
    LOGGER_NAMES,
    VideoOutcome,
    VideoWorkerReady,
    VideoWorkerSetup,
)

INTERRUPTED_EXIT_CODE = 130  # as a shell reports a program that Ctrl-C ended


class PipeMessages(QueueHandler):
    """The sending end of a worker's pipe, which several threads use. What they log goes there
    too."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(SimpleQueue())
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message."""
        with self._lock:
            self._connection.send(message)

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        self.send(record)


def main(pipe: int) -> None:
    """Do the main job on the videos that come through a pipe, until it ends."""
    faulthandler.enable()
    connection = Connection(pipe)
    messages = PipeMessages(connection)
    try:
        # The setup comes first, and then video after video.
        setup: VideoWorkerSetup = connection.recv()
        logging.basicConfig(handlers=[messages])
        for name, level in zip(LOGGER_NAMES, setup.log_levels, strict=True):
            logging.getLogger(name).setLevel(level)
        set_device(setup.device, setup.compute)
        networks = load_networks(setup.settings, several=True)
        messages.send(VideoWorkerReady())
        while True:
            source: VideoSource = connection.recv()
            messages.send(finish_video(source, setup, networks))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The parent closed its end, which is how a worker is ended.
        return
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)


def finish_video(source: VideoSource, setup: VideoWorkerSetup, networks: Networks) -> VideoOutcome:
    """Do the main job on a video. An error is part of the outcome."""
    try:
        opened = source.open(setup.output.out, setup.settings, **setup.request_parts)
        with opened as request:
            result = run_video(request, setup.settings, setup.output, networks=networks)
    except Exception as error:  # noqa: BLE001   sent to the parent, which prints it
        return VideoOutcome(source.label, error=portable_error(error))
    return VideoOutcome(source.label, result)


def portable_error(error: Exception) -> Exception:
    """Return the error as it can be sent to another process, its trace in a note. Where it cannot
    be, return a RuntimeError with its name and words."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        # An error that cannot be copied would break the pipe, so it is tried here.
        copy: object = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001   whatever a library's own error does when it is copied
        copy = None
    if not isinstance(copy, Exception):
        copy = RuntimeError(error_line(f"{type(error).__name__}: {error}"))
    copy.add_note(trace)
    return copy


if __name__ == "__main__":
    # Only the process that started this one is asked by Ctrl-C. It passes the signal on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(int(sys.argv[1]))
