"""The user's own lines, a recipe say, as the steps of a video: where the narration tells each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepline.pipeline.request import StepsSettings
from stepline.records import Transcript
from stepline.writing import WrittenSteps

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class UserLines(WrittenSteps):
    """tellings: (K, S) P(sentence s tells line k); rows sum to P(the line is said)."""

    tellings: Array = field(default_factory=lambda: np.zeros((0, 0)), compare=False)


def place_user_lines(
    lines: Sequence[str], transcript: Transcript, settings: StepsSettings
) -> UserLines:
    """Return the lines as steps, in the order given, with `said` where the narration tells them."""
    from stepline.grounding.speech import place_texts
    from stepline.text import embed
    from stepline.writing.extractive.writer import transcript_step_probabilities

    sentences = [sentence.text for sentence in transcript.sentences]
    placed = place_texts(
        lines,
        transcript,
        embed(sentences),
        embed(lines),
        step_probabilities=transcript_step_probabilities(transcript, settings.writing),
        settings=settings.nasva.coarse,
    )
    return UserLines(placed.steps, tellings=placed.tellings)
