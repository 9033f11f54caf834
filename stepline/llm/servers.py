"""The interface of a language-model server, and the client of an OpenAI-compatible server over
HTTP. The other implementation, a GGUF model on this machine, is in local_model.py.

A remote server is untrusted. Its replies and errors are read up to a maximal size and time, and its
redirects are not followed.
"""

import http.client
import json
import logging
import os
import re
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from stepline.errors import WriterError
from stepline.files.remote.retry import MAX_PAUSE_SECONDS, TRANSIENT_STATUSES
from stepline.limits import parse_json
from stepline.llm.settings import ChatSettings
from stepline.media.http import TransferLimits, open_url

logger = logging.getLogger(__name__)

# bytes of an answer that are read. A full reply with its JSON has some 5,000
MAX_ANSWER_BYTES = 1_000_000
MAX_ANSWER_TOKENS = 10_000_000  # of one answer. A server that counts more is not believed
# Forms of an answer, the strictest first. A server that refuses one is asked for the next.
RESPONSE_FORMATS = ("json_schema", "json_object", "text")
BAD_REQUEST_STATUSES = (400, 422)  # with which a server refuses a field
# how servers name the field of the form, in the body of a refusal
_FORM_FIELD = re.compile(rb"response_format|json_schema|json_object|guided|grammar|schema", re.I)
# how servers say that a model takes no pictures, or fewer: llama.cpp, vLLM, Ollama, LM Studio
_PICTURE_REFUSAL = re.compile(
    r"(image|vision|multi-?modal).*(support|missing|mmproj)|support.*image|not a multi-?modal", re.I
)
# The form of each server, by its name, that it took last, for as long as this process runs.
_accepted_form_indices: dict[str, int] = {}
MAX_MESSAGE_CHARS = 120  # of a server's own message
CONFLICT_STATUS = 409  # a lock that timed out. OpenAI's own client tries again after it too


@dataclass(frozen=True)
class Conversation:
    """A chat whose last message is the question to the language model.

    Attributes:
        messages: the messages in order, each with the keys "role" and "content".
        grammar: the possible answers of a local GGUF model, in llama.cpp's notation (GBNF). Servers
            ignore it.
        least_log_prob: natural logarithm of P(token). A local GGUF model that finds a token of its
            answer less likely gives an empty answer. Servers ignore it.
    """

    messages: tuple[dict[str, str], ...]
    grammar: str
    least_log_prob: float


# What is asked: the text of a user's message, or its parts, pictures among them, or a whole chat.
Content = str | list[dict[str, Any]] | Conversation
Schema = dict[str, Any]  # JSON schema that a reply should follow


@dataclass(frozen=True)
class Answer:
    """An answer of a language model.

    Attributes:
        text: the text of the answer.
        complete: False if the answer was cut off at max_tokens.
        tokens: number of tokens of prompt and answer that the server reports, None if it does not.
    """

    text: str
    complete: bool = True
    tokens: int | None = None


