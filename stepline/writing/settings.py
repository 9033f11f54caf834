"""Settings of the step writers: which one runs, which language model answers, how and how long it
is asked."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from stepline.llm.settings import ChatServerSettings, ChatSettings
from stepline.plugins import choice
from stepline.settings import Positive, Settings

PAPER_SENTENCES = 10  # of a chunk: NaSVA section 3.1
WHOLE_WORDS = 2500  # of speech that `writing.llm.prompt=whole` asks about at a time
WHOLE_MAX_TOKENS = 6000  # of the reply to such a request
WHOLE_TIMEOUT = 300.0  # seconds of such a request
CHUNKS_PER_DEADLINE = 10  # for which `writing.llm.deadline` is meant; more have longer


class PromptSettings(ChatServerSettings):
    """The prompt of a language model, and how long its chunks of a transcript are."""

    prompt: Literal["steps", "whole", "nasva"] = Field(
        "steps",
        description="steps: ours, with what came before. whole: for strong models, parts of some "
        "2,500 words; each step cites its sentences. nasva: NaSVA Table 6, third row, by "
        "sentences_per_chunk.",
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
    def _give_long_chunks_time(cls, values: Any) -> Any:
        """Set longer limits of a request for prompt="whole", where none are given."""
        if isinstance(values, dict) and values.get("prompt") == "whole":
            return {"max_tokens": WHOLE_MAX_TOKENS, "timeout": WHOLE_TIMEOUT, **values}
        return values

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
        if self.prompt == "whole":
            return WHOLE_WORDS
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
    dry_run: bool = Field(
        False,
        description="send no request. A note says what would be asked, the extractive writer "
        "writes.",
    )

    def deadline_for(self, chunks: int) -> float:
        """Return the time limit for a number of chunks, in seconds."""
        deadlines = chunks / CHUNKS_PER_DEADLINE
        return self.deadline * max(1.0, deadlines)

    @model_serializer(mode="wrap")
    def _omit_unused_dry_run(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Store `dry_run` only where it is on, so that older results stay equal."""
        values: dict[str, Any] = serialize(self)
        if not self.dry_run:
            values.pop("dry_run", None)
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
