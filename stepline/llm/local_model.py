"""A GGUF model in its own process, which answers one request at a time.

A file that crashes llama.cpp ends only that process.
"""

import hashlib
import importlib
import importlib.util
import json
import logging
import math
import os
import time
from pathlib import Path
from struct import Struct
from typing import Any

from stepline.errors import ModelError, first_line
from stepline.limits import parse_json
from stepline.llm.servers import Answer, Content, Conversation, RequestError, Schema, chat_messages
from stepline.llm.settings import ChatSettings
from stepline.networks.device import core_count
from stepline.records import FrozenModel
from stepline.workers import Reply, Send, WorkerProcess

logger = logging.getLogger(__name__)

GGUF_HEADER = Struct("<4sIQQ")  # of a GGUF file: "GGUF", version, tensors, facts; since version 2
MAX_LATE_SECONDS = 600.0  # after the end of its time, in which a request's answer must begin
MAX_REASON_CHARS = 120  # of what llama.cpp says of a fault
# bytes of either end of a model file that name it for the cache: hashing 8 GB would take half a
# minute
FINGERPRINT_BYTES = 1 << 20


class ModelFiles(FrozenModel):
    """A GGUF model and how to load it.

    Attributes:
        model_path: path of the GGUF file.
        projector_path: path of the vision projector, None for a text-only model.
        context: context length in tokens.
        threads: number of CPU threads.
        chat_template: text of a Jinja chat template. None: the model's own.
    """

    model_path: str
    projector_path: str | None
    context: int
    threads: int
    chat_template: str | None


class ModelQuestion(FrozenModel):
    """A chat request to the loaded model.

    Attributes:
        request: body of an OpenAI-compatible chat completion, in JSON.
        seconds: time limit of the answer.
    """

    request: str
    seconds: float


class ModelReply(FrozenModel):
    """The answer to a chat request, or the outcome of loading the model.

    Attributes:
        text: the answer, "" after loading.
        end: the finish reason of the answer. None if the time limit ended it.
        fault: error message, None without an error.
        least_log_prob: of the least likely token, 0 unless asked for.
    """

    text: str = ""
    end: str | None = None
    least_log_prob: float = 0.0
    fault: str | None = None


class LocalModel:
    """A GGUF model in its own process, which answers one request at a time.

    The model is loaded at the first request, because all replies may be in the cache.
    """

    workers = 1

    def __init__(self, settings: ChatSettings) -> None:
        """Check the files that the settings name. Raises ModelError if one is no GGUF file."""
        path = _check_gguf_file(settings.gguf or Path(), f"{settings.section}.gguf")
        self.settings = settings
        self.name = f"{path.name} {_fingerprint(path)} {_template_digest(settings)}"
        self._projector: Path | None = None
        if settings.projector_file is not None:
            key = f"{settings.section}.projector"
            self._projector = _check_gguf_file(settings.projector_file, key)
            self.name += f" {_fingerprint(self._projector)}"
        self._path = path
        self._process: WorkerProcess | None = None

    def ask(
        self, question: Content, *, seed: int, until: float, schema: Schema | None = None
    ) -> Answer:
        """Return the answer of the model. The arguments are those of `Server.ask`.

        Raises RequestError for a timeout, a prompt longer than the context, or a crash of the
        process. The next request starts the process again.
        """
        if self._process is None:
            self._process = self._load()
        until = min(until, time.monotonic() + self.settings.timeout)
        request: dict[str, Any] = {
            "messages": chat_messages(question),
            "max_tokens": self.settings.max_tokens,
            "temperature": self.settings.temperature,
            "seed": seed,
            "stream": True,
            "cache_prompt": False,  # a reply must not depend on what was asked before
        }
        if isinstance(question, Conversation):
            # Questions begin alike, and what they share is read once.
            request["cache_prompt"] = True
            request |= {"grammar": question.grammar, "logprobs": True}
        if schema is not None:
            request["response_format"] = {"type": "json_object", "schema": schema}
        seconds = max(0.0, until - time.monotonic())
        task = ModelQuestion(request=json.dumps(request), seconds=seconds)
        reply = self._run_task(self._process, task, seconds + MAX_LATE_SECONDS)
        if reply.fault is not None:
            reason = f"the model refused the question ({reply.fault})"
            raise RequestError(reason, is_transient=False)
        if reply.end is None:
            raise RequestError("no answer in time", is_transient=False)
        text = reply.text
        if isinstance(question, Conversation) and reply.least_log_prob < question.least_log_prob:
            text = ""
        return Answer(text, reply.end != "length")

    def close(self) -> None:
        """End the process, which frees the memory of the model."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _load(self) -> WorkerProcess:
        """Return a process with the loaded model. Raises ModelError where it cannot be loaded."""
        start = time.perf_counter()
        settings = self.settings
        chat_template = None
        if settings.chat_template is not None:
            chat_template = _read_chat_template(settings.chat_template, settings.section)
        check_library()
        check_weights(self._path)
        files = ModelFiles(
            model_path=str(self._path),
            projector_path=None if self._projector is None else str(self._projector),
            context=settings.context,
            threads=settings.threads or max(1, core_count() - 1),
            chat_template=chat_template,
        )
        process = WorkerProcess(f"{__name__}:LoadedModel")
        try:
            fault = self._run_task(process, files, math.inf).fault
        except RequestError as error:
            fault = error.reason
        if fault is not None:
            process.close()
            problem = f"{files.model_path}: llama.cpp cannot load it"
            if files.projector_path is not None:
                problem = f"{files.model_path} and {files.projector_path}: llama.cpp cannot load them together"
            raise ModelError(f"{problem} ({fault}); give another GGUF file")
        logger.info("loaded %s in %.1f s", self._path.name, time.perf_counter() - start)
        return process

    def _run_task(
        self, process: WorkerProcess, task: ModelFiles | ModelQuestion, seconds: float
    ) -> ModelReply:
        """Return the worker process's reply to a task. seconds: time limit.

        Raises RequestError if the process ends or sends no reply in time. It is then closed.
        """
        end = process.run(task, seconds)
        if isinstance(end, Reply):
            reply: ModelReply = end.value
            return reply
        process.close()
        self._process = None
        reason = f"ended with {end.message}"
        if end.limit == "time":
            reason = f"did not begin its answer within {MAX_LATE_SECONDS:.0f} s after its time"
        raise RequestError(f"llama.cpp {reason}", is_transient=False)


def check_library() -> None:
    """Raise ModelError where the library that runs GGUF models is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelError(
            "xllamacpp: not installed, and a GGUF model needs it; pip install -c constraints.txt 'stepline[llm]'"
        )


