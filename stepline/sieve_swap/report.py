"""What a finished run leaves beside its parts: the statistics, the report and the released form.

The report is one HTML page with its plots inside, without a script and without anything fetched.
The released form is that of the paper's authors, {id: {duration, timestamps, sentences}} with two
texts a segment. Their meaning is not documented; here the first is the step and the second what was
said. `stepline.datasets.read("sieve-swap", ...)` reads the files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
from markupsafe import Markup

from stepline.atomic_files import atomic_path, write_atomic
from stepline.errors import DatasetError
from stepline.layout import page_html
from stepline.plots import grouped_histogram, histogram, plot_style, ranked_bars
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
    MAX_BAR,
    OWN_WORDS,
    SWAPPED_SENTENCE,
    VIDEO_BAR_SECONDS,
    Statistics,
)
from stepline.sieve_swap.videos import OTHER_CATEGORY, RARE_CATEGORY, TOO_LONG, length
from stepline.storage import read_parquet
from stepline.text_base.base import TextBase

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
    parts = [
        _section("What came out", _numbers(statistics)),
        _section("Videos", _table(("", "videos"), statistics.videos)),
        _section("Sentences", _table(("", "sentences"), statistics.sentences)),
        _section("Evaluation videos kept out", _table(("dataset", "videos"), statistics.excluded)),
        _section(
            "Numbers, units and negation", _table(("of the swaps", "swaps"), statistics.checks)
        ),
        _figures(statistics),
        _section("Words of chat and of instruction", _word_changes(statistics)),
        _section(
            f"The {MAX_DOCUMENTS} documents that give most steps", _documents(statistics, titles)
        ),
        _section("Licences of the steps", _table(("licence", "steps"), statistics.licences)),
        _section("What higher thresholds would keep", _thresholds(thresholds)),
        _section("Examples", "".join(map(_example, examples)) or "<p>No video was kept.</p>"),
    ]
    style = files("stepline.sieve_swap").joinpath("report.css").read_text(encoding="utf-8")
    # all texts in it are escaped already
    return page_html(PAGE_TEMPLATE, style=plot_style() + style, sections=Markup("".join(parts)))


def _section(title: str, body: str) -> str:
    return f'<section class="panel"><h2>{escape(title)}</h2>{body}</section>\n' if body else ""


def _numbers(s: Statistics) -> str:
    videos = s.videos.get(TRAIN_SPLIT, 0) + s.videos.get(VALIDATION_SPLIT, 0)
    steps = sum(s.words_a_step.values())
    sentences = sum(s.sentences.values())
    swapped = s.sentences.get(SWAPPED_SENTENCE, 0)
    own = s.sentences.get(OWN_WORDS, 0)
    rows = {
        "videos in, videos kept": f"{sum(s.videos.values()):,}, {videos:,}",
        "sentences in, swapped, kept in own words": f"{sentences:,}, {swapped:,}, {own:,}",
        "steps out": f"{steps:,}",
        "steps a video": f"{steps / max(1, videos):.1f}",
        "seconds a step": f"{s.seconds / max(1, steps):.1f}",
        "different documents used": f"{len(s.documents):,}",
        "different content words before, after": f"{len(s.words_before):,}, {len(s.words_after):,}",
    }
    return _html_table((), rows.items())


def _table(head: tuple[str, str], counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    total = max(1, sum(counts.values()))
    rows = ((name, f"{n:,}", f"{100 * n / total:.1f} %") for name, n in counts.items())
    return _html_table((*head, ""), rows)


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """Return a table; the first `names` cells of a row are names, the others numbers."""
    lines = []
    if head:
        lines.append("".join(f"<th>{escape(title)}</th>" for title in head))
    for row in rows:
        cells = [f"<td>{escape(name)}</td>" for name in row[:names]]
        cells += [f"<td class=n>{number}</td>" for number in row[names:]]
        lines.append("".join(cells))
    rows_html = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>{rows_html}</table></div>'


def _figures(s: Statistics) -> str:
    density = {"raw narration": s.density_before, "steps": s.density_after}
    plots = (
        ("Steps a video", histogram(s.steps_a_video, "steps")),
        ("Words a step", histogram(s.words_a_step, "words", last=MAX_BAR)),
        ("Seconds a step", histogram(s.seconds_a_step, "seconds", last=MAX_BAR)),
        (
            "Length of the videos",
            histogram(s.seconds_a_video, f"seconds, bars of {VIDEO_BAR_SECONDS}"),
        ),
        (
            "Content words among a text's words",
            grouped_histogram(density, "per cent", bar=100 / DENSITY_BARS),
        ),
    )
    figures = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in plots
    )
    return f'<section class="panel plots">{figures}</section>\n'


def _word_changes(s: Statistics) -> str:
    """Draw the content words whose share among all content words rises most, and falls most."""
    before = _shares(s.words_before)
    after = _shares(s.words_after)
    change = {
        word: after.get(word, 0.0) - before.get(word, 0.0) for word in before.keys() | after.keys()
    }
    order = sorted(change, key=lambda word: (-change[word], word))
    rising = [word for word in order[:MAX_CHANGED_WORDS] if change[word] > 0]
    falling = [word for word in order[::-1][:MAX_CHANGED_WORDS] if change[word] < 0]

    def bars(words: Sequence[str]) -> str:
        rows = [(word, (before.get(word, 0.0), after.get(word, 0.0))) for word in words]
        return ranked_bars(rows, ("{:.2f} %",) * 2)

    note = '<p><span class="k s0"></span> raw narration <span class="k s1"></span> steps: per cent of content words</p>'
    return f"{note}<h3>More often</h3>{bars(rising)}<h3>Less often</h3>{bars(falling)}"


def _shares(words: Mapping[str, int]) -> dict[str, float]:
    total = max(1, sum(words.values()))
    return {word: 100 * count / total for word, count in words.items()}


def _documents(s: Statistics, titles: Mapping[str, str]) -> str:
    first = islice(s.documents.items(), MAX_DOCUMENTS)
    rows = [(titles.get(key, key), (float(count),)) for key, count in first]
    return ranked_bars(rows, ("{:,.0f}",))


def _thresholds(rows: Sequence[ThresholdRow]) -> str:
    if not rows:
        return ""
    cells = (
        (
            f"{row.iou:g}",
            f"{row.recall:g}",
            f"{row.videos:,}",
            f"{row.documents:,}",
            f"{row.pairs:,}",
        )
        for row in rows
    )
    head = ("token-IoU", "token-recall", "videos", "documents", "pairs")
    return _html_table(head, cells, names=0)


def _example(record: Record) -> str:
    """Return a video's lines beside its steps: a step and what was said for it have one colour,
    sieved lines none."""
    # "mix" has two steps of one telling
    tellings = list(dict.fromkeys(step.sources for step in record.steps))
    owner = {source: number for number, sources in enumerate(tellings) for source in sources}
    narration = [
        _line(_colour(owner.get(n)), sentence.span.start, escape(sentence.text))
        for n, sentence in enumerate(record.sentences)
    ]
    steps = []
    for step in record.steps:
        source = _source(step.source_text, step.licence, step.score)
        text = f"{escape(step.text)}<small>{escape(source)}</small>"
        start = step.said.start if step.said else 0.0
        steps.append(_line(_colour(tellings.index(step.sources)), start, text))
    title = escape(record.video.title or record.id)
    lists = f'<div class="pair"><ol>{"".join(narration)}</ol><ol>{"".join(steps)}</ol></div>'
    return f"<h3>{title}</h3>{lists}"


def _line(colour: str, start: float, html: str) -> str:
    clock = f"{int(start) // 60}:{int(start) % 60:02d}"
    return f'<li class="{colour}"><b>{clock}</b> {html}</li>'


def _colour(number: int | None) -> str:
    return "sieved" if number is None else f"c{number % LINE_COLOURS}"


def _source(source: str | None, licence: str | None, score: float | None) -> str:
    if source is None:
        return f"own words; similarity {score:.2f}" if score is not None else ""
    return f"{source}; licence: {licence or 'not stated'}; similarity {score or 0.0:.2f}"


def write_report(job: Job, outcome: RunResult) -> tuple[Path, ...]:
    """Write train.json, validation.json, statistics.json and report.html into the job's folder;
    return their paths."""
    out = job.out
    records = _records(
        path for split in (VALIDATION_SPLIT, TRAIN_SPLIT) for path in _parts(out, split)
    )
    html = page(
        outcome.statistics,
        titles=_titles(outcome.statistics, job.base),
        thresholds=_threshold_rows(job, outcome.pairs),
        examples=list(islice((record for record in records if record.steps), MAX_EXAMPLES)),
    )
    files = [out / "statistics.json", out / "report.html"]
    write_atomic(files[0], outcome.statistics.model_dump_json(indent=1) + "\n")
    write_atomic(files[1], html)
    for split in (TRAIN_SPLIT, VALIDATION_SPLIT):
        write_released(_parts(out, split), out / f"{split}.json")
        files.append(out / f"{split}.json")
    return tuple(files)


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
    counts = ", ".join(f"{count} x {reason}" for reason, count in statistics.videos.items())
    reason = next(iter(statistics.videos), "")
    cure = EMPTY_CURES.get(reason, "give other videos")
    raise DatasetError(f"train.json is empty: {counts or 'nothing was given'}; {cure}")


def _parts(out: Path, split: str) -> list[Path]:
    return sorted((out / split).glob("*.parquet"))


def _records(parts: Iterable[Path]) -> Iterator[Record]:
    for part in parts:
        yield from read_parquet(part)


def _titles(statistics: Statistics, base: TextBase) -> dict[str, str]:
    """Return the titles of the documents that the report names, found in one pass over the base."""
    top = set(islice(statistics.documents, MAX_DOCUMENTS))
    keys = ((f"{document.source}: {document.id}", document.title) for document in base.documents())
    return {key: title for key, title in keys if key in top}


def _threshold_rows(job: Job, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return what the run's thresholds and higher ones keep; lower ones were not paired."""
    settings = job.settings.pairing
    videos = []
    for row in (row for file in pairs for row in read_pairs(file)):
        if row.documents:
            documents = np.asarray(row.documents, dtype=np.int64)
            videos.append(Pairs(documents, np.asarray(row.iou), np.asarray(row.recall)))
    if not videos:
        return []
    ious = _from(settings.iou, IOU_THRESHOLDS)
    return threshold_table(videos, ious, _from(settings.recall, RECALL_THRESHOLDS))


def _from(least: float, thresholds: Sequence[float]) -> list[float]:
    return sorted({least, *(threshold for threshold in thresholds if threshold >= least)})


def write_released(parts: Iterable[Path], file: Path) -> int:
    """Write the records of Parquet files as one JSON file, a video at a time; return how many
    segments it holds."""
    segments = 0
    with atomic_path(file) as partial, partial.open("w", encoding="utf-8") as out:
        mark = "{"
        for record in _records(sorted(parts)):
            entry = json.dumps(released_entry(record), ensure_ascii=False)
            out.write(f"{mark}\n{json.dumps(record.video.id)}: {entry}")
            segments += len(record.steps)
            mark = ","
        out.write("\n}\n" if mark == "," else "{}\n")
    return segments


def released_entry(record: Record) -> dict[str, object]:
    """Return one video in the released form; a step without another wording gives its own text
    twice."""
    steps = [step for step in record.steps if step.spans]
    return {
        "duration": length(record),
        "timestamps": [[step.spans[0].start, step.spans[0].end] for step in steps],
        "sentences": [[step.text, (*step.alternatives, step.text)[0]] for step in steps],
    }
