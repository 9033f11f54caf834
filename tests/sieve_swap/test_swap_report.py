"""What a finished run writes next to its parts."""

import json

from test_sieve_swap_run import job

from stepline.datasets import read
from stepline.sieve_swap.report import write_report
from stepline.sieve_swap.run import run_job
from stepline.sieve_swap.statistics import SwappedDatasetStatistics, add_statistics


def test_a_run_leaves_its_report_next_to_its_parts(tmp_path):
    done = job(tmp_path)
    names = [file.name for file in write_report(done, run_job(done))]
    assert names == ["statistics.json", "train.json", "validation.json"]
    counts = json.loads((tmp_path / "out" / "statistics.json").read_text())
    assert counts["videos"]["it is an evaluation video"] == 1
    assert counts["documents"]["tests: d0"] == 6  # three steps in each of two videos
    lowest, *others = counts["thresholds"]
    assert (lowest["iou"], lowest["recall"], lowest["videos"]) == (0.1, 0.3, 3)
    assert all(row["pairs"] <= lowest["pairs"] for row in others)
    files = [tmp_path / "out" / f"{name}.json" for name in ("train", "validation")]
    splits = [read("sieve-swap", file).records for file in files]
    assert sum(map(len, splits)) == 3


def test_statistics_of_parts_are_summed():
    counts = ({"train": 2}, {"3": 2}, 4.5), ({"train": 1, "it is too long": 1}, {"1": 1}, 0.5)
    names = ("videos", "steps_a_video", "seconds")
    parts = [SwappedDatasetStatistics(**dict(zip(names, row, strict=True))) for row in counts]
    whole = add_statistics(parts)
    assert whole.videos == {"train": 3, "it is too long": 1}
    assert (whole.steps_a_video, whole.seconds) == ({"3": 2, "1": 1}, 5.0)
    assert add_statistics([]) == SwappedDatasetStatistics()
