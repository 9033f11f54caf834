import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepline.networks import onnx_graph
from stepline.networks.onnx_graph import OnnxGraph, run_batches, start_session

RNG = np.random.default_rng(0)


def test_a_graph_computes_what_its_operators_say():
    weight, shift = RNG.normal(size=(300, 4)).astype(np.float32), np.ones(4, np.float32)
    graph = OnnxGraph()
    rows, numbers = graph.input("rows", ("B", 300)), map(graph.constant, (weight, shift))
    hidden = graph.add("Gemm", rows, *numbers, beta=0.5)
    run = graph.compile(graph.add("Softmax", graph.add("Transpose", hidden, perm=[1, 0]), axis=0))
    for count in (1, 7):
        rows = RNG.normal(size=(count, 300)).astype(np.float32)
        scores = np.exp((rows @ weight + 0.5).T)
        assert_allclose(run(rows=rows), scores / scores.sum(0), atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("uint8", (2, 3)), ("int32", (0, 3)), ("int64", ()), ("float32", (3, 1))]
)
def test_constants_keep_type_shape_and_order(dtype, shape):
    values = np.asarray(RNG.integers(0, 99, shape), dtype, order="F")
    graph = OnnxGraph()
    found = graph.compile(graph.add("Cast", graph.constant(values), to=1))()
    assert_allclose(found, values.astype(np.float32))
    assert found.shape == shape


@pytest.fixture
def model(monkeypatch):
    """The bytes of a small model."""
    models = []
    monkeypatch.setattr(
        onnx_graph, "start_session", lambda model: models.append(model) or start_session(model)
    )
    graph = OnnxGraph()
    graph.compile(graph.add("Abs", graph.input("rows", ("B", 3))))
    return models.pop()


def test_a_session_does_not_hold_its_model_twice(model):
    held = sys.getrefcount(model)
    session = start_session(model)
    assert sys.getrefcount(model) == held
    (found,) = session.run(None, {"rows": np.full((1, 3), -1, np.float32)})
    assert found.tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_session_runs_on_one_thread_whatever_the_environment_says(threads, monkeypatch, model):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert start_session(model).get_session_options().intra_op_num_threads == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_give_their_results_in_order_on_any_number_of_threads(threads):
    rows = np.arange(10.0)
    sums = run_batches(lambda batch: batch.sum(), [rows[:1], rows[:5], rows], threads=threads)
    assert sums == [0.0, 10.0, 45.0]
