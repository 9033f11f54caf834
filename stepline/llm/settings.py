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

    base_url: str | None = Field(
        None, description="address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
    )
    gguf: Path | None = Field(
        None, description="a GGUF model file, run on this machine through xllamacpp"
    )
    model: str = Field(
        "default",
        description="name of the model on the server. Servers of a single model take any name",
    )
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="environment variable that holds the server's API key"
    )
    chat_template: Path | None = Field(
        None,
        description="Jinja file that replaces the chat template of a GGUF. None: the model's own",
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
        512, description="maximal tokens of a reply. The steps of ten sentences need some 150"
    )
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = Field(
        0.0, description="sampling temperature. 0: the most likely word each time, so runs repeat"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        2023, description="seed for servers that sample at random even so"
    )

    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(
        4, description="maximal parallel requests to a server. A GGUF answers one at a time"
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="retries after a transient error (429, 5xx, a lost connection)"
    )
    pause: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        0.5, description="seconds before the first retry. It doubles each time"
    )
    timeout: Positive = Field(60.0, description="seconds for one request")
    deadline: Positive = Field(
        300.0,
        description="seconds for all requests. Later ones are not sent (the extractive writer "
        "replaces them)",
    )
    threads: Threads | None = Field(
        None, description="CPU threads of a GGUF. None: one fewer than the cores, at least 1"
    )
    context: Annotated[int, Field(ge=512, le=2**20)] = Field(
        4096, description="context length of a GGUF in tokens: prompt and reply"
    )

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the vision projector, None for a text-only model."""
        return None
