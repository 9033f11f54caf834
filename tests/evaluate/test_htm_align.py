import json

import numpy as np
import pytest
from metric_cases import case, needs_cases, values

from stepline.datasets.htm_align import AlignRow
from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.htm_align import Annotation, best_seconds, hits_span, narration_labels

TRUTH = {
    "a": [[1, 2.0, 3.5, "cut"], [0, 8.0, 9.0, "hello"], [1, 5.2, 6.1, "stir"]],
    "b": [[0, 0.0, 1.0, "hi"]],
}


def annotation(rows):
    return Annotation.from_rows([AlignRow(*row) for row in rows])


def write(folder, name, tree):
    path = folder / name
    path.write_text(json.dumps(tree))
    return path


@pytest.fixture
def scored(tmp_path):
    reference = write(tmp_path, "htm_align.json", TRUTH)

    def run(tree, **options):
        return evaluate("htm-align", write(tmp_path, "p.json", tree), reference, **options)

    return run


@needs_cases
@pytest.mark.parametrize(
    ("convention", "expected"), [("tan", "global_official"), ("nasva", "nasva_rule")]
)
def test_it_equals_the_official_evaluator(tmp_path, convention, expected):
    facts = case("htm_align")
    divisor = facts["similarity_scale_divisor"]
    scaled = {id: (np.array(rows) / divisor).tolist() for id, rows in facts["similarity"].items()}
    reference = write(tmp_path, "htm_align.json", facts["annotations"])
    given = write(tmp_path, "p.json", scaled)
    found = values(evaluate("htm-align", given, reference, convention=convention))
    wanted = facts["expected"][expected]
    assert found["R@1"] == pytest.approx(wanted["Recall"], abs=1e-12)
    if convention != "nasva":
        assert found["ROC-AUC alignable"] == pytest.approx(wanted["AUC"], abs=1e-12)


@needs_cases
@pytest.mark.parametrize("row", case("discretisation"))
def test_the_conventions_accept_the_seconds_that_the_official_rules_do(row):
    span, seconds = np.array([[row["start"], row["end"]]]), np.arange(row["T"], dtype=float)
    low, high = row["tan_eval_accepts_argmax_in_[floor,ceil]_inclusive"]
    accepted = [bool(hits_span(np.array([t]), span, "tan")[0]) for t in seconds]
    assert accepted == [low <= t <= high for t in seconds]
    strict = [int(hits_span(np.array([t]), span, "nasva")[0]) for t in seconds]
    assert strict == row["nasva_train_mask(start<=t<=end)"]


def test_perfect_is_1_empty_is_0_and_missing_videos_are_listed(scored):
    assert values(scored({"a": [2, None, 6], "b": [0]}))["R@1"] == 1
    empty = scored({})
    assert values(empty) == {"R@1": 0}
    assert empty.missing == ("a", "b")
    assert scored({"a": [2, 0, 0], "x": [1]}).extra == ("x",)


def test_nasva_leaves_out_videos_without_an_alignable_sentence(scored):
    found = scored({"a": [2, 0, 5], "b": [0]}, convention="nasva")
    assert found.videos == ("a",)
    assert values(found)["R@1"] == 0.5  # 5 < 5.2: nothing is rounded
    assert values(scored({"a": [2, 0, 5], "b": [0]}))["R@1"] == 1


def test_the_first_of_equal_seconds_is_taken_and_a_score_of_exactly_0_means_not_scored(scored):
    assert best_seconds(np.array([[0.1, 0.9, 0.9]])).tolist() == [1]
    rows = [[-1.0, -1, -0.5, 0, -1, -1, -1, -1, -1, -1]] * 3
    # second 2 is best, not 3
    assert values(scored({"a": rows, "b": [[1.0]]}))["R@1"] == 0.5


def test_alignable_and_narrated_are_not_the_same():
    truth = annotation(TRUTH["a"])
    assert truth.alignable.tolist() == [True, False, True]
    said = [[2.5, 4.0], [8, 9], [20, 22]]  # the last is shown, but long before it is said
    assert narration_labels(truth, said).tolist() == [True, False, False]
    assert narration_labels(truth).tolist() == [True, False, True]
    with pytest.raises(DatasetError, match="same transcript"):
        narration_labels(truth, said[:2])


def test_narration_is_scored_with_the_transcript_next_to_the_annotations(tmp_path):
    write(tmp_path, "htm_align.json", TRUTH)
    said = {"a": {"start": [2.5, 8, 20], "end": [4, 9, 22]}, "b": {"start": [0], "end": [1]}}
    write(tmp_path, "sentencified_htm_370k.json", said)
    for first, average in ((0.9, 1), (0.5, 0.5)):
        tree = {"a": {"shown": [first, 0.1, 0.8]}, "b": {"shown": [0.2]}}
        given = write(tmp_path, "p.json", tree)
        found = values(evaluate("htm-align", given, tmp_path, convention="narration"))
        assert found["AP shown"] == average
        assert first == 0.5 or found["ROC-AUC shown"] == 1


def test_narration_detection_never_takes_the_best_score_over_the_video(tmp_path):
    reference = write(tmp_path, "htm_align.json", TRUTH)
    matrix = write(tmp_path, "m.json", {"a": [[1, 2], [3, 4], [5, 6]]})
    with pytest.raises(DatasetError, match=r"m\.json: a: no `shown`"):
        evaluate("htm-align", matrix, reference, convention="narration")
    part = write(tmp_path, "p.json", {"a": {"shown": [0.9, 0.1, 0.8]}})
    found = evaluate("htm-align", part, reference, convention="narration")
    assert (found.videos, found.missing, found.items) == (("a",), ("b",), 3)


def test_predictions_for_a_video_that_nasva_leaves_out_are_not_unknown(tmp_path):
    reference = write(tmp_path, "htm_align.json", {"a": [[1, 0, 1, "x"]], "none": [[0, 0, 1, "y"]]})
    given = write(tmp_path, "p.json", {"a": [0.5], "none": [0.5], "other": [1]})
    found = evaluate("htm-align", given, reference, convention="nasva")
    assert (found.videos, found.extra) == (("a",), ("other",))


MALFORMED = (
    *([1, 2], [1, 2, "x"], [1, 2, True], [[1, 2], [3]], [[1], [2]], 3, [1, 2, 1e999]),
    *([[1, None], [1, 2], [1, 2]], {"alignability": [1, None, 2]}),
)


@pytest.mark.parametrize("tree", [*({"a": rows} for rows in MALFORMED), {"z": [1]}, []])
def test_malformed_predictions_are_an_error_that_names_the_file(scored, tree):
    with pytest.raises(DatasetError, match=r"p\.json|null"):
        scored(tree)


@pytest.mark.parametrize(
    "rows", [[[2, 0, 1, "x"]], [[1, 0, 1]], [[1, "a", 1, "x"]], [[1, 0, 1, 5]]]
)
def test_a_malformed_annotation_is_an_error(tmp_path, rows):
    reference = write(tmp_path, "htm_align.json", {"a": rows})
    with pytest.raises(DatasetError):
        evaluate("htm-align", write(tmp_path, "p.json", {}), reference)


def test_an_id_that_is_there_twice_is_an_error(tmp_path):
    reference = write(tmp_path, "htm_align.json", TRUTH)
    (tmp_path / "p.json").write_text('{"a": [1, 2, 3], "a": [1, 2, 3]}')
    with pytest.raises(DatasetError, match="twice"):
        evaluate("htm-align", tmp_path / "p.json", reference)
