"""WhenAct: actions named in one-minute parts of vlogs, when they are spoken of and when they are
shown.

    mapped_actions_time_label.json       {miniclip: [[action, [start, end] of the passage, label]]}   0: visible, 1: not
    dict_all_annotations_ordered.json    {miniclip: [[action, start, end]]}                           where it is shown

Each action is a reference step, id = its row in the first file. `said` is the passage of the
transcript it was named in (coarse, about 10 s), its span the window where it is shown. Actions that
are not visible, or that no one localized, have none. The passages with their label are the
transcript (`shown` 1 or 0).

The second file writes verbs in their base form. So its windows are matched, one to one, to the
actions of the same miniclip by the same text. Without it they are matched by the most similar text
(difflib ratio of at least 0.75). A window without a match is rejected.
"""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stepline.datasets.files import Node, find_file, find_required_file, read_node
from stepline.datasets.record_builder import REPEATED_SPAN, DatasetEntry, RecordBuilder

SPOKEN_FILE = "mapped_actions_time_label.json"
SHOWN_FILE = "dict_all_annotations_ordered.json"
VISIBLE_LABEL = 0  # of an action that is seen in the miniclip
VISIBILITY_LABELS = (VISIBLE_LABEL, 1)
MIN_SIMILARITY = 0.75  # difflib ratio from which a window's text is taken for the action's
UNMATCHED_WINDOW = "no action of the miniclip is worded like it"

Window = tuple[float, float]  # start and end in seconds


class Action(NamedTuple):
    """An action that the transcript of a miniclip names.

    Attributes:
        text: words of the action.
        passage: start and end, in seconds, of the transcript passage that names the action.
        is_visible: whether the miniclip shows the action.
    """

    text: str
    passage: Window
    is_visible: bool


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per miniclip of WhenAct.

    path: the data folder, or the first annotation file with the second one in the same folder.
    """
    file = find_required_file(path, SPOKEN_FILE)
    shown_file = find_file(file.parent, SHOWN_FILE)
    windows = {} if shown_file is None else dict(read_node(shown_file).entries())
    for id, clip in read_node(file).entries():
        builder = RecordBuilder(id)
        actions = [_read_action(row) for row in clip.rows()]
        clip_windows = _distinct_windows(builder, windows[id]) if id in windows else []
        matches = _match_windows(builder, clip_windows, actions)
        for index, action in enumerate(actions):
            # The passage is a sentence of the transcript, and where the step is said.
            passage = builder.add_sentence(
                action.text, *action.passage, visibility=float(action.is_visible)
            )
            builder.add_step(str(index), action.text, speech=passage)
            if index in matches:
                builder.add_span(str(index), action.text, *matches[index], keeps_step=True)
        yield builder.build_entry()


def _read_action(row: Node) -> Action:
    cells = list(row.rows())
    if len(cells) != 3 or cells[2].value not in VISIBILITY_LABELS:
        raise row.error("[action, [start, end], 0 or 1]")
    text, passage, label = cells
    return Action(text.text(), passage.pair(), label.value == VISIBLE_LABEL)


def _distinct_windows(builder: RecordBuilder, rows: Node) -> list[tuple[str, Window]]:
    """Return the distinct (text, window) pairs of a miniclip in order. Repeats are rejected."""
    windows: dict[tuple[str, Window], None] = {}
    for row in rows.rows():
        cells = list(row.rows())
        if len(cells) != 3:
            raise row.error("[action, start, end]")
        text, start, end = cells[0].text(), cells[1].number(), cells[2].number()
        if (text, (start, end)) in windows:
            builder.reject("span", text, REPEATED_SPAN, f"[{start}, {end}]")
        windows[text, (start, end)] = None
    return list(windows)


def _match_windows(
    builder: RecordBuilder, windows: Sequence[tuple[str, Window]], actions: Sequence[Action]
) -> dict[int, Window]:
    """Return index of each action -> the window (start, end) in seconds that shows it.

    A window that matches no visible action is rejected.

    Args:
        builder: collects the rejected windows.
        windows: (text, window) pairs of the miniclip.
        actions: actions that its transcript names.
    """
    unmatched = {index: action.text for index, action in enumerate(actions) if action.is_visible}
    matches: dict[int, Window] = {}
    # Windows with the very words of an action.
    inexact: list[tuple[str, Window]] = []
    for text, window in windows:
        same = next((index for index, other in unmatched.items() if other == text), None)
        if same is None:
            inexact.append((text, window))
        else:
            matches[same] = window
            del unmatched[same]
    # Of the others, the most similar action.
    for text, window in inexact:
        similarities = {
            index: difflib.SequenceMatcher(None, text, other, autojunk=False).ratio()
            for index, other in unmatched.items()
        }
        nearest = max(similarities, key=similarities.__getitem__, default=None)
        if nearest is None or similarities[nearest] < MIN_SIMILARITY:
            start, end = window
            builder.reject("span", text, UNMATCHED_WINDOW, f"[{start}, {end}]")
        else:
            matches[nearest] = window
            del unmatched[nearest]
    return matches
