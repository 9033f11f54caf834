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
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from stepline.datasets.files import Node, file_in, find_file, read_json
from stepline.datasets.record_builder import REPEATED, DatasetEntry, RecordBuilder

SPOKEN, SHOWN = "mapped_actions_time_label.json", "dict_all_annotations_ordered.json"
VISIBLE = 0  # the label of an action that is seen in the miniclip
Window: TypeAlias = tuple[float, float]  # start and end in seconds
CLOSE = 0.75  # difflib ratio from which a window's text is taken for the action's
UNMATCHED = "no action of the miniclip is worded like it"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a miniclip, from the data folder, or from the first file with the second
    beside it."""
    file = file_in(path, SPOKEN)
    beside = find_file(file.parent, SHOWN) if file.name.startswith(SPOKEN) else None
    windows = dict(Node(read_json(beside), str(beside)).entries()) if beside else {}
    for id, clip in Node(read_json(file), str(file)).entries():
        builder = RecordBuilder(id)
        if isinstance(clip.value, dict):
            for index, row in enumerate(clip["actions"].rows()):
                text, visible, shown = (
                    row["text"].text(),
                    row["visible"].value is True,
                    row.get("shown"),
                )
                window = shown.pair() if shown else None
                _add_action(builder, str(index), text, row["spoken"].pair(), visible, window)
        else:
            _add_official(builder, clip, windows.get(id))
        yield builder.entry()


def _add_official(builder: RecordBuilder, clip: Node, windows: Node | None) -> None:
    actions = [list(row.rows()) for row in clip.rows()]
    for row, cells in zip(clip.rows(), actions, strict=True):
        if len(cells) != 3 or cells[2].value not in (0, 1):
            raise row.error("[action, [start, end], 0 or 1]")
    texts = [cells[0].text() for cells in actions]
    visible = [cells[2].value == VISIBLE for cells in actions]
    seen = [text if is_seen else None for text, is_seen in zip(texts, visible, strict=True)]
    shown = _match_windows(builder, windows, seen)
    for index, cells in enumerate(actions):
        _add_action(
            builder, str(index), texts[index], cells[1].pair(), visible[index], shown.get(index)
        )


def _add_action(
    builder: RecordBuilder, id: str, text: str, spoken: Window, visible: bool, shown: Window | None
) -> None:
    heard = len(builder.sentences)
    builder.add_sentence(text, *spoken, shown=float(visible))
    said = builder.sentences[-1].span if len(builder.sentences) > heard else None
    builder.add_step(id, text, said=said)
    if shown is not None:
        builder.add_span(id, text, *shown, keep=True)


def _match_windows(
    builder: RecordBuilder, rows: Node | None, texts: list[str | None]
) -> dict[int, Window]:
    """Return action row -> window; texts: None where the action is not visible and cannot have
    one."""
    open_rows = {index: text for index, text in enumerate(texts) if text is not None}
    found: dict[int, Window] = {}
    later: list[tuple[str, Window]] = []
    seen: set[tuple[str, Window]] = set()
    for row in rows.rows() if rows else ():
        cells = list(row.rows())
        if len(cells) != 3:
            raise row.error("[action, start, end]")
        text, window = cells[0].text(), (cells[1].number(), cells[2].number())
        if (text, window) in seen:
            builder.reject("span", text, REPEATED, str(list(window)))
            continue
        seen.add((text, window))
        same = next((index for index, other in open_rows.items() if other == text), None)
        if same is None:
            later.append((text, window))
        else:
            found[same] = window
            del open_rows[same]
    for text, window in later:
        near = max(open_rows, key=lambda index: _similarity(text, open_rows[index]), default=None)
        if near is None or _similarity(text, open_rows[near]) < CLOSE:
            builder.reject("span", text, UNMATCHED, str(list(window)))
        else:
            found[near] = window
            del open_rows[near]
    return found


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
