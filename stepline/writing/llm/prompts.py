"""Prompts of the language-model writer that ask about chunks of a transcript.

A transcript is cut into chunks, without sentences that instruct a language model. The prompt quotes
a chunk as data that cannot end its own quotation. With `writing.llm.form=write` it also holds the
chunk's context: the video's title, the last steps already written and the sentences just before.

Source: NaSVA, section 3.1, for `writing.llm.form=nasva`. Differs: the paper's last chunk may be a
lone sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from stepline.llm import instructs_a_model, quoted
from stepline.records import Rejected, Sentence, Step, Transcript
from stepline.writing.settings import WRITE_WORDS, LlmSettings

# characters of one chunk, some 1,500 tokens: room for prompt and reply in a context of 4,096
MAX_CHUNK_CHARS = 6000
MAX_WRITE_CHARS = 30_000  # of a chunk of `writing.llm.form=write`, some 7,500 tokens
TOKENS_PER_WORD = 1.5  # of numbered sentences
OVERLAP_SENTENCES = 2  # sentences just before a chunk that its prompt holds as context
PREVIOUS_STEPS = 5  # last steps already written that a prompt holds as context
MAX_TITLE_CHARS = 200  # of a video's title that are quoted


@dataclass(frozen=True)
class Chunk:
    """Consecutive sentences of a transcript.

    Attributes:
        number: number of the chunk in the transcript, from 1.
        indices: indices of the sentences in the transcript.
        sentences: the sentences.
    """

    number: int
    indices: tuple[int, ...]
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """The spoken text, one sentence per line."""
        return "\n".join(sentence.text for sentence in self.sentences)


@dataclass(frozen=True)
class ChunkSteps:
    """The steps that a language model wrote of one chunk.

    Attributes:
        chunk: consecutive sentences of the transcript.
        steps: in the order of the reply, each with its source sentences.
        dropped: rejected lines of the replies.
        notes: lines for the user, for example about a refused reply or removed times.
        fallback_reason: why the fallback writes the chunk instead, "" if the model wrote it.
        is_rejected: whether the server refused the request for good.
        fallback_sentences: indices of the sentences that the fallback writes, because the model's
            steps of these sentences failed a check.
    """

    chunk: Chunk
    steps: tuple[Step, ...] = ()
    dropped: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    fallback_reason: str = ""
    is_rejected: bool = False
    fallback_sentences: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChunkContext:
    """The context of a chunk, which its prompt holds for understanding only.

    Attributes:
        title: title of the video, "" without one.
        before: the last sentences before the chunk.
        steps: texts of the last steps that the model wrote for earlier chunks.
    """

    title: str = ""
    before: tuple[Sentence, ...] = ()
    steps: tuple[str, ...] = ()


def chunk_context(
    chunk: Chunk, chunks: Sequence[Chunk], title: str, steps: Sequence[str]
) -> ChunkContext:
    """Return the context of a chunk: the video's title, the sentences and the steps before it.

    A title that instructs a language model is left out.

    Args:
        chunk: one of `chunks`.
        chunks: all chunks of the transcript.
        title: title of the video, "" without one.
        steps: texts of all steps that the model wrote for earlier chunks, in order.
    """
    earlier = [sentence for part in chunks[: chunk.number - 1] for sentence in part.sentences]
    shown_title = "" if instructs_a_model(title) else title[:MAX_TITLE_CHARS]
    return ChunkContext(
        shown_title, tuple(earlier[-OVERLAP_SENTENCES:]), tuple(steps[-PREVIOUS_STEPS:])
    )


def split_transcript(
    transcript: Transcript, settings: LlmSettings, prompt: "Prompt", withheld: Sequence[int] = ()
) -> tuple[Chunk, ...]:
    """Return the chunks of a transcript, each the part of one request to a language model.

    Args:
        transcript: S sentences.
        settings: length of the chunks, and the context of a model in a GGUF file.
        prompt: one without a context has chunks of `sentences_per_chunk` sentences, one with a context
            about 2,500 words, fewer if half of the model's context holds fewer.
        withheld: indices of the sentences to leave out.
    """
    if not prompt.has_context:
        return split_into_chunks(transcript, settings.sentences_per_chunk, withheld)
    words = WRITE_WORDS
    if settings.gguf is not None:
        # Half of the context is for the prompt.
        words = min(words, int(settings.context / 2 / TOKENS_PER_WORD))
    return split_by_words(transcript, words, withheld)


def split_by_words(
    transcript: Transcript, words: int, withheld: Sequence[int] = ()
) -> tuple[Chunk, ...]:
    """Return chunks of about `words` words and nearly equal length.

    Args:
        transcript: it is not cut within a sentence, so a longer sentence is its own chunk.
        words: words per chunk.
        withheld: indices of the sentences to leave out.
    """
    indices = _remaining_indices(transcript, withheld)
    lengths = [len(transcript.sentences[index].text.split()) for index in indices]
    word_count = sum(lengths)
    chunk_count = max(1, round(word_count / words))
    chunk_words = word_count / chunk_count  # of each chunk, where they could be even
    groups: list[list[int]] = [[]]
    earlier = 0
    for index, length in zip(indices, lengths, strict=True):
        # The middle of a sentence says to which chunk it belongs.
        number = int((earlier + length / 2) / chunk_words) if chunk_words else 0
        number = min(chunk_count - 1, number)
        # A long sentence may skip a group. Empty groups give no chunk.
        while len(groups) <= number:
            groups.append([])
        groups[number].append(index)
        earlier += length
    return _make_chunks(groups, transcript.sentences, MAX_WRITE_CHARS)


def split_into_chunks(
    transcript: Transcript, size: int, withheld: Sequence[int] = ()
) -> tuple[Chunk, ...]:
    """Return chunks of about `size` sentences and at most MAX_CHUNK_CHARS characters.

    Args:
        transcript: it is not cut within a sentence, so a longer sentence is its own chunk.
        size: sentences per chunk.
        withheld: indices of the sentences to leave out.
    """
    indices = _remaining_indices(transcript, withheld)
    return _make_chunks(_equal_groups(indices, size), transcript.sentences)


def _remaining_indices(transcript: Transcript, withheld: Sequence[int]) -> list[int]:
    return sorted(set(range(len(transcript.sentences))).difference(withheld))


def find_model_instructions(transcript: Transcript) -> tuple[int, ...]:
    """Return the indices of the sentences that instruct a language model."""
    return tuple(
        index
        for index, sentence in enumerate(transcript.sentences)
        if instructs_a_model(sentence.text)
    )


def _make_chunks(
    groups: Sequence[list[int]], sentences: Sequence[Sentence], max_chars: int = MAX_CHUNK_CHARS
) -> tuple[Chunk, ...]:
    """Return one chunk per group of sentence indices, several for a group that is too long for a
    prompt."""
    parts = [part for group in groups for part in _split_long_group(group, sentences, max_chars)]
    return tuple(
        Chunk(number, tuple(part), tuple(sentences[index] for index in part))
        for number, part in enumerate(parts, start=1)
    )


def _equal_groups(indices: Sequence[int], size: int) -> list[list[int]]:
    """Return the fewest consecutive groups of at most `size` indices, with sizes that differ by at most
    one."""
    count = math.ceil(len(indices) / size)
    if not count:
        return []
    edges = [round(number * len(indices) / count) for number in range(count + 1)]
    return [list(indices[first:last]) for first, last in pairwise(edges)]


def _split_long_group(
    group: list[int], sentences: Sequence[Sentence], max_chars: int
) -> list[list[int]]:
    """Return a group of sentence indices in parts of at most MAX_CHUNK_CHARS, but whole sentences."""
    parts: list[list[int]] = [[]]
    part_length = 0
    for index in group:
        # Its line break counts too.
        length = len(sentences[index].text) + 1
        if parts[-1] and part_length + length > max_chars:
            parts.append([])
            part_length = 0
        parts[-1].append(index)
        part_length += length
    return [part for part in parts if part]


LIST_REMINDER = "a numbered list of short steps, or"
CITED_REMINDER = "one step per line: sentence numbers, a colon, the step; or"


@dataclass(frozen=True)
class Prompt:
    """The template of a prompt.

    Attributes:
        name: part of the key under which replies are cached.
        text: the template, with the fields {transcript} and perhaps {context}.
        has_times: whether each quoted sentence carries its seconds.
        has_context: whether the template has the field {context}. Then sentences are numbered from
            1, and each step of a reply begins with the numbers of its sentences. Without it, the
            template asks for a numbered list.
    """

    name: str
    text: str
    has_times: bool = False
    has_context: bool = False


@cache
def nasva_prompt() -> Prompt:
    """Return the template of the paper's prompt without times (NaSVA Table 6, third row, in our own
    words)."""
    return Prompt("steps", read_template("steps"))


@cache
def write_prompt() -> Prompt:
    """Return the prompt for strong models: long parts of numbered sentences, steps that cite them."""
    name = "steps_of_whole"
    return Prompt(name, read_template(name), has_context=True)


def form_prompt(settings: LlmSettings) -> Prompt:
    """Return the template of the setting `form`, for one that asks about chunks."""
    return write_prompt() if settings.form == "write" else nasva_prompt()


# Fields of a prompt: the sentences of its chunk, and their context.
SPEECH_FIELD = "{transcript}"
CONTEXT_FIELD = "{context}"


def build_prompt(
    prompt: Prompt, chunk: Chunk, context: ChunkContext | None = None, fault: str = ""
) -> str:
    """Return the text of a prompt: the template filled with the quoted chunk and its context.

    Args:
        prompt: the template.
        chunk: the sentences to quote.
        context: the chunk's context, None without one. It is ignored by a template without the field.
        fault: why the last reply was refused, "" for the first request.
    """
    # What is said, quoted so that it cannot end its own quotation.
    lines = []
    for number, sentence in enumerate(chunk.sentences, start=1):
        line = quoted(sentence.text)
        if prompt.has_context:
            line = f"{number}: {line}"
        if prompt.has_times:
            span = sentence.span
            line = f"({span.start:.1f}-{span.end:.1f}) {line}"
        lines.append(line)
    speech = "\n".join(lines)
    # Each part is filled by itself, so a field that the speaker names stays text.
    before, _, after = prompt.text.partition(SPEECH_FIELD)
    text = before.replace(CONTEXT_FIELD, _quoted_context(context or ChunkContext()))
    text += speech + after
    if fault:
        reminder = CITED_REMINDER if prompt.has_context else LIST_REMINDER
        text += (
            f"\nYour last answer was refused: {fault}."
            f" Answer with {reminder} the word none. No prose, no times, no links.\n"
        )
    return text


def _quoted_context(context: ChunkContext) -> str:
    """Return the context as lines of quoted text under headings, which cannot be confused with the lines
    of the chunk."""
    lines = []
    if context.title:
        lines.append(f"Title of the video: {quoted(context.title)}")
    if context.steps:
        lines.append("Last steps already written:")
        lines += [f"- {quoted(step)}" for step in context.steps]
    if context.before:
        lines.append("Said just before:")
        lines += [f"- {quoted(sentence.text)}" for sentence in context.before]
    if not lines:
        return "The video begins with this part."
    return "\n".join(lines)


def read_template(name: str) -> str:
    """Return the text of a template that is shipped."""
    folder = Path(__file__).parent / "prompt_templates"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")
