"""Which writer turns a transcript into steps, and its settings."""

from typing import Literal

from stepline.settings import Settings
from stepline.writing.llm_settings import LlmSettings


class WritingSettings(Settings):
    """How steps are written."""

    writer: Literal["extractive", "llm"] = "extractive"  # extractive: spaCy, offline; llm: a language model
    llm: LlmSettings = LlmSettings()  # read only when writer = "llm"
