"""NaSVA's table 6: the three prompts of a step writer, side by side. The main job takes the third
alone.

    steps_with_times     the model writes the times (first row)
    steps_from_timed     times go in, steps come out (second row)
    steps                no times, in or out (third row)

The times that a model writes are never trusted: they are shown, and no step has them.
"""

import logging
import re
import time
from dataclasses import dataclass

from stepline.chat.requests import run_in_threads
from stepline.chat.servers import Answer, RequestError, open_server
from stepline.records import Transcript
from stepline.writing.llm.prompts import (
    Chunk,
    build_prompt,
    experiment_prompts,
    find_model_orders,
    split_into_chunks,
)
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

_TIMED = re.compile(
    r"^\s*(?:\d{1,3}[.)]\s+)?[\[(]\s*(\d{1,6}(?:\.\d+)?)\s*s?\s*(?:[-–]\s*\d+(?:\.\d+)?\s*s?\s*)?[\])]\s*(\S.*)$"
)


@dataclass(frozen=True)
class TimedLine:
    """A line that a model wrote with the second at which it believes it happens. Only an experiment
    may use it."""

    second: float
    text: str


def compare_prompts(transcript: Transcript, settings: LlmSettings) -> dict[str, tuple[str, ...]]:
    """Return the lines that a model writes by each prompt, those of the first with its own seconds.

    Raises as `write_llm` does.
    """
    settings = settings.model_copy(update={"prompt": "nasva"})  # its chunks, for all three
    timed = write_timed_lines(transcript, settings)
    written = {
        "steps_from_timed": write_from_timed_sentences(transcript, settings),
        "steps": write_llm(transcript, settings),
    }
    steps = {name: tuple(step.text for step in one.steps) for name, one in written.items()}
    return {"steps_with_times": tuple(f"[{line.second:.1f}] {line.text}" for line in timed)} | steps


def write_from_timed_sentences(transcript: Transcript, settings: LlmSettings) -> WrittenSteps:
    """Return the steps of the second row's prompt: as `write_llm`, with the sentences' times in the
    question."""
    return write_llm(transcript, settings, prompt=experiment_prompts()["steps_from_timed"])


def write_timed_lines(transcript: Transcript, settings: LlmSettings) -> tuple[TimedLine, ...]:
    """Return the lines of the first row's prompt with the model's own times, in seconds, in its
    order.

    Lines without a time are left out, and so are chunks that the model did not answer. Raises as
    `write_llm` does.
    """
    prompt = experiment_prompts()["steps_with_times"]
    chunks = split_into_chunks(
        transcript, settings.sentences_per_chunk, find_model_orders(transcript)
    )
    server = open_server(settings)
    until = time.monotonic() + settings.deadline

    def ask(chunk: Chunk) -> Answer:
        try:
            return server.ask(build_prompt(prompt, chunk), seed=settings.seed, until=until)
        except RequestError as fault:
            logger.warning("chunk %d is left out: %s", chunk.number, fault.reason)
            return Answer("")

    try:
        answers = run_in_threads(ask, chunks, workers=server.workers, until=until)
    finally:
        server.close()
    return tuple(
        line for chunk in sorted(answers) for line in parse_timed_lines(answers[chunk].text)
    )


def parse_timed_lines(reply: str) -> tuple[TimedLine, ...]:
    """Return the lines of a reply that begin with a second in brackets, such as "[12.5] she cuts
    the onion"."""
    matches = (_TIMED.match(line) for line in reply.splitlines())
    return tuple(
        TimedLine(float(match.group(1)), match.group(2).strip()) for match in matches if match
    )
