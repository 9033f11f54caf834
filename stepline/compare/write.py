"""The files of a comparison: JSON, a page, Markdown, and the common procedure as lines."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from stepline.compare.procedure import TaskComparison
from stepline.compare.view import (
    ComparedThingView,
    ComparisonView,
    MomentView,
    ProcedureStepView,
    comparison_view,
)
from stepline.errors import SettingsError, printable
from stepline.files.atomic_files import atomic_files
from stepline.outputs.documents import MARKUP_PATTERN
from stepline.outputs.text import one_line
from stepline.pages.layout import page_html

FILE_STEM = "comparison"  # of the files in the folder --out


def to_json(comparison: TaskComparison) -> str:
    """Return a comparison as JSON (docs/compare.md)."""
    return printable(comparison.model_dump_json(indent=2)) + "\n"


def to_html(view: ComparisonView) -> str:
    """Return the page: one file that needs no script and fetches nothing but the linked videos."""
    return page_html(_file("page.html"), style=_file("page.css"), view=view)


def to_markdown(view: ComparisonView) -> str:
    """Return the comparison in CommonMark. Every text is escaped."""
    # An empty line separates each block from the next, so there are no empty blocks.
    blocks = [f"# {_escape(view.title)}", " · ".join(view.facts)]
    blocks += _list(view.left_out, "Left out: ")
    blocks.append("## What most videos do")
    for step in view.common:
        blocks += _step_blocks(step, f"### {step.number}. {_escape(step.text)}")
    if view.orders:
        blocks.append("## Orders that vary")
        blocks += _list(view.orders)
    blocks += _thing_blocks("## Materials", view.materials)
    blocks += _thing_blocks("## Tools", view.tools)
    if view.others:
        blocks.append("## What only some do")
    for step in view.others:
        blocks += _step_blocks(step, f"### {_escape(step.text)}")
    blocks.append("## Videos")
    blocks += _list(view.videos)
    return "\n\n".join(blocks) + "\n"


def to_lines(comparison: TaskComparison) -> str:
    """Return the common procedure as lines for `--texts`, without what is to be avoided.

    Raises SettingsError where no step is common.
    """
    lines = []
    for step in comparison.common_steps:
        if step.kind == "do":
            lines.append(one_line(step.text))
    if not lines:
        cure = "lower it with --set compare.common_share=0.3"
        raise SettingsError(f"no step is common to enough videos; {cure}")
    return "\n".join(lines) + "\n"


def write_comparison(comparison: TaskComparison, folder: Path) -> list[Path]:
    """Write a comparison into a folder as Markdown, page and JSON, and return the files.

    Raises StoreError where the folder cannot be written.
    """
    view = comparison_view(comparison, folder)
    # The JSON comes last: where it is, the files before it are complete.
    texts = {".md": to_markdown(view), ".html": to_html(view), ".json": to_json(comparison)}
    paths = []
    with atomic_files() as together:
        for suffix, text in texts.items():
            path = folder / (FILE_STEM + suffix)
            partial = together.partial(path)
            partial.write_text(text, encoding="utf-8")
            paths.append(path)
    return paths


def _step_blocks(step: ProcedureStepView, heading: str) -> list[str]:
    share = step.share
    if step.number is None:
        share += f", {step.place}"
    facts = [share]
    facts += map(_escape, step.facts)
    moments = map(_moment_line, step.moments)
    return [heading, "; ".join(facts), "\n".join(moments)]


def _thing_blocks(heading: str, things: Sequence[ComparedThingView]) -> list[str]:
    """Return a list of things below its heading, nothing where it is empty."""
    if not things:
        return []
    lines = map(_thing_line, things)
    return [heading, "\n".join(lines)]


def _thing_line(thing: ComparedThingView) -> str:
    facts = [thing.share]
    facts += map(_escape, thing.amounts)
    moments = []
    for moment in thing.moments:
        title = _escape(moment.title)
        moments.append(f"{title} {_time(moment)}")
    name = _escape(thing.name)
    return f"- {name}: {'; '.join(facts)} ({', '.join(moments)})"


def _moment_line(moment: MomentView) -> str:
    title = _escape(moment.title)
    text = _escape(moment.text)
    return f"- {_time(moment)} {title}: {text}"


def _time(moment: MomentView) -> str:
    """Return the time of a moment, as a link where its video is there."""
    return moment.time if moment.link is None else f"[{moment.time}]({moment.link})"


def _list(texts: Sequence[str], prefix: str = "") -> list[str]:
    """Return a list as one block, no block where it is empty."""
    if not texts:
        return []
    lines = [f"- {prefix}{_escape(text)}" for text in texts]
    return ["\n".join(lines)]


def _escape(text: str) -> str:
    return MARKUP_PATTERN.sub(r"\\\1", text)


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
