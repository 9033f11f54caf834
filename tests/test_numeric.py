"""Numeric helpers: small numbers worked out by hand."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from stepline.numeric import (
    cosine,
    cosine_matrix,
    fit_logistic_weights,
    limit_blas_to_one_thread,
    logit,
    sigmoid,
    softmax,
    sum_to_one,
    unit_rows,
)


def test_sigmoid_and_logit_undo_each_other():
    assert sigmoid(np.array([0.0, np.log(3)])) == pytest.approx([0.5, 0.75])
    assert sigmoid(logit(np.array([0.1, 0.9]))) == pytest.approx([0.1, 0.9])


def test_a_margin_keeps_log_odds_finite():
    assert logit(np.array([0.0, 1.0]), margin=0.25) == pytest.approx([-np.log(3), np.log(3)])


def test_a_softmax_sums_to_one_however_large_its_logits():
    rows = softmax(np.array([[1000.0, 1000.0], [0.0, np.log(3)]]))
    assert rows == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]))


def test_a_softmax_of_no_columns_has_no_columns():
    assert softmax(np.zeros((2, 0), dtype=np.float32)).shape == (2, 0)


def test_rows_are_divided_by_their_sums():
    assert sum_to_one(np.array([[1.0, 3.0]])) == pytest.approx(np.array([[0.25, 0.75]]))


def test_unit_rows_have_length_one_and_zeros_stay():
    assert unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_cosines_of_rows_and_of_vectors_agree():
    a, b = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0]])
    assert cosine_matrix(a, b) == pytest.approx(np.array([[0.96], [0.0]]))
    assert cosine(a[0], b[0]) == pytest.approx(0.96)
    assert cosine(a[1], b[0]) is None


@pytest.mark.parametrize(
    "function", [sigmoid, logit, lambda x: softmax(x[None]), lambda x: unit_rows(x[None])]
)
def test_float32_stays_float32(function):
    assert function(np.array([0.25, 0.5], dtype=np.float32)).dtype == np.float32


def test_a_logistic_fit_without_a_prior_gives_the_shares_that_were_seen():
    rows = np.ones((4, 1))
    prior = {"prior_mean": np.zeros(1), "prior_precision": np.zeros((1, 1))}
    weights = fit_logistic_weights(rows, np.array([1.0, 1.0, 1.0, 0.0]), **prior)
    assert sigmoid(weights) == pytest.approx([0.75])


def test_without_items_a_logistic_fit_is_its_prior():
    rows, mean = np.zeros((0, 2)), np.array([1.0, -2.0])
    weights = fit_logistic_weights(rows, np.zeros(0), prior_mean=mean, prior_precision=np.eye(2))
    assert weights.tolist() == mean.tolist()


def test_a_sharper_prior_keeps_a_logistic_fit_closer():
    rows, labels = np.array([[1.0], [1.0], [-1.0]]), np.array([1.0, 1.0, 0.0])
    loose, sharp = (
        fit_logistic_weights(rows, labels, prior_mean=np.zeros(1), prior_precision=p * np.eye(1))
        for p in (1.0, 10.0)
    )
    assert 0 < sharp[0] < loose[0]


def blas_threads():
    """How many threads OpenBLAS uses for NumPy."""
    libraries = ThreadpoolController().select(internal_api="openblas").info()
    return {library["num_threads"] for library in libraries}


def test_blas_keeps_to_one_thread_until_the_last_of_several_jobs_has_ended():
    with ThreadpoolController().limit(limits=2):
        first, second = limit_blas_to_one_thread(), limit_blas_to_one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}
