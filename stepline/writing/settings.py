"""Settings of the step writers: which one runs, which language model answers, how and how long it
is asked."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from stepline.errors import ModelError
from stepline.llm.settings import ChatServerSettings, ChatSettings
from stepline.networks.weights import find_weights, weights_fetched
from stepline.plugins import choice
from stepline.settings import Positive, Settings

EDITING_MODEL = "qwen2.5-coder-1.5b"  # among the known weights
PAPER_SENTENCES = 10  # of a chunk: NaSVA section 3.1
WRITE_WORDS = 2500  # of speech that `writing.llm.form=write` asks about at a time
WRITE_TIMEOUT = 300.0  # seconds of such a request
WRITE_MAX_TOKENS = 6000  # of the reply to such a request
WORDS_PER_DEADLINE = 1500  # for which `writing.llm.deadline` is meant; more have longer
# Values of the earlier setting `writing.llm.prompt`, with the forms that do the same.
EARLIER_PROMPTS = {"steps": "edit", "whole": "write", "nasva": "nasva"}


class PromptSettings(ChatServerSettings):
    """What a language model is asked for, and how long its parts of a transcript are."""

    form: Literal["auto", "edit", "write", "nasva"] = Field(
        "auto",
        description="edit: for small models; the extractive writer's steps, in which the model names "
        "doubtful pronouns. write: for strong models; parts of some 2,500 words, from which the model "
        "chooses, citing sentences. auto: the one of these that fits what the model answers to a "
        "short narration. nasva: NaSVA Table 6, third row.",
    )
    sentences_per_chunk: Annotated[int, Field(ge=1, le=200)] = PAPER_SENTENCES
    """of form=nasva. NaSVA section 3.1: around 10 sentences"""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_prompt(cls, values: Any) -> Any:
        """Read the earlier setting `prompt`, and set longer limits for form="write" if none are
        given."""
        if not isinstance(values, dict):
            return values
        values = dict(values)
        prompt = values.pop("prompt", None)
        if isinstance(prompt, str) and prompt in EARLIER_PROMPTS:
            values.setdefault("form", EARLIER_PROMPTS[prompt])
        elif prompt is not None:
            raise ValueError(f"prompt={prompt!r}: give form=auto, edit, write or nasva")
        if values.get("form") == "write":
            return {"max_tokens": WRITE_MAX_TOKENS, "timeout": WRITE_TIMEOUT, **values}
        return values


class LlmSettings(ChatSettings, PromptSettings):
    """The language model that writes steps.

    Without `base_url` and `gguf` it is the one that `stepline weights get qwen2.5-coder-1.5b` fetches.
    """

    section: ClassVar[str] = "writing.llm"

    deadline: Positive = 300.0
    """s for up to 1,500 words of speech, longer for more. The extractive writer serves what is left."""
    floor: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.40
    """MiniLM cosine below which a sentence does not support a step"""
    cache: bool = True
    """keep good replies in the cache folder, keyed by model, prompt, settings and chunk"""
    # Stored only where it is on, so that older results stay equal.
    dry_run: Annotated[bool, Field(exclude_if=lambda dry_run: not dry_run)] = False
    """send no request. A note says what would be asked, the extractive writer writes."""

    def with_model(self) -> "LlmSettings":
        """Return the settings with the fetched model, if they name none.

        Raises ModelError if it was not fetched.
        """
        if self.base_url is not None or self.gguf is not None:
            return self
        if not weights_fetched(EDITING_MODEL):
            raise ModelError(
                f"writer llm: no model is here; `stepline weights get {EDITING_MODEL}` fetches one "
                "(1.1 GB), or give writing.llm.base_url (a server) or writing.llm.gguf (a file)"
            )
        return self.model_copy(update={"gguf": find_weights(EDITING_MODEL)})

    def deadline_seconds(self, words: int) -> float:
        """Return the time limit for a number of spoken words, in seconds."""
        return self.deadline * max(1.0, words / WORDS_PER_DEADLINE)


WriterName = Annotated[str, choice("writers")]


class WritingSettings(Settings):
    """How steps are written."""

    writer: WriterName = "extractive"
    """extractive: spaCy, offline. llm: a language model. Or a plugin's."""
    steps: Literal["few", "usual", "all"] = "usual"
    """how many sentences count as telling a step: the sure ones, as people mark them, or all likely"""
    detail: Literal["brief", "usual", "full"] = "usual"
    """whether halves ("and stir it") are steps: joined freely, as in a recipe, or each written alone"""
    step_scorer: Path | None = None
    """a narration tagger that `python -m lab.writer_training.train` wrote. None: the one that is shipped."""
    llm: LlmSettings = Field(LlmSettings(), description='read only when writer = "llm"')
