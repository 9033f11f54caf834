"""Pronouns of drafted steps: a name where it is sure, nothing where the step reads without, else as
said."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stepline.writing.extractive.step_editor import DraftStep

if TYPE_CHECKING:
    from spacy.tokens import Doc


class StepNamer:
    """Names the pronouns of one narration's steps, in order. docs: its sentences, parsed."""

    def __init__(self, docs: "Sequence[Doc]") -> None:
        self.docs = docs

    def with_names(self, draft: DraftStep) -> DraftStep | None:
        """Return the step with names; None where nothing is left to say."""
        return replace(draft)
