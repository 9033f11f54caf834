"""WhenAct: actions named in one-minute parts of vlogs, when they are spoken of and when they are
shown.

    mapped_actions_time_label.json       {miniclip: [[action, [start, end] of the passage, label]]}   0: visible, 1: not
    dict_all_annotations_ordered.json    {miniclip: [[action, start, end]]}                           where it is shown

Each action is a reference step, id = its row in the first file. `said` is the passage of the
transcript it was named in (coarse, about 10 s), its span the window where it is shown. Actions that
are not visible, or that no one localised, have none. The passages with their label are the
transcript (`shown` 1 or 0).

The second file writes verbs in their base form. So its windows are matched, one to one, to the
actions of the same miniclip by the same text. Without it they go by the most similar one (difflib
ratio of at least 0.75). What finds no match is rejected. A file that already holds the two
together, {miniclip: {"actions": [{text, spoken, visible, shown}]}}, is read as well.
"""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from stepline.datasets.files import Node, file_in, find_file, read_node
from stepline.datasets.record_builder import REPEATED_SPAN, DatasetEntry, RecordBuilder

SPOKEN_FILE = "mapped_actions_time_label.json"
SHOWN_FILE = "dict_all_annotations_ordered.json"
VISIBLE_LABEL = 0  # of an action that is seen in the miniclip
VISIBILITY_LABELS = (VISIBLE_LABEL, 1)
MIN_SIMILARITY = 0.75  # difflib ratio from which a window's text is taken for the action's
UNMATCHED_WINDOW = "no action of the miniclip is worded like it"

Window: TypeAlias = tuple[float, float]  # start and end in seconds
TextWindow: TypeAlias = tuple[str, Window]  # what is shown, and when


class Action(NamedTuple):
    """An action of a miniclip: the passage of the transcript that names it, and whether it is
    visible."""

    text: str
    passage: Window
    visible: bool


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per miniclip, from the data folder, or from the first file with the second
    next to it."""
    file = file_in(path, SPOKEN_FILE)
    windows = _read_windows(file)
    for id, clip in read_node(file).entries():
        builder = RecordBuilder(id)
        if isinstance(clip.value, dict):
            _add_joined(builder, clip)
        else:
            _add_official(builder, clip, windows.get(id))
        yield builder.entry()


def _read_windows(spoken_file: Path) -> dict[str, Node]:
    """Return miniclip -> its windows, of the file of windows next to the one of passages."""
    # Only the official file has one of windows next to it.
    if not spoken_file.name.startswith(SPOKEN_FILE):
        return {}
    shown_file = find_file(spoken_file.parent, SHOWN_FILE)
    return {} if shown_file is None else dict(read_node(shown_file).entries())


def _add_joined(builder: RecordBuilder, clip: Node) -> None:
    for index, row in enumerate(clip["actions"].rows()):
        action = Action(row["text"].text(), row["spoken"].pair(), row["visible"].value is True)
        window = row.get("shown")
        _add_action(builder, index, action, None if window is None else window.pair())


def _add_official(builder: RecordBuilder, clip: Node, window_rows: Node | None) -> None:
    actions = [_official_action(row) for row in clip.rows()]
    windows = [] if window_rows is None else _distinct_windows(builder, window_rows)
    matches = _match_windows(builder, windows, actions)
    for index, action in enumerate(actions):
        _add_action(builder, index, action, matches.get(index))


def _official_action(row: Node) -> Action:
    cells = list(row.rows())
    if len(cells) != 3 or cells[2].value not in VISIBILITY_LABELS:
        raise row.error("[action, [start, end], 0 or 1]")
    text, passage, label = cells
    return Action(text.text(), passage.pair(), label.value == VISIBLE_LABEL)


def _add_action(builder: RecordBuilder, index: int, action: Action, window: Window | None) -> None:
    # The passage is a sentence of the transcript, and where the step is said.
    passage = builder.add_sentence(action.text, *action.passage, visibility=float(action.visible))
    builder.add_step(str(index), action.text, speech=passage)
    if window is not None:
        builder.add_span(str(index), action.text, *window, keep=True)


def _distinct_windows(builder: RecordBuilder, rows: Node) -> list[TextWindow]:
    """Return the windows of a miniclip in order. Repeats are rejected."""
    windows: dict[TextWindow, None] = {}
    for row in rows.rows():
        cells = list(row.rows())
        if len(cells) != 3:
            raise row.error("[action, start, end]")
        text = cells[0].text()
        start, end = cells[1].number(), cells[2].number()
        text_window = (text, (start, end))
        if text_window in windows:
            builder.reject("span", text, REPEATED_SPAN, f"[{start}, {end}]")
        windows[text_window] = None
    return list(windows)


def _match_windows(
    builder: RecordBuilder, windows: Sequence[TextWindow], actions: Sequence[Action]
) -> dict[int, Window]:
    """Return action row -> window. An action that is not visible cannot have one."""
    unmatched = {index: action.text for index, action in enumerate(actions) if action.visible}
    matches: dict[int, Window] = {}
    # windows with the very words of an action
    inexact: list[TextWindow] = []
    for text, window in windows:
        same = next((index for index, other in unmatched.items() if other == text), None)
        if same is None:
            inexact.append((text, window))
        else:
            matches[same] = window
            del unmatched[same]
    # of the others, the most similar action
    for text, window in inexact:
        ratios = {index: _similarity(text, other) for index, other in unmatched.items()}
        nearest = max(ratios, key=ratios.__getitem__, default=None)
        if nearest is None or ratios[nearest] < MIN_SIMILARITY:
            start, end = window
            builder.reject("span", text, UNMATCHED_WINDOW, f"[{start}, {end}]")
        else:
            matches[nearest] = window
            del unmatched[nearest]
    return matches


def _similarity(text: str, other: str) -> float:
    return difflib.SequenceMatcher(None, text, other, autojunk=False).ratio()
