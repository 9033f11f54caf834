"""Output of a finished run: the statistics, the report and the released JSON format.

The report is one HTML page of tables. It has no script and loads nothing. The released
form is that of the paper's authors, {id: {duration, timestamps, sentences}} with two texts per
segment. Their meaning is not documented. Here the first is the step and the second what was said.
`stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.errors import DatasetError
from stepline.files.atomic_files import atomic_path, write_atomic
from stepline.pages.layout import page_html
from stepline.records import Record
from stepline.sieve_swap.pairing import (
    IOU_THRESHOLDS,
    RECALL_THRESHOLDS,
    Pairs,
    ThresholdRow,
    threshold_table,
)
from stepline.sieve_swap.part_files import TRAIN_SPLIT, VALIDATION_SPLIT, read_pairs
from stepline.sieve_swap.run import NO_DOCUMENT_FITS, Job, RunResult
from stepline.sieve_swap.statistics import (
    DENSITY_BARS,
    OWN_WORDS,
    SWAPPED_SENTENCE,
    VIDEO_BAR_SECONDS,
    Statistics,
)
from stepline.sieve_swap.videos import OTHER_CATEGORY, RARE_CATEGORY, TOO_LONG, length
from stepline.storage import read_parquet

MAX_DOCUMENTS = 50  # in the list, as in figure 5a
QUANTILES = (0.1, 0.5, 0.9)  # of a distribution, that the page shows
MAX_CHANGED_WORDS = 14  # that rise, and as many that fall
MAX_EXAMPLES = 6  # videos shown line by line


def page(
    statistics: Statistics,
    *,
    titles: Mapping[str, str],
    thresholds: Sequence[ThresholdRow] = (),
    examples: Sequence[Record] = (),
) -> str:
    """Return the report as an HTML page.

    Args:
        statistics: the counts of the run.
        titles: "source: id" of a document -> its title.
        thresholds: what higher thresholds would keep (figure 7a).
        examples: records shown line by line.
    """
    documents = []
    for key, count in islice(statistics.documents.items(), MAX_DOCUMENTS):
        documents.append((titles.get(key, key), f"{count:,}"))
    threshold_rows = []
    for row in thresholds:
        counts = (row.videos, row.documents, row.pairs)
        threshold_rows.append((f"{row.iou:g}", f"{row.recall:g}", *(f"{n:,}" for n in counts)))
    rising, falling = _word_changes(statistics)
    return page_html(
        _file("report.html"),
        style=_file("report.css"),
        statistics=statistics,
        numbers=_table_numbers(statistics),
        quantile_head=("", *(f"{quantile:.0%}" for quantile in QUANTILES)),
        distributions=_distributions(statistics),
        rising=rising,
        falling=falling,
        most_documents=MAX_DOCUMENTS,
        documents=documents,
        thresholds=threshold_rows,
        examples=list(map(_example, examples)),
    )


def _file(name: str) -> str:
    return files("stepline.sieve_swap").joinpath(name).read_text(encoding="utf-8")


def _table_numbers(statistics: Statistics) -> list[tuple[str, str]]:
    splits = statistics.videos
    videos = splits.get(TRAIN_SPLIT, 0) + splits.get(VALIDATION_SPLIT, 0)
    steps = sum(statistics.words_a_step.values())
    sentences = statistics.sentences
    swapped = sentences.get(SWAPPED_SENTENCE, 0)
    own = sentences.get(OWN_WORDS, 0)
    return [
        ("videos in, videos kept", f"{sum(splits.values()):,}, {videos:,}"),
        (
            "sentences in, swapped, kept in own words",
            f"{sum(sentences.values()):,}, {swapped:,}, {own:,}",
        ),
        ("steps out", f"{steps:,}"),
        ("steps per video", f"{steps / max(1, videos):.1f}"),
        ("seconds per step", f"{statistics.seconds / max(1, steps):.1f}"),
        ("different documents used", f"{len(statistics.documents):,}"),
        (
            "different content words before, after",
            f"{len(statistics.words_before):,}, {len(statistics.words_after):,}",
        ),
    ]


def _distributions(statistics: Statistics) -> list[tuple[str, ...]]:
    """Return quantiles of what is counted in bars: the lower end of the bar that holds each."""
    density_bar = 100 / DENSITY_BARS  # per cent
    distributions = {
        "steps per video": (statistics.steps_a_video, 1.0),
        "words per step": (statistics.words_a_step, 1.0),
        "seconds per step": (statistics.seconds_a_step, 1.0),
        "seconds per video": (statistics.seconds_a_video, VIDEO_BAR_SECONDS),
        "% content words, raw narration": (statistics.density_before, density_bar),
        "% content words, steps": (statistics.density_after, density_bar),
    }
    rows = []
    for name, (counts, bar) in distributions.items():
        if counts:
            rows.append((name, *(f"{_quantile(counts, q) * bar:g}" for q in QUANTILES)))
    return rows


def _quantile(counts: Mapping[str, int], fraction: float) -> int:
    """Return the histogram key at a quantile. Keys are whole numbers."""
    keys = sorted(map(int, counts))
    reached = np.cumsum([counts[str(key)] for key in keys])
    return keys[int(np.searchsorted(reached, fraction * reached[-1]))]


def _word_changes(statistics: Statistics) -> tuple[list[list[str]], list[list[str]]]:
    """Return the content words whose share among all content words rises most, and falls most, each
    with its share before and after."""
    total_before = max(1, sum(statistics.words_before.values()))
    total_after = max(1, sum(statistics.words_after.values()))
    changes = []
    for word in statistics.words_before.keys() | statistics.words_after.keys():
        before = 100 * statistics.words_before.get(word, 0) / total_before
        after = 100 * statistics.words_after.get(word, 0) / total_after
        changes.append((before - after, word, f"{before:.2f} %", f"{after:.2f} %"))
    # Ties go by the word, so that the page is the same each time.
    changes.sort()
    rising = [row for share_change, *row in changes[:MAX_CHANGED_WORDS] if share_change < 0]
    falling = [row for share_change, *row in changes[::-1][:MAX_CHANGED_WORDS] if share_change > 0]
    return rising, falling


def _example(record: Record) -> dict[str, object]:
    """Return a video's lines next to its steps, each line with a number, the second and its text.
    A step and what was said in its place have one number, sieved lines None."""
    # "mix" has two steps of the same sentences
    source_sets = list(dict.fromkeys(step.sources for step in record.steps))
    number_of_source: dict[int, int] = {}
    for number, sources in enumerate(source_sets):
        number_of_source |= dict.fromkeys(sources, number)
    sentences = []
    for index, sentence in enumerate(record.sentences):
        line_number = number_of_source.get(index)
        sentences.append((line_number, int(sentence.span.start), sentence.text))
    steps = []
    for step in record.steps:
        source = ""
        if step.source_text is not None:
            licence = step.licence or "not stated"
            source = f"{step.source_text}; licence: {licence}; similarity {step.score or 0.0:.2f}"
        elif step.score is not None:
            source = f"own words; similarity {step.score:.2f}"
        start = step.said.start if step.said else 0.0
        steps.append((source_sets.index(step.sources), int(start), step.text, source))
    title = record.video.title or record.id
    return {"title": title, "sentences": sentences, "steps": steps}


def write_report(job: Job, outcome: RunResult) -> tuple[Path, ...]:
    """Write train.json, validation.json, statistics.json and report.html into the job's folder.
    Return their paths."""
    out = job.out
    statistics = outcome.statistics
    validation_parts = sorted((out / VALIDATION_SPLIT).glob("*.parquet"))
    train_parts = sorted((out / TRAIN_SPLIT).glob("*.parquet"))
    records = _records(validation_parts + train_parts)
    records_with_steps = (record for record in records if record.steps)
    # the titles of the documents that the report names, found in one pass over the base
    listed = set(islice(statistics.documents, MAX_DOCUMENTS))
    titles = {}
    for document in job.base.documents():
        key = f"{document.source}: {document.id}"
        if key in listed:
            titles[key] = document.title
    html = page(
        statistics,
        titles=titles,
        thresholds=_threshold_rows(job, outcome.pairs),
        examples=list(islice(records_with_steps, MAX_EXAMPLES)),
    )
    statistics_file = out / "statistics.json"
    report_file = out / "report.html"
    train_file = out / f"{TRAIN_SPLIT}.json"
    validation_file = out / f"{VALIDATION_SPLIT}.json"
    write_atomic(statistics_file, statistics.model_dump_json(indent=1) + "\n")
    write_atomic(report_file, html)
    write_released(train_parts, train_file)
    write_released(validation_parts, validation_file)
    return (statistics_file, report_file, train_file, validation_file)


EMPTY_CURES = {
    VALIDATION_SPLIT: "raise pairing.validation_iou, so that not all of it validates",
    NO_DOCUMENT_FITS: "lower pairing.iou or pairing.recall, or give texts on these topics",
    RARE_CATEGORY: "lower pairing.smallest_category",
    OTHER_CATEGORY: "give another pairing.category",
    TOO_LONG: "raise pairing.longest_video",
}


def require_training_videos(statistics: Statistics) -> None:
    """Raise DatasetError, with the reasons and a cure, where no video is left to train on."""
    if statistics.videos.get(TRAIN_SPLIT):
        return
    counts = [f"{count} x {reason}" for reason, count in statistics.videos.items()]
    reasons = ", ".join(counts) or "nothing was given"
    most_frequent = next(iter(statistics.videos), "")
    cure = EMPTY_CURES.get(most_frequent, "give other videos")
    raise DatasetError(f"train.json is empty: {reasons}; {cure}")


def _records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in parts:
        yield from read_parquet(part)


def _threshold_rows(job: Job, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return what the run's thresholds and higher ones keep. Lower ones were not paired."""
    settings = job.settings.pairing
    videos = []
    for file in pairs:
        for row in read_pairs(file):
            if row.documents:
                documents = np.asarray(row.documents, dtype=np.int64)
                videos.append(Pairs(documents, np.asarray(row.iou), np.asarray(row.recall)))
    if not videos:
        return []
    ious = {settings.iou, *(iou for iou in IOU_THRESHOLDS if iou >= settings.iou)}
    recalls = {settings.recall, *(r for r in RECALL_THRESHOLDS if r >= settings.recall)}
    return threshold_table(videos, sorted(ious), sorted(recalls))


def write_released(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file, a video at a time. Return how many
    segments it holds."""
    segments = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        # before each entry: a brace once, then commas
        opening = "{"
        for record in _records(sorted(parts)):
            id_text = json.dumps(record.video.id)
            entry = json.dumps(released_entry(record), ensure_ascii=False)
            out.write(f"{opening}\n{id_text}: {entry}")
            segments += len(record.steps)
            opening = ","
        out.write("{}\n" if opening == "{" else "\n}\n")
    return segments


def released_entry(record: Record) -> dict[str, object]:
    """Return one video in the released JSON. A step without another wording gives its own text
    twice."""
    timestamps = []
    sentences = []
    for step in record.steps:
        if step.spans:
            span = step.spans[0]
            timestamps.append([span.start, span.end])
            # Two texts per segment, as the authors' files have.
            wordings = (*step.alternatives, step.text)
            sentences.append([step.text, wordings[0]])
    return {"duration": length(record), "timestamps": timestamps, "sentences": sentences}
