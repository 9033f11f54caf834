"""Which actor holds which video, with a Ray of this process that does nothing by itself."""

from types import SimpleNamespace

import pytest

from stepline.curate.execution.actors import MAX_FAILED_STARTS, MAX_LOSSES, ActorGroup
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

    def __init__(self, actor, method, given, **options):
        self.actor, self.method, self.given, self.options, self.outcome = (
            actor,
            method,
            given,
            options,
            None,
        )


class Handle:
    """An actor that notes what it is asked."""

    def __init__(self):
        self.calls, self.killed = [], False

    def __getattr__(self, method):
        def remote(*given, **options):
            self.calls.append(Call(self, method, given, **options))
            return self.calls[-1]

        return SimpleNamespace(remote=remote)

    def asked(self, method):
        return [call for call in self.calls if call.method == method]

    def held(self):
        return [call.given[0].id for call in self.asked("do")]


class FakeRay:
    exceptions = SimpleNamespace(
        RayActorError=LostError, RayTaskError=TaskError, RayError=Exception
    )

    def __init__(self):
        self.handles = []

    def start(self):
        self.handles.append(Handle())
        return self.handles[-1]

    def get(self, call):
        if isinstance(call.outcome, Exception):
            raise call.outcome
        return call.outcome

    def wait(self, calls, **options):
        return calls, []

    def kill(self, handle):
        handle.killed = True


@pytest.fixture
def ray():
    return FakeRay()


def group_of(ray, videos, *, most=2, ahead=2, fewest=1):
    group = ActorGroup(ray, ray.start, most=most, fewest=fewest, ahead=ahead)
    for number in range(videos):
        group.add(VideoItem(f"v{number}"))
    group.hand_out(None, more=True)
    return group


def answer(group, handle, method="do", number=0, outcome=True):
    call = handle.asked(method)[number]
    if outcome is True and method == "do":
        outcome = FinishedVideo(call.given[0], None, computed=True)
    call.outcome = outcome
    return group.take(call)


def all_ready(group, ray):
    for handle in ray.handles:
        answer(group, handle, "ready")


def test_an_actor_gets_nothing_before_it_is_ready_and_then_no_more_than_it_may_hold(ray):
    group = group_of(ray, 7)
    assert (len(ray.handles), group.room) == (2, -3)
    assert [handle.held() for handle in ray.handles] == [[], []]
    all_ready(group, ray)
    group.hand_out(None, more=True)
    assert [handle.held() for handle in ray.handles] == [["v0", "v2"], ["v1", "v3"]]
    assert answer(group, ray.handles[1]).item.id == "v1"
    group.hand_out(None, more=True)
    assert [handle.held() for handle in ray.handles] == [["v0", "v2"], ["v1", "v3", "v4"]]


def test_no_more_actors_are_started_than_there_are_videos(ray):
    group_of(ray, 1, most=8)
    assert len(ray.handles) == 1
    group_of(ray, 0, most=8, fewest=3)
    assert len(ray.handles) == 1 + 3


def test_a_later_group_that_is_full_is_given_nothing(ray):
    group = group_of(ray, 4)
    all_ready(group, ray)
    group.hand_out(1, more=True)
    assert [handle.held() for handle in ray.handles] == [["v0"], []]


def test_what_a_lost_actor_held_goes_to_another_one(ray):
    group = group_of(ray, 2)
    all_ready(group, ray)
    group.hand_out(None, more=True)
    first, second = ray.handles
    assert answer(group, first, outcome=LostError("the node died")) is None
    assert first.killed
    group.hand_out(None, more=True)
    assert second.held() == ["v1", "v0"]
    assert group.left_work
    assert answer(group, second, number=1).item.id == "v0"


def test_idle_actors_take_copies_at_the_end_and_the_first_to_finish_wins(ray):
    group = group_of(ray, 3)
    all_ready(group, ray)
    group.hand_out(None, more=True)
    first, second = ray.handles
    answer(group, second)
    group.hand_out(None, more=True)
    assert second.held() == ["v1"]  # more may come: nothing is done twice
    group.hand_out(None, more=False)
    assert second.held() == ["v1", "v2"]
    (told,) = first.asked("cancel")
    # given back where it has not begun
    assert (told.given, told.options) == (("v2",), {"begun": False})
    assert answer(group, second, number=1).item.id == "v2"
    assert first.asked("cancel")[1].options == {"begun": True}
    assert answer(group, first, number=1) is None  # the copy was first
    group.hand_out(None, more=False)
    assert second.held() == ["v1", "v2", "v0"]
    assert answer(group, first).item.id == "v0"
    assert not group.is_busy
    assert answer(group, second, number=2) is None
    group.hand_out(None, more=False)
    assert all(handle.asked("close") for handle in ray.handles)


def test_a_video_that_was_given_back_waits_again_only_where_no_one_else_has_it(ray):
    group = group_of(ray, 2, most=2, ahead=2)
    all_ready(group, ray)
    group.hand_out(None, more=True)
    first, second = ray.handles
    answer(group, second)
    group.hand_out(None, more=False)
    assert second.held() == ["v1", "v0"]
    assert answer(group, second, number=1, outcome=LostError("gone")) is None
    answer(
        group, first, outcome=FinishedVideo(VideoItem("v0"), None, computed=False, cancelled=True)
    )
    group.hand_out(None, more=False)
    assert first.held() == ["v0", "v0"]


def test_actors_that_never_start_end_the_run_in_one_line(ray):
    group = group_of(ray, 1, most=1)
    with pytest.raises(
        SteplineError,
        match=f"^{MAX_FAILED_STARTS} actors in a row did not start, the last one: no disk",
    ):
        for _ in range(MAX_FAILED_STARTS):
            answer(group, ray.handles[-1], "ready", outcome=LostError("trace\nno disk\n"))
            group.hand_out(None, more=True)


def test_a_video_that_takes_actor_after_actor_with_it_ends_the_run(ray):
    group = group_of(ray, 1, most=1)
    with pytest.raises(SteplineError, match=f"^v0: {MAX_LOSSES} actors were lost with it"):
        for _ in range(MAX_LOSSES):
            answer(group, ray.handles[-1], "ready")
            group.hand_out(None, more=True)
            answer(group, ray.handles[-1], outcome=LostError("out of memory"))
            group.hand_out(None, more=True)


def test_what_ends_a_run_is_reported_as_the_actor_reported_it(ray):
    group = group_of(ray, 2)
    all_ready(group, ray)
    group.hand_out(None, more=True)
    with pytest.raises(SteplineError, match="^the disk is full$"):
        answer(group, ray.handles[0], outcome=TaskError(StoreError("the disk is full")))
    with pytest.raises(TaskError):
        answer(group, ray.handles[1], outcome=TaskError(ZeroDivisionError()))
    group.close()
    assert all(handle.killed for handle in ray.handles)
