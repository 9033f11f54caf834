"""Settings of the step writers: which one runs, which language model answers, how and how long it is asked."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stepline.chat.settings import ChatServerSettings, ChatSettings
from stepline.plugins import choice
from stepline.settings import Settings


class PromptSettings(ChatServerSettings):
    """What a language model is told and shown of a transcript at a time."""

    prompt: Literal["steps"] = "steps"  # NaSVA Table 6, third row; the losing two are for experiments alone
    prompt_file: Path | None = None  # your own prompt instead, with {transcript} in it (docs/nasva.md)
    sentences_per_chunk: Annotated[int, Field(ge=1, le=200)] = 10  # NaSVA section 3.1: around 10 sentences


class LlmSettings(ChatSettings, PromptSettings):
    """The language model that writes steps."""

    section: ClassVar[str] = "writing.llm"

    floor: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.40  # MiniLM cosine below which a sentence is no support
    cache: bool = True  # keep good replies in the cache folder, keyed by model, prompt, settings and chunk


WriterName = Annotated[str, choice("writers")]


class WritingSettings(Settings):
    """How steps are written."""

    writer: WriterName = "extractive"  # extractive: spaCy, offline; llm: a language model; or a plugin's
    llm: LlmSettings = LlmSettings()  # read only when writer = "llm"
