import contextlib
import gc
import json
import warnings

import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.execution import ray as ray_engine
from stepline.curate.execution.ray import actor_groups, run_on_ray
from stepline.curate.execution.scheduler import Phase
from stepline.curate.plan import Plan
from stepline.curate.settings import EngineSettings
from stepline.curate.stage import resolve_stages
from stepline.curate.store.results import ResultStore
from stepline.errors import SteplineError
from stepline.remote import RemotePath

OF_RAY = ("DeprecationWarning", "ResourceWarning", "FutureWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{name}" for name in OF_RAY))
TEXTS = {"a": "one two", "b": "three", "bad": "corrupt", "c": "four five six", "crash": "exit", "quiet": "silent"}


def tree(folder):
    """Every file of a run that its dataset rests on: name -> bytes."""
    files = (path for part in ("cells", "failures", "stages", "dataset") for path in (folder / part).rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


@pytest.fixture(scope="module")
def ray_here(tmp_path_factory):
    """One Ray on this machine for all tests of the module: it takes seconds to start."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'stepline[ray]'")
    from stepline.curate.execution.ray import cluster

    with contextlib.ExitStack() as held:
        try:
            ray, why = held.enter_context(cluster(Plan(recipe(engine="ray"), {}, {}))), ""
        except SteplineError as error:  # Ray gives its processes 30 s, which a machine with much else to do exceeds
            ray, why = None, str(error)
        with warnings.catch_warnings():  # of processes that Ray has left behind
            warnings.simplefilter("ignore")
            gc.collect()
        if ray is None:
            pytest.skip(why)
        yield ray


@pytest.mark.parametrize(
    "stages", [STAGES.keys() - {"share"}, pytest.param(STAGES.keys(), marks=pytest.mark.slow)], ids=["short", "all"]
)
def test_both_engines_give_the_same_bytes(tmp_path, ray_here, monkeypatch, stages):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", TEXTS)
    named = [name for name in STAGES if name in stages]
    held, mapped_dataset = [], ray_engine._mapped_dataset
    monkeypatch.setattr(ray_engine, "MOST_ROWS", 4)
    monkeypatch.setattr(
        ray_engine,
        "_mapped_dataset",
        lambda ray, phase, rows: held.append(len(rows)) or mapped_dataset(ray, phase, rows),
    )
    for engine in ("local", "ray"):
        outcome = run_recipe(RunRequest(recipe(engine=engine, stages=named), str(tmp_path / engine), STAGES), items)
        found = [(failure.id, failure.kind) for failure in outcome.failures]
        assert found == [("bad", "error"), ("crash", "crash"), ("quiet", "left out")]
    assert held[:2] == [4, 2]
    assert tree(tmp_path / "local") == tree(tmp_path / "ray")
    assert json.loads((tmp_path / "ray/dataset/dataset.json").read_text())["videos"].keys() == {"a", "b", "c"}


def test_stages_that_can_use_a_gpu_have_actors_of_their_own():
    stages = [STAGES[name] for name in ("read", "count", "double", "share")]
    assert actor_groups(stages, recipe()) == [(("read", "count", "double", "share"), 0.0)]
    shared = recipe().model_copy(update={"engine": EngineSettings(gpus=0.5)})
    assert actor_groups(stages, shared) == [(("read", "count"), 0.0), (("double",), 0.5), (("share",), 0.0)]


def test_videos_that_are_finished_need_no_actor(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", {"a": "one two", "bad": "corrupt"})
    run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    plan, told = Plan.of(recipe(), resolve_stages(recipe(), STAGES)), []
    run_on_ray(
        Phase(
            plan, ResultStore(RemotePath(str(tmp_path / "out"))), ("read", "count", "double"), on_finished=told.append
        ),
        items,
    )
    found = [(one.item.id, one.failure is None, one.worked) for one in told]
    assert found == [("a", True, False), ("bad", False, False)]
