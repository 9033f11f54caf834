"""Settings of the step writers: which one runs, which language model answers, how and how long it
is asked."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stepline.llm.settings import ChatServerSettings, ChatSettings
from stepline.plugins import choice
from stepline.settings import Positive, Settings

PAPER_SENTENCES = 10  # of a chunk: NaSVA section 3.1
CHUNKS_PER_DEADLINE = 10  # for which `writing.llm.deadline` is meant; more have longer


class PromptSettings(ChatServerSettings):
    """The prompt of a language model, and how long its chunks of a transcript are."""

    prompt: Literal["steps", "nasva"] = Field(
        "steps",
        description="steps: ours, with what came before. nasva: NaSVA Table 6, third row, by "
        "sentences_per_chunk.",
    )
    prompt_file: Path | None = Field(
        None, description="your own prompt instead, with {transcript} in it (docs/nasva.md)"
    )
    sentences_per_chunk: Annotated[int, Field(ge=1, le=200)] = Field(
        PAPER_SENTENCES,
        description="NaSVA section 3.1: around 10 sentences. Another number counts in place of "
        "words.",
    )
    words_per_chunk: Annotated[int, Field(ge=20, le=2000)] | None = Field(
        150,
        description="words of speech that the model reads at a time, about. None: it counts "
        "sentences.",
    )

    @model_validator(mode="before")
    @classmethod
    def _use_sentence_count_if_given(cls, values: Any) -> Any:
        """Count sentences where only their number is given, not that of words."""
        if not isinstance(values, dict) or "words_per_chunk" in values:
            return values
        if values.get("sentences_per_chunk", PAPER_SENTENCES) == PAPER_SENTENCES:
            return values
        return {**values, "words_per_chunk": None}

    @property
    def chunk_words(self) -> int | None:
        """Words per chunk, None where chunks have `sentences_per_chunk` sentences."""
        if self.prompt == "nasva":
            return None
        return self.words_per_chunk


class LlmSettings(ChatSettings, PromptSettings):
    """The language model that writes steps."""

    section: ClassVar[str] = "writing.llm"

    deadline: Positive = Field(
        300.0,
        description="s for up to ten chunks, longer for more. The extractive writer serves what "
        "is left.",
    )
    floor: Annotated[float, Field(ge=-1.0, le=1.0)] = Field(
        0.40, description="MiniLM cosine below which a sentence does not support a step"
    )
    cache: bool = Field(
        True,
        description="keep good replies in the cache folder, keyed by model, prompt, settings and "
        "chunk",
    )
    pictures: Annotated[int, Field(ge=0, le=20)] = Field(
        0, description="of the video that a model that sees is shown with each chunk"
    )
    picture_size: Annotated[int, Field(ge=64, le=2048)] = Field(
        336, description="pixels of a picture's shorter side"
    )
    together: bool = Field(
        False,
        description="put the pictures of a chunk side by side in one, for servers that take one",
    )
    projector: Path | None = Field(
        None, description="the GGUF of a local model's projector (mmproj), with which it sees"
    )
    dry_run: bool = Field(
        False,
        description="send no request. A note says what would be asked, the extractive writer "
        "writes.",
    )

    @property
    def projector_file(self) -> Path | None:
        """The GGUF file of the vision projector."""
        return self.projector

    def deadline_for(self, chunks: int) -> float:
        """Return the time limit for a number of chunks, in seconds."""
        deadlines = chunks / CHUNKS_PER_DEADLINE
        return self.deadline * max(1.0, deadlines)

    @model_validator(mode="after")
    def _check_projector(self) -> "LlmSettings":
        if self.pictures and self.gguf is not None and self.projector is None:
            raise ValueError("a GGUF needs a projector to see; name its file as projector")
        return self

    @model_serializer(mode="wrap")
    def _omit_unused_picture_settings(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        """Store the settings of pictures only where some are shown, so that older results stay
        equal."""
        values: dict[str, Any] = serialize(self)
        unused: list[str] = []
        if not self.pictures:
            unused += ("pictures", "picture_size", "together", "projector")
        if not self.dry_run:
            unused.append("dry_run")
        for name in unused:
            values.pop(name, None)
        return values


WriterName = Annotated[str, choice("writers")]


class WritingSettings(Settings):
    """How steps are written."""

    writer: WriterName = Field(
        "extractive",
        description="extractive: spaCy, offline. llm: a language model. Or a plugin's.",
    )
    steps: Literal["few", "usual", "all"] = Field(
        "usual",
        description="how many sentences count as telling a step: the sure ones, as people mark "
        "them, or all likely",
    )
    detail: Literal["brief", "usual", "full"] = Field(
        "usual",
        description='whether halves ("and stir it") are steps: joined freely, as in a recipe, or '
        "each written alone",
    )
    step_scorer: Path | None = Field(
        None,
        description="a narration tagger that `python -m lab.writer_training.train` wrote. None: the "
        "one that is shipped.",
    )
    llm: LlmSettings = Field(LlmSettings(), description='read only when writer = "llm"')

    @model_serializer(mode="wrap")
    def _omit_unused_llm_settings(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store the settings of a language model only where it writes, so that older results stay
        equal."""
        values: dict[str, Any] = serialize(self)
        if self.writer == "llm":
            return values
        defaults = LlmSettings()
        has_default_words = self.llm.words_per_chunk == defaults.words_per_chunk
        has_default_sentences = self.llm.sentences_per_chunk == defaults.sentences_per_chunk
        llm = values.get("llm")
        if isinstance(llm, dict) and has_default_words and has_default_sentences:
            llm.pop("words_per_chunk", None)
        return values
