"""WhenAct: actions named in one-minute parts of vlogs, when they are spoken of and when they are
shown.

    mapped_actions_time_label.json       {miniclip: [[action, [start, end] of the passage, label]]}   0: visible, 1: not
    dict_all_annotations_ordered.json    {miniclip: [[action, start, end]]}                           where it is shown

Each action is a reference step, id = its row in the first file: `said` is the passage of the
transcript it was named in (coarse, about 10 s), its span the window where it is shown; actions that
are not visible, or that nobody localised, have none. The passages with their label are the
transcript (`shown` 1 or 0).

The second file writes verbs in their base form, so its windows are matched to the actions of the
same miniclip by the same text, else by the most similar one (difflib ratio of at least 0.75), one
to one; what finds no match is rejected. A file that already holds the two together, {miniclip:
{"actions": [{text, spoken, visible, shown}]}}, is read as well.
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
MIN_SIMILARITY = 0.75  # difflib ratio from which a window's text is taken for the action's
UNMATCHED_WINDOW = "no action of the miniclip is worded like it"

Window: TypeAlias = tuple[float, float]  # start and end in seconds


class Action(NamedTuple):
    """An action of a miniclip: the passage of the transcript that names it, and whether it is
    visible."""

    text: str
    passage: Window
    visible: bool


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a miniclip, from the data folder, or from the first file with the second
    next to it."""
    file = file_in(path, SPOKEN_FILE)
    neighbour = find_file(file.parent, SHOWN_FILE) if file.name.startswith(SPOKEN_FILE) else None
    windows = dict(read_node(neighbour).entries()) if neighbour else {}
    for id, clip in read_node(file).entries():
        builder = RecordBuilder(id)
        if isinstance(clip.value, dict):
            _add_joined(builder, clip)
        else:
            actions = [_official_action(row) for row in clip.rows()]
            matches = _match_windows(builder, windows.get(id), actions)
            for index, action in enumerate(actions):
                _add_action(builder, index, action, matches.get(index))
        yield builder.entry()


def _add_joined(builder: RecordBuilder, clip: Node) -> None:
    for index, row in enumerate(clip["actions"].rows()):
        visible = row["visible"].value is True
        window = row.get("shown")
        action = Action(row["text"].text(), row["spoken"].pair(), visible)
        _add_action(builder, index, action, window.pair() if window else None)


def _official_action(row: Node) -> Action:
    cells = list(row.rows())
    if len(cells) != 3 or cells[2].value not in (0, 1):
        raise row.error("[action, [start, end], 0 or 1]")
    return Action(cells[0].text(), cells[1].pair(), cells[2].value == VISIBLE_LABEL)


def _add_action(builder: RecordBuilder, index: int, action: Action, window: Window | None) -> None:
    passage = builder.add_sentence(action.text, *action.passage, visibility=float(action.visible))
    builder.add_step(str(index), action.text, speech=passage)
    if window is not None:
        builder.add_span(str(index), action.text, *window, keep=True)


def _match_windows(
    builder: RecordBuilder, rows: Node | None, actions: Sequence[Action]
) -> dict[int, Window]:
    """Return action row -> window; an action that is not visible cannot have one."""
    unmatched = {index: action.text for index, action in enumerate(actions) if action.visible}
    matches: dict[int, Window] = {}
    inexact: list[tuple[str, Window]] = []  # windows that no action is worded exactly like
    windows: set[tuple[str, Window]] = set()
    for row in rows.rows() if rows else ():
        cells = list(row.rows())
        if len(cells) != 3:
            raise row.error("[action, start, end]")
        text, window = cells[0].text(), (cells[1].number(), cells[2].number())
        if (text, window) in windows:
            builder.reject("span", text, REPEATED_SPAN, str(list(window)))
            continue
        windows.add((text, window))
        same = next((index for index, other in unmatched.items() if other == text), None)
        if same is None:
            inexact.append((text, window))
        else:
            matches[same] = window
            del unmatched[same]
    for text, window in inexact:
        ratios = {index: _similarity(text, other) for index, other in unmatched.items()}
        nearest = max(ratios, key=ratios.__getitem__, default=None)
        if nearest is None or ratios[nearest] < MIN_SIMILARITY:
            builder.reject("span", text, UNMATCHED_WINDOW, str(list(window)))
        else:
            matches[nearest] = window
            del unmatched[nearest]
    return matches


def _similarity(text: str, other: str) -> float:
    return difflib.SequenceMatcher(None, text, other, autojunk=False).ratio()
