"""The tables: what they train, how they are kept, and how they are written."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from research.cli import experiment
from research.nasva.corpus import Round, Size, read_corpus
from research.nasva.rows import EARLY, FIRST, NARRATED, OURS, PAPER, STEPS, Row, labelled, rows, sized
from research.nasva.tables import ASSERTED, REPORTED, TITLES, Claim, Judged, Line, Plan, as_json, as_markdown, spread
from research.nasva.trials import Laboratory, Outcome
from research.simulate import SimulationSettings, simulate, write_dataset
from stepline.features import import_features
from stepline.nasva.network_settings import RefineSettings

TINY = Size(videos=16, held_out=6, width=16, heads=2, feed_forward=16, projection=8, epochs=1, teacher_epochs=1)


def test_rows_carry_the_published_values_of_their_table():
    by_words = {(row.table, row.words): row.published for row in rows()}
    assert by_words["2", "InternVideo-ViT/L-14 (here sharp), W + S"] == {STEPS: 46.4, "narration R@1": 71.6}
    assert by_words["3", "Step-ASR, eps1 0.20, eps2 0.8"] == {STEPS: 43.7}
    assert by_words["8", "eps2 0.8, center, 8 s"] == {STEPS: 37.2}
    assert by_words["9", "2 rounds, center, grown, W + S"] == {STEPS: 46.9, "narration R@1": 72.1}
    assert {row.table for row in rows()} == set(TITLES)


def test_trials_are_named_by_all_that_they_do():
    one = labelled(*PAPER)
    assert one.key == labelled(*PAPER).key
    assert len({one.key, FIRST.key, EARLY.key, NARRATED.key, sized(one, TINY, 0).key, sized(one, Size(), 1).key}) == 6


def test_teachers_stop_early_and_learn_the_labels_of_the_round_before():
    assert labelled(*PAPER).teachers == (EARLY,)
    first, second = labelled(OURS, OURS).teachers
    assert (first.again, second.again) == (0, 1)
    assert first.labels == labelled(OURS).labels
    assert first.early
    assert FIRST.teachers == NARRATED.teachers == ()


def test_a_claim_is_about_gains_seed_by_seed():
    scores = {FIRST: 30.0, labelled(*PAPER): 40.0, NARRATED: 20.0, EARLY: 25.0}

    def outcome(trial):
        return Outcome({STEPS: scores[trial]}, 1.0)

    gain = Claim("x", STEPS, labelled(*PAPER), FIRST, least=4.0)
    assert gain.gain(outcome) == 10.0
    beyond = Claim("x", STEPS, labelled(*PAPER), FIRST, least=6.0, beyond=(NARRATED, EARLY))
    assert beyond.gain(outcome) == 5.0
    assert (gain.holds([10.0, -1.0]), beyond.holds([5.0]), REPORTED[0].holds([1.0])) == (True, False, None)


def test_tables_give_the_mean_and_from_least_to_most():
    assert (spread([1.0, 2.0, 4.5]), spread([3.0]), spread([])) == ("2.5 (1.0 to 4.5)", "3.0", "–")
    row = Row("3", "Step-ASR", FIRST, {STEPS: 36.0})
    scores = {STEPS: (40.0, 42.0), "narration R@1": (20.0, 22.0), "labels inside": (50.0, 52.0)}
    lines = [Line(row, scores, (9.0, 11.0))]
    judged = [Judged(ASSERTED[1], (3.0, 8.0)), Judged(ASSERTED[0], (1.0, 2.0))]
    text = as_markdown(lines, judged)
    assert "| Step-ASR | 36.0 | 41.0 (40.0 to 42.0) | 21.0 (20.0 to 22.0) | – | 51.0 (50.0 to 52.0) | 10 |" in text
    assert "| +7.7 | +3.0, +8.0 | +5.5 | > 4 | holds |" in text
    assert "| +10.2 | +1.0, +2.0 | +1.5 | > 5 | **does not hold** |" in text
    tree = json.loads(as_json(lines, judged, [0, 1]))
    assert tree["rows"][0]["scores"][STEPS] == [40.0, 42.0]
    assert [claim["holds"] for claim in tree["claims"]] == [True, False]


def test_a_table_is_trained_once_and_a_rerun_only_reads(tmp_path):
    told = []
    plan = Plan(tmp_path, (0,), ("dropout",), TINY, lambda done, count: told.append((done, count)))
    lines, judged = plan.run()
    assert told == [(0, 2), (1, 2)]
    assert judged == []
    assert [line.row.words for line in lines] == [row.words for row in rows() if row.table == "dropout"]
    assert all(0 <= line.scores[STEPS][0] <= 100 and line.cpu_seconds[0] > 0 for line in lines)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").rglob("*") if path.is_file()}
    assert sum(path.name == "outcome.json" for path in kept) == 4  # two finals and the two teachers they share
    again, _ = plan.run()
    assert again == lines
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "trials").rglob("*") if path.is_file()} == kept
    assert "Attention dropout" in (tmp_path / "tables.md").read_text()


def test_a_head_is_scored_beside_the_best_cosine(tmp_path):
    lines, _ = Plan(tmp_path, (0,), ("head",), TINY).run()
    without, kept, agreement = (line.scores for line in lines)
    assert "recipe AUC head" not in without
    assert {"recipe AUC head", "narration AUC head", "recipe AUC cosine"} <= kept.keys() & agreement.keys()


def test_a_threshold_that_keeps_no_label_is_a_row_that_says_so(tmp_path, monkeypatch):
    high = Round(refine=RefineSettings(threshold=0.99, threshold_kind="cosine"))
    chosen = (Row("8", "high", labelled(high)), Row("8", "first labels", EARLY))
    monkeypatch.setattr("research.nasva.tables.rows", lambda: chosen)
    failed, trained = Plan(tmp_path, (0,), (), TINY).run()[0]
    assert (dict(failed.scores), trained.failure) == ({}, None)
    assert "texts keep a label" in failed.failure
    assert "| high: 0 of " in (tmp_path / "tables.md").read_text()


def test_real_data_are_read_from_stores_and_have_the_papers_own_thresholds(tmp_path):
    simulation = simulate(0, SimulationSettings(videos=10, held_out=0.3))
    write_dataset(simulation, tmp_path / "raw")
    raw, data = tmp_path / "raw", tmp_path / "data"
    import_features(raw / "features/usual", data / "usual/video", backbone="usual")
    for style in ("narration", "step", "recipe"):
        import_features(raw / "texts/usual" / style, data / "usual" / style)
    for style in ("narration", "step"):
        import_features(raw / "texts/embedder" / style, data / "linking" / style)
    (raw / "ht-step").rename(data / "ht-step")
    (raw / "htm_align.json").rename(data / "htm_align.json")
    corpus = read_corpus(data, EARLY)
    assert sorted(lesson.id for lesson in corpus.lessons) == sorted(one.id for one in simulation.samples[:7])
    planted = {one.id: one for one in simulation.samples}
    for lesson in corpus.lessons:
        whole = planted[lesson.id]
        assert np.allclose(lesson.likeness, whole.embeddings("step") @ whole.embeddings("narration").T, atol=1e-2)
    assert [len(samples) for samples in corpus.tests.values()] == [3, 3]
    for sample in corpus.tests["recipe"]:
        assert (sample.positive.any(axis=1) == planted[sample.id].shown("recipe").any(axis=1)).all()
    trial = sized(labelled(*PAPER), TINY, 0, cosines=True)
    assert trial.labels.rounds[0].refine.threshold_kind == "cosine"
    assert trial.labels.rounds[0].refine.threshold == 0.8
    lines, _ = Plan(tmp_path / "out", (0,), ("dropout",), TINY, data=data).run()
    assert 0 <= lines[0].scores[STEPS][0] <= 100


def test_the_command_prints_the_tables_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setattr("research.nasva.corpus.Size", lambda: TINY)
    given = ["nasva-tables", "--table", "dropout", "--seeds", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(experiment, given, catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout == (tmp_path / "tables.md").read_text()
    assert "| of attention weights: 0.1 (as released) |" in done.stdout
    again = CliRunner().invoke(experiment, [*given, "--json"], catch_exceptions=False)
    assert [row["table"] for row in json.loads(again.stdout)["rows"]] == ["dropout", "dropout"]


@pytest.mark.slow
def test_the_papers_orderings_hold_on_one_seed(tmp_path):
    """About 2.5 CPU minutes: what docs/results.md reports of three seeds."""
    laboratory = Laboratory(tmp_path)
    for claim in ASSERTED:
        gain = claim.gain(lambda trial: laboratory.outcome(sized(trial, Size(), 0)))
        assert claim.holds([gain]), f"{claim.words}: {gain:+.1f}"
