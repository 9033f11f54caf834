"""NaSVA's table 6: the three prompts of a step writer. The main job takes the third alone.

    steps_with_times     the model writes the times (first row)
    steps_from_timed     times go in, steps come out (second row)
    steps                no times, in or out (third row)

The times that a model writes are never trusted: they are shown, and no step has them.
"""

import logging
import re
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepline.llm.requests import run_in_threads
from stepline.llm.servers import Answer, RequestError, open_server
from stepline.records import Transcript
from stepline.writing.llm.prompts import (
    Chunk,
    Prompt,
    build_prompt,
    find_model_instructions,
    split_into_chunks,
)
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

logger = logging.getLogger(__name__)

_TIMED_LINE = re.compile(
    r"^\s*(?:\d{1,3}[.)]\s+)?"  # the number of a list
    r"[\[(]\s*(\d{1,6}(?:\.\d+)?)\s*s?\s*"  # the second, after a bracket
    r"(?:[-–]\s*\d+(?:\.\d+)?\s*s?\s*)?[\])]"  # to another second
    r"\s*(\S.*)$"
)


@dataclass(frozen=True)
class TimedLine:
    """A line that a model wrote, with the model's own second. Only an experiment may use it."""

    second: float
    text: str


@cache
def experiment_prompts() -> dict[str, Prompt]:
    """Return the two prompts that lost in NaSVA Table 6.

    steps_with_times (first row): times go in and the model writes times. steps_from_timed (second
    row): times go in.
    """
    prompts = {}
    for name in ("steps_with_times", "steps_from_timed"):
        text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
        prompts[name] = Prompt(name, text, has_times=True)
    return prompts


def compare_prompts(transcript: Transcript, settings: LlmSettings) -> dict[str, tuple[str, ...]]:
    """Return the lines that a model writes by each prompt, those of the first with its own seconds.

    Raises as `write_llm` does.
    """
    # its chunks, for all three
    settings = settings.model_copy(update={"form": "nasva"})
    timed_lines = write_timed_lines(transcript, settings)
    from_timed = write_from_timed_sentences(transcript, settings)
    from_texts = write_llm(transcript, settings)
    return {
        "steps_with_times": tuple(f"[{line.second:.1f}] {line.text}" for line in timed_lines),
        "steps_from_timed": tuple(step.text for step in from_timed.steps),
        "steps": tuple(step.text for step in from_texts.steps),
    }


def write_from_timed_sentences(transcript: Transcript, settings: LlmSettings) -> WrittenSteps:
    """Return the steps of the second row's prompt.

    They are written as `write_llm` does, with the sentences' times in the question.
    """
    return write_llm(transcript, settings, prompt=experiment_prompts()["steps_from_timed"])


def write_timed_lines(transcript: Transcript, settings: LlmSettings) -> tuple[TimedLine, ...]:
    """Return the lines of the first row's prompt with the model's own seconds, in its order.

    Lines without a time are left out, and so are chunks that the model did not answer. Raises as
    `write_llm` does.
    """
    prompt = experiment_prompts()["steps_with_times"]
    orders = find_model_instructions(transcript)
    chunks = split_into_chunks(transcript, settings.sentences_per_chunk, orders)
    server = open_server(settings)
    until = time.monotonic() + settings.deadline

    # a chunk without an answer has no lines
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
    lines: list[TimedLine] = []
    for chunk in sorted(answers):
        lines += parse_timed_lines(answers[chunk].text)
    return tuple(lines)


def parse_timed_lines(reply: str) -> tuple[TimedLine, ...]:
    """Return the lines of a reply that begin with a second in brackets: "[12.5] cut the onion"."""
    lines = []
    for line in reply.splitlines():
        match = _TIMED_LINE.match(line)
        if match is not None:
            second, text = match.groups()
            lines.append(TimedLine(float(second), text.strip()))
    return tuple(lines)
