"""The two ways of asking that lost in NaSVA Table 6, to measure them again; the main job never takes them.

First row: the model writes the times. Second row: times go in, steps come out. Neither's times are ever trusted.
"""

import logging
import re
import time
from dataclasses import dataclass

from stepline.records import Transcript
from stepline.writing.llm.prompts import Chunk, cut, experiment_prompts, orders_to_the_model, question
from stepline.writing.llm.requests import run_all
from stepline.writing.llm.servers import Answer, Fault, open_server
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings
from stepline.writing.types import Written

logger = logging.getLogger(__name__)

_TIMED = re.compile(
    r"^\s*(?:\d{1,3}[.)]\s+)?[\[(]\s*(\d{1,6}(?:\.\d+)?)\s*s?\s*(?:[-–]\s*\d+(?:\.\d+)?\s*s?\s*)?[\])]\s*(\S.*)$"
)


@dataclass(frozen=True)
class TimedLine:
    """A line that a model wrote with the second at which it believes it happens; only an experiment may use it."""

    second: float
    text: str


def steps_from_timed(transcript: Transcript, settings: LlmSettings) -> Written:
    """Return the steps of the second row's prompt: as `write_llm`, with the sentences' times in the question."""
    return write_llm(transcript, settings, prompt=experiment_prompts()["steps_from_timed"])


def lines_with_times(transcript: Transcript, settings: LlmSettings) -> tuple[TimedLine, ...]:
    """Return the lines of the first row's prompt with the model's own times, in seconds, in its order.

    Lines without a time are left out, and so are chunks that the model did not answer. Raises as `write_llm` does.
    """
    prompt = experiment_prompts()["steps_with_times"]
    chunks = cut(transcript, settings.sentences_per_chunk, orders_to_the_model(transcript))
    server = open_server(settings)
    until = time.monotonic() + settings.deadline

    def ask(chunk: Chunk) -> Answer:
        try:
            return server.ask(question(prompt, chunk), seed=settings.seed, until=until)
        except Fault as fault:
            logger.warning("chunk %d is left out: %s", chunk.number, fault.reason)
            return Answer("")

    try:
        answers = run_all(ask, chunks, workers=server.workers, until=until)
    finally:
        server.close()
    return tuple(line for place in sorted(answers) for line in read_timed(answers[place].text))


def read_timed(reply: str) -> tuple[TimedLine, ...]:
    """Return the lines of a reply that begin with a second in brackets, such as "[12.5] she cuts the onion"."""
    matches = (_TIMED.match(line) for line in reply.splitlines())
    return tuple(TimedLine(float(match.group(1)), match.group(2).strip()) for match in matches if match)
