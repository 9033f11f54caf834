from dataclasses import replace

import pytest
from fake_stages import STAGES, recipe

from stepline.curate.execution.scheduler import OpenVideo
from stepline.curate.plan import Plan, task_key, video_status
from stepline.curate.remote import RemotePath
from stepline.curate.stage import Item, Recipe, StageFailure, files_read, load_recipe, resolve_stages
from stepline.curate.store.results import KeySet, ResultStore
from stepline.errors import SettingsError, StoreError

ITEM = Item("a", video="a.mp4", stamp="10-1", captions="a.vtt", captions_stamp="3-1", title="Whisk")
READ = STAGES["read"]


def test_a_key_changes_with_all_that_decides_a_result_and_nothing_else():
    first = task_key(READ, ITEM, None, {})
    assert first == task_key(READ, replace(ITEM, title="Stir", stamp="11-1"), None, {})  # it reads captions, not these
    others = [
        task_key(READ, replace(ITEM, captions_stamp="3-2"), None, {}),
        task_key(READ, replace(ITEM, captions=None), None, {}),
        task_key(READ, replace(ITEM, id="b"), None, {}),
        task_key(replace(READ, version=2), ITEM, None, {}),
        task_key(READ, ITEM, {"beam": 5}, {}),
        task_key(READ, ITEM, None, {"probe": "0f"}),
        task_key(replace(READ, reads=("speech", "about")), ITEM, None, {}),
    ]
    assert len({first, *others}) == 8


def test_a_stage_reads_captions_and_features_where_there_are_some_and_else_the_video():
    looks = replace(READ, reads=("speech", "picture"))
    assert files_read(looks, ITEM) == {"captions", "media"}
    assert files_read(looks, replace(ITEM, features="a.npy")) == {"captions", "features"}
    assert files_read(looks, replace(ITEM, captions=None)) == {"media"}


def test_what_a_recipe_says_of_its_engine_changes_no_key():
    plans = [
        Plan.of(one, resolve_stages(one, STAGES))
        for one in (recipe(workers=1, seconds=5.0), recipe(workers=7, engine="ray", memory=99))
    ]
    assert plans[0].tasks(ITEM) == plans[1].tasks(ITEM)
    assert plans[0].dataset_key(STAGES["total"], [], ()) == plans[1].dataset_key(STAGES["total"], [], ())


def test_a_recipe_must_hold_together():
    with pytest.raises(SettingsError, match="no stage 'reed'"):
        resolve_stages(Recipe(stages=("reed",)), STAGES)
    with pytest.raises(SettingsError, match="'count' needs 'read' before it"):
        resolve_stages(Recipe(stages=("count", "read")), STAGES)
    with pytest.raises(SettingsError, match="'read' is named twice"):
        resolve_stages(Recipe(stages=("read", "read")), STAGES)
    with pytest.raises(SettingsError, match="names no stage"):
        resolve_stages(Recipe(), STAGES)
    with pytest.raises(SettingsError, match="no such recipe"):
        load_recipe("no-such-recipe")


def test_what_a_stage_takes_counts_only_where_the_recipe_has_it():
    with_share = resolve_stages(recipe(stages=list(STAGES)), STAGES)
    assert [stage.needs for stage in with_share if stage.name == "publish"] == [("total", "double", "share")]
    assert resolve_stages(recipe(), STAGES)[-1].needs == ("total", "double")


@pytest.fixture(params=["disk", "memory"])
def results(request, tmp_path):
    """Cells on a disk, and in an object store that is listed and cannot be locked."""
    return ResultStore(RemotePath(str(tmp_path) if request.param == "disk" else f"memory://{tmp_path.name}"))


def test_a_result_and_a_failure_are_there_again(results):
    assert not results.has(READ, "ab12" * 16)
    results.write(READ, "ab12" * 16, b"text")
    assert results.add_failure(READ, "cd34" * 16, StageFailure("a", "read", "hang", "slow")).attempts == 1
    assert results.add_failure(READ, "cd34" * 16, StageFailure("a", "read", "crash", "gone")).attempts == 2
    for known in (results, ResultStore(results.out)):
        assert known.has(READ, "ab12" * 16)
        assert known.read(READ, "ab12" * 16) == b"text"
        assert known.failure(READ, "cd34" * 16) == StageFailure("a", "read", "crash", "gone", 2)
        assert known.failure(READ, "ab12" * 16) is None
        assert not known.has(READ, "cd34" * 16)


