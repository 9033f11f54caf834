"""The actors of the Ray engine, and which of them does which videos.

The driver gives each actor a few videos at a time. Items and outcomes travel inside the call, a few
hundred bytes each. So Ray's object store stays empty. Results go to OUT. Videos whose actor is lost
are given to another one, which finds there what was finished of them.
"""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
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


def last_error_line(error: Exception) -> str:
    """Return the last line of an error of Ray, which names the cause. "" without a message."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:MAX_REASON_CHARS] if lines else ""


class Actor:
    """Ray actor that runs video stages in its own worker process.

    Args:
        plan: stages, settings and keys.
        url: URL or path of the output folder of the run.
        stages: names of the stages to run.
        retry: whether failed tasks are tried again.
        device: torch device of the stages that use a GPU. None: all stages run on the CPU.
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
        self._finished: list[FinishedVideo] = []
        # Results that other actors write are not in a listing made here.
        phase = Phase(plan, ResultStore(out, listed=False), stages, retry, self._finished.append)
        self._scheduler = Scheduler(phase, 1, scratch, run_log, [device] if device else [])
        self._until_end.callback(self._scheduler.close)

    def is_ready(self) -> bool:
        """Return True. A call returns once the actor has started."""
        return True

    def run_videos(self, items: list[VideoItem]) -> list[FinishedVideo]:
        """Run all stages of some videos and return each with its first failure.

        Raises SteplineError if the run cannot continue.
        """
        self._finished.clear()
        self._scheduler.run(items)
        return list(self._finished)

    def close(self) -> None:
        """End the worker process and close the log."""
        self._until_end.close()


class ActorGroup:
    """Starts the Ray actors of a run and assigns videos to them.

    Args:
        ray: the module `ray`, connected to a cluster.
        start: starts an actor and returns its handle.
        max_actors: maximal number of actors.
        videos_per_call: number of videos that are sent to an actor in one call.
    """

    def __init__(
        self, ray: Any, start: Callable[[], Any], *, max_actors: int, videos_per_call: int
    ) -> None:
        self._ray = ray
        self._start = start
        self._max_actors = max_actors
        self._videos_per_call = videos_per_call
        self._actors: set[Any] = set()
        self._idle: list[Any] = []
        self._waiting: deque[list[VideoItem]] = deque()
        # By Ray's reference: the actor and its videos, none while it starts.
        self._calls: dict[Any, tuple[Any, list[VideoItem]]] = {}
        self._failed_starts = 0
        self._losses: Counter[str] = Counter()  # by id of the video

    def finished_videos(self, items: Iterator[VideoItem]) -> Iterator[FinishedVideo]:
        """Yield videos as actors finish them.

        Only the videos that actors work on are in memory. The videos of a lost actor are given to
        another.

        Raises SteplineError if the run cannot continue.
        """
        more = True
        while more or self._calls or self._waiting:
            # As many videos as there are actors for, and as many actors as there are videos for.
            while more and len(self._waiting) < self._max_actors:
                videos = list(islice(items, self._videos_per_call))
                more = len(videos) == self._videos_per_call
                if videos:
                    self._waiting.append(videos)
            while self._waiting and self._idle:
                actor, videos = self._idle.pop(), self._waiting.popleft()
                self._calls[actor.run_videos.remote(videos)] = (actor, videos)
            busy = sum(bool(videos) for _, videos in self._calls.values())
            while len(self._actors) < min(self._max_actors, busy + len(self._waiting)):
                actor = self._start()
                self._actors.add(actor)
                self._calls[actor.is_ready.remote()] = (actor, [])
            if self._calls:
                replied, _ = self._ray.wait(list(self._calls))
                for call in replied:
                    yield from self._handle_reply(call)

    def close(self) -> None:
        """End all actors."""
        # What they write at their end is worth a short wait.
        calls = [actor.close.remote() for actor in self._actors]
        if calls:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)
        for actor in self._actors:
            self._ray.kill(actor)

    def _handle_reply(self, call: Any) -> list[FinishedVideo]:
        """Return the videos that an actor has finished.

        call: Ray's reference to a call of the actor that has ended.
        """
        actor, videos = self._calls.pop(call)
        try:
            reply = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            self._drop_lost_actor(actor, videos, last_error_line(error))
            return []
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SteplineError):
                raise SteplineError(str(error.cause)) from error
            raise
        self._idle.append(actor)
        if videos:
            return list(reply)
        self._failed_starts = 0
        return []

    def _drop_lost_actor(self, actor: Any, videos: list[VideoItem], reason: str) -> None:
        """Kill an actor that is lost, and queue its videos again.

        Raises SteplineError if too many actors were lost at their start, or with the same video.

        Args:
            actor: handle of the actor.
            videos: the videos that it worked on. Empty if it was starting.
            reason: error message, for the exception.
        """
        self._actors.remove(actor)
        self._ray.kill(actor)
        if not videos:
            self._failed_starts += 1
            if self._failed_starts == MAX_FAILED_STARTS:
                raise SteplineError(
                    f"{MAX_FAILED_STARTS} actors in a row did not start"
                    f", the last one: {reason}; see Ray's log"
                )
            return
        # Another actor does them, before the rest.
        self._waiting.appendleft(videos)
        for video in videos:
            self._losses[video.id] += 1
            if self._losses[video.id] == MAX_LOSSES:
                raise SteplineError(
                    f"{video.id}: {MAX_LOSSES} actors were lost with it, the last one: {reason}; "
                    "check the memory of their nodes, or leave it out"
                )
