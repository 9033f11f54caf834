"""A GGUF model in a process of its own, which answers one question at a time.

A file that llama.cpp trips over ends that process and no other.
"""

import importlib
import importlib.util
import math
import os
import time
from pathlib import Path
from struct import Struct
from typing import Any

from stepline.errors import ModelError, SteplineError, first_line
from stepline.limits import parse_json
from stepline.records import FrozenModel
from stepline.workers import Reply, Send, WorkerProcess

GGUF_HEADER = Struct("<4sIQQ")  # of a GGUF file: "GGUF", version, tensors, facts; since version 2
MAX_LATE_SECONDS = 600.0  # after the end of its time, in which a question's answer must begin
MAX_REASON_CHARS = 120  # of what llama.cpp says of a fault


class ModelFiles(FrozenModel):
    """A GGUF model and how it is loaded.

    Args:
        model: path of the GGUF file.
        projector: path of the projector of a vision-language model.
        context: context length in tokens.
        threads: CPU threads.
        template: the text of a chat template in Jinja, instead of the model's own.
    """

    model: str
    projector: str | None
    context: int
    threads: int
    template: str | None


class ModelQuestion(FrozenModel):
    """A chat request to the loaded model.

    Args:
        request: body of an OpenAI-compatible chat completion, in JSON.
        seconds: time limit of the answer.
    """

    request: str
    seconds: float


class ModelReply(FrozenModel):
    """The answer to a question, or the result of loading.

    Args:
        text: the answer.
        end: the finish reason. None where the time limit ended the answer.
        fault: error message, None without an error.
    """

    text: str = ""
    end: str | None = None
    fault: str | None = None


class ModelProcessError(SteplineError):
    """The process of a model ended, or was ended, while it answered."""


class ModelProcess:
    """A GGUF model loaded in its own process. Raises ModelError where it cannot be loaded."""

    def __init__(self, files: ModelFiles) -> None:
        check_library()
        check_weights(Path(files.model))
        self._worker = WorkerProcess(f"{__name__}:LoadedModel")
        try:
            fault = self._run_task(files, math.inf).fault
        except ModelProcessError as error:
            fault = str(error)
        if fault is not None:
            self.close()
            problem = f"{files.model}: llama.cpp cannot load it"
            if files.projector is not None:
                file_names = f"{files.model} and {files.projector}"
                problem = f"{file_names}: llama.cpp cannot load them together"
            raise ModelError(f"{problem} ({fault}); give another GGUF file")

    def ask(self, request: str, until: float) -> ModelReply:
        """Return the reply to a chat request in JSON.

        until: deadline on the clock `time.monotonic`.
        Raises ModelProcessError where the process ends meanwhile; this object is then useless.
        """
        seconds = max(0.0, until - time.monotonic())
        question = ModelQuestion(request=request, seconds=seconds)
        return self._run_task(question, seconds + MAX_LATE_SECONDS)

    def close(self) -> None:
        """End the process, which frees the model's memory."""
        self._worker.close()

    def _run_task(self, task: ModelFiles | ModelQuestion, seconds: float) -> ModelReply:
        end = self._worker.run(task, seconds)
        if isinstance(end, Reply):
            reply: ModelReply = end.value
            return reply
        self.close()
        reason = f"ended with {end.message}"
        if end.limit == "time":
            reason = f"did not begin its answer within {MAX_LATE_SECONDS:.0f} s after its time"
        raise ModelProcessError(f"llama.cpp {reason}")


def check_library() -> None:
    """Raise ModelError where the library that runs GGUF models is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        reason = "not installed, and a GGUF model needs it"
        raise ModelError(f"xllamacpp: {reason}; pip install 'stepline[llm]'")


def check_weights(path: Path) -> None:
    """Raise ModelError for a GGUF file that holds a vocabulary and no weights.

    llama.cpp reports all other faults of a file when it loads it.
    """
    with path.open("rb") as file:
        start = file.read(GGUF_HEADER.size)
    if len(start) < GGUF_HEADER.size:
        return
    _, version, tensors, _ = GGUF_HEADER.unpack(start)
    if version >= 2 and not tensors:
        reason = "a GGUF file without weights, such as a vocabulary alone"
        raise ModelError(f"{path}: {reason}; give another GGUF file, of a whole model")


class LoadedModel:
    """The worker process: its first task loads the model, later tasks are questions."""

    def __init__(self, setup: None, send: Send) -> None:  # noqa: ARG002
        self._server: Any = None

    def __call__(self, task: ModelFiles | ModelQuestion) -> ModelReply:
        """Return an answer, or an error message."""
        if isinstance(task, ModelQuestion):
            return answer(self._server, task)
        try:
            self._server = load_model(task)
        except (RuntimeError, ValueError) as error:
            return ModelReply(fault=first_line(error)[:MAX_REASON_CHARS])
        return ModelReply()


def load_model(files: ModelFiles) -> Any:
    """Return llama.cpp's server of a model. Raises RuntimeError or ValueError where it cannot be
    loaded."""
    library = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = files.model
    if files.projector is not None:
        parameters.mmproj.path = files.projector
    parameters.n_ctx = files.context
    parameters.n_parallel = 1
    # As many threads as cores collapse as soon as anything else runs: 6 s became 94 s.
    parameters.cpuparams.n_threads = files.threads
    parameters.cpuparams_batch.n_threads = files.threads
    parameters.verbosity = -1
    # the library listens on a loopback port: no one else may ask there
    parameters.api_keys = [os.urandom(16).hex()]
    if files.template is not None:
        parameters.use_jinja = True
        parameters.chat_template = files.template
    return library.Server(parameters)


def answer(server: Any, question: ModelQuestion) -> ModelReply:
    """Return the answer to a question. It ends within one word after its time limit."""
    until = time.monotonic() + question.seconds
    words: list[str] = []
    ends: list[str] = []
    faults: list[str] = []

    def receive_part(message: dict[str, Any]) -> bool:
        """Collect a word. True ends the answer."""
        if "error" in message:
            faults.append(str(message["error"].get("message", ""))[:MAX_REASON_CHARS])
            return True
        for choice in message.get("choices", []):
            words.append(choice["delta"].get("content") or "")
            if choice.get("finish_reason"):
                ends.append(choice["finish_reason"])
        return time.monotonic() > until

    # words come until the model or the time ends
    try:
        server.handle_chat_completions(parse_json(question.request), receive_part)
    except RuntimeError as error:
        faults.append(str(error)[:MAX_REASON_CHARS])
    if faults:
        return ModelReply(fault=faults[0])
    return ModelReply(text="".join(words), end=ends[-1] if ends else None)
