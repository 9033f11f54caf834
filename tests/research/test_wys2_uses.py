"""The tables of uses on a handful of videos: what is scored, written and kept, not what is measured."""

import json

import numpy as np

from research.simulate import SimulationSettings, simulate
from research.wys2.uses import UsesPlan, UsesSize, as_markdown, similar_sentences

TINY = UsesSize(labelled=12, lessons=6, tests=4, detector_steps=4, summarizer_epochs=1, head_epochs=1)


def test_both_tables_are_written_and_kept(tmp_path):
    plan = UsesPlan(tmp_path, (0,), ("summaries", "alignability"), TINY)
    found = plan.run()
    summaries, alignability = (found[table][0] for table in ("summaries", "alignability"))
    assert summaries["every second"]["tau"] == 0.0  # equal scores rank nothing
    assert 0.4 < summaries["every second"]["F"] < 0.9
    assert abs(summaries["chance"]["rho"]) < 0.3
    assert len(summaries) == 6
    assert all(0 < row["ROC-AUC"] < 1 for row in alignability.values())
    assert [path.suffix for path in (tmp_path / "uses").iterdir()] == [".json", ".json"]  # no training is left
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "uses").iterdir()}
    assert plan.run() == found
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "uses").iterdir()} == kept
    assert json.loads((tmp_path / "uses.json").read_text())["tables"] == found
    assert "| with speech, the detector's features | 68.9, .106, .218 |" in (tmp_path / "uses.md").read_text()


def test_a_table_tells_mean_least_and_most():
    rows = [{"a": {"F": f, "tau": 0.1, "CPU s": 2.0}} for f in (0.5, 0.7)]
    assert "| a | – | 60.0 (50.0 to 70.0) | 0.100 (0.100 to 0.100) | 2 |" in as_markdown("summaries", rows)


def test_sentences_like_a_key_step_are_alignable_more_often():
    videos = simulate(0, SimulationSettings(videos=12)).samples
    truth = np.concatenate([video.shown("narration").any(1) for video in videos])
    labels = np.concatenate(similar_sentences(videos))
    assert truth[labels].mean() > truth.mean() + 0.2
