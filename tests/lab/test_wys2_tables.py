"""WYS2's tables on a handful of videos: what is scored, written and kept, not what is
measured."""

import json

import numpy as np

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
from stepline.models.wys2.settings import LabelSettings

TINY = Wys2Size(labelled=30, unlabelled=10, steps=4)


def test_the_test_clips_are_withheld_videos_half_of_them_shown():
    corpus = wys2_corpus(0, 30, 10)
    parts = (corpus.train, corpus.validation, corpus.test, corpus.unlabelled)
    videos = [set(part.videos) for part in parts]
    assert not any(one & other for place, one in enumerate(videos) for other in videos[:place])
    assert corpus.test.truth.mean() == 0.5


def test_similar_narrations_are_shown_more_often_than_those_next_to_any_key_step():
    train = wys2_corpus(0, 30, 10).train
    kinds = (SS_TRIAL.labels, VR_TRIAL.labels)
    similar, relevant = (train.truth[labels_of(train, kind)] for kind in kinds)
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
    others = ("VR", "MC", "words alone", "objects alone", "cosine without training")
    claims = {"MC above VR", *(f"SS above {other}" for other in others)}
    assert {one.claim.statement for one in judged} == claims
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
