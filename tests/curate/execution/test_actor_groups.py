"""Which actor holds which video, with a Ray of this process."""

from types import SimpleNamespace

import pytest

from stepline.curate.execution.ray import MAX_FAILED_STARTS, MAX_LOSSES, ActorGroup
from stepline.curate.execution.scheduler import FinishedVideo
from stepline.curate.stage import VideoItem
from stepline.errors import SteplineError, StoreError


class LostError(Exception):
    pass


class TaskError(Exception):
    def __init__(self, cause):
        self.cause = cause


class Call:
    """A call of an actor's method; `outcome` is what it returns, or raises."""

    def __init__(self, actor, method, given):
        self.actor, self.method, self.given, self.outcome = actor, method, given, True
        if method == "run_videos":
            self.outcome = [FinishedVideo(item, None, ran_any_task=True) for item in given[0]]


class Handle:
    """An actor that notes what it is asked."""

    def __init__(self):
        self.calls, self.killed = [], False

    def __getattr__(self, method):
        def remote(*given):
            self.calls.append(Call(self, method, given))
            return self.calls[-1]

        return SimpleNamespace(remote=remote)

    def held(self):
        held = [call.given[0] for call in self.calls if call.method == "run_videos"]
        return ["".join(item.id for item in items) for items in held]


class FakeRay:
    """Answers one call at a time, the oldest first. fail: method -> errors of its next calls."""

    exceptions = SimpleNamespace(
        RayActorError=LostError, RayTaskError=TaskError, RayError=Exception
    )

    def __init__(self):
        self.handles, self.fail = [], {"is_ready": [], "run_videos": []}

    def start(self):
        self.handles.append(Handle())
        return self.handles[-1]

    def get(self, call):
        if self.fail[call.method]:
            raise self.fail[call.method].pop()
        return call.outcome

    def wait(self, calls, **options):
        return calls[:1], calls[1:]

    def kill(self, handle):
        handle.killed = True


@pytest.fixture
def ray():
    return FakeRay()


def finished(ray, ids, *, max_actors=2, videos_per_call=2):
    group = ActorGroup(ray, ray.start, max_actors=max_actors, videos_per_call=videos_per_call)
    items = iter([VideoItem(id) for id in ids])
    found = [video.item.id for video in group.finished_videos(items)]
    group.close()
    return "".join(found)


def test_each_actor_has_a_few_videos_at_a_time_in_the_order_of_the_list(ray):
    assert finished(ray, "abcdefg") == "abcdefg"
    assert [handle.held() for handle in ray.handles] == [["ab", "ef"], ["cd", "g"]]
    assert all(handle.killed for handle in ray.handles)
    assert all(handle.calls[-1].method == "close" for handle in ray.handles)


def test_no_more_videos_are_taken_from_the_list_than_actors_will_hold(ray):
    taken = []
    items = (taken.append(number) or VideoItem(f"{number:02d}") for number in range(40))
    group = ActorGroup(ray, ray.start, max_actors=2, videos_per_call=2)
    next(group.finished_videos(items))
    assert len(taken) <= 2 * 2 + 2 * 2


@pytest.mark.parametrize(("count", "actors"), [(0, 0), (1, 1), (2, 1), (3, 2), (40, 8)])
def test_no_more_actors_are_started_than_there_are_videos_for(ray, count, actors):
    ids = [f"{number:02d}" for number in range(count)]
    assert finished(ray, ids, max_actors=8) == "".join(ids)
    assert len(ray.handles) == actors


def test_what_a_lost_actor_held_goes_to_another_one(ray):
    ray.fail["run_videos"] = [LostError("the node died")]
    assert sorted(finished(ray, "abcd")) == ["a", "b", "c", "d"]
    assert ray.handles[0].killed
    assert sum(handle.held().count("ab") for handle in ray.handles) == 2


def test_an_actor_that_does_not_start_is_replaced(ray):
    ray.fail["is_ready"] = [LostError("no disk")] * (MAX_FAILED_STARTS - 1)
    assert finished(ray, "ab", max_actors=1) == "ab"
    assert len(ray.handles) == MAX_FAILED_STARTS


NOT_STARTED = f"^{MAX_FAILED_STARTS} actors in a row did not start, the last one: no disk"


@pytest.mark.parametrize(
    ("method", "fault", "count", "said"),
    [
        ("is_ready", LostError("trace\nno disk\n"), MAX_FAILED_STARTS, NOT_STARTED),
        (
            "run_videos",
            LostError("out of memory"),
            MAX_LOSSES,
            f"^a: {MAX_LOSSES} actors were lost",
        ),
        ("run_videos", TaskError(StoreError("the disk is full")), 1, "^the disk is full$"),
    ],
)
def test_what_ends_a_run_is_reported_in_one_line(ray, method, fault, count, said):
    ray.fail[method] = [fault] * count
    with pytest.raises(SteplineError, match=said):
        finished(ray, "a", max_actors=1)
    ray.fail["run_videos"] = [TaskError(ZeroDivisionError())]
    with pytest.raises(TaskError):
        finished(ray, "a", max_actors=1)
