"""ProcX's tables on a handful of videos: what is written, kept and scored, not what is measured."""

import json

import numpy as np
import pytest
import torch

from lab.procx.attention_spread import point_weights, spread_points
from lab.procx.claims import TABLE_CLAIMS
from lab.procx.corpus import (
    baseline_steps,
    first_fraction,
    nearest_video_steps,
    prior_spans,
    procx_corpus,
    typical_count,
    uniform_spans,
)
from lab.procx.rows import PROCX_TRIAL, SYSTEM_TRIALS, ProcxSize, pretrained, procx_rows, zero_shot
from lab.procx.tables import ProcxStudy, families
from lab.procx.trials import (
    METRIC_NAMES,
    ProcxTrials,
    oracle_selection,
    score_events,
    training,
    training_samples,
    write_predictions,
    write_reference,
)
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.report import report
from stepline.models.procx.batch import StepSample
from stepline.models.procx.deformable_attention import DeformableAttention, deformable_attention
from stepline.models.procx.inference import Proposals
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import AttentionSettings, CaptionerSettings, ModelSettings

TINY = ProcxSize(
    narrated=4,
    captioned=6,
    withheld=3,
    rows=16,
    width=16,
    heads=2,
    layers=1,
    queries=30,
    pretraining_steps=1,
    finetuning_steps=1,
    steps=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("procx")


@pytest.fixture(scope="module")
def corpus(folder):
    return procx_corpus(0, TINY, folder)


def sample(name, spans, values=(1.0, 0.0), duration=100.0):
    texts = tuple(f"{name} {number}" for number in range(len(spans)))
    return StepSample(name, np.array([values], dtype=np.float32), duration, spans, texts)


TRAIN = [
    sample("a", ((0.0, 20.0), (50.0, 100.0)), (1.0, 0.0)),
    sample("b", ((50.0, 100.0), (20.0, 40.0)), (0.0, 1.0)),
    sample("c", ((0.0, 10.0), (10.0, 20.0), (20.0, 30.0)), (-1.0, 0.1)),
]
TEST = [sample("d", ((0.0, 50.0),), (0.1, 0.9), 50.0)]


def test_no_video_is_trained_on_and_scored(corpus):
    parts = [
        {one.id for one in part}
        for part in (
            corpus.narrated["raw"],
            *(x for c in corpus.captioned.values() for x in (c.train, c.test)),
        )
    ]
    assert [len(part) for part in parts] == [4, 6, 3, 6, 3]
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_the_wordings_of_narrated_videos_differ_as_sieve_and_swap_says(corpus):
    raw, sieved, swapped = (corpus.narrated[words] for words in ("raw", "only-sieve", "swap"))
    assert sum(len(one.spans) for one in raw) > 2 * sum(len(one.spans) for one in swapped)
    assert [one.id for one in corpus.narrated["mix"]] == [one.id for one in (*sieved, *swapped)]
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
    assert [one.sentences for one in again.narrated["swap"]] == [
        one.sentences for one in corpus.narrated["swap"]
    ]


def test_places_without_a_look_are_even_or_usual():
    assert typical_count(TRAIN) == 2
    assert uniform_spans(2).tolist() == [[0.0, 0.5], [0.5, 1.0]]
    np.testing.assert_allclose(prior_spans(TRAIN, 2), [[0.1, 0.3], [0.5, 1.0]])


def test_sentences_of_baselines_are_the_commonest_or_the_nearest_videos():
    assert baseline_steps(TRAIN, TEST, "uniform, nearest") == {
        "d": [(0.0, 25.0, "b 1"), (25.0, 50.0, "b 0")]
    }
    common = [*TRAIN, sample("a", ((0.0, 5.0),))]
    assert {event[2] for event in baseline_steps(common, TEST, "prior, common")["d"]} == {"a 0"}
    assert nearest_video_steps(TRAIN, TEST) == {"d": [(10.0, 20.0, "b 1"), (25.0, 50.0, "b 0")]}


def test_the_oracle_takes_the_proposals_that_fit_best_each_once():
    boxes = np.array([[40.0, 60.0], [0.0, 11.0], [0.0, 10.0], [90.0, 95.0]])
    proposals = Proposals(100.0, np.array([0.9, 0.9, 0.1, 0.9]), boxes, np.zeros(5))
    queries, spans = oracle_selection([[(0.0, 10.0, ""), (41.0, 60.0, "")]])(0, proposals)
    assert queries == [2, 0]
    np.testing.assert_array_equal(spans, boxes[[2, 0]])


def test_scores_are_those_of_stepline_evaluate(corpus, tmp_path):
    part = corpus.captioned["youcook2"]
    given = baseline_steps(part.train, part.test, "uniform, nearest")
    write_reference(
        tmp_path / "reference.json", part.reference, {one.id: one.duration for one in part.test}
    )
    write_predictions(tmp_path / "given.json", given)
    official = evaluate("youcook2", tmp_path / "given.json", tmp_path / "reference.json")
    found = score_events(part.reference, given)
    names = {"SODA-C": "SODA_c", "SODA-D": "SODA_d"}
    metrics = report(official, draws=2).metrics
    assert {name: found[name] for name in METRIC_NAMES} == pytest.approx(
        {name: 100 * metrics[names.get(name, name)].value for name in METRIC_NAMES}
    )


def test_tables_are_written_with_their_protocol_and_ids_and_trials_kept(folder, corpus):
    study = ProcxStudy(folder, (0,), ("baselines", "speech"), size=TINY)
    lines, judged = study.run()
    assert [one.claim.statement for one in judged] == ["speech beside pictures, Vid2Seq"]
    tree = json.loads((folder / "tables.json").read_text())
    assert tree["protocol"]["convention"] == "stepline"
    assert tree["scored"]["tasty"] == [[one.id for one in corpus.captioned["tasty"].test]]
    assert tree["rows"][0]["scores"]["SODA-D"] == list(lines[0].scores["SODA-D"])
    text = (folder / "tables.md").read_text()
    assert "convention stepline" in text
    assert "| Vid2Seq, pictures and speech |" in text
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*/outcome.json")}
    assert len(kept) == len(study.trials())
    study.run()
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/outcome.json")} == kept


@pytest.mark.slow
def test_a_run_in_two_processes_trains_what_one_would(folder, tmp_path):
    two = ProcxStudy(tmp_path, (0,), ("2b",), size=TINY, processes=2).run()[0]
    one = ProcxStudy(folder, (0,), ("2b",), size=TINY).run()[0]
    assert [line.scores for line in two] == [line.scores for line in one]


def test_pre_trainings_are_shared_and_come_first():
    trials = ProcxStudy(None, (0, 1), ("3", "4"), size=TINY).trials()
    swap = zero_shot(PROCX_TRIAL, "swap").changed(size=TINY)
    assert trials.count(swap) == 1
    followers = [trial for trial in trials if trial.start == swap]
    assert {trial.form for trial in followers} == {"youcook2", "tasty"}
    assert all(trials.index(swap) < trials.index(trial) for trial in followers)
    (family,) = [each for each in families(trials) if swap in each]
    assert family == [swap, *followers]


def test_a_trial_is_named_by_its_content():
    every = {row.trial.key for row in procx_rows()}
    assert len(every) == len({row.trial for row in procx_rows()})
    assert PROCX_TRIAL.changed().key == PROCX_TRIAL.key != PROCX_TRIAL.changed(seed=1).key


def test_a_zero_shot_trial_learns_from_narration_and_others_from_captions(corpus):
    trial = pretrained(PROCX_TRIAL, "swap", narrated_share=0.5, size=TINY)
    assert [one.id for one in training_samples(trial.start, corpus)] == [
        one.id for one in corpus.narrated["swap"][:2]
    ]
    assert [one.id for one in training_samples(trial, corpus)] == [
        one.id for one in corpus.captioned["youcook2"].train
    ]
    assert all(one.speech is None for one in training_samples(trial, corpus))
    assert all(
        one.speech for one in training_samples(PROCX_TRIAL.changed(speech=True, size=TINY), corpus)
    )
    assert len(first_fraction(corpus.narrated["raw"], 0.01)) == 1


def test_trainings_take_about_as_many_steps_whatever_they_are_on():
    trial = PROCX_TRIAL.changed(size=ProcxSize(steps=300))
    steps = [training(trial, count).epochs * -(-count // 8) for count in (12, 30, 60, 120, 600)]
    assert all(abs(taken - 300) <= 38 for taken in steps)


def test_every_claim_is_about_rows_that_there_are():
    rows = {row.subject for row in procx_rows()}
    assert all(
        claim.metric in METRIC_NAMES and set(claim.subjects) <= rows for claim in TABLE_CLAIMS
    )


@pytest.mark.parametrize("system", SYSTEM_TRIALS)
def test_every_system_trains_on_narration_then_captions(system, folder):
    trial = pretrained(SYSTEM_TRIALS[system], "raw", size=TINY)
    outcome = ProcxTrials(folder).outcome(trial)
    start = ProcxTrials(folder).outcome(trial.start)
    assert set(start.scores) >= {f"{form} surest SODA-C" for form in ("youcook2", "tasty")}
    assert all(0 <= value <= 1000 for value in outcome.scores.values())


@pytest.mark.parametrize("form", ["vanilla", "key-aware"])
def test_the_weights_of_points_are_those_that_attention_uses(form):
    torch.manual_seed(0)
    module = DeformableAttention(AttentionSettings(width=8, heads=2, levels=2, points=3, form=form))
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape))
        memory, query = torch.randn(2, 9, 8), torch.randn(2, 4, 8)
        references = torch.rand(2, 4, 2, 1)
        weights = point_weights(module, query, references, memory, (6, 3))
        value = module.value(memory).unflatten(-1, (2, -1))
        locations = module.locations(query, references, (6, 3))
        read = deformable_attention(value, locations, weights.view_as(locations), (6, 3))
        torch.testing.assert_close(
            module.out(read.flatten(2)), module(query, references, memory, (6, 3))
        )
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 2))


