"""The process that holds a GGUF model: `python -m stepline.llm.local_model_process`.

A file that llama.cpp trips over ends this process and no other. The first line of the input says
what is loaded (ModelFiles), the first of the output whether it was (ModelReply). Then each line is
a question (ModelQuestion), and each is answered by a line.
"""

import importlib
import os
import sys
import time
from typing import IO, Any

from stepline.errors import first_line
from stepline.limits import parse_json
from stepline.records import FrozenModel

MAX_REASON_CHARS = 120  # of what llama.cpp says of a fault


class ModelFiles(FrozenModel):
    """A model and how it is loaded.

    projector: of one that sees.
    template: the text of a chat template in Jinja, instead of the model's own.
    """

    model: str
    projector: str | None
    context: int
    threads: int
    template: str | None


class ModelQuestion(FrozenModel):
    """A question. request: as an OpenAI-compatible server takes it, in JSON. seconds: for the
    answer."""

    request: str
    seconds: float


class ModelReply(FrozenModel):
    """What became of a question, or of the loading. end: why the answer ended, None where its time
    did. fault: why there is no answer."""

    text: str = ""
    end: str | None = None
    fault: str | None = None


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
    """Return the answer to a question. It ends within one word of its time."""
    until = time.monotonic() + question.seconds
    words: list[str] = []
    ends: list[str] = []
    faults: list[str] = []

    def take(part: dict[str, Any]) -> bool:
        """Collect a word. True ends the answer."""
        if "error" in part:
            faults.append(str(part["error"].get("message", ""))[:MAX_REASON_CHARS])
            return True
        for choice in part.get("choices", []):
            words.append(choice["delta"].get("content") or "")
            if choice.get("finish_reason"):
                ends.append(choice["finish_reason"])
        return time.monotonic() > until

    # words come until the model or the time ends
    try:
        server.handle_chat_completions(parse_json(question.request), take)
    except RuntimeError as error:
        faults.append(str(error)[:MAX_REASON_CHARS])
    if faults:
        return ModelReply(fault=faults[0])
    return ModelReply(text="".join(words), end=ends[-1] if ends else None)


def main() -> None:
    """Load a model and answer until the input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    # What llama.cpp prints must not be among the replies.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    files = ModelFiles.model_validate_json(sys.stdin.readline())
    try:
        server = load_model(files)
    except (RuntimeError, ValueError) as error:
        _write(replies, ModelReply(fault=first_line(error)[:MAX_REASON_CHARS]))
        os._exit(1)
    _write(replies, ModelReply())
    for line in sys.stdin:
        _write(replies, answer(server, ModelQuestion.model_validate_json(line)))
    # llama.cpp waits forever where its server is freed before its own thread began.
    os._exit(0)


def _write(replies: IO[str], reply: ModelReply) -> None:
    replies.write(reply.model_dump_json() + "\n")


if __name__ == "__main__":
    main()
