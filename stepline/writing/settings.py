"""Settings of the step writers: which one runs, which language model answers, how and how long it
is asked."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stepline.chat.settings import ChatServerSettings, ChatSettings
from stepline.plugins import choice
from stepline.settings import Settings


class PromptSettings(ChatServerSettings):
    """What a language model is told and shown of a transcript at a time."""

    # NaSVA Table 6, third row; the losing two are for experiments alone
    prompt: Literal["steps"] = "steps"
    # your own prompt instead, with {transcript} in it (docs/nasva.md)
    prompt_file: Path | None = None
    # NaSVA section 3.1: around 10 sentences
    sentences_per_chunk: Annotated[int, Field(ge=1, le=200)] = 10


class LlmSettings(ChatSettings, PromptSettings):
    """The language model that writes steps."""

    section: ClassVar[str] = "writing.llm"

    # MiniLM cosine below which a sentence is no support
    floor: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.40
    # keep good replies in the cache folder, keyed by model, prompt, settings and chunk
    cache: bool = True
    # of the video that a model that sees is shown beside each chunk
    pictures: Annotated[int, Field(ge=0, le=20)] = 0
    picture_size: Annotated[int, Field(ge=64, le=2048)] = 336  # pixels of a picture's shorter side
    # put the pictures of a chunk side by side in one, for servers that take one
    together: bool = False
    # the GGUF of a local model's projector (mmproj), with which it sees
    projector: Path | None = None
    # ask nobody; a note says what would be asked, the extractive writer writes
    dry_run: bool = False

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the projector."""
        return self.projector

    @model_validator(mode="after")
    def _sees_with_a_projector(self) -> "LlmSettings":
        if self.pictures and self.gguf is not None and self.projector is None:
            raise ValueError("a GGUF sees with a projector alone; name its file as projector")
        return self

    @model_serializer(mode="wrap")
    def _without_pictures(self, stored: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store what concerns pictures only where some are shown: results without any stay what
        they are."""
        tree: dict[str, Any] = stored(self)
        unused = () if self.pictures else ("pictures", "picture_size", "together", "projector")
        for name in (*unused, *(() if self.dry_run else ("dry_run",))):
            tree.pop(name, None)
        return tree


WriterName = Annotated[str, choice("writers")]


class WritingSettings(Settings):
    """How steps are written."""

    # extractive: spaCy, offline; llm: a language model; or a plugin's
    writer: WriterName = "extractive"
    # how many sentences count as telling a step: the sure ones, as people mark them, or all likely
    steps: Literal["few", "usual", "all"] = "usual"
    # whether halves ("and stir it") are steps: joined freely, as in a recipe, or each told alone
    detail: Literal["brief", "usual", "full"] = "usual"
    # a narration tagger that `stepline train writer` wrote; None: the one that is shipped
    step_scorer: Path | None = None
    llm: LlmSettings = LlmSettings()  # read only when writer = "llm"
