"""What the page and the Markdown of a comparison show: texts, times and links of every step."""

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stepline.compare.amounts import AmountSpread, spread_text
from stepline.compare.materials import ComparedMaterial
from stepline.compare.procedure import (
    END_ID,
    START_ID,
    Occurrence,
    ProcedureStep,
    SecondsSpread,
    TaskComparison,
)
from stepline.outputs.text import WARNING_MARK, clock, one_line, sentence_case
from stepline.outputs.web_addresses import media_link

MAX_NEXT_STEPS = 3  # of the steps that follow, the most probable ones


@dataclass(frozen=True)
class MomentView:
    """A moment of a video: its title, time and words. link: None where the file is not there."""

    title: str
    time: str
    link: str | None
    text: str


@dataclass(frozen=True)
class ProcedureStepView:
    """A step of the procedure.

    number: None for what only some do. place: in words, between the common steps. next_steps: what
    follows, with how often.
    """

    id: str
    number: int | None
    place: str
    text: str
    share: str
    percent: int
    facts: tuple[str, ...]
    next_steps: tuple[str, ...]
    moments: tuple[MomentView, ...]


@dataclass(frozen=True)
class ComparedThingView:
    """A material or tool with its amounts."""

    name: str
    share: str
    amounts: tuple[str, ...]
    moments: tuple[MomentView, ...]


@dataclass(frozen=True)
class ComparisonView:
    """All that is shown. orders: pairs of common steps whose order varies, as sentences."""

    title: str
    facts: tuple[str, ...]
    left_out: tuple[str, ...]
    common: tuple[ProcedureStepView, ...]
    others: tuple[ProcedureStepView, ...]
    orders: tuple[str, ...]
    materials: tuple[ComparedThingView, ...]
    tools: tuple[ComparedThingView, ...]
    videos: tuple[str, ...]


def comparison_view(comparison: TaskComparison, folder: Path) -> ComparisonView:
    """Return what is shown of a comparison in a file of `folder`, from which videos are linked."""
    return _ViewBuilder(comparison, folder).view()


def step_text(step: ProcedureStep) -> str:
    """Return the words of a step on one line, with a mark where it is to be avoided."""
    text = sentence_case(one_line(step.text))
    return WARNING_MARK + text if step.kind == "avoid" else text