def test_a_failure_in_a_store_is_read_once(tmp_path, monkeypatch):
    ResultStore(RemotePath(f"memory://{tmp_path.name}")).add_failure(
        READ, "cd34" * 16, StageFailure("a", "read", "hang", "slow")
    )
    results, asked, read = ResultStore(RemotePath(f"memory://{tmp_path.name}")), [], RemotePath.read
    monkeypatch.setattr(RemotePath, "read", lambda place: asked.append(place.name) or read(place))
    assert results.failure(READ, "cd34" * 16) == results.failure(READ, "cd34" * 16)
    assert len(asked) == 1
    assert results.add_failure(READ, "cd34" * 16, StageFailure("a", "read", "hang", "slow")).attempts == 2
    assert results.failure(READ, "cd34" * 16).attempts == 2


def test_one_of_many_machines_asks_for_keys_without_a_listing(tmp_path, monkeypatch):
    place = RemotePath(f"memory://{tmp_path.name}")
    ResultStore(place).write(READ, "ab12" * 16, b"text")
    monkeypatch.setattr(RemotePath, "list", lambda place: pytest.fail("it listed"))
    results = ResultStore(place, listed=False)
    assert results.has(READ, "ab12" * 16)
    assert not results.has(READ, "cd34" * 16)
    assert results.failure(READ, "cd34" * 16) is None


def test_keys_that_came_since_a_listing_are_known_however_many(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.curate.store.results.LOOSE", 2)
    known = KeySet.of(RemotePath(f"memory://{tmp_path.name}"))
    keys = [f"{number:02x}" * 32 for number in range(5)]
    for key_ in keys:
        known.add(key_)
    assert all(key_ in known for key_ in keys)
    assert "ff" * 32 not in known


def test_a_damaged_failure_is_named(results):
    results.add_failure(READ, "cd34" * 16, StageFailure("a", "read", "hang", "slow"))
    (results.out / f"failures/read/{'cd34' * 16}.json").write("{}")
    with pytest.raises(StoreError, match="not a failure that Stepline wrote"):
        results.failure(READ, "cd34" * 16)


def opened(results, **options):
    plan = Plan.of(recipe(), resolve_stages(recipe(), STAGES))
    return plan, OpenVideo(plan, results, ITEM, ("read", "count", "double"), **options)


def test_units_of_a_video_run_in_order(results):
    _, video = opened(results)
    read, count, _ = video.tasks
    assert video.next_task() == read
    video.start(read)
    assert video.next_task() is None
    assert video.next_task(ahead=True) is None  # what comes next needs it
    video.record(read, None)
    assert video.next_task() == count
    assert not video.finished


def test_a_failure_ends_what_comes_after_it(results):
    plan, video = opened(results)
    read, count, _ = video.tasks
    results.write(READ, read.key, b"{}")
    failure = results.add_failure(STAGES["count"], count.key, StageFailure("a", "count", "error", "no"))
    _, again = opened(results)
    assert again.finished
    assert again.failure == failure
    assert video_status(plan, results, ITEM, ("read", "count", "double")).failure == failure
    assert opened(results, retry=True)[1].next_task() == count
    for _ in range(2):
        results.add_failure(STAGES["count"], count.key, failure)
    assert opened(results, retry=True)[1].finished  # three attempts are the limit


def test_a_result_outweighs_an_earlier_failure(results):
    plan, video = opened(results)
    read = video.tasks[0]
    results.add_failure(READ, read.key, StageFailure("a", "read", "hang", "slow"))
    results.write(READ, read.key, b"{}")
    assert video_status(plan, results, ITEM, ("read",)).failure is None
    assert video_status(plan, results, ITEM, ("read", "count")) is None
