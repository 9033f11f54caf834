"""What a finished run writes next to its parts: the statistics, the report and the released form.

The report is one HTML page of tables. It has no script and loads nothing. The released
form is that of the paper's authors, {id: {duration, timestamps, sentences}} with two texts per
segment. Their meaning is not documented. Here the first is the step and the second what was said.
`stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
from markupsafe import Markup

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
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.videos import OTHER_CATEGORY, RARE_CATEGORY, TOO_LONG, length
from stepline.storage import read_parquet

PAGE_TEMPLATE = """{% extends "layout.html" %}
{% block title %}Sieve & Swap{% endblock %}
{% block body %}
<header class="top"><h1>Sieve & Swap</h1></header>
<main>
{{ sections }}
</main>
{% endblock %}
"""
LINE_COLOURS = 8  # of matched lines; report.css names them c0 to c7
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
    """Return the page. titles: "source: id" of a document -> its title. examples: records shown
    line by line."""
    # Tables of what was counted.
    video_table = _table("", "videos", statistics.videos)
    sentence_table = _table("", "sentences", statistics.sentences)
    excluded_table = _table("dataset", "videos", statistics.excluded)
    check_table = _table("of the swaps", "swaps", statistics.checks)
    licence_table = _table("licence", "steps", statistics.licences)
    document_title = f"The {MAX_DOCUMENTS} documents that give most steps"
    example_html = "".join(map(_example, examples)) or "<p>No video was kept.</p>"
    # The sections, from top to bottom.
    parts = [
        _section("What came out", _numbers(statistics)),
        _section("Videos", video_table),
        _section("Sentences", sentence_table),
        _section("Evaluation videos kept out", excluded_table),
        _section("Numbers, units and negation", check_table),
        _section("Distributions", _distributions(statistics)),
        _section("Words of chat and of instruction", _word_changes(statistics)),
        _section(document_title, _documents(statistics, titles)),
        _section("Licences of the steps", licence_table),
        _section("What higher thresholds would keep", _thresholds(thresholds)),
        _section("Examples", example_html),
    ]
    style = files("stepline.sieve_swap").joinpath("report.css").read_text(encoding="utf-8")
    # all texts in it are escaped already
    sections = Markup("".join(parts))
    return page_html(PAGE_TEMPLATE, style=style, sections=sections)


def _section(title: str, body: str) -> str:
    if not body:
        return ""
    return f'<section class="panel"><h2>{escape(title)}</h2>{body}</section>\n'


def _numbers(statistics: Statistics) -> str:
    splits = statistics.videos
    video_count = sum(splits.values())
    videos = splits.get(TRAIN_SPLIT, 0) + splits.get(VALIDATION_SPLIT, 0)
    steps = sum(statistics.words_a_step.values())
    sentences = sum(statistics.sentences.values())
    swapped = statistics.sentences.get(SWAPPED_SENTENCE, 0)
    own = statistics.sentences.get(OWN_WORDS, 0)
    steps_per_video = steps / max(1, videos)
    seconds_per_step = statistics.seconds / max(1, steps)
    words_before = len(statistics.words_before)
    words_after = len(statistics.words_after)
    rows = {
        "videos in, videos kept": f"{video_count:,}, {videos:,}",
        "sentences in, swapped, kept in own words": f"{sentences:,}, {swapped:,}, {own:,}",
        "steps out": f"{steps:,}",
        "steps per video": f"{steps_per_video:.1f}",
        "seconds per step": f"{seconds_per_step:.1f}",
        "different documents used": f"{len(statistics.documents):,}",
        "different content words before, after": f"{words_before:,}, {words_after:,}",
    }
    return _html_table((), rows.items())


def _table(name_title: str, count_title: str, counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    total = max(1, sum(counts.values()))
    rows = []
    for name, count in counts.items():
        per_cent = 100 * count / total
        rows.append((name, f"{count:,}", f"{per_cent:.1f} %"))
    return _html_table((name_title, count_title, ""), rows)


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """Return a table. The first `names` cells of a row are names, the others numbers."""
    lines = []
    if head:
        titles = [f"<th>{escape(title)}</th>" for title in head]
        lines.append("".join(titles))
    for row in rows:
        cells = [f"<td>{escape(name)}</td>" for name in row[:names]]
        cells += [f"<td class=n>{number}</td>" for number in row[names:]]
        lines.append("".join(cells))
    table_rows = [f"<tr>{line}</tr>" for line in lines]
    return f'<div class="wide"><table>{"".join(table_rows)}</table></div>'


def _distributions(statistics: Statistics) -> str:
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
            rows.append([name, *(f"{_quantile(counts, q) * bar:g}" for q in QUANTILES)])
    return _html_table(("", *(f"{q:.0%}" for q in QUANTILES)), rows) if rows else ""


def _quantile(counts: Mapping[str, int], fraction: float) -> int:
    """Return the key of the bar that holds a quantile. Keys are whole numbers."""
    keys = sorted(map(int, counts))
    reached = np.cumsum([counts[str(key)] for key in keys])
    return keys[int(np.searchsorted(reached, fraction * reached[-1]))]


def _word_changes(statistics: Statistics) -> str:
    """Return tables of the content words whose share among all content words rises most, and falls
    most."""
    # By how much each word's share changes, in points of per cent.
    before = _shares(statistics.words_before)
    after = _shares(statistics.words_after)
    change = {}
    for word in before.keys() | after.keys():
        change[word] = after.get(word, 0.0) - before.get(word, 0.0)
    # Ties go by the word, so that the page is the same each time.
    rising_first = sorted(change, key=lambda word: (-change[word], word))
    rising = [word for word in rising_first[:MAX_CHANGED_WORDS] if change[word] > 0]
    falling_first = rising_first[::-1]
    falling = [word for word in falling_first[:MAX_CHANGED_WORDS] if change[word] < 0]

    tables = ""
    for title, words in (("More often", rising), ("Less often", falling)):
        rows = []
        for word in words:
            rows.append((word, f"{before.get(word, 0.0):.2f} %", f"{after.get(word, 0.0):.2f} %"))
        if rows:
            table = _html_table(("of content words", "raw narration", "steps"), rows)
            tables += f"<h3>{title}</h3>{table}"
    return tables


def _shares(words: Mapping[str, int]) -> dict[str, float]:
    total = max(1, sum(words.values()))
    return {word: 100 * count / total for word, count in words.items()}


def _documents(statistics: Statistics, titles: Mapping[str, str]) -> str:
    rows = []
    for key, count in islice(statistics.documents.items(), MAX_DOCUMENTS):
        rows.append((titles.get(key, key), f"{count:,}"))
    return _html_table(("document", "steps"), rows) if rows else ""


def _thresholds(rows: Sequence[ThresholdRow]) -> str:
    if not rows:
        return ""
    cells = []
    for row in rows:
        cells.append(
            (
                f"{row.iou:g}",
                f"{row.recall:g}",
                f"{row.videos:,}",
                f"{row.documents:,}",
                f"{row.pairs:,}",
            )
        )
    head = ("token-IoU", "token-recall", "videos", "documents", "pairs")
    return _html_table(head, cells, names=0)


def _example(record: Record) -> str:
    """Return a video's lines next to its steps. A step and what was said in its place have one
    colour, sieved lines none."""
    # "mix" has two steps of the same sentences
    source_sets = list(dict.fromkeys(step.sources for step in record.steps))
    number_of_source: dict[int, int] = {}
    for number, sources in enumerate(source_sets):
        number_of_source |= dict.fromkeys(sources, number)
    narration = []
    for index, sentence in enumerate(record.sentences):
        colour = _colour(number_of_source.get(index))
        narration.append(_line(colour, sentence.span.start, escape(sentence.text)))
    steps = []
    for step in record.steps:
        source = _source(step.source_text, step.licence, step.score)
        text = f"{escape(step.text)}<small>{escape(source)}</small>"
        start = step.said.start if step.said else 0.0
        colour = _colour(source_sets.index(step.sources))
        steps.append(_line(colour, start, text))
    title = escape(record.video.title or record.id)
    narration_list = f"<ol>{''.join(narration)}</ol>"
    step_list = f"<ol>{''.join(steps)}</ol>"
    return f'<h3>{title}</h3><div class="pair">{narration_list}{step_list}</div>'


def _line(colour: str, start: float, html: str) -> str:
    minutes, seconds = divmod(int(start), 60)
    return f'<li class="{colour}"><b>{minutes}:{seconds:02d}</b> {html}</li>'


def _colour(number: int | None) -> str:
    if number is None:
        return "sieved"
    return f"c{number % LINE_COLOURS}"


def _source(source: str | None, licence: str | None, score: float | None) -> str:
    if source is not None:
        licence = licence or "not stated"
        return f"{source}; licence: {licence}; similarity {score or 0.0:.2f}"
    if score is not None:
        return f"own words; similarity {score:.2f}"
    return ""


def write_report(job: Job, outcome: RunResult) -> tuple[Path, ...]:
    """Write train.json, validation.json, statistics.json and report.html into the job's folder.
    Return their paths."""
    out = job.out
    statistics = outcome.statistics
    validation_parts = _parts(out, VALIDATION_SPLIT)
    train_parts = _parts(out, TRAIN_SPLIT)
    records = _records(validation_parts + train_parts)
    records_with_steps = (record for record in records if record.steps)
    html = page(
        statistics,
        titles=_titles(statistics, job.base),
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


def _parts(out: Path, split: str) -> list[Path]:
    return sorted((out / split).glob("*.parquet"))


def _records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in parts:
        yield from read_parquet(part)


def _titles(statistics: Statistics, base: TextBase) -> dict[str, str]:
    """Return the titles of the documents that the report names, found in one pass over the base."""
    listed = set(islice(statistics.documents, MAX_DOCUMENTS))
    titles = {}
    for document in base.documents():
        key = f"{document.source}: {document.id}"
        if key in listed:
            titles[key] = document.title
    return titles


def _threshold_rows(job: Job, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return what the run's thresholds and higher ones keep. Lower ones were not paired."""
    settings = job.settings.pairing
    videos = []
    for file in pairs:
        for row in read_pairs(file):
            if row.documents:
                documents = np.asarray(row.documents, dtype=np.int64)
                iou = np.asarray(row.iou)
                recall = np.asarray(row.recall)
                videos.append(Pairs(documents, iou, recall))
    if not videos:
        return []
    ious = _from(settings.iou, IOU_THRESHOLDS)
    recalls = _from(settings.recall, RECALL_THRESHOLDS)
    return threshold_table(videos, ious, recalls)


def _from(least: float, thresholds: Sequence[float]) -> list[float]:
    """Return the least threshold and those above it, ascending."""
    higher = {threshold for threshold in thresholds if threshold >= least}
    return sorted({least} | higher)


def write_released(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file, a video at a time. Return how many
    segments it holds."""
    segments = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        # before each entry: a brace once, then commas
        mark = "{"
        for record in _records(sorted(parts)):
            id_text = json.dumps(record.video.id)
            entry = json.dumps(released_entry(record), ensure_ascii=False)
            out.write(f"{mark}\n{id_text}: {entry}")
            segments += len(record.steps)
            mark = ","
        is_empty = mark == "{"
        out.write("{}\n" if is_empty else "\n}\n")
    return segments


def released_entry(record: Record) -> dict[str, object]:
    """Return one video in the released form. A step without another wording gives its own text
    twice."""
    timestamps = []
    sentences = []
    for step in record.steps:
        if not step.spans:
            continue
        span = step.spans[0]
        # Two texts per segment, as the authors' files have.
        wordings = (*step.alternatives, step.text)
        timestamps.append([span.start, span.end])
        sentences.append([step.text, wordings[0]])
    return {"duration": length(record), "timestamps": timestamps, "sentences": sentences}
