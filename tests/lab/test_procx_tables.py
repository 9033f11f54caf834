"""ProcX's trainings on a handful of videos: what is trained on, kept and scored, not what is measured."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from lab.procx import trials
from lab.procx.corpus import first_fraction, procx_corpus
from lab.procx.rows import PDVC_TRIAL, PROCX_TRIAL, ProcxSize, pretrained
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.report import report

NETWORK = {"rows": 16, "width": 16, "heads": 2, "layers": 1, "queries": 30}
STEPS = {"pretraining_steps": 1, "finetuning_steps": 1, "steps": 1}
TINY = ProcxSize(narrated=4, captioned=6, withheld=3, **NETWORK, **STEPS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("procx")


@pytest.fixture(scope="module")
def corpus(folder):
    return procx_corpus(0, TINY, folder)


def ids(samples):
    return [one.id for one in samples]


def test_no_video_is_trained_on_and_scored(corpus):
    parts = [x for c in corpus.captioned.values() for x in (c.train, c.test)]
    parts = [set(ids(part)) for part in (corpus.narrated["raw"], *parts)]
    assert [len(part) for part in parts] == [4, 6, 3, 6, 3]
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_the_wordings_of_narrated_videos_differ_as_sieve_and_swap_says(corpus):
    raw, sieved, swapped = (corpus.narrated[words] for words in ("raw", "only-sieve", "swap"))
    assert sum(len(one.spans) for one in raw) > 2 * sum(len(one.spans) for one in swapped)
    assert ids(corpus.narrated["mix"]) == ids((*sieved, *swapped))
    said = {text for one in raw for text in one.sentences}
    assert {text for one in sieved for text in one.sentences} & said
    assert not {text for one in swapped for text in one.sentences} <= said
    assert 0.5 < corpus.swap_quality["tell a step"] <= 1
    assert 0 < corpus.swap_quality["swaps right"] <= 1


def test_what_sieve_and_swap_made_is_kept(corpus, folder):
    (kept,) = folder.glob("sieve-swap-*.json")
    before = kept.stat().st_mtime_ns
    procx_corpus.cache_clear()
    again = procx_corpus(0, TINY, folder)
    assert kept.stat().st_mtime_ns == before
    before, after = ([x.sentences for x in one.narrated["swap"]] for one in (corpus, again))
    assert before == after


def test_scores_are_those_of_stepline_evaluate(corpus, tmp_path):
    part = corpus.captioned["youcook2"]
    texts = [part.train[0].sentences[0], part.test[0].sentences[0]]
    given = {
        one.id: [(0.0, one.duration / 2, texts[0]), (one.duration / 2, one.duration, texts[1])]
        for one in part.test
    }
    lengths = {one.id: one.duration for one in part.test}
    trials.write_reference(tmp_path / "reference.json", part.reference, lengths)
    trials.write_predictions(tmp_path / "given.json", given)
    official = evaluate("youcook2", tmp_path / "given.json", tmp_path / "reference.json")
    found = trials.score_events(part.reference, given)
    names = {"SODA-C": "SODA_c", "SODA-D": "SODA_d"}
    metrics = report(official, draws=2).metrics
    for name in trials.METRIC_NAMES:
        value = metrics[names.get(name, name)].value
        assert found[name] == pytest.approx(100 * value)


def test_a_zero_shot_trial_learns_from_narration_and_others_from_captions(corpus):
    trial = pretrained(PROCX_TRIAL, "swap", narrated_share=0.5, size=TINY)
    assert ids(trials.training_samples(trial.start, corpus)) == ids(corpus.narrated["swap"][:2])
    assert ids(trials.training_samples(trial, corpus)) == ids(corpus.captioned["youcook2"].train)
    assert len(first_fraction(corpus.narrated["raw"], 0.01)) == 1


def test_trainings_take_about_as_many_steps_whatever_they_are_on():
    trial = PROCX_TRIAL.changed(size=ProcxSize(steps=300))
    steps = [
        trials.training(trial, count).epochs * -(-count // 8) for count in (12, 30, 60, 120, 600)
    ]
    assert all(abs(taken - 300) <= 38 for taken in steps)


@pytest.mark.parametrize("system", [PROCX_TRIAL, PDVC_TRIAL], ids=["procx", "pdvc"])
def test_every_system_trains_on_narration_then_captions(system, folder):
    trial = pretrained(system, "raw", size=TINY)
    outcome = trials.ProcxTrials(folder).outcome(trial)
    start = trials.ProcxTrials(folder).outcome(trial.start)
    assert set(start.scores) >= {f"{form} SODA-C" for form in ("youcook2", "tasty")}
    assert all(0 <= value <= 1000 for value in outcome.scores.values())


def test_a_trial_is_named_by_its_content():
    assert PROCX_TRIAL.changed().key == PROCX_TRIAL.key != PROCX_TRIAL.changed(seed=1).key


@pytest.mark.slow
def test_a_trained_network_is_far_above_even_parts_with_one_sentence(tmp_path):
    """World 2, the first of the experiment, at its own size, without pre-training."""
    scores = trials.ProcxTrials(tmp_path).outcome(PROCX_TRIAL.changed(seed=2)).scores
    part = procx_corpus(2, ProcxSize(), tmp_path).captioned["youcook2"]
    sentences = Counter(text for one in part.train for text in one.sentences)
    common, _ = sentences.most_common(1)[0]
    even = {}
    for one in part.test:
        cuts = np.linspace(0.0, one.duration, 7).tolist()
        even[one.id] = [(start, end, common) for start, end in pairwise(cuts)]
    found = trials.score_events(part.reference, even)
    assert scores["youcook2 SODA-D"] > found["SODA-D"] + 8
    assert scores["youcook2 SODA-C"] > found["SODA-C"] + 2
