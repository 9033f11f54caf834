"""The files of a comparison: JSON, a page, Markdown, and the common procedure as lines."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from stepline.atomic_files import atomic_files
from stepline.compare.procedure import Comparison
from stepline.compare.view import ComparisonView, MomentView, StepView, ThingView, comparison_view
from stepline.errors import SettingsError, printable
from stepline.outputs.documents import MARKUP_PATTERN
from stepline.outputs.html import policy, template
from stepline.outputs.text import one_line

FILE_STEM = "comparison"  # of the files in the folder --out


def to_json(comparison: Comparison) -> str:
    """Return a comparison as JSON (docs/compare.md)."""
    return printable(comparison.model_dump_json(indent=2)) + "\n"


def to_html(view: ComparisonView) -> str:
    """Return the page: one file that needs no script and fetches nothing but the linked videos."""
    folder = files(__package__)
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    text = folder.joinpath("page.html").read_text(encoding="utf-8")
    return template(text).render(view=view, style=style, policy=policy(style))


def to_markdown(view: ComparisonView) -> str:
    """Return the comparison in CommonMark; every text is escaped."""
    blocks = [f"# {_escape(view.title)}", " · ".join(view.facts)]
    blocks += _list(view.left_out, "Left out: ")
    blocks.append("## What most videos do")
    for step in view.common:
        blocks += _step_blocks(step, f"### {step.number}. {_escape(step.text)}")
    if view.orders:
        blocks += ["## Orders that vary", *_list(view.orders)]
    for heading, things in (("Materials", view.materials), ("Tools", view.tools)):
        if things:
            blocks += [f"## {heading}", "\n".join(map(_thing_line, things))]
    if view.others:
        blocks.append("## What only some do")
    for step in view.others:
        blocks += _step_blocks(step, f"### {_escape(step.text)}")
    blocks += ["## Videos", *_list(view.videos)]
    return "\n\n".join(blocks) + "\n"


def to_lines(comparison: Comparison) -> str:
    """Return the common procedure as lines for `--texts`, without what is to be avoided.

    Raises SettingsError where no step is common.
    """
    lines = []
    for step in comparison.common_steps:
        if step.kind == "do":
            lines.append(one_line(step.text))
    if not lines:
        cure = "lower it with --set compare.common_share=0.3"
        raise SettingsError(f"no step is common to so many videos; {cure}")
    return "\n".join(lines) + "\n"


Writer = Callable[[Comparison, ComparisonView], str]
# The JSON comes last: where it is, the files before it are complete.
FORMATS: dict[str, tuple[str, Writer]] = {
    "markdown": (".md", lambda _, view: to_markdown(view)),
    "html": (".html", lambda _, view: to_html(view)),
    "json": (".json", lambda comparison, _: to_json(comparison)),
}


def write_comparison(
    comparison: Comparison, folder: Path, *, formats: Sequence[str] = tuple(FORMATS)
) -> list[Path]:
    """Write a comparison into a folder and return its files.

    formats: of FORMATS. Raises StoreError where the folder cannot be written.
    """
    view = comparison_view(comparison, folder)
    paths = []
    with atomic_files() as together:
        for name, (suffix, write) in FORMATS.items():
            if name in formats:
                path = folder / f"{FILE_STEM}{suffix}"
                text = write(comparison, view)
                together.partial(path).write_text(text, encoding="utf-8")
                paths.append(path)
    return paths


def _step_blocks(step: StepView, heading: str) -> list[str]:
    lines = [step.share, *map(_escape, step.facts)]
    if step.number is None:
        lines[0] += f", after step {step.after}" if step.after else ", before step 1"
    return [heading, "; ".join(lines), "\n".join(map(_moment_line, step.moments))]


def _thing_line(thing: ThingView) -> str:
    parts = [thing.share, *map(_escape, thing.amounts)]
    moments = ", ".join(f"{_escape(m.title)} {_time(m)}" for m in thing.moments)
    return f"- {_escape(thing.name)}: {'; '.join(parts)} ({moments})"


def _moment_line(moment: MomentView) -> str:
    return f"- {_time(moment)} {_escape(moment.title)}: {_escape(moment.text)}"


def _time(moment: MomentView) -> str:
    """Return the time of a moment, as a link where its video is there."""
    return moment.time if moment.link is None else f"[{moment.time}]({moment.link})"


def _list(texts: Sequence[str], prefix: str = "") -> list[str]:
    """Return a list as one block; no block where it is empty."""
    if not texts:
        return []
    return ["\n".join(f"- {prefix}{_escape(text)}" for text in texts)]


def _escape(text: str) -> str:
    return MARKUP_PATTERN.sub(r"\\\1", text)
