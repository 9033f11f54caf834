"""The files of a comparison: JSON, a page, and the common procedure as lines."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from stepline.compare.amounts import AmountSpread, format_spread
from stepline.compare.materials import ComparedMaterial
from stepline.compare.procedure import END_ID, START_ID, ProcedureStep, TaskComparison
from stepline.errors import MediaError, SettingsError, escape_control_characters
from stepline.files.atomic_files import atomic_files
from stepline.library.record_files import is_below, is_existing_file, real_path
from stepline.limits import MAX_LINES_BYTES, LimitError, parse_json, read_limited
from stepline.media import MediaSettings
from stepline.media.container import open_media
from stepline.outputs.text import WARNING_MARK, clock, one_line, sentence_case
from stepline.outputs.web_addresses import PAGE_MARK, media_link
from stepline.pages.layout import page_html

FILE_STEM = "comparison"  # of the files in the folder --out
SAME_LENGTH_SECONDS = 1.0  # s by which the header of a video may differ from what was read
MAX_NEXT_STEPS = 3  # of the steps that follow, the most probable ones

View = dict[str, Any]  # what the template page.html shows


def to_json(comparison: TaskComparison) -> str:
    """Return a comparison as JSON (docs/compare.md)."""
    return escape_control_characters(comparison.model_dump_json(indent=2)) + "\n"


def to_html(view: View) -> str:
    """Return the page of a comparison as HTML, without scripts.

    view: values of the template, from `comparison_view`.
    """
    return page_html(
        _read_package_file("page.html"), style=_read_package_file("page.css"), view=view
    )


def to_lines(comparison: TaskComparison) -> str:
    """Return the common steps as text, one step per line, as the option `--texts` reads it.

    Warnings (steps to avoid) are left out. Raises SettingsError if no step is common.
    """
    lines = [one_line(step.text) for step in comparison.common_steps if step.kind == "do"]
    if not lines:
        raise SettingsError(
            "no step is common to enough videos; lower it with --set compare.common_share=0.3"
        )
    return "\n".join(lines) + "\n"


def check_outputs(
    out: Path, texts_file: Path | None, folder: Path, inputs: Sequence[Path] = ()
) -> None:
    """Raise SettingsError if an output would overwrite an input, or a file of someone else.

    Args:
        out: the folder of the comparison.
        texts_file: the file for the lines, None if they are not written.
        folder: the folder of the records. Of its files only .txt may be overwritten.
        inputs: other files that the run reads.
    """
    for suffix, is_own in ((".html", _is_page), (".json", _is_comparison)):
        path = out / (FILE_STEM + suffix)
        if os.path.lexists(path) and not is_own(path):
            reason = "not a comparison that Stepline wrote, and it would be written over"
            raise SettingsError(f"{path}: {reason}; give another --out, or move this file away")
    if texts_file is None or not os.path.lexists(texts_file):
        return
    real = real_path(texts_file)
    is_in_folder = real.suffix != ".txt" and is_below(real, [real_path(folder)])
    # A record may name a path that no file can have.
    if is_in_folder or real in map(real_path, filter(is_existing_file, inputs)):
        reason = "a file of the compared videos, and it would be written over"
        raise SettingsError(f"--as-texts {texts_file}: {reason}; give another file")


def _is_page(path: Path) -> bool:
    return path.is_file() and PAGE_MARK.encode() in path.read_bytes()


def _is_comparison(path: Path) -> bool:
    with contextlib.suppress(ValueError, OSError, LimitError):
        tree = parse_json(read_limited(path, MAX_LINES_BYTES))
        return isinstance(tree, dict) and {"videos", "left_out", "steps"} <= tree.keys()
    return False


def write_comparison(comparison: TaskComparison, folder: Path) -> list[Path]:
    """Write a comparison as HTML and JSON into a folder, and return the paths of the files.

    Raises StoreError if the folder cannot be written.
    """
    view = comparison_view(comparison, folder)
    # The JSON comes last: where it is, the page is complete.
    texts = {".html": to_html(view), ".json": to_json(comparison)}
    paths = []
    with atomic_files() as together:
        for suffix, text in texts.items():
            path = folder / (FILE_STEM + suffix)
            together.partial(path).write_text(text, encoding="utf-8")
            paths.append(path)
    return paths


def _read_package_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def step_text(step: ProcedureStep) -> str:
    """Return the text of a step on one line, with a warning sign before a step to avoid."""
    text = sentence_case(one_line(step.text))
    return WARNING_MARK + text if step.kind == "avoid" else text


def comparison_view(comparison: TaskComparison, folder: Path) -> View:
    """Return the values that the page template shows.

    Args:
        comparison: the comparison of videos.
        folder: the folder of the page. Links to videos are relative to it.
    """
    moments = _MomentViews(comparison, folder)
    texts = {step.id: step_text(step) for step in comparison.steps}
    texts |= {START_ID: "start", END_ID: "end"}
    next_steps = _next_steps(comparison, texts)
    common: list[View] = []
    others: list[View] = []
    # Only common steps have numbers. The others are placed between them.
    for step in comparison.steps:
        facts = list(map(_format_amount, step.amounts))
        if step.seconds is not None:
            spread = step.seconds
            seconds = f"{spread.low:.0f}-{spread.high:.0f} s, median {spread.median:.0f}"
            if round(spread.low) == round(spread.high):
                seconds = f"{spread.median:.0f} s"
            facts.insert(0, f"shown for {seconds}")
        own_moments = []
        for occurrence in step.occurrences:
            text = sentence_case(one_line(occurrence.text))
            own_moments.append(
                moments.view(occurrence.video, occurrence.start, occurrence.end, text)
            )
        view = {
            "id": step.id,
            "number": len(common) + 1 if step.common else None,
            "place": f"after step {len(common)}" if common else "before step 1",
            "text": texts[step.id],
            "share": _format_share(step.videos, comparison),
            "percent": round(step.share * 100),
            "facts": facts,
            "next_steps": next_steps[step.id],
            "moments": own_moments,
        }
        (common if step.common else others).append(view)
    return {
        "title": sentence_case(one_line(comparison.title)),
        "facts": [
            f"{len(comparison.videos)} videos",
            f"{len(common)} step{'' if len(common) == 1 else 's'} that most do",
            f"{len(others)} that only some do",
        ],
        "left_out": [f"{one_line(video.title)}: {video.reason}" for video in comparison.left_out],
        "common": common,
        "others": others,
        "orders": _varying_orders(comparison, texts),
        "materials": _material_rows(comparison.materials, comparison, moments),
        "tools": _material_rows(comparison.tools, comparison, moments),
        "videos": list(moments.titles.values()),
    }


def _leads_to_its_video(path: str, duration: float | None) -> bool:
    """Return whether a record's path leads to a video as long as the record's.

    A record may be a stranger's, and name any file of this machine.
    """
    if duration is None:
        return False
    try:
        with open_media(path, MediaSettings()) as media:
            return abs((media.duration or 0.0) - duration) <= SAME_LENGTH_SECONDS
    except MediaError:
        return False


class _MomentViews:
    """Makes the template values of moments of videos: title, time, link and text."""

    def __init__(self, comparison: TaskComparison, folder: Path) -> None:
        # with the id where several videos have the same title
        self.titles = {video.id: one_line(video.title) for video in comparison.videos}
        titles = list(self.titles.values())
        for id, title in self.titles.items():
            if titles.count(title) > 1 and title != id:
                self.titles[id] = f"{title} ({id})"
        # Only videos that are there are linked, by their path from the page's folder.
        self._links: dict[str, str] = {}
        for video in comparison.videos:
            if video.path is not None and _leads_to_its_video(video.path, video.duration):
                self._links[video.id] = media_link(os.path.relpath(video.path, folder))

    def view(self, video: str, start: float | None, end: float | None, text: str) -> View:
        """Return the values of a moment for the page template: title of its video, time, link and
        text.

        Args:
            video: id of the video.
            start: second at which it begins. None: no time is known.
            end: second at which it ends. None: only one second is known.
            text: the words for the moment.
        """
        moment = {"title": self.titles[video], "time": "no time", "link": None, "text": text}
        if start is None:
            return moment
        moment["time"] = clock(start) if end is None else f"{clock(start)} – {clock(end)}"
        if video in self._links:
            seconds = f"{start:g}" if end is None else f"{start:g},{end:g}"
            moment["link"] = f"{self._links[video]}#t={seconds}"
        return moment


def _next_steps(comparison: TaskComparison, texts: dict[str, str]) -> dict[str, list[str]]:
    """Return step id -> the most probable next steps, each as its text with the probability.

    Args:
        comparison: the comparison of videos.
        texts: step id -> text of the step.
    """
    following: dict[str, list[str]] = defaultdict(list)
    for transition in sorted(comparison.transitions, key=lambda t: -t.probability):
        next_texts = following[transition.source]
        if len(next_texts) < MAX_NEXT_STEPS:
            next_texts.append(f"{texts[transition.target]} ({transition.probability * 100:.0f} %)")
    return following


def _varying_orders(comparison: TaskComparison, texts: dict[str, str]) -> list[str]:
    """Return a sentence per pair of common steps that not all videos do in the same order.

    Args:
        comparison: the comparison of videos.
        texts: step id -> text of the step.
    """
    common_ids = {step.id for step in comparison.common_steps}
    return [
        f"“{texts[order.first]}” before “{texts[order.then]}”: {order.videos} of "
        f"{order.of} videos that do both"
        for order in comparison.orders
        if order.videos < order.of and {order.first, order.then} <= common_ids
    ]


def _material_rows(
    materials: Iterable[ComparedMaterial], comparison: TaskComparison, moments: _MomentViews
) -> list[View]:
    views = []
    for material in materials:
        view = {
            "name": sentence_case(one_line(material.name)),
            "share": _format_share(len(material.videos), comparison),
            "amounts": list(map(_format_amount, material.amounts)),
            "moments": [
                moments.view(mention.video, mention.at, None, "") for mention in material.videos
            ],
        }
        views.append(view)
    return views


def _format_share(count: int, comparison: TaskComparison) -> str:
    total = len(comparison.videos)
    return f"all {total} videos" if count == total else f"{count} of {total} videos"


def _format_amount(spread: AmountSpread) -> str:
    count = len(spread.videos)
    videos = f"{count} videos" if count != 1 else "1 video"
    return f"{format_spread(spread)} ({videos})"
