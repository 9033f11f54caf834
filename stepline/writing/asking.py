"""Puts a chunk of transcript into a prompt, quoted as data that cannot end its own quotation."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepline.writing.chunks import Chunk

REMINDER = "\nAnswer with a numbered list of short steps, or the word none. No prose, no times, no links.\n"

# Characters that could close the quotation or open a chat template's own tokens (<|im_start|>, <s>, [INST]).
_HARMLESS = str.maketrans("<>[]", "()()")


@dataclass(frozen=True)
class Prompt:
    """A prompt's name and text; `times_in`: sentences carry their seconds; `times_out`: the model writes times."""

    name: str
    text: str
    times_in: bool = False
    times_out: bool = False


@cache
def main_prompt() -> Prompt:
    """Return the prompt of the main job: no times in, none out (NaSVA Table 6, third row, in our own words)."""
    return Prompt("steps", _read("steps"))


@cache
def experiment_prompts() -> dict[str, Prompt]:
    """Return the two prompts that lost in NaSVA Table 6, for experiments alone: the main job never takes them.

    steps_with_times (first row): times go in and the model writes times. steps_from_timed (second row): times go in.
    """
    return {
        "steps_with_times": Prompt("steps_with_times", _read("steps_with_times"), times_in=True, times_out=True),
        "steps_from_timed": Prompt("steps_from_timed", _read("steps_from_timed"), times_in=True),
    }


def question(prompt: Prompt, chunk: Chunk, *, again: bool = False) -> str:
    """Return the prompt with the chunk quoted in it; `again` adds a reminder after a reply that was refused."""
    lines = [_quoted(sentence.text) for sentence in chunk.sentences]
    if prompt.times_in:
        spans = [sentence.span for sentence in chunk.sentences]
        lines = [f"({span.start:.1f}-{span.end:.1f}) {line}" for span, line in zip(spans, lines, strict=True)]
    return prompt.text.replace("{transcript}", "\n".join(lines)) + (REMINDER if again else "")


def _quoted(text: str) -> str:
    """Return the text in one line that no template or quotation mark can end; half characters become question marks."""
    return " ".join(text.translate(_HARMLESS).encode("utf-8", "replace").decode("utf-8").split())


def _read(name: str) -> str:
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")