def check_weights(path: Path) -> None:
    """Raise ModelError for a GGUF file without weights, such as a vocabulary.

    llama.cpp reports all other errors of a file when it loads it.
    """
    with path.open("rb") as file:
        start = file.read(GGUF_HEADER.size)
    if len(start) < GGUF_HEADER.size:
        return
    _, version, tensors, _ = GGUF_HEADER.unpack(start)
    if version >= 2 and not tensors:
        raise ModelError(
            f"{path}: a GGUF file without weights, such as a vocabulary alone; "
            "give another GGUF file, of a whole model"
        )


class LoadedModel:
    """The code of the worker process: the first task loads the model, later tasks are chat
    requests."""

    def __init__(self, setup: None, send: Send) -> None:  # noqa: ARG002
        self._server: Any = None

    def __call__(self, task: ModelFiles | ModelQuestion) -> ModelReply:
        """Load the model or answer a chat request."""
        if isinstance(task, ModelQuestion):
            return answer_question(self._server, task)
        try:
            self._server = load_model(task)
        except (RuntimeError, ValueError) as error:
            return ModelReply(fault=first_line(error)[:MAX_REASON_CHARS])
        return ModelReply()


def load_model(files: ModelFiles) -> Any:
    """Return a llama.cpp server with the model. Raises RuntimeError or ValueError where it cannot
    be loaded."""
    library = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = files.model_path
    if files.projector_path is not None:
        parameters.mmproj.path = files.projector_path
    parameters.n_ctx = files.context
    parameters.n_parallel = 1
    # The file is read, not mapped: it is stored in another order, and would be in memory twice.
    parameters.load_mode = library.llama_load_mode.LLAMA_LOAD_MODE_NONE
    parameters.cache_ram_mib = 0  # no copies of earlier chats
    parameters.cpuparams.n_threads = files.threads
    parameters.cpuparams_batch.n_threads = files.threads
    parameters.verbosity = -1
    # the library listens on a loopback port: no one else may ask there
    parameters.api_keys = [os.urandom(16).hex()]
    if files.chat_template is not None:
        parameters.use_jinja = True
        parameters.chat_template = files.chat_template
    return library.Server(parameters)


def answer_question(server: Any, question: ModelQuestion) -> ModelReply:
    """Return the answer to a chat request. It is cut at most one word after the time limit.

    server: of `load_model`.
    """
    until = time.monotonic() + question.seconds
    words: list[str] = []
    ends: list[str] = []
    faults: list[str] = []
    log_probs = [0.0]

    def receive_part(message: dict[str, Any]) -> bool:
        """Collect a part of the answer. Return True to stop the model."""
        if "error" in message:
            faults.append(str(message["error"].get("message", ""))[:MAX_REASON_CHARS])
            return True
        for choice in message.get("choices", []):
            words.append(choice["delta"].get("content") or "")
            tokens = (choice.get("logprobs") or {}).get("content", [])
            log_probs.extend(token["logprob"] for token in tokens)
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
    end = ends[-1] if ends else None
    return ModelReply(text="".join(words), end=end, least_log_prob=min(log_probs))


def _check_gguf_file(path: Path, key: str) -> Path:
    """Return the path with "~" expanded. Raises ModelError if it is no GGUF file.

    key: the setting that names the file, for the error.
    """
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); {key} takes a GGUF file"
        ) from error
    if start != b"GGUF":
        raise ModelError(
            f"{path}: not a GGUF file (it starts with {start!r}); convert the model for llama.cpp"
        )
    return path


def _fingerprint(path: Path) -> str:
    """Return 32 hex digits of a sha256 over the size of a file, its first and its last MiB."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{size}".encode() + file.read(FINGERPRINT_BYTES))
        file.seek(max(0, size - FINGERPRINT_BYTES))
        digest.update(file.read())
    return digest.hexdigest()[:32]


def _template_digest(settings: ChatSettings) -> str:
    """Return 16 hex digits of the sha256 of the chat template, "own template" if none is set."""
    if settings.chat_template is None:
        return "own template"
    text = _read_chat_template(settings.chat_template, settings.section)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_chat_template(path: Path, section: str) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path}: cannot be read as a chat template; {section}.chat_template takes a Jinja file"
        ) from error
