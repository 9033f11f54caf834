"""Statistics of a swapped collection (appendix A.1, figures 4 to 6), counted part by part and added up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pydantic import Field

from stepline.records import FrozenModel, Record, Step
from stepline.sieve_swap.content_words import content_words
from stepline.sieve_swap.videos import video_seconds

DENSITY_BARS = 20  # of the density of content words; a bar is 5 per cent
MAX_BAR_VALUE = 60  # words or seconds; higher numbers are counted as this one
VIDEO_BAR_SECONDS = 10  # of a video's video_seconds; the width of a bar
SWAPPED_SENTENCE = "swapped"
OWN_WORDS = "kept in its own words"
MAX_WORDS = 2_000  # most frequent words of a part that are stored


Counts = dict[str, int]


class SwappedDatasetStatistics(FrozenModel):
    """Counts of a swapped collection, or of a part of it. The counts of parts can be added.

    In a histogram, a key is the lower end of a bar, as text.
    """

    videos: Counts = Field(default_factory=dict)
    """split, or reason why a video was left out -> number of videos"""
    sentences: Counts = Field(default_factory=dict)
    """SWAPPED_SENTENCE, OWN_WORDS, or reason of the sieve -> number of sentences"""
    steps_a_video: Counts = Field(default_factory=dict)
    """number of steps -> number of videos"""
    words_a_step: Counts = Field(default_factory=dict)
    """histogram of the number of words per step"""
    seconds_a_step: Counts = Field(default_factory=dict)
    """histogram of the seconds per step"""
    seconds_a_video: Counts = Field(default_factory=dict)
    """histogram of the seconds per video, in bars of ten seconds"""
    density_before: Counts = Field(default_factory=dict)
    """twentieths of content words, 0..19 -> number of narration sentences"""
    density_after: Counts = Field(default_factory=dict)
    """twentieths of content words, 0..19 -> number of steps"""
    words_before: Counts = Field(default_factory=dict)
    """content word -> occurrences in the narration"""
    words_after: Counts = Field(default_factory=dict)
    """content word -> occurrences in the steps"""
    documents: Counts = Field(default_factory=dict)
    """ "source: id" of a document -> number of steps taken from it"""
    licences: Counts = Field(default_factory=dict)
    """licence -> number of steps taken under it"""
    excluded: Counts = Field(default_factory=dict)
    """evaluation set -> number of its videos that were left out"""
    seconds: float = 0.0
    """total seconds of all steps"""


def add_statistics(parts: Iterable[SwappedDatasetStatistics]) -> SwappedDatasetStatistics:
    """Return the sums of the statistics of several parts, which are read one at a time."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds = []
    for part in parts:
        seconds.append(part.seconds)
        for name, value in part:
            if name != "seconds":
                counts[name].update(value)
    totals = {name: sort_counts(+count) for name, count in counts.items()}
    return SwappedDatasetStatistics.model_validate({**totals, "seconds": sum(seconds)})


def sort_counts(counts: Counter[str]) -> Counts:
    """Return counts with the most frequent key first. Equal counts are sorted by key."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _count_values(values: Iterable[object]) -> Counts:
    return sort_counts(Counter(map(str, values)))


def count_statistics(records: Sequence[Record], splits: Sequence[str]) -> SwappedDatasetStatistics:
    """Return the statistics of records that `sieve_and_swap` returned.

    Args:
        records: the records.
        splits: name of the split of each record.
    """
    # of videos
    steps: list[Step] = []
    sentence_texts: list[str] = []
    outcomes: list[str] = []
    step_counts = []
    video_bars = []
    for record in records:
        steps += record.steps
        sentence_texts += [sentence.text for sentence in record.sentences]
        outcomes += _sentence_outcomes(record)
        step_counts.append(len(record.steps))
        video_bars.append(VIDEO_BAR_SECONDS * int(video_seconds(record) // VIDEO_BAR_SECONDS))
    # of steps
    seconds = []
    word_counts = []
    documents = []
    licences = []
    for step in steps:
        word_counts.append(len(step.text.split()))
        if step.said:
            seconds.append(step.said.duration)
        if step.source_text:
            # without the number of the step
            documents.append(step.source_text.rpartition("#")[0])
            licences.append(step.licence or "not stated")
    words_before, density_before = _content_word_counts(sentence_texts)
    words_after, density_after = _content_word_counts([step.text for step in steps])
    return SwappedDatasetStatistics(
        videos=_count_values(splits),
        sentences=_count_values(outcomes),
        steps_a_video=_count_values(step_counts),
        words_a_step=_histogram(word_counts),
        seconds_a_step=_histogram(seconds),
        seconds_a_video=_count_values(video_bars),
        density_before=density_before,
        density_after=density_after,
        words_before=words_before,
        words_after=words_after,
        documents=_count_values(documents),
        licences=_count_values(licences),
        seconds=sum(seconds),
    )


def _sentence_outcomes(record: Record) -> list[str]:
    """Return for each sentence why the sieve rejected it, or how it was kept."""
    outcomes = [item.reason for item in record.dropped if item.what == "sentence"]
    # a step without source_text has the words that were said, a swapped one counts before it
    own_words: dict[int, str] = {}
    swapped: dict[int, str] = {}
    for step in record.steps:
        if step.source_text:
            swapped |= dict.fromkeys(step.sources, SWAPPED_SENTENCE)
        else:
            own_words |= dict.fromkeys(step.sources, OWN_WORDS)
    return [*outcomes, *(own_words | swapped).values()]


def _histogram(values: Sequence[float]) -> Counts:
    return _count_values(min(MAX_BAR_VALUE, int(value)) for value in values)


def _content_word_counts(texts: Sequence[str]) -> tuple[Counts, Counts]:
    """Return how often each content word occurs, and a histogram of content-word density.

    Numerals and units count as content words. The density is the share of a text's words that are
    content words.
    """
    counts: Counter[str] = Counter()
    bars = []
    for text, words in zip(texts, content_words(texts, numerals=True), strict=True):
        counts.update(words)
        share = len(words) / max(1, len(text.split()))
        bars.append(min(DENSITY_BARS - 1, int(share * DENSITY_BARS)))
    return sort_counts(Counter(dict(counts.most_common(MAX_WORDS)))), _count_values(bars)
