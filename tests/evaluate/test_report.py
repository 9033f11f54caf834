import dataclasses
import json

import numpy as np
import pytest

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import ratio_statistic
from stepline.evaluate.report import Scores, as_json, as_table, compare, report, write_per_video


def scores(hits, *, videos=None, protocol="p", **options):
    hits = np.array(hits, float)
    names = tuple(videos or (f"v{n}" for n in range(len(hits))))
    columns = {"hits": hits, "odd": np.full(len(hits), np.nan)}
    statistics = {"R@1": ratio_statistic(hits, np.full(len(hits), 2.0))}
    return Scores(
        "bench", protocol, "the rule", names, 2 * len(hits), statistics, columns, **options
    )


def test_every_line_of_the_table_names_the_protocol_and_the_counts():
    told = {"missing": ("m",), "extra": tuple("abcdefg"), "notes": ("n1",)}
    told["handling"] = "counted as wrong"
    table = as_table(report(scores([1, 2, 0, 1], **told)))
    line = next(line for line in table.splitlines() if line.startswith("R@1"))
    assert "0.5000" in line
    assert "4       8  bench/p" in line
    for part in ("rule: the rule", "1000 draws", "seed 0", "1 (m)", "7 (a, b, c, d, e and 2 more)"):
        assert part in table
    assert "counted as wrong" in table
    assert "note: n1" in table
    assert "too narrow" in table
    assert "undefined" not in table
    assert "note: undefined, as a ranking of one class is: R@1" in as_table(
        report(scores([np.nan]))
    )


def test_the_interval_holds_the_value_and_narrows_with_videos():
    few, many = report(scores([0, 1, 2, 1] * 3)), report(scores([0, 1, 2, 1] * 100))
    widths = []
    for made in (few, many):
        metric = made.metrics["R@1"]
        assert metric.low < metric.value < metric.high
        widths.append(metric.high - metric.low)
    assert widths[1] < widths[0]
    assert not any("too narrow" in note for note in many.notes)


def test_json_holds_all_ids_and_null_for_what_is_undefined():
    made = report(scores([], missing=("m",)))
    tree = json.loads(as_json(made))
    assert tree["metrics"]["R@1"] == {"value": None, "low": None, "high": None, "items": 0}
    assert tree["missing"] == ["m"]
    assert tree["bootstrap"] == {"draws": 1000, "videos": 0, "seed": 0, "level": 95.0}


def test_a_system_differs_from_itself_by_exactly_nothing():
    one = scores([0, 1, 2, 1])
    found = compare(one, one)
    assert (found.differences["R@1"].low, found.differences["R@1"].high) == (0, 0)
    assert found.p_values["R@1"] == 1


def test_equal_systems_tie_exactly_whatever_else_one_of_them_scored():
    values = np.random.default_rng(0).random(67)
    one, other = scores(values), scores(values[::2], videos=[f"v{n}" for n in range(0, 67, 2)])
    found = compare(one, other)
    difference = found.differences["R@1"]
    assert (difference.value, difference.low, difference.high) == (0, 0, 0)
    assert found.p_values["R@1"] == 1


def test_pairing_is_by_id_whatever_the_order_and_over_shared_videos_only():
    one = scores([2, 0, 1, 2], videos="abcd")
    other = scores([0, 1, 0, 2], videos="dcbx")
    found = compare(one, other)
    assert found.videos == 3
    assert found.differences["R@1"].value == pytest.approx((0 + 1 + 2 - 0 - 1 - 0) / 6)


def test_paired_draws_tell_a_small_steady_gain_that_separate_intervals_do_not():
    base = np.tile([0.0, 1.0], 60)
    better = base + np.where(np.arange(120) % 4 < 3, 0.2, -0.1)
    first, second = report(scores(better)).metrics["R@1"], report(scores(base)).metrics["R@1"]
    assert first.low < second.high
    found = compare(scores(better), scores(base))
    assert found.differences["R@1"].low > 0
    assert found.p_values["R@1"] == 0
    assert "not better in 0.0 % of draws" in as_table(report(scores(better)), found)
    tree = json.loads(as_json(report(scores(better)), found))
    assert tree["against"]["differences"]["R@1"]["not_better"] == 0


def test_what_the_other_system_lacks_is_reported():
    one, other = scores([1, 2]), scores([1, 0], missing=("v1",), extra=("x",), notes=("odd",))
    more = {**other.statistics, "AUC": other.statistics["R@1"]}
    other = dataclasses.replace(other, statistics=more)
    found = compare(one, other)
    table = as_table(report(one), found)
    for line in (
        "in the reference, not in the other system's predictions: 1 (v1)",
        "in the other system's predictions, not in the reference: 1 (x)",
        "not compared, since one of the two systems has no value: AUC",
        "note on the other system: odd",
    ):
        assert line in table
    tree = json.loads(as_json(report(one), found))["against"]
    for name, told in {
        "missing": "v1",
        "extra": "x",
        "not_compared": "AUC",
        "notes": "odd",
    }.items():
        assert tree[name] == [told]
    assert set(tree["differences"]["R@1"]) == {"value", "low", "high", "not_better"}
    assert "not compared" not in as_table(report(one), compare(one, one))


def test_other_protocols_and_other_videos_do_not_compare():
    with pytest.raises(DatasetError, match="one protocol"):
        compare(scores([1]), scores([1], protocol="q"))
    with pytest.raises(DatasetError, match="share no"):
        compare(scores([1], videos="a"), scores([1], videos="b"))


def test_the_per_video_table_is_parquet(tmp_path):
    import pyarrow.parquet as parquet

    write_per_video(report(scores([1, 2])), tmp_path / "deep" / "out.parquet")
    rows = parquet.read_table(tmp_path / "deep" / "out.parquet").to_pylist()
    assert [(row["video"], row["hits"]) for row in rows] == [("v0", 1.0), ("v1", 2.0)]
    assert {row["protocol"] for row in rows} == {"bench/p"}


def test_videos_of_one_source_are_drawn_together():
    hits = np.repeat([0.0, 2.0], 30)
    alone, together = report(scores(hits)), report(scores(hits, sources=tuple("a" * 30 + "b" * 30)))
    assert alone.metrics["R@1"].value == together.metrics["R@1"].value
    assert (together.metrics["R@1"].low, together.metrics["R@1"].high) == (0, 1)
    assert alone.metrics["R@1"].low > 0.3
    assert together.sources == 2
    both = compare(scores(hits, sources=tuple("a" * 30 + "b" * 30)), scores(hits * 0 + 1))
    assert (both.differences["R@1"].low, both.differences["R@1"].high) == (-0.5, 0.5)