def test_spread_is_counted_in_points():
    settings = ModelSettings(
        features=4,
        rows=8,
        attention=AttentionSettings(width=8, heads=2, form="vanilla"),
        encoder_layers=1,
        decoder_layers=1,
        feed_forward=8,
        queries=3,
        captioner=CaptionerSettings(width=8, heads=2),
    )
    network = ProcX(settings, 80).eval()
    samples = [StepSample("a", np.zeros((5, 4), dtype=np.float32), 10.0)]
    fresh = spread_points(network, samples)  # fresh weights of points are all alike
    np.testing.assert_allclose(fresh, np.full(1 * 3 * 2, 16.0), rtol=1e-5)


@pytest.mark.slow
def test_a_trained_network_is_far_above_guesses_without_a_look(tmp_path):
    """World 2, the first of the experiment, at its own size, without pre-training."""
    size = ProcxSize()
    scores = ProcxTrials(tmp_path).outcome(PROCX_TRIAL.changed(seed=2)).scores
    part = procx_corpus(2, size, tmp_path).captioned["youcook2"]
    for baseline in ("uniform, common", "prior, common"):
        found = score_events(part.reference, baseline_steps(part.train, part.test, baseline))
        assert scores["youcook2 surest SODA-D"] > found["SODA-D"] + 8
        assert scores["youcook2 surest SODA-C"] > found["SODA-C"] + 2
        assert scores["youcook2 oracle SODA-D"] > scores["youcook2 surest SODA-D"]
