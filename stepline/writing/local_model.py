"""A GGUF model that answers in this process, through xllamacpp (llama.cpp)."""

import hashlib
import importlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from stepline.errors import ModelError
from stepline.writing.llm_settings import LlmSettings
from stepline.writing.servers import Answer, Fault

logger = logging.getLogger(__name__)

ENDS = 1 << 20  # bytes of either end of a model file that name it for the cache: hashing 8 GB would take half a minute


class LocalModel:
    """A GGUF file, one question at a time; it stops within one word of its deadline."""

    workers = 1

    def __init__(self, settings: LlmSettings) -> None:
        path = _checked(settings.gguf or Path())
        self.settings = settings
        self.name = f"{path.name} {_fingerprint(path)} {_template(settings)}"
        self._path = path
        self._server: Any = None

    def ask(self, question: str, *, seed: int, until: float) -> Answer:
        """Return the model's answer. Raises Fault when time runs out or the chunk does not fit its context."""
        if self._server is None:  # not before the first question: all replies may be in the cache
            self._server = _load(self._path, self.settings)
        until = min(until, time.monotonic() + self.settings.timeout)
        words: list[str] = []
        ends: list[str] = []
        faults: list[str] = []

        def take(part: dict[str, Any]) -> bool:
            """Collect a word; True ends the answer."""
            if "error" in part:
                faults.append(str(part["error"].get("message", ""))[:120])
                return True
            for choice in part.get("choices", []):
                words.append(choice["delta"].get("content") or "")
                if choice.get("finish_reason"):
                    ends.append(choice["finish_reason"])
            return time.monotonic() > until

        self._server.handle_chat_completions(self._request(question, seed), take)
        if faults:
            raise Fault(f"the model refused the question ({faults[0]})", passing=False)
        if not ends:
            raise Fault("no answer in time", passing=False)
        return Answer("".join(words), ends[-1] != "length")

    def close(self) -> None:
        """Free the model's memory."""
        self._server = None

    def _request(self, question: str, seed: int) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": self.settings.max_tokens,
            "temperature": self.settings.temperature,
            "seed": seed,
            "stream": True,
            "cache_prompt": False,  # a reply must not depend on what was asked before
        }


def _load(path: Path, settings: LlmSettings) -> Any:
    try:
        library = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise ModelError(
            "xllamacpp: not installed, and writing.llm.gguf needs it; pip install 'stepline[llm]'"
        ) from error
    threads = settings.threads or max(1, (os.cpu_count() or 1) - 1)
    parameters = library.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = settings.context
    parameters.n_parallel = 1
    # As many threads as cores collapse as soon as anything else runs: 6 s became 94 s.
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.verbosity = -1
    parameters.api_keys = [os.urandom(16).hex()]  # the library listens on a loopback port: nobody else may ask there
    if settings.chat_template is not None:
        parameters.use_jinja = True
        parameters.chat_template = _read(settings.chat_template)
    start = time.perf_counter()
    try:
        server = library.Server(parameters)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{path}: llama.cpp cannot load it ({str(error)[:100]}); give another GGUF file") from error
    logger.info("loaded %s in %.1f s", path.name, time.perf_counter() - start)
    return server


def _checked(path: Path) -> Path:
    """Return the path of a GGUF file. Raises ModelError for anything else."""
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); writing.llm.gguf takes a GGUF file") from error
    if start != b"GGUF":
        raise ModelError(f"{path}: not a GGUF file (it starts with {start!r}); convert the model for llama.cpp")
    return path


def _fingerprint(path: Path) -> str:
    """Return a hash of the file's size and both its ends: the header that names it and its last weights."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{size}".encode() + file.read(ENDS))
        file.seek(max(0, size - ENDS))
        digest.update(file.read())
    return digest.hexdigest()[:32]


def _template(settings: LlmSettings) -> str:
    if settings.chat_template is None:
        return "own template"
    return hashlib.sha256(_read(settings.chat_template).encode()).hexdigest()[:16]


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path}: cannot be read as a chat template; writing.llm.chat_template takes a Jinja file"
        ) from error