class _ViewBuilder:
    """Holds what all parts of the view need: titles, links and texts by id."""

    def __init__(self, comparison: TaskComparison, folder: Path) -> None:
        self._comparison = comparison
        self._titles = _distinct_titles(comparison)
        # Only files that are there are linked, by their path from the page's folder.
        self._links: dict[str, str] = {}
        for video in comparison.videos:
            if video.path is not None and Path(video.path).is_file():
                self._links[video.id] = media_link(os.path.relpath(video.path, folder))
        self._texts = {step.id: step_text(step) for step in comparison.steps}
        self._texts |= {START_ID: "start", END_ID: "end"}

    def view(self) -> ComparisonView:
        """Return the whole view."""
        comparison = self._comparison
        common, others = self._steps()
        left_out = []
        for record in comparison.left_out:
            left_out.append(f"{one_line(record.title)}: {record.reason}")
        facts = [
            f"{len(comparison.videos)} videos",
            f"{len(common)} steps that most do",
            f"{len(others)} that only some do",
        ]
        return ComparisonView(
            title=sentence_case(one_line(comparison.title)),
            facts=tuple(facts),
            left_out=tuple(left_out),
            common=tuple(common),
            others=tuple(others),
            orders=self._orders(),
            materials=self._things(comparison.materials),
            tools=self._things(comparison.tools),
            videos=tuple(self._titles.values()),
        )

    def _steps(self) -> tuple[list[ProcedureStepView], list[ProcedureStepView]]:
        common: list[ProcedureStepView] = []
        others: list[ProcedureStepView] = []
        next_steps = self._next_steps()
        # Only common steps have numbers. The others are placed between them.
        for step in self._comparison.steps:
            view = ProcedureStepView(
                id=step.id,
                number=len(common) + 1 if step.common else None,
                place=_place_text(len(common)),
                text=step_text(step),
                share=self._share(step.videos),
                percent=round(step.share * 100),
                facts=_step_facts(step),
                next_steps=tuple(next_steps[step.id]),
                moments=tuple(map(self._moment, step.occurrences)),
            )
            if step.common:
                common.append(view)
            else:
                others.append(view)
        return common, others

    def _next_steps(self) -> dict[str, list[str]]:
        """Return what follows each step, the most probable first."""
        texts: dict[str, list[str]] = defaultdict(list)
        # Sorted once for all, so that each step's list is sorted too.
        likely_first = sorted(self._comparison.transitions, key=lambda t: -t.probability)
        for transition in likely_first:
            following = texts[transition.source]
            if len(following) < MAX_NEXT_STEPS:
                percent = f"{transition.probability * 100:.0f} %"
                following.append(f"{self._texts[transition.target]} ({percent})")
        return texts

    def _orders(self) -> tuple[str, ...]:
        """Return the pairs of common steps that not all videos do in the same order."""
        common_ids = {step.id for step in self._comparison.common_steps}
        sentences = []
        for order in self._comparison.orders:
            # Only where videos differ, and only of the common procedure.
            if order.videos < order.of and {order.first, order.then} <= common_ids:
                pair = f"“{self._texts[order.first]}” before “{self._texts[order.then]}”"
                sentences.append(f"{pair}: {order.videos} of {order.of} videos that do both")
        return tuple(sentences)

    def _things(self, things: Iterable[ComparedMaterial]) -> tuple[ComparedThingView, ...]:
        views = []
        for thing in things:
            moments = []
            for mention in thing.videos:
                link = self._link(mention.video, f"{mention.at:g}")
                title = self._titles[mention.video]
                moments.append(MomentView(title, clock(mention.at), link, ""))
            view = ComparedThingView(
                name=sentence_case(one_line(thing.name)),
                share=self._share(len(thing.videos)),
                amounts=tuple(map(_amount_fact, thing.amounts)),
                moments=tuple(moments),
            )
            views.append(view)
        return tuple(views)

    def _share(self, count: int) -> str:
        total = len(self._comparison.videos)
        return f"all {total} videos" if count == total else f"{count} of {total} videos"

    def _moment(self, occurrence: Occurrence) -> MomentView:
        title = self._titles[occurrence.video]
        text = sentence_case(one_line(occurrence.text))
        if occurrence.start is None or occurrence.end is None:
            return MomentView(title, "no time", None, text)
        time = f"{clock(occurrence.start)} – {clock(occurrence.end)}"
        link = self._link(occurrence.video, f"{occurrence.start:g},{occurrence.end:g}")
        return MomentView(title, time, link, text)

    def _link(self, video: str, seconds: str) -> str | None:
        link = self._links.get(video)
        if link is None:
            return None
        return f"{link}#t={seconds}"


def _distinct_titles(comparison: TaskComparison) -> dict[str, str]:
    """Return the title of each video by its id, with the id where several have the same title."""
    titles = {video.id: one_line(video.title) for video in comparison.videos}
    texts = list(titles.values())
    for id, title in titles.items():
        if texts.count(title) > 1 and title != id:
            titles[id] = f"{title} ({id})"
    return titles


def _place_text(common_count: int) -> str:
    """Return where a step is that comes after `common_count` common ones."""
    return "before step 1" if common_count == 0 else f"after step {common_count}"


def _step_facts(step: ProcedureStep) -> tuple[str, ...]:
    facts = list(map(_amount_fact, step.amounts))
    if step.seconds is not None:
        facts.insert(0, f"shown for {_seconds_text(step.seconds)}")
    return tuple(facts)


def _amount_fact(spread: AmountSpread) -> str:
    count = len(spread.videos)
    videos = f"{count} videos" if count != 1 else "1 video"
    return f"{spread_text(spread)} ({videos})"


def _seconds_text(spread: SecondsSpread) -> str:
    if round(spread.low) == round(spread.high):
        return f"{spread.median:.0f} s"
    return f"{spread.low:.0f}-{spread.high:.0f} s, median {spread.median:.0f}"
