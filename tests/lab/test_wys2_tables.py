"""WYS2's tables and uses on a handful of videos: what is scored, written and kept, not what is
measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from lab.simulate import SimulationSettings, simulate
from lab.study import Claim, ClaimResult, Row, RowResult
from lab.wys2.corpus import wys2_corpus
from lab.wys2.rows import (
    AUC_MEASURE,
    MC_TRIAL,
    PAPER_CLAIMS,
    SS_TRIAL,
    VR_TRIAL,
    Wys2Size,
    grid_rows,
    wys2_rows,
)
from lab.wys2.tables import Wys2Study
from lab.wys2.trials import labels_of, training
from lab.wys2.uses import UsesSize, UsesStudy, UsesTrial, similar_sentences
from stepline.models.wys2.settings import LabelSettings

TINY = Wys2Size(labelled=30, unlabelled=10, steps=4)


def test_the_test_clips_are_withheld_videos_half_of_them_shown():
    corpus = wys2_corpus(0, 30, 10)
    videos = [
        set(part.videos)
        for part in (corpus.train, corpus.validation, corpus.test, corpus.unlabelled)
    ]
    assert not any(one & other for place, one in enumerate(videos) for other in videos[:place])
    assert corpus.test.truth.mean() == 0.5


def test_similar_narrations_are_shown_more_often_than_those_next_to_any_key_step():
    train = wys2_corpus(0, 30, 10).train
    similar, relevant = (
        train.truth[labels_of(train, labels)] for labels in (SS_TRIAL.labels, VR_TRIAL.labels)
    )
    assert similar.mean() > relevant.mean() + 0.2
    assert relevant.mean() > train.truth.mean()


def test_named_pronouns_are_more_like_their_key_step():
    train = wys2_corpus(0, 30, 10).train
    shown = train.truth
    assert np.nanmean(train.cosine()[shown]) > np.nanmean(train.cosine(resolved=False)[shown])


def test_tables_are_written_and_trials_kept(tmp_path):
    study = Wys2Study(tmp_path, (0,), ("labels", "baselines"), size=TINY)
    lines, judged = study.run()
    assert [line.row.name for line in lines][:1] == ["SS, the likest 35 %"]
    assert {one.claim.statement for one in judged} == {
        "SS above VR",
        "SS above MC",
        "SS above words alone",
        "SS above objects alone",
        "SS above cosine without training",
        "MC above VR",
    }
    tree = json.loads((tmp_path / "tables.json").read_text())
    assert tree["rows"][0]["scores"][AUC_MEASURE] == list(lines[0].scores[AUC_MEASURE])
    assert "| SS, the likest 35 % | 62.7 |" in (tmp_path / "tables.md").read_text()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()}
    study.run()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").iterdir()} == kept


def test_pseudo_labels_are_counted_among_the_positives(tmp_path):
    study = Wys2Study(tmp_path, (0,), ("pseudo-labels",), size=TINY)
    none, chosen = (line.scores for line in study.run()[0][:2])
    assert chosen["positives"] > none["positives"]
    assert 0 < chosen["precision"][0] < none["precision"][0] <= 1


def test_every_claim_is_about_rows_that_are_run():
    known = {row.trial for row in wys2_rows()}
    assert all(set(claim.subjects) <= known for claim in PAPER_CLAIMS)


def test_the_grid_is_c_by_negatives_by_batch_by_rate():
    assert len({row.trial.key for row in grid_rows()}) == 3 * 4 * 2 * 2


def test_a_trial_is_named_by_its_content():
    assert SS_TRIAL.changed().key == SS_TRIAL.key
    assert len({SS_TRIAL.key, VR_TRIAL.key, MC_TRIAL.key, SS_TRIAL.changed(seed=1).key}) == 4
    assert SS_TRIAL.changed(labels=LabelSettings(kind="vr")) == VR_TRIAL


def test_trainings_take_about_as_many_steps_whatever_they_are_on():
    size = Wys2Size(steps=300, batch=128)
    steps = [training(size, pairs, 0).epochs * -(-pairs // 128) for pairs in (500, 1500, 10_000)]
    assert all(abs(taken - 300) <= 40 for taken in steps)


@pytest.mark.parametrize(("least", "holds"), [(0.01, True), (0.03, False), (None, None)])
def test_a_claim_holds_when_the_mean_gain_is_more_than_asserted(least, holds):
    assert (
        ClaimResult(Claim("", AUC_MEASURE, SS_TRIAL, VR_TRIAL, least), (0.01, 0.03)).holds is holds
    )


TINY_USES = UsesSize(
    labelled=12, lessons=6, tests=4, detector_steps=4, summarizer_epochs=1, head_epochs=1
)


def test_both_tables_are_written_and_kept(tmp_path):
    study = UsesStudy(tmp_path, (0,), ("summaries", "alignability"), size=TINY_USES)
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
    kept = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "uses").rglob("*") if path.is_file()
    }
    assert [path.name for path in kept] == ["outcome.json", "outcome.json"]  # no training is left
    assert study.run() == (results, [])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    tree = json.loads((tmp_path / "uses.json").read_text())
    assert [row["scores"] for row in tree["rows"][:6]] == [
        {k: [v] for k, v in row.items()} for row in summaries.values()
    ]
    assert (
        "| with speech, the detector's features | 68.9, 0.106, 0.218 |"
        in (tmp_path / "uses.md").read_text()
    )


def test_a_table_reports_mean_least_and_most():
    row = Row("summaries", "a", UsesTrial(table="summaries"))
    results = [RowResult(row, {"F": (0.5, 0.7), "tau": (0.1, 0.1)}, (2.0, 2.0))]
    text = UsesStudy(Path(), (0, 1)).as_markdown(results, [])
    assert "| a | 60.0 (50.0 to 70.0) | 0.100 (0.100 to 0.100) | – | 2 |" in text


def test_sentences_like_a_key_step_are_alignable_more_often():
    videos = simulate(0, SimulationSettings(videos=12)).videos
    truth = np.concatenate([video.shown("narration").any(1) for video in videos])
    labels = np.concatenate(similar_sentences(videos))
    assert truth[labels].mean() > truth.mean() + 0.2
