import contextlib
import gc
import json
import warnings

import pytest
from fake_stages import STAGES, recipe, videos
from file_bytes import file_bytes

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.execution.ray import run_on_ray
from stepline.curate.execution.scheduler import Phase
from stepline.curate.plan import Plan
from stepline.curate.stage import resolve_stages
from stepline.curate.store.results import ResultStore
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath

OF_RAY = ("DeprecationWarning", "ResourceWarning", "FutureWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{name}" for name in OF_RAY))
TEXTS = {"a": "one two", "b": "three", "bad": "corrupt", "c": "four five six"} | {
    "crash": "exit",
    "quiet": "silent",
}


def tree(folder):
    """Every file of a run that its dataset rests on: name -> bytes."""
    return {name: file_bytes(folder / name) for name in ("cells", "failures", "stages", "dataset")}


def stored_bytes(ray):
    """What a cluster's object stores hold, and have ever held since it was started."""
    from ray._private.internal_api import node_stats

    (node,) = ray.nodes()
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats
    return stats.object_store_bytes_used + stats.cumulative_created_bytes


@pytest.fixture(scope="module")
def ray_here(tmp_path_factory):
    """One Ray on this machine for all tests of the module: it takes seconds to start."""
    pytest.importorskip("ray", reason="needs Ray: pip install -c constraints.txt 'stepline[ray]'")
    from stepline.curate.execution.ray import connect_cluster

    plan = Plan(recipe(engine="ray", workers=3), {}, {})
    with contextlib.ExitStack() as held:
        try:
            ray, why = held.enter_context(connect_cluster(plan)), ""
        # Ray gives its processes 30 s, which a machine with much else to do exceeds
        except SteplineError as error:
            ray, why = None, str(error)
        with warnings.catch_warnings():  # of processes that Ray has left behind
            warnings.simplefilter("ignore")
            gc.collect()
        if ray is None:
            pytest.skip(why)
        yield ray


def test_a_cluster_that_is_started_here_has_a_processor_per_worker(ray_here):
    assert ray_here.cluster_resources()["CPU"] == 3


@pytest.mark.parametrize(
    "stages",
    [STAGES.keys() - {"share"}, pytest.param(STAGES.keys(), marks=pytest.mark.slow)],
    ids=["short", "all"],
)
def test_both_engines_give_the_same_bytes(tmp_path, ray_here, monkeypatch, stages):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", TEXTS)
    named = [name for name in STAGES if name in stages]
    for engine in ("local", "ray"):
        request = RunRequest(recipe(engine=engine, stages=named), str(tmp_path / engine), STAGES)
        outcome = run_recipe(request, items)
        found = [(failure.id, failure.kind) for failure in outcome.failures]
        assert found == [("bad", "error"), ("crash", "crash"), ("quiet", "left out")]
    assert stored_bytes(ray_here) < 100  # Ray's own three objects, of eight bytes each
    assert tree(tmp_path / "local") == tree(tmp_path / "ray")
    made = json.loads((tmp_path / "ray/dataset/dataset.json").read_text())["videos"]
    assert made.keys() == {"a", "b", "c"}


def test_what_ends_a_run_ends_it_in_one_line_on_ray_too(tmp_path, ray_here, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", {"a": "one", "b": "model"})
    with pytest.raises(SteplineError, match="^stage read: no weights; install some$"):
        run_recipe(RunRequest(recipe(engine="ray"), str(tmp_path / "out"), STAGES), items)


def test_videos_that_are_finished_need_no_actor(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", {"a": "one two", "bad": "corrupt"})
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    plan, told = Plan.from_recipe(recipe(), resolve_stages(recipe(), STAGES)), []
    results, names = ResultStore(RemotePath(str(tmp_path / "out"))), ("read", "count", "double")
    run_on_ray(Phase(plan, results, names, on_finished=told.append), items)
    found = [(one.item.id, one.failure is None, one.ran_any_task) for one in told]
    assert found == [("a", True, False), ("bad", False, False)]
