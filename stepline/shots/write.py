"""The files of a shot list: pictures, CSV, a page and JSON."""

import csv
import io
import os
import statistics
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from stepline.errors import printable
from stepline.files.atomic_files import FileSet, atomic_files
from stepline.outputs.html import media_link
from stepline.outputs.text import clock, safe_stem
from stepline.pages.layout import page_html
from stepline.shots.shot_list import Shot, ShotList, thumbnails_folder

CSV_COLUMNS = ("shot", "start", "end", "seconds", "thumbnail", "step_numbers", "steps")
STEP_SEPARATOR = "; "  # between the steps in one cell of the CSV
THUMBNAIL_PATTERN = "[0-9][0-9][0-9][0-9]*.jpg"


def write_shots(shot_list: ShotList, pictures: Mapping[int, bytes], folder: Path) -> list[Path]:
    """Write a shot list into a folder, all files or none, and return them. Pictures that an earlier
    list left are removed.

    pictures: JPEGs by the shots' indices. Raises StoreError where the folder cannot be written.
    """
    stem = folder / safe_stem(shot_list.id)
    texts = {
        ".shots.csv": to_csv(shot_list),
        ".shots.html": to_html(shot_list, folder),
        # The JSON comes last: where it is, the files before it are complete.
        ".shots.json": to_json(shot_list),
    }
    paths = []
    with atomic_files() as together:
        _write_pictures(shot_list, pictures, folder, together)
        for suffix, text in texts.items():
            path = stem.with_name(stem.name + suffix)
            together.partial(path).write_text(text, encoding="utf-8", newline="")
            paths.append(path)
    return paths


def _write_pictures(
    shot_list: ShotList, pictures: Mapping[int, bytes], folder: Path, together: FileSet
) -> None:
    for shot in shot_list.shots:
        if shot.thumbnail is not None:
            partial = together.partial(folder / shot.thumbnail)
            partial.write_bytes(pictures[shot.number - 1])
    for path in thumbnails_folder(folder, shot_list.id).glob(THUMBNAIL_PATTERN):
        together.remove(path)


def to_json(shot_list: ShotList) -> str:
    """Return a shot list as JSON (docs/shots.md)."""
    return printable(shot_list.model_dump_json(indent=2)) + "\n"


def to_csv(shot_list: ShotList) -> str:
    """Return a shot list as CSV, a line each, seconds with three decimals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for shot in shot_list.shots:
        seconds = shot.end - shot.start
        numbers = " ".join(str(step.number) for step in shot.steps)
        texts = STEP_SEPARATOR.join(step.text for step in shot.steps)
        times = [f"{second:.3f}" for second in (shot.start, shot.end, seconds)]
        row = [shot.number, *times, shot.thumbnail or "", numbers, texts]
        writer.writerow(row)
    return printable(text.getvalue())


def to_html(shot_list: ShotList, folder: Path) -> str:
    """Return the page, whose pictures and video are files. folder: where it will be."""
    package = files(__package__)
    page = package.joinpath("page.html").read_text(encoding="utf-8")
    style = package.joinpath("page.css").read_text(encoding="utf-8")
    video = media_link(os.path.relpath(shot_list.video, folder))
    return page_html(
        page,
        style=style,
        linked_pictures=True,
        list=shot_list,
        facts=_facts(shot_list),
        is_portrait=shot_list.height > shot_list.width,
        video=video,
        clock=clock,
        precise_clock=precise_clock,
    )


def precise_clock(second: float) -> str:
    """Return a second as 1:02.48, for a cut."""
    hundredths = round(second * 100)
    return f"{clock(hundredths // 100)}.{hundredths % 100:02d}"


def _facts(shot_list: ShotList) -> list[str]:
    shots = shot_list.shots
    lengths = [shot.end - shot.start for shot in shots]
    facts = [
        clock(shot_list.duration),
        count_text(len(shots), "shot"),
        f"usually {statistics.median(lengths):.1f} s long",
    ]
    if shot_list.record:
        numbers = {step.number for shot in shots for step in shot.steps}
        facts.append(f"{count_text(len(numbers), 'step')} in {_shots_with_steps(shots)} of them")
    return facts


def _shots_with_steps(shots: tuple[Shot, ...]) -> int:
    return sum(bool(shot.steps) for shot in shots)


def count_text(count: int, noun: str) -> str:
    """Return a number of things in words: "1 shot", "12 shots"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"