class RequestError(Exception):
    """Raised for a request to a language model that brings no answer.

    Args:
        reason: error message.
        is_transient: whether a retry may help.
        retry_after_seconds: pause before a retry that the server asks for, in seconds.
        rejected: whether the server refuses this request for good.
        form_refused: whether the server refuses the requested response format.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_transient: bool,
        retry_after_seconds: float = 0.0,
        rejected: bool = False,
        form_refused: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_transient = is_transient
        self.retry_after_seconds = retry_after_seconds
        self.rejected = rejected
        self.form_refused = form_refused


class Server(Protocol):
    """A language model that answers chat requests, at most `workers` of them at the same time."""

    name: str  # says for the cache which model answers; holds no secret
    workers: int

    def ask(
        self, question: Content, *, seed: int, until: float, schema: Schema | None = None
    ) -> Answer:
        """Return the answer to a question. Raises RequestError, soon after `until` at the latest.

        Args:
            question: text, message parts or a whole chat.
            seed: of the sampling.
            until: deadline, in seconds of the clock `time.monotonic`.
            schema: JSON schema that the reply should follow. None: any text.
        """
        ...

    def close(self) -> None:
        """Free connections and memory."""
        ...


class AnswerLimits(TransferLimits):
    """Limits of size and time of one HTTP answer. Private addresses are allowed, since the user
    named the server."""

    def __init__(self, until: float) -> None:
        """Allow the time until a deadline, in seconds of the clock `time.monotonic`."""
        seconds = max(0.01, until - time.monotonic())
        super().__init__(max_bytes=MAX_ANSWER_BYTES, seconds=seconds, silence=seconds, private=True)

    def refusal(self, reason: str) -> Exception:
        """Return the error for an unacceptable answer."""
        return RequestError(reason, is_transient=False)

    def timeout_error(self) -> Exception:
        """Return the error for an answer that takes too long."""
        return RequestError("no answer in time", is_transient=True)

    def size_error(self) -> Exception:
        """Return the error for an answer that is too large."""
        return self.refusal(f"the server's answer is larger than {MAX_ANSWER_BYTES} bytes")


class OpenAiServer:
    """Client of an OpenAI-compatible server (vLLM, Ollama, llama.cpp, a hosted one)."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.url = settings.base_url or ""
        self.name = f"{self.url} {settings.model}"
        self.workers = settings.concurrency
        self.has_answered = False  # whether anyone ever answered at this address
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = _read_api_key(settings)
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    def ask(
        self, question: Content, *, seed: int, until: float, schema: Schema | None = None
    ) -> Answer:
        """Return the answer of the model. The arguments are those of `Server.ask`.

        Raises RequestError for errors of this request, WriterError for errors of all requests (no
        server, no access).
        """
        until = min(until, time.monotonic() + self.settings.timeout)
        request: dict[str, Any] = {
            "model": self.settings.model,
            "messages": chat_messages(question),
            "max_tokens": self.settings.max_tokens,
            "temperature": self.settings.temperature,
            "seed": seed,
        }
        if schema is None:
            return self._ask(request, until)
        # The form that the server took last comes first.
        number = _accepted_form_indices.get(self.name, 0)
        while True:
            form = RESPONSE_FORMATS[number]
            try:
                answer = self._ask(request | _format_field(form, schema), until)
            except RequestError as fault:
                if form == "text" or not fault.form_refused:
                    raise
                logger.info("%s; asking without %s", fault.reason, form)
                number += 1
                continue
            _accepted_form_indices[self.name] = number
            return answer

    def _ask(self, request: dict[str, Any], until: float) -> Answer:
        """Send the JSON of a chat completion, and return the answer."""
        with self._translate_network_errors(until):
            answer = open_url(
                f"{self.url.rstrip('/')}/chat/completions",
                AnswerLimits(until),
                self._headers,
                json.dumps(request).encode(),
                by_proxy=not is_loopback(self.url),
            )
            with answer:
                self.has_answered = True
                body = answer.read()
        return parse_answer(body)

    def close(self) -> None:
        """Do nothing: each request has its own connection."""

    @contextmanager
    def _translate_network_errors(self, until: float) -> Iterator[None]:
        """Raise network errors within this context as RequestError or WriterError. until: deadline of
        the request, which decides the message for a timeout."""
        try:
            yield
        except urllib.error.HTTPError as error:
            self.has_answered = True
            with error:
                body = _read_error_body(error)
            raise _make_status_error(self.settings, error.code, error.headers, body) from error
        except urllib.error.URLError as error:  # before anything was sent
            timed_out = isinstance(error.reason, TimeoutError)
            was_reset = isinstance(error.reason, ConnectionResetError | BrokenPipeError)
            # Where no connection was ever made, there is no server.
            if not self.has_answered and not was_reset:
                cause = "no connection in time" if timed_out else str(error.reason)
                raise no_server_error(self.settings, cause) from error
            reason = _timeout_reason(until) if timed_out else "the connection was lost"
            raise RequestError(reason, is_transient=True) from error
        except TimeoutError as error:
            self.has_answered = True
            raise RequestError(_timeout_reason(until), is_transient=True) from error
        except (OSError, http.client.HTTPException) as error:
            kind = type(error).__name__
            raise RequestError(f"the connection was lost ({kind})", is_transient=True) from error


def no_server_error(settings: ChatSettings, cause: str) -> WriterError:
    """Return the error for an address at which no server answers. cause: message of the failed
    connection."""
    return WriterError(
        f"{settings.base_url}: no server answers there ({cause[:100]}); start it or correct "
        f"{settings.section}.base_url"
    )


def chat_messages(question: Content) -> list[dict[str, Any]]:
    """Return the messages of a chat request that asks a question."""
    if isinstance(question, Conversation):
        return list(question.messages)
    return [{"role": "user", "content": question}]


def open_server(settings: ChatSettings) -> Server:
    """Return a client of the server, or the local model, that the settings name.

    Raises WriterError if they name none or both, ModelError if a library or model is missing.
    """
    if (settings.base_url is None) == (settings.gguf is None):
        key = settings.section
        owner = "writer llm" if key == "writing.llm" else key
        raise WriterError(
            f"{owner}: needs one of two settings; give {key}.base_url (a server) or {key}.gguf (a "
            "file)"
        )
    if settings.gguf is not None:
        from stepline.llm.local_model import LocalModel

        return LocalModel(settings)
    return OpenAiServer(settings)


