from dataclasses import replace

from fake_stages import STAGES, recipe

from stepline.curate.plan import Plan, task_key
from stepline.curate.stage import VideoItem, input_files, resolve_stages

STAMPS = {"stamp": "10-1", "captions_stamp": "3-1"}
ITEM = VideoItem("a", video="a.mp4", captions="a.vtt", title="Whisk", **STAMPS)
READ = STAGES["read"]


def test_a_key_changes_with_all_that_decides_a_result_and_nothing_else():
    first = task_key(READ, ITEM, None, {})
    # it reads captions, not these
    assert first == task_key(READ, replace(ITEM, title="Stir", stamp="11-1"), None, {})
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
    assert input_files(looks, ITEM) == {"captions", "media"}
    assert input_files(looks, replace(ITEM, features="a.npy")) == {"captions", "features"}
    assert input_files(looks, replace(ITEM, captions=None)) == {"media"}


def test_what_a_recipe_says_of_its_engine_changes_no_key():
    plans = [
        Plan.from_recipe(one, resolve_stages(one, STAGES))
        for one in (recipe(workers=1, seconds=5.0), recipe(workers=7, engine="ray", memory=99))
    ]
    first, second = (plan.dataset_key(STAGES["total"], [], ()) for plan in plans)
    assert plans[0].tasks_of(ITEM) == plans[1].tasks_of(ITEM)
    assert first == second


def test_a_librarys_minor_version_makes_again_what_it_computes_and_a_patch_nothing(monkeypatch):
    heard = replace(READ, libraries=lambda recipe: ("ctranslate2",))
    stages = {**STAGES, "read": heard}
    spoken, captioned = replace(ITEM, captions=None), ITEM

    def keys(version, item):
        monkeypatch.setattr("stepline.version.version", lambda package: version)
        planned = Plan.from_recipe(recipe(), resolve_stages(recipe(), stages))
        assert planned.library_versions() == {"ctranslate2": version}
        return [task.key for task in planned.tasks_of(item)]

    # results of the time before libraries were in keys
    before = Plan.from_recipe(recipe(), resolve_stages(recipe(), STAGES))
    old = [task.key for task in before.tasks_of(spoken)]
    assert keys("4.8.5", spoken) == keys("4.8.99", spoken) == old
    # and all that rests on what was heard
    assert not set(keys("4.9.0", spoken)) & set(keys("4.8.5", spoken))
    assert keys("4.9.0", spoken) == keys("4.9.3", spoken)
    assert keys("5.0", captioned) == keys("4.8.5", captioned)  # nothing is heard


def test_versions_that_keys_stand_for_are_those_of_libraries_that_stages_name():
    from stepline.curate.plan import KEYED_VERSIONS
    from stepline.curate.stage import load_recipe
    from stepline.curate.stages import STAGE_TABLE

    named = set()
    for overrides in ([], ["steps.vision.backbone=s3d"]):
        chosen = load_recipe("howtostep", overrides)
        stages = STAGE_TABLE.values()
        named |= {library for stage in stages for library in stage.library_names(chosen)}
    assert named == set(KEYED_VERSIONS)
