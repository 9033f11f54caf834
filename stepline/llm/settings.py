"""Settings of every part that asks a language model: which model answers, the sampling, and the limits
of time."""

from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from stepline.settings import Positive, Settings, Threads


class ChatServerSettings(Settings):
    """Which language model answers: `base_url` (an OpenAI-compatible server) or `gguf` (a local
    file).

    Nothing leaves this machine unless `base_url` names a server elsewhere. The API key is read from
    an environment variable, so that it is never stored, logged or cached.
    """

    section: ClassVar[str] = "chat"  # under which the user finds these settings, for errors

    base_url: str | None = None
    """address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"""
    gguf: Path | None = None
    """a GGUF model file, run on this machine through xllamacpp"""
    model: str = "default"
    """name of the model on the server. Servers of a single model take any name"""
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """environment variable that holds the server's API key"""
    chat_template: Path | None = None
    """Jinja file that replaces the chat template of a GGUF. None: the model's own"""

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, url: str | None) -> str | None:
        """Raise ValueError for anything but a web address without credentials, because settings are
        stored with results."""
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("need an address such as http://127.0.0.1:8000/v1")
        if "@" in parts.netloc or parts.query:
            raise ValueError(
                "a key has no place in the address; put it in an environment variable (api_key_variable)"
            )
        return url


class ChatSettings(ChatServerSettings):
    """How a language model is asked: sampling, retries, timeouts and threads."""

    max_tokens: Annotated[int, Field(ge=16, le=32768)] = 512
    """maximal tokens of a reply. The steps of ten sentences need some 150"""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """sampling temperature. 0: the most likely word each time, so runs repeat"""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 2023
    """seed for servers that sample at random even so"""

    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    """maximal parallel requests to a server. A GGUF answers one at a time"""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """retries after a transient error (429, 5xx, a lost connection)"""
    pause: Annotated[float, Field(ge=0.0, le=60.0)] = 0.5
    """seconds before the first retry. It doubles each time"""
    timeout: Positive = 60.0
    """seconds for one request"""
    deadline: Positive = 300.0
    """seconds for all requests. Later ones are not sent"""
    threads: Threads | None = None
    """CPU threads of a GGUF. None: one fewer than the cores, at least 1"""
    context: Annotated[int, Field(ge=512, le=2**20)] = 4096
    """context length of a GGUF in tokens: prompt and reply"""

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the vision projector, None for a text-only model."""
        return None
