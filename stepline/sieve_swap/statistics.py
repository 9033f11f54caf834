"""What there is to count in a swapped collection (appendix A.1, figures 4 to 6), part by part, and
added up."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pydantic import Field

from stepline.records import FrozenModel, Record, Step
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.agreement.check import NEW_NUMBER
from stepline.sieve_swap.content_words import content_words
from stepline.sieve_swap.videos import length

DENSITY_BARS = 20  # bars of the density of content words, each 5 per cent
MAX_BAR = 60  # words or seconds from which on they are counted as one
VIDEO_BAR_SECONDS = 10  # of a video's length that are one bar
SWAPPED_SENTENCE = "swapped"
OWN_WORDS = "kept in its own words"
MAX_WORDS = 2_000  # most frequent words of a part that are stored


Counts: TypeAlias = dict[str, int]
NO_COUNTS: Any = Field(default_factory=dict)


class Statistics(FrozenModel):
    """Counts that can be added. Keys are numbers in words where they are bars of a histogram."""

    videos: Counts = NO_COUNTS  # split, or why a video was left out
    # SWAPPED, OWN_WORDS, or why one was sieved
    sentences: Counts = NO_COUNTS
    steps_a_video: Counts = NO_COUNTS
    words_a_step: Counts = NO_COUNTS
    seconds_a_step: Counts = NO_COUNTS
    seconds_a_video: Counts = NO_COUNTS  # tens
    # twentieths: content words among a text's words
    density_before: Counts = NO_COUNTS
    density_after: Counts = NO_COUNTS
    # content word -> times, raw narration
    words_before: Counts = NO_COUNTS
    words_after: Counts = NO_COUNTS  # the same, steps
    # "source: id" of a document -> steps taken from it
    documents: Counts = NO_COUNTS
    licences: Counts = NO_COUNTS
    # swaps with a number that is not said, and others
    checks: Counts = NO_COUNTS
    excluded: Counts = NO_COUNTS  # evaluation set -> videos kept out
    seconds: float = 0.0  # of all steps


def add(parts: Sequence[Statistics]) -> Statistics:
    """Return the sum of parts."""
    sums: dict[str, Counter[str]] = {
        name: Counter() for name in Statistics.model_fields if name != "seconds"
    }
    for part in parts:
        for name, counts in sums.items():
            counts.update(getattr(part, name))
    totals = {name: _sorted(+counts) for name, counts in sums.items()}
    return Statistics.model_validate(totals | {"seconds": sum(part.seconds for part in parts)})


def _sorted(counts: Counter[str]) -> Counts:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _counted(values: Iterable[object]) -> Counts:
    return _sorted(Counter(map(str, values)))


def count(records: Sequence[Record], splits: Sequence[str]) -> Statistics:
    """Return the statistics of swapped records; splits: of each record."""
    steps = [step for record in records for step in record.steps]
    swapped = [step for step in steps if step.source_text]
    seconds = [step.said.duration for step in steps if step.said]
    texts = [step.text for step in steps]
    words_before, density_before = _content(
        [sentence.text for record in records for sentence in record.sentences]
    )
    words_after, density_after = _content(texts)
    return Statistics(
        videos=_counted(splits),
        sentences=_counted(fate for record in records for fate in _fates(record)),
        steps_a_video=_counted(len(record.steps) for record in records),
        words_a_step=_bars([len(text.split()) for text in texts]),
        seconds_a_step=_bars(seconds),
        seconds_a_video=_counted(
            VIDEO_BAR_SECONDS * int(length(record) // VIDEO_BAR_SECONDS) for record in records
        ),
        density_before=density_before,
        density_after=density_after,
        words_before=words_before,
        words_after=words_after,
        documents=_counted(document_of(step.source_text or "") for step in swapped),
        licences=_counted(step.licence or "not stated" for step in swapped),
        checks=_checks(swapped),
        seconds=sum(seconds),
    )


def document_of(source_text: str) -> str:
    """Return which document a swapped step is from: its source_text without the step's place."""
    return source_text.rpartition("#")[0]


def _fates(record: Record) -> list[str]:
    """Return what became of each sentence: why it was sieved, or how it was kept."""
    sieved = [item.reason for item in record.dropped if item.what == "sentence"]
    fates: dict[int, str] = {}
    # a step without source_text has the words that were said
    for step in sorted(record.steps, key=lambda step: bool(step.source_text)):
        fates |= dict.fromkeys(step.sources, SWAPPED_SENTENCE if step.source_text else OWN_WORDS)
    return [*sieved, *fates.values()]


def _bars(values: Sequence[float]) -> Counts:
    return _counted(min(MAX_BAR, int(value)) for value in values)


def _content(texts: Sequence[str]) -> tuple[Counts, Counts]:
    """Return how often each content word comes, numerals and units too, and texts by their share of
    such words."""
    counts: Counter[str] = Counter()
    bars = []
    for text, words in zip(texts, content_words(texts, numerals=True), strict=True):
        counts.update(words)
        share = min(1.0, len(words) / max(1, len(text.split())))
        bars.append(min(DENSITY_BARS - 1, int(share * DENSITY_BARS)))
    return _sorted(Counter(dict(counts.most_common(MAX_WORDS)))), _counted(bars)


def _checks(swapped: Sequence[Step]) -> Counts:
    """Count the swaps that change something, read again from what was written: none may but a
    number not said."""
    changes = [change(step.alternatives[0], step.text, new_numbers=False) for step in swapped]
    counts = Counter(reason or "nothing is changed" for reason in changes)
    return _sorted(counts + Counter({NEW_NUMBER: 0}))
