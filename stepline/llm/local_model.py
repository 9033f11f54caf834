"""A GGUF model in a process of its own, which answers one question at a time."""

import importlib.util
import queue
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from struct import Struct
from typing import IO, cast

from pydantic import ValidationError

from stepline.errors import ModelError, SteplineError, error_line
from stepline.llm.local_model_process import ModelFiles, ModelQuestion, ModelReply
from stepline.processes import kill_group, start_module

HEADER_FIELDS = Struct("<4sIQQ")  # of a GGUF file: "GGUF", version, tensors, facts; since version 2
MAX_LATE_SECONDS = 600.0  # after the end of its time, in which a question's answer must begin
MAX_MESSAGE_CHARS = 200  # of the last line that llama.cpp wrote


class ModelProcessError(SteplineError):
    """The process of a model ended, or was ended, while it answered."""


class ModelProcess:
    """A loaded model. Raises ModelError where it cannot be loaded, whatever that does to its
    process."""

    def __init__(self, files: ModelFiles) -> None:
        check_library()
        check_weights(Path(files.model))
        self._files = files
        # What it prints is read where it ends, so it is open as long as the process is.
        self._messages = tempfile.TemporaryFile(  # noqa: SIM115
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = start_module(
            "stepline.llm.local_model_process",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            encoding="utf-8",
        )
        # Replies come by a queue, so that waiting for one can end in time.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="model", daemon=True).start()
        # The first line of the process loads the model.
        try:
            reply = self._ask(files.model_dump_json(), None)
        except ModelProcessError as error:
            raise self._load_error(str(error)) from error
        if reply.fault is not None:
            self.close()
            raise self._load_error(reply.fault)

    def ask(self, request: str, until: float) -> ModelReply:
        """Return the reply to a request, in JSON, until a second of `time.monotonic`.

        Raises ModelProcessError where the process ends during it. This one is then useless.
        """
        question = ModelQuestion(request=request, seconds=max(0.0, until - time.monotonic()))
        return self._ask(question.model_dump_json(), until + MAX_LATE_SECONDS)

    def close(self) -> None:
        """End the process, and so free the model's memory."""
        kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._messages.close()

    def _ask(self, line: str, until: float | None) -> ModelReply:
        stdin = cast(IO[str], self._process.stdin)
        try:
            stdin.write(line + "\n")
            stdin.flush()
            seconds = None if until is None else max(0.0, until - time.monotonic())
            answer = self._lines.get(timeout=seconds)
            if answer is not None:
                return ModelReply.model_validate_json(answer)
            reason = self._end_words()
        except BrokenPipeError:
            reason = self._end_words()
        except queue.Empty:
            reason = f"did not begin its answer within {MAX_LATE_SECONDS:.0f} s after its time"
        except ValidationError:
            reason = "wrote no reply"
        self.close()
        raise ModelProcessError(f"llama.cpp {reason}")

    def _read(self) -> None:
        """Take in the lines of the process until it ends."""
        stdout = cast(IO[str], self._process.stdout)
        try:
            for line in stdout:
                self._lines.put(line)
        except ValueError:  # it was closed in between
            return
        finally:
            self._lines.put(None)

    def _end_words(self) -> str:
        """Return how the process ended, with the last line that it wrote."""
        code = self._process.wait()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"ended with signal {-code}"
        self._messages.seek(0)
        lines = self._messages.read().strip().splitlines()
        if lines:
            how += f": {error_line(lines[-1])[:MAX_MESSAGE_CHARS]}"
        return how

    def _load_error(self, reason: str) -> ModelError:
        named = f"{self._files.model}: llama.cpp cannot load it"
        if self._files.projector is not None:
            both = f"{self._files.model} and {self._files.projector}"
            named = f"{both}: llama.cpp cannot load them together"
        return ModelError(f"{named} ({reason}); give another GGUF file")


def check_library() -> None:
    """Raise ModelError where the library that runs GGUF models is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        reason = "not installed, and a GGUF model needs it"
        raise ModelError(f"xllamacpp: {reason}; pip install 'stepline[llm]'")


def check_weights(path: Path) -> None:
    """Raise ModelError for a GGUF file that holds a vocabulary and no weights, as those that only
    count words do. What else is wrong with a file llama.cpp says."""
    with path.open("rb") as file:
        start = file.read(HEADER_FIELDS.size)
    if len(start) < HEADER_FIELDS.size:
        return
    _, version, tensors, _ = HEADER_FIELDS.unpack(start)
    if version >= 2 and not tensors:
        reason = "a GGUF file without weights, such as a vocabulary alone"
        raise ModelError(f"{path}: {reason}; give another GGUF file, of a whole model")
