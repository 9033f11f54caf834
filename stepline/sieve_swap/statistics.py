"""What there is to count in a swapped collection (appendix A.1, figures 4 to 6), part by part, and added up."""

from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from stepline.records import Dropped, Frozen, Record, Step
from stepline.sieve_swap.admission import length
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.agreement.check import NEW
from stepline.sieve_swap.content import content_words

DENSITY = 20  # steps of the density of content words, each 5 per cent
LONG = 60  # words or seconds from which on they are counted as one
TEN = 10  # seconds of a video's length that are one bar
KEPT, OWN = "swapped", "kept in its own words"
KEPT_WORDS = 2_000  # most frequent words that a part keeps


class Statistics(Frozen):
    """Counts that can be added. Keys are numbers in words where they are bars of a histogram."""

    videos: dict[str, int] = Field(default_factory=dict)  # split, or why a video was left out
    sentences: dict[str, int] = Field(default_factory=dict)  # KEPT, OWN, or why one was sieved
    steps_a_video: dict[str, int] = Field(default_factory=dict)
    words_a_step: dict[str, int] = Field(default_factory=dict)
    seconds_a_step: dict[str, int] = Field(default_factory=dict)
    seconds_a_video: dict[str, int] = Field(default_factory=dict)  # tens
    density_before: dict[str, int] = Field(default_factory=dict)  # twentieths: content words among a text's words
    density_after: dict[str, int] = Field(default_factory=dict)
    words_before: dict[str, int] = Field(default_factory=dict)  # content word -> times, raw narration
    words_after: dict[str, int] = Field(default_factory=dict)  # the same, steps
    documents: dict[str, int] = Field(default_factory=dict)  # "source: id" of a document -> steps taken from it
    licences: dict[str, int] = Field(default_factory=dict)
    checks: dict[str, int] = Field(default_factory=dict)  # swaps with a number that is not said, and others
    excluded: dict[str, int] = Field(default_factory=dict)  # evaluation set -> videos kept out
    seconds: float = 0.0  # of all steps


def add(parts: Sequence[Statistics]) -> Statistics:
    """Return the sum of parts."""
    fields = [name for name in Statistics.model_fields if name != "seconds"]
    sums = {name: _sorted(sum((Counter(getattr(part, name)) for part in parts), Counter())) for name in fields}
    return Statistics.model_validate(sums | {"seconds": sum(part.seconds for part in parts)})


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def count(records: Sequence[Record], splits: Sequence[str]) -> Statistics:
    """Return the statistics of swapped records; splits: of each record."""
    steps = [step for record in records for step in record.steps]
    before = [s.text for record in records if record.transcript for s in record.transcript.sentences]
    after = [step.text for step in steps]
    words_before, density_before = _content(before)
    words_after, density_after = _content(after)
    sieved = Counter(item.reason for record in records for item in _sentences(record.dropped))
    kept = Counter(kind for record in records for kind in _kept(record).values())
    return Statistics(
        videos=_sorted(Counter(splits)),
        sentences=_sorted(sieved + kept),
        steps_a_video=_sorted(Counter(str(len(record.steps)) for record in records)),
        words_a_step=_bars([len(text.split()) for text in after]),
        seconds_a_step=_bars([step.said.duration for step in steps if step.said]),
        seconds_a_video=_sorted(Counter(str(TEN * int(length(record) // TEN)) for record in records)),
        density_before=density_before,
        density_after=density_after,
        words_before=words_before,
        words_after=words_after,
        documents=_sorted(Counter(document_of(step.source_text) for step in steps if step.source_text)),
        licences=_sorted(Counter(step.licence or "not stated" for step in steps if step.source_text)),
        checks=_checks(steps),
        seconds=sum(step.said.duration for step in steps if step.said),
    )


def document_of(source_text: str) -> str:
    """Return which document a swapped step is from: its source_text without the step's place."""
    return source_text.rpartition("#")[0]


def _sentences(dropped: Sequence[Dropped]) -> list[Dropped]:
    return [item for item in dropped if item.what == "sentence"]


def _kept(record: Record) -> dict[int, str]:
    """Return how each kept sentence was kept; a step without source_text has the words that were said."""
    own = {source: OWN for step in record.steps if not step.source_text for source in step.sources}
    return own | {source: KEPT for step in record.steps if step.source_text for source in step.sources}


def _bars(values: Sequence[float]) -> dict[str, int]:
    return _sorted(Counter(str(min(LONG, int(value))) for value in values))


def _content(texts: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how often each content word comes, numerals and units too, and texts by their share of such words."""
    words: Counter[str] = Counter()
    density: Counter[str] = Counter()
    for text, found in zip(texts, content_words(texts, numerals=True), strict=True):
        words.update(found)
        share = min(1.0, len(found) / max(1, len(text.split())))
        density[str(min(DENSITY - 1, int(share * DENSITY)))] += 1
    return dict(_sorted(Counter(dict(words.most_common(KEPT_WORDS))))), _sorted(density)


def _checks(steps: Sequence[Step]) -> dict[str, int]:
    """Count the swaps that change something, read again from what was written: none may but a number not said."""
    found: Counter[str] = Counter()
    for step in steps:
        if step.source_text:
            found[change(step.alternatives[0], step.text, new_numbers=False) or "nothing is changed"] += 1
    return _sorted(found + Counter({NEW: 0}))
