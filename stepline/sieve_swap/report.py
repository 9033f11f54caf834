"""The report as one HTML page, without a script and without anything fetched.

What a finished run leaves beside its parts: the released JSON form, the statistics and the report.

The report of a run: one HTML page with its plots inside, and the same numbers as JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.atomic_files import write_atomic
from stepline.plots import grouped_histogram, histogram, ranked_bars
from stepline.records import Record
from stepline.sieve_swap.output import (
    DENSITY,
    KEPT,
    LONG,
    OWN,
    TEN,
    TRAIN,
    VALIDATION,
    Statistics,
    read_pairs,
    write_released,
)
from stepline.sieve_swap.pairing import IOUS, RECALLS, Pairs, ThresholdRow, threshold_table
from stepline.sieve_swap.run import Job, RunResult
from stepline.storage import read_parquet
from stepline.text_base.base import TextBase

COLOURS = 8  # colours of matched lines; style.css names them c0 to c7
TOP = 50  # documents in the list, as in figure 5a
RISEN = 14  # words shown that rise, and as many that fall


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
        _section(f"The {TOP} documents that give most steps", _documents(statistics, titles)),
        _section("Licences of the steps", _table(("licence", "steps"), statistics.licences)),
        _section("What higher thresholds would keep", _thresholds(thresholds)),
        _section("Examples", "".join(map(_example, examples)) or "<p>No video was kept.</p>"),
    ]
    style = files("stepline.sieve_swap").joinpath("report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><title>Sieve &amp; Swap</title>'
        f"<style>{style}</style></head>\n<body><h1>Sieve &amp; Swap</h1>\n{''.join(parts)}</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n" if body else ""


def _numbers(s: Statistics) -> str:
    videos = s.videos.get(TRAIN, 0) + s.videos.get(VALIDATION, 0)
    steps = sum(s.words_a_step.values())
    sentences = sum(s.sentences.values())
    swapped, own = s.sentences.get(KEPT, 0), s.sentences.get(OWN, 0)
    rows = {
        "videos in, videos kept": f"{sum(s.videos.values()):,}, {videos:,}",
        "sentences in, swapped, kept in own words": f"{sentences:,}, {swapped:,}, {own:,}",
        "steps out": f"{steps:,}",
        "steps a video": f"{steps / max(1, videos):.1f}",
        "seconds a step": f"{s.seconds / max(1, steps):.1f}",
        "different documents used": f"{len(s.documents):,}",
        "different content words before, after": f"{len(s.words_before):,}, {len(s.words_after):,}",
    }
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{value}</td></tr>" for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def _table(head: tuple[str, str], counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    total = max(1, sum(counts.values()))
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{count:,}</td><td class=n>{100 * count / total:.1f} %</td></tr>"
        for name, count in counts.items()
    )
    return f"<table><tr><th>{escape(head[0])}</th><th>{escape(head[1])}</th><th></th></tr>{rows}</table>"


def _figures(s: Statistics) -> str:
    density = {"raw narration": s.density_before, "steps": s.density_after}
    plots = (
        ("Steps a video", histogram(s.steps_a_video, "steps")),
        ("Words a step", histogram(s.words_a_step, "words", last=LONG)),
        ("Seconds a step", histogram(s.seconds_a_step, "seconds", last=LONG)),
        ("Length of the videos", histogram(s.seconds_a_video, f"seconds, bars of {TEN}")),
        (
            "Content words among a text's words",
            grouped_histogram(density, "per cent", bar=100 / DENSITY),
        ),
    )
    drawn = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in plots
    )
    return f'<section class="plots">{drawn}</section>\n'


def _word_changes(s: Statistics) -> str:
    """Draw the content words whose share among all content words rises most, and falls most."""
    before, after = (_shares(words) for words in (s.words_before, s.words_after))
    change = {
        word: after.get(word, 0.0) - before.get(word, 0.0) for word in before.keys() | after.keys()
    }
    order = sorted(change, key=lambda word: (-change[word], word))
    risen = [word for word in order[:RISEN] if change[word] > 0]
    fallen = [word for word in order[::-1][:RISEN] if change[word] < 0]

    def drawn(words: Sequence[str]) -> str:
        return ranked_bars(
            [(word, (before.get(word, 0.0), after.get(word, 0.0))) for word in words],
            ("{:.2f} %",) * 2,
        )

    note = '<p><span class="k s0"></span> raw narration <span class="k s1"></span> steps: per cent of content words</p>'
    return f"{note}<h3>More often</h3>{drawn(risen)}<h3>Less often</h3>{drawn(fallen)}"


def _shares(words: Mapping[str, int]) -> dict[str, float]:
    total = max(1, sum(words.values()))
    return {word: 100 * count / total for word, count in words.items()}


def _documents(s: Statistics, titles: Mapping[str, str]) -> str:
    first = list(s.documents.items())[:TOP]
    return ranked_bars(
        [(titles.get(key, key), (float(count),)) for key, count in first], ("{:,.0f}",)
    )


def _thresholds(rows: Sequence[ThresholdRow]) -> str:
    if not rows:
        return ""
    head = "<tr><th>token-IoU</th><th>token-recall</th><th>videos</th><th>documents</th><th>pairs</th></tr>"
    body = "".join(
        f"<tr><td class=n>{row.iou:g}</td><td class=n>{row.recall:g}</td><td class=n>{row.videos:,}</td>"
        f"<td class=n>{row.documents:,}</td><td class=n>{row.pairs:,}</td></tr>"
        for row in rows
    )
    return f"<table>{head}{body}</table>"


def _example(record: Record) -> str:
    """Return a video's lines beside its steps: a step and what was said for it have one colour,
    sieved lines none."""
    # "mix" has two steps of one telling
    told = list(dict.fromkeys(step.sources for step in record.steps))
    owner = {source: number for number, sources in enumerate(told) for source in sources}
    left = "".join(
        f'<li class="{_colour(owner.get(place))}"><b>{_clock(sentence.span.start)}</b> {escape(sentence.text)}</li>'
        for place, sentence in enumerate(record.sentences)
    )
    right = "".join(
        f'<li class="{_colour(told.index(step.sources))}"><b>{_clock(step.said.start if step.said else 0.0)}</b> '
        f"{escape(step.text)}<small>{escape(_source(step.source_text, step.licence, step.score))}</small></li>"
        for step in record.steps
    )
    title = escape(record.video.title or record.id)
    lists = f'<div class="pair"><ol>{left}</ol><ol>{right}</ol></div>'
    return f"<h3>{title}</h3>{lists}"


def _colour(number: int | None) -> str:
    return "sieved" if number is None else f"c{number % COLOURS}"


def _source(source: str | None, licence: str | None, score: float | None) -> str:
    if source is None:
        return f"own words; similarity {score:.2f}" if score is not None else ""
    return f"{source}; licence: {licence or 'not stated'}; similarity {score or 0.0:.2f}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


EXAMPLES = 6  # videos shown line by line


def write_report(job: Job, outcome: RunResult) -> tuple[Path, ...]:
    """Write train.json, validation.json, statistics.json and report.html into the job's folder;
    return their paths."""
    out = job.out
    files = [out / "statistics.json", out / "report.html"]
    write_atomic(files[0], outcome.statistics.model_dump_json(indent=1) + "\n")
    text = page(
        outcome.statistics,
        titles=_titles(outcome.statistics, job.base),
        thresholds=_threshold_rows(job, outcome.pairs),
        examples=list(islice(_kept(out), EXAMPLES)),
    )
    write_atomic(files[1], text)
    for split in (TRAIN, VALIDATION):
        write_released((out / split).glob("*.parquet"), out / f"{split}.json")
        files.append(out / f"{split}.json")
    return tuple(files)


def _kept(out: Path) -> Iterator[Record]:
    for split in (VALIDATION, TRAIN):
        for file in sorted((out / split).glob("*.parquet")):
            yield from (record for record in read_parquet(file) if record.steps)


def _titles(statistics: Statistics, base: TextBase) -> dict[str, str]:
    """Return the titles of the documents that the report names, found in one pass over the base."""
    wanted = set(list(statistics.documents)[:TOP])
    keys = ((f"{document.source}: {document.id}", document.title) for document in base.documents())
    return {key: title for key, title in keys if key in wanted}


def _threshold_rows(job: Job, pairs: Sequence[Path]) -> list[ThresholdRow]:
    """Return what the run's thresholds and higher ones keep; lower ones were not paired."""
    settings = job.settings.pairing
    rows = [
        Pairs(
            np.asarray(row.documents, dtype=np.int64), np.asarray(row.iou), np.asarray(row.recall)
        )
        for file in pairs
        for row in read_pairs(file)
        if row.documents
    ]
    ious = sorted({settings.iou, *(iou for iou in IOUS if iou >= settings.iou)})
    recalls = sorted(
        {settings.recall, *(recall for recall in RECALLS if recall >= settings.recall)}
    )
    return threshold_table(rows, ious, recalls) if rows else []


__all__ = ["page", "write_report"]
