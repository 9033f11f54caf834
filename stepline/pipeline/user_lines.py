"""The user's own lines, a recipe say, as the steps of a video: where the narration names each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.pipeline.request import StepsSettings
from stepline.records import Transcript
from stepline.writing import WrittenSteps

if TYPE_CHECKING:
    from stepline.grounding.task_graph import TaskGraph

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class UserLines(WrittenSteps):
    """sentence_probabilities: (K, S) P(sentence s says line k). Rows sum to P(the line is said)."""

    sentence_probabilities: Array = field(default_factory=lambda: np.zeros((0, 0)), compare=False)


def place_user_lines(
    lines: Sequence[str],
    transcript: Transcript,
    settings: StepsSettings,
    graph: "TaskGraph | None" = None,
) -> UserLines:
    """Return the lines as steps, in the order given, with `said` where the narration says them.

    graph: what other videos of the task do, whose lines these are.
    """
    from stepline.grounding.speech import place_texts
    from stepline.grounding.task_graph import graph_prior
    from stepline.text import embed
    from stepline.writing.extractive.writer import transcript_step_probabilities

    # A graph of the task says in which order lines are likely.
    prior = None
    if graph is not None:
        prior = graph_prior(graph, settings.nasva.coarse, embed)
    sentences = [sentence.text for sentence in transcript.sentences]
    placed = place_texts(
        lines,
        transcript,
        embed(sentences),
        embed(lines),
        step_probabilities=transcript_step_probabilities(transcript, settings.writing),
        settings=settings.nasva.coarse,
        prior=prior,
    )
    return UserLines(placed.steps, sentence_probabilities=placed.sentence_probabilities)