def parse_answer(body: bytes) -> Answer:
    """Return the answer from the JSON of a chat completion. Raises RequestError for any other JSON."""
    try:
        tree = parse_json(body)
        choice = tree["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise RequestError(
            "the server's answer is not a chat completion", is_transient=True
        ) from error
    if text is None:
        return Answer("")
    if not isinstance(text, str):
        raise RequestError("the server's answer holds no text", is_transient=True)
    is_complete = choice.get("finish_reason") != "length"
    return Answer(text, is_complete, _read_token_count(tree.get("usage")))


def _read_token_count(usage: Any) -> int | None:
    """Return the total number of tokens in the field `usage` of a chat completion, None if it is
    missing or implausible."""
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    is_plausible = isinstance(tokens, int) and 0 <= tokens <= MAX_ANSWER_TOKENS
    return tokens if is_plausible else None


def _read_api_key(settings: ChatSettings) -> str | None:
    """Return the API key from the environment variable that the settings name, None without one."""
    variable = settings.api_key_variable
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise WriterError(
            f"{variable}: this environment variable is empty; put the server's key in it"
        )
    return os.environ[variable]


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine, so that no proxy is used."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _format_field(form: str, schema: Schema) -> dict[str, Any]:
    """Return the request field `response_format` as a dict, empty for plain text.

    Args:
        form: one of RESPONSE_FORMATS.
        schema: JSON schema of the reply.
    """
    if form == "text":
        return {}
    if form == "json_object":
        return {"response_format": {"type": form}}
    named_schema = {"name": "reply", "strict": True, "schema": schema}
    return {"response_format": {"type": form, "json_schema": named_schema}}


def _make_status_error(settings: ChatSettings, status: int, headers: Any, body: bytes) -> Exception:
    """Return the error for the HTTP status of a failed request: WriterError if all requests would fail
    in the same way, else RequestError."""
    # what concerns all requests
    url = settings.base_url
    key = settings.section
    if status in (401, 403):
        cure = f"{key}.api_key_variable names the variable with the key"
        return WriterError(f"{url}: access refused ({status}); {cure}")
    if status == 404:
        cure = f"correct {key}.base_url (.../v1) or {key}.model"
        return WriterError(f"{url}: no such address or model there (404); {cure}")
    if 300 <= status < 400:
        cure = f"give the final address as {key}.base_url"
        return WriterError(f"{url}: redirects elsewhere ({status}); {cure}")

    # what concerns this one
    message = _read_error_message(body)
    if _PICTURE_REFUSAL.search(message):
        cure = f"name one that takes them as {key}.model, or try {key}.together=true"
        return WriterError(
            f"{url}: {settings.model!r} takes no pictures, or only one ({message}); {cure}"
        )
    reason = f"the server answered {status}" + (f" ({message})" if message else "")
    is_transient = status in TRANSIENT_STATUSES or status == CONFLICT_STATUS or status >= 500
    # A server that gives no reason at all may mean the form, too.
    mentions_form = not message or _FORM_FIELD.search(body) is not None
    return RequestError(
        reason,
        is_transient=is_transient,
        retry_after_seconds=_retry_after_seconds(headers.get("retry-after")),
        rejected=not is_transient,
        form_refused=status in BAD_REQUEST_STATUSES and mentions_form,
    )


def _retry_after_seconds(value: str | None) -> float:
    """Return the seconds of a Retry-After header, at most MAX_PAUSE_SECONDS. 0 without a header, and
    for a date or an invalid value."""
    try:
        return min(MAX_PAUSE_SECONDS, max(0.0, float(value or 0)))
    except ValueError:
        return 0.0


def _read_error_body(error: urllib.error.HTTPError) -> bytes:
    try:
        return bytes(error.read())
    except (RequestError, OSError, http.client.HTTPException, ValueError):
        return b""


def _read_error_message(body: bytes) -> str:
    """Return the error message in a server's reply as one line of at most MAX_MESSAGE_CHARS, "" without
    a readable one."""
    try:
        tree = parse_json(body)
    except (ValueError, RecursionError):
        return ""
    # as most servers have it, or without the field "error", or a bare text
    for field in ("error", "message"):
        if isinstance(tree, dict):
            tree = tree.get(field, tree)
    return " ".join(tree.split())[:MAX_MESSAGE_CHARS] if isinstance(tree, str) else ""


def _timeout_reason(until: float) -> str:
    if time.monotonic() >= until - 0.05:
        return "no answer in time"
    return "the server was silent for too long"
