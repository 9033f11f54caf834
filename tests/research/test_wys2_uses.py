"""The tables of uses on a handful of videos: what is scored, written and kept, not what is measured."""

import json
from pathlib import Path

import numpy as np

from research.simulate import SimulationSettings, simulate
from research.study import Row, RowResult
from research.wys2.uses import UsesSize, UsesStudy, UsesTrial, similar_sentences

TINY = UsesSize(labelled=12, lessons=6, tests=4, detector_steps=4, summarizer_epochs=1, head_epochs=1)


def test_both_tables_are_written_and_kept(tmp_path):
    study = UsesStudy(tmp_path, (0,), ("summaries", "alignability"), size=TINY)
    results, _ = study.run()
    summaries, alignability = (
        {
            one.row.name: {name: score for name, (score,) in one.scores.items()}
            for one in results
            if one.row.table == table
        }
        for table in ("summaries", "alignability")
    )
    assert summaries["every second"]["tau"] == 0.0  # equal scores rank nothing
    assert 0.4 < summaries["every second"]["F"] < 0.9
    assert abs(summaries["chance"]["rho"]) < 0.3
    assert len(summaries) == 6
    assert len(alignability) == 4
    assert all(0 < row["ROC-AUC"] < 1 for row in alignability.values())
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "uses").rglob("*") if path.is_file()}
    assert [path.name for path in kept] == ["outcome.json", "outcome.json"]  # no training is left
    assert study.run() == (results, [])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    tree = json.loads((tmp_path / "uses.json").read_text())
    assert [row["scores"] for row in tree["rows"][:6]] == [
        {k: [v] for k, v in row.items()} for row in summaries.values()
    ]
    assert "| with speech, the detector's features | 68.9, 0.106, 0.218 |" in (tmp_path / "uses.md").read_text()


def test_a_table_tells_mean_least_and_most():
    row = Row("summaries", "a", UsesTrial(table="summaries"))
    results = [RowResult(row, {"F": (0.5, 0.7), "tau": (0.1, 0.1)}, (2.0, 2.0))]
    text = UsesStudy(Path(), (0, 1)).as_markdown(results, [])
    assert "| a | 60.0 (50.0 to 70.0) | 0.100 (0.100 to 0.100) | – | 2 |" in text


def test_sentences_like_a_key_step_are_alignable_more_often():
    videos = simulate(0, SimulationSettings(videos=12)).videos
    truth = np.concatenate([video.shown("narration").any(1) for video in videos])
    labels = np.concatenate(similar_sentences(videos))
    assert truth[labels].mean() > truth.mean() + 0.2
