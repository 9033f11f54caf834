"""The actors of the Ray engine, and which of them holds which video.

The driver gives each actor a few videos at a time. An item and its outcome travel inside the call,
a few hundred bytes. So Ray's object store stays empty. Results go to OUT. A video whose actor
is lost is given to another one, which finds there what was finished of it. At the end idle actors
take second copies, and the first to finish wins.
"""

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stepline.curate.execution.local import scratch_folder
from stepline.curate.execution.scheduler import FinishedVideo, Phase, Scheduler
from stepline.curate.execution.worker import MAX_REASON_CHARS
from stepline.curate.plan import Plan
from stepline.curate.stage import VideoItem
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog
from stepline.errors import SteplineError
from stepline.files.remote import RemotePath
from stepline.processes import end_with_parent

MAX_FAILED_STARTS = 5  # actors in a row that may end before they are ready
MAX_LOSSES = 10  # actors that may be lost with the same video before the run ends
END_SECONDS = 10.0  # to wait for actors that end their workers and their log


def last_line(error: Exception) -> str:
    """Return the last line of what Ray says of an error: the cause, after the places."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:MAX_REASON_CHARS] if lines else ""


class Actor:
    """Does some stages of the videos that it is given, in a worker process of its own, whose models
    stay loaded.

    Args:
        url: of OUT.
        device: for stages that use a GPU. Ray shows an actor only the actor's own. None: it asked
            for none.
    """

    def __init__(
        self, plan: Plan, url: str, stages: tuple[str, ...], retry: bool, device: str | None = None
    ) -> None:
        # The node's own process. One that Ray forgets would go on for a while.
        end_with_parent(os.getppid())
        self._until_end = contextlib.ExitStack()
        out = RemotePath(url, plan.recipe.remote)
        scratch = self._until_end.enter_context(scratch_folder())
        run_log = self._until_end.enter_context(contextlib.closing(RunLog(out)))
        self._replies: dict[str, Future[FinishedVideo]] = {}
        # Results that other actors write are not in a listing made here.
        results = ResultStore(out, listed=False)
        phase = Phase(plan, results, stages, retry, self._finish)
        devices = [device] if device else []
        self._scheduler = Scheduler(phase, 1, scratch, run_log, devices)
        self._until_end.callback(self._scheduler.close)
        # A thread of its own works, and takes commands.
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._end: Future[None] = Future()  # of the thread, with what ended it
        threading.Thread(target=self._work, daemon=True, name="scheduler").start()

    def ready(self) -> bool:
        """Return True, once it has started."""
        return True

    def do(self, item: VideoItem) -> FinishedVideo:
        """Return a video once it is finished. Raises SteplineError where the run must end."""
        reply: Future[FinishedVideo] = Future()

        def add() -> None:
            self._replies[item.id] = reply
            self._scheduler.add(item)

        self._commands.put(add)
        # The video's end, or that of the whole actor, whichever comes first.
        futures: list[Future[Any]] = [reply, self._end]
        wait(futures, return_when=FIRST_COMPLETED)
        if not reply.done():
            self._end.result()
        return reply.result()

    def cancel(self, identity: str, *, begun: bool) -> None:
        """Give up a video that another actor does. begun: also where a task of it ran."""
        self._commands.put(partial(self._scheduler.cancel, identity, begun=begun))

    def close(self) -> None:
        """End its worker and its log. What is under way is given up."""
        self._commands.put(None)
        self._end.exception()

    def _finish(self, video: FinishedVideo) -> None:
        self._replies.pop(video.item.id).set_result(video)

    def _work(self) -> None:
        try:
            with self._until_end:
                while self._run_commands():
                    self._scheduler.step()
            self._end.set_result(None)
        except BaseException as error:  # noqa: BLE001 (whatever it is, those who wait get it)
            self._end.set_exception(error)

    def _run_commands(self) -> bool:
        """Run commands, and wait for one while there is no video. Return whether to continue."""
        while not self._scheduler.is_busy or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True


@dataclass(eq=False)
class StartedActor:
    """An actor as the driver sees it. videos: those that it holds."""

    handle: Any
    ready: bool = False
    videos: "list[AssignedVideo]" = field(default_factory=list)


@dataclass(eq=False)
class AssignedVideo:
    """A video that a group works on. actors: that hold it, two at most. losses: of actors while
    they held it."""

    item: VideoItem
    actors: list[StartedActor] = field(default_factory=list)
    losses: int = 0
    finished: bool = False


class ActorGroup:
    """Actors that do the same stages: which are there, which video each holds, which videos wait.

    Args:
        start: makes an actor and returns its handle.
        most: actors.
        fewest: actors.
        ahead: videos that an actor holds together.
    """

    def __init__(
        self, ray: Any, start: Callable[[], Any], *, most: int, fewest: int, ahead: int
    ) -> None:
        self._ray = ray
        self._start = start
        self._most = most
        self._fewest = min(fewest, most)
        self._ahead = ahead
        self._actors: list[StartedActor] = []
        self._ending: list[tuple[Any, Any]] = []  # handle, call of `close`
        self._waiting: deque[AssignedVideo] = deque()
        self._open: dict[str, AssignedVideo] = {}  # by id, in the order in which they came
        self._failed_starts = 0
        self.left_work = False  # an actor ended, or was lost, while it held a video
        # By Ray's reference. None: its start.
        self.calls: dict[Any, tuple[StartedActor, AssignedVideo | None]] = {}
        for _ in range(self._fewest):
            self._start_actor()

    @property
    def is_busy(self) -> bool:
        """Whether it holds a video."""
        return bool(self._open)

    @property
    def room(self) -> int:
        """Videos that it can take beyond those that it holds."""
        return self._most * self._ahead - len(self._open)

    def add(self, item: VideoItem) -> None:
        """Take a video over."""
        video = AssignedVideo(item)
        self._open[item.id] = video
        self._waiting.append(video)

    def hand_out(self, most: int | None, *, more: bool) -> None:
        """Give up to `most` waiting videos to actors, the emptiest first, and start as many actors
        as have work.

        more: whether further videos may come. Where none do, idle actors take copies, or end.
        """
        count = len(self._waiting) if most is None else min(most, len(self._waiting))
        for _ in range(count):
            # Actors that start cannot take a video yet.
            ready = [actor for actor in self._actors if actor.ready]
            actor = min(ready, key=lambda actor: len(actor.videos), default=None)
            if actor is None or len(actor.videos) >= self._ahead:
                break
            self._give(actor, self._waiting.popleft())

        # More actors, where there is work for them.
        useful = len(self._open) if self._waiting else 0
        if more:
            useful = max(self._fewest, useful)
        for _ in range(len(self._actors), min(self._most, useful)):
            self._start_actor()

        # At the end an actor without work takes a copy, or ends.
        if not more and not self._waiting:
            for actor in list(self._actors):
                if not actor.videos:
                    self._copy_or_end(actor)

    def take(self, call: Any) -> FinishedVideo | None:
        """Take the result of a call. Return the video that it finished, if it was the first to.

        Raises SteplineError where the run must end.
        """
        actor, video = self.calls.pop(call)
        reply = None
        try:
            reply = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            self._lose(actor, video, error)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SteplineError):
                raise SteplineError(str(error.cause)) from error
            raise
        # The start of an actor.
        if video is None:
            actor.ready = reply is not None
            if actor.ready:
                self._failed_starts = 0
            return None
        # The first end of a video withdraws its copy.
        actor.videos.remove(video)
        video.actors.remove(actor)
        if video.finished:
            return None
        if isinstance(reply, FinishedVideo) and not reply.cancelled:
            video.finished = True
            del self._open[video.item.id]
            for other in video.actors:
                other.handle.cancel.remote(video.item.id, begun=True)
            return reply
        # No other actor holds it, so it goes on elsewhere, before the rest.
        if not video.actors:
            self._waiting.appendleft(video)
        return None

    def close(self) -> None:
        """End all actors."""
        for actor in list(self._actors):
            self._end(actor)
        # What they write at their end is worth a short wait.
        if self._ending:
            with contextlib.suppress(self._ray.exceptions.RayError):
                calls = [call for _, call in self._ending]
                self._ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)
        for handle, _ in self._ending:
            self._ray.kill(handle)

    def _start_actor(self) -> None:
        actor = StartedActor(self._start())
        self._actors.append(actor)
        self.calls[actor.handle.ready.remote()] = (actor, None)

    def _give(self, actor: StartedActor, video: AssignedVideo) -> None:
        actor.videos.append(video)
        video.actors.append(actor)
        self.calls[actor.handle.do.remote(video.item)] = (actor, video)

    def _copy_or_end(self, idle: StartedActor) -> None:
        """Give an actor a copy of what another one holds, the last one that was handed out first.
        Else end it."""
        # The video that was handed out last has the most left to do.
        for video in reversed(self._open.values()):
            if idle.ready and len(video.actors) == 1:
                video.actors[0].handle.cancel.remote(video.item.id, begun=False)
                self._give(idle, video)
                return
        self._end(idle)

    def _lose(self, actor: StartedActor, video: AssignedVideo | None, error: Exception) -> None:
        """Forget an actor that is lost, or out of reach, which is then ended. Raises SteplineError
        if that goes on."""
        reason = last_line(error)
        if actor in self._actors:
            self._actors.remove(actor)
            self.left_work = True
            self._ray.kill(actor.handle)
        # A video with which actor after actor is lost ends the run.
        if video is not None:
            video.losses += 1
            if video.losses == MAX_LOSSES:
                lost = f"{MAX_LOSSES} actors were lost with it"
                what = f"{video.item.id}: {lost}, the last one: {reason}"
                raise SteplineError(f"{what}; check the memory of their nodes, or leave it out")
            return
        self._failed_starts += 1
        if self._failed_starts == MAX_FAILED_STARTS:
            what = f"{MAX_FAILED_STARTS} actors in a row did not start"
            raise SteplineError(f"{what}, the last one: {reason}; see Ray's log")

    def _end(self, actor: StartedActor) -> None:
        self._actors.remove(actor)
        if actor.videos:
            self.left_work = True
        self._ending.append((actor.handle, actor.handle.close.remote()))
