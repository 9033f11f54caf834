"""Settings of whatever asks a language model: who answers, how it is asked, and how long."""

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

    base_url: str | None = Field(
        None, description="of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
    )
    gguf: Path | None = Field(
        None, description="a GGUF file, answered in this process through xllamacpp"
    )
    model: str = Field(
        "default",
        description="the name that the server knows the model by. Servers of one model take any",
    )
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="holds the key"
    )
    chat_template: Path | None = Field(
        None,
        description="Jinja file for a GGUF that carries none or a wrong one. None: the model's own",
    )

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

    max_tokens: Annotated[int, Field(ge=16, le=32768)] = Field(
        512, description="of a reply. The steps of ten sentences need some 150"
    )
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = Field(
        0.0, description="0: the most likely word each time, so runs repeat"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        2023, description="for servers that still draw at random"
    )

    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(
        4, description="requests to a server at the same time. A GGUF answers one at a time"
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="further tries after a fault that may pass (429, 5xx, lost line)"
    )
    pause: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        0.5, description="s before the first retry. Doubles each time"
    )
    timeout: Positive = Field(60.0, description="s for one request")
    deadline: Positive = Field(
        300.0,
        description="s for all requests. What is left goes without (the extractive writer serves "
        "it)",
    )
    threads: Threads | None = Field(
        None, description="of a GGUF; None: one fewer than the cores, at least 1"
    )
    context: Annotated[int, Field(ge=512, le=2**20)] = Field(
        4096, description="tokens that a GGUF sees together: prompt and reply"
    )

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the vision projector, None for a text-only model."""
        return None
