"""Plots hold what was counted, in the right proportions, and no markup of their names'."""

import re

import numpy as np

from stepline.plots import (
    EMPTY_PLOT,
    WaterfallLevel,
    histogram,
    ranked_bars,
    scatter,
    waterfall,
    word_cloud,
)

WIDTHS = re.compile(r'<rect class="(s\d)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"')


def test_losses_begin_where_their_level_ends():
    svg = waterfall(
        [WaterfallLevel("in", 100, (("too short", 30), ("silent", 10))), WaterfallLevel("out", 60)]
    )
    (_, start, whole), (_, short_at, short), (_, silent_at, silent), (_, _, left) = [
        (mark, float(x), float(wide)) for mark, x, wide in WIDTHS.findall(svg)
    ]
    assert (short / whole, silent / whole, left / whole) == (0.3, 0.1, 0.6)
    assert short_at + short == start + whole
    assert silent_at + silent == short_at
    assert silent_at == start + left
    assert "−30" in svg
    assert "too short" in svg


def test_lists_of_bars_are_legible_on_a_phone():
    """At 390 pixels a picture has some 330 for itself: letters of 11.5 are to be 9 or more there,
    and nothing cut."""
    name = "w" * 80
    for svg in (
        waterfall([WaterfallLevel(name, 9, ((name, 3),))]),
        ranked_bars([(name, (1.0, 2.0))], ("{:.1f} %",) * 2),
    ):
        width = float(re.search(r'width="([\d.]+)" height', svg)[1])
        assert 11.5 * 330 / width >= 9
        shown = re.findall(r'<text x="0" [^>]*>(w+…)<title>w{80}</title>', svg)
        numbers = [float(x) for x in re.findall(r'<text x="([\d.]+)" [^>]*class="e">', svg)]
        assert shown
        assert all(
            0.6 * 11.5 * len(text) <= min(numbers) - 0.6 * 11.5 * len("100.0 %") for text in shown
        )
        assert max(numbers) <= width


def test_nothing_counted_draws_nothing():
    assert (
        waterfall([])
        == waterfall([WaterfallLevel("in", 0)])
        == word_cloud({"verbs": {}})
        == EMPTY_PLOT
    )
    assert scatter(np.zeros((0, 2)), [], [], "order") == EMPTY_PLOT


def test_points_fill_the_field_and_are_coloured_by_order():
    svg = scatter(np.array([[0.0, 0.0], [4.0, 2.0]]), [0.0, 1.0], ["a<b", "c"], "place")
    assert re.findall(r'<circle class="(o\d+)" cx="([\d.]+)"', svg) == [
        ("o0", "14.0"),
        ("o11", "446.0"),
    ]
    assert "<title>a&lt;b</title>" in svg


def test_the_commonest_word_is_largest_and_in_the_middle():
    svg = word_cloud({"verbs": {"chop": 40, "fry": 10}, "objects": {"<onion>": 10}})
    found = dict(re.findall(r'class="m w\d" x="([\d.]+)"[^>]*>([^<]+)<', svg))
    assert {word: float(x) for x, word in found.items()}["chop"] == 290.0
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', svg)]
    assert sizes == [46.0, 23.0, 23.0]  # areas follow the counts: half the height for a quarter
    assert "&lt;onion&gt;" in svg


def test_words_never_overlap():
    svg = word_cloud({"": {f"word{n}": 1000 - 9 * n for n in range(80)}})
    marks = re.findall(r'x="([\d.]+)" y="([\d.]+)" font-size="([\d.]+)">([^<]+)<', svg)
    read = [(float(x), float(y), float(size), len(word)) for x, y, size, word in marks]
    boxes = [
        (x - 0.3 * size * letters, y - 0.8 * size, 0.6 * size * letters, size)
        for x, y, size, letters in read
    ]
    assert len(boxes) > 10
    for number, (x, y, wide, tall) in enumerate(boxes):
        for a, b, c, d in boxes[:number]:
            assert (
                x + wide <= a + 0.2 or a + c <= x + 0.2 or y + tall <= b + 0.2 or b + d <= y + 0.2
            )


def test_an_axis_of_counts_has_whole_round_marks():
    svg = histogram({"0": 367, "1": 12}, "words")
    assert re.findall(r'class="e">([\d.,]+)<', svg) == ["0", "100", "200", "300"]
    assert re.findall(r'class="e">([\d.,]+)<', histogram({"0": 1}, "words")) == ["0", "0.5", "1"]
