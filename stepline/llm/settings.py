"""Settings of whatever asks a language model: who answers, how it is asked, and how long."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from stepline.settings import Positive, Settings, Threads

VideoForm: TypeAlias = Literal["video_url", "input_video"]  # of a message's part that holds a clip


class ChatServerSettings(Settings):
    """Either `base_url` (any OpenAI-compatible server) or `gguf` (a local model) names who answers,
    never both.

    Nothing leaves the machine unless `base_url` names a server elsewhere. The key itself is not a
    setting: only the environment variable that holds it is named here (None sends no key), so that
    it is never stored, logged or cached.
    """

    section: ClassVar[str] = "chat"  # under which the user finds these settings, for errors

    base_url: str | None = None  # of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1
    gguf: Path | None = None  # a GGUF file, answered in this process through xllamacpp
    # the name that the server knows the model by. Servers of one model take any
    model: str = "default"
    # holds the key
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    # Jinja file for a GGUF that carries none or a wrong one. None: the model's own
    chat_template: Path | None = None

    @field_validator("base_url")
    @classmethod
    def _plain_address(cls, url: str | None) -> str | None:
        """Refuse what is not a web address, and one that carries a password: settings are stored
        with the results."""
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("need an address such as http://127.0.0.1:8000/v1")
        if "@" in parts.netloc or parts.query:
            cure = "put it in an environment variable (api_key_variable)"
            raise ValueError(f"a key has no place in the address; {cure}")
        return url


class ChatSettings(ChatServerSettings):
    """How a language model is asked, apart from who it is."""

    # of a reply. The steps of ten sentences need some 150
    max_tokens: Annotated[int, Field(ge=16, le=32768)] = 512
    # 0: the most likely word each time, so runs repeat
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    # for servers that still draw at random
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 2023

    # requests to a server at the same time. A GGUF answers one at a time
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    # further tries after a fault that may pass (429, 5xx, lost line)
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    # s before the first retry. Doubles each time
    pause: Annotated[float, Field(ge=0.0, le=60.0)] = 0.5
    timeout: Positive = 60.0  # s for one request
    # s for all requests. What is left goes without (the extractive writer serves it)
    deadline: Positive = 300.0
    threads: Threads | None = None  # of a GGUF; None: one fewer than the cores, at least 1
    # tokens that a GGUF sees together: prompt and reply
    context: Annotated[int, Field(ge=512, le=2**20)] = 4096

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the projector that lets a local model see, None for one that reads
        alone."""
        return None
