"""Made screencasts with true clicks: python lab/screencasts.py FOLDER [--part dev|test] [--again]

It films what FOLDER lacks with screencast_recorder.py: small apps in several layouts, zooms and
themes, with and without a cursor. They are narrated ahead of the act, on it, and after it. Then
`stepline steps` runs on each, once as on any film (vision.screen=off) and once by default. Records
stay in FOLDER, and --again makes them again.

An act belongs to the step whose words overlap its own most. Acts without a step are errors of the
writer or the recogniser, and do not count here.

- placed right: the second of the click is in the step's span, or within 2 s of its best second
- within 1 s: the best second alone counts
- label right: the label on the screen is the one that was clicked, up to misread letters (.8)

Intervals are bootstrap intervals over videos. The labels' weights were set with the apps of `dev`
in view. Those of `test` were filmed after that.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from screencast_recorder import Browser, Take, record_screencast

from stepline.pipeline.networks import load_networks
from stepline.pipeline.request import Request, StepsSettings
from stepline.pipeline.understand import understand
from stepline.records import Record, Span, Step
from stepline.storage import read_record, write_record

NEAR_SECONDS = 2.0
STRICT_SECONDS = 1.0
MIN_SHARED_SECONDS = 0.3  # of words that an act and its step share
MIN_LABEL_RATIO = 0.8  # of the letters
BOOTSTRAP_DRAWS = 2000  # bootstrap samples
TAKES_BY_PART = {
    "dev": (
        Take("notes", "ahead", "light", 1.0, (1280, 720), cursor=True, seed=1),
        Take("notes", "after", "dark", 1.25, (1280, 720), cursor=False, seed=2),
        Take("menus", "on", "warm", 1.25, (1024, 768), cursor=True, seed=3),
        Take("menus", "ahead", "dark", 1.0, (1280, 720), cursor=False, seed=4),
        Take("photos", "after", "contrast", 1.0, (720, 960), cursor=True, seed=5),
        Take("photos", "on", "light", 1.5, (1280, 800), cursor=False, seed=6),
        Take("notes", "captions", "warm", 1.0, (1280, 720), cursor=True, seed=7),
    ),
    "test": (
        Take("shop", "ahead", "warm", 1.0, (1280, 720), cursor=False, seed=11),
        Take("shop", "on", "dark", 1.1, (1280, 800), cursor=True, seed=12),
        Take("shop", "after", "light", 1.25, (1280, 720), cursor=True, seed=13),
        Take("settings", "ahead", "contrast", 1.25, (1024, 768), cursor=True, seed=14),
        Take("settings", "on", "light", 1.0, (1280, 720), cursor=False, seed=15),
        Take("settings", "after", "dark", 1.5, (1280, 800), cursor=True, seed=16),
        Take("board", "ahead", "dark", 1.0, (1280, 720), cursor=True, seed=17),
        Take("board", "on", "warm", 1.5, (1440, 900), cursor=True, seed=18),
        Take("board", "after", "light", 1.0, (1024, 768), cursor=False, seed=19),
        Take("sales", "ahead", "light", 1.5, (1440, 900), cursor=True, seed=20),
        Take("sales", "on", "contrast", 1.0, (1280, 720), cursor=True, seed=21),
        Take("sales", "after", "warm", 1.0, (1280, 720), cursor=False, seed=22),
        Take("shop", "captions", "light", 1.0, (1280, 720), cursor=True, seed=23),
        Take("board", "captions", "dark", 1.25, (1280, 720), cursor=False, seed=24),
    ),
}
Row = dict[str, float]


def film_missing(takes: Sequence[Take], folder: Path) -> None:
    """Film the takes that a folder lacks."""
    missing = [take for take in takes if not (folder / f"{take.id}.json").exists()]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        for take in missing:
            print("filmed", record_screencast(take, folder, browser), flush=True)
        browser.close()


def make_record(take: Take, folder: Path, screen: str, networks: Any, *, again: bool) -> Record:
    """Return the record of a take, from the folder where it is there."""
    path = folder / f"records_{screen}" / f"{take.id}.json"
    if again or not path.exists():
        path.parent.mkdir(exist_ok=True)
        settings = StepsSettings.model_validate({"vision": {"screen": screen}})
        began = time.process_time()
        request = Request(folder / f"{take.id}.mp4", id=take.id)
        write_record(understand(request, settings, networks=networks).record, path)
        print(f"{take.id}, screen={screen}: {time.process_time() - began:.1f} CPU s", flush=True)
    return read_record(path)


def matching_step(act: dict[str, Any], steps: Sequence[Step]) -> Step | None:
    """Return the step whose words overlap an act's most."""
    words = Span(*act["words"])
    best = None
    most = MIN_SHARED_SECONDS
    for step in steps:
        shared = step.said.overlap(words) if step.said else 0.0
        if shared >= most and (best is None or shared > most):
            best = step
            most = shared
    return best


def is_placed(step: Step, second: float) -> bool:
    """Whether the second is in a step's best span, or near its most likely second."""
    inside = bool(step.spans) and second in step.spans[0]
    return inside or (step.at is not None and abs(step.at - second) <= NEAR_SECONDS)


def is_at_words(step: Step, second: float) -> bool:
    """Whether the second is in the words of a step, or near their middle."""
    if step.said is None:
        return False
    return second in step.said or abs(step.said.center - second) <= NEAR_SECONDS


def is_same_label(label: str, truth: str) -> bool:
    """Whether two labels are the same up to letters misread."""
    letters = re.sub(r"\W", "", label.lower())
    true_letters = re.sub(r"\W", "", truth.lower())
    return SequenceMatcher(None, letters, true_letters).ratio() >= MIN_LABEL_RATIO


def score(record: Record, truth: dict[str, Any]) -> Row:
    """Return counts of one video."""
    columns = ("acts", "told", "placed", "within 1 s", "label", "words", "span", "spans")
    row = dict.fromkeys(columns, 0.0)
    for act in truth["acts"]:
        second = act["second"]
        if second is None:
            continue
        row["acts"] += 1
        step = matching_step(act, record.steps)
        if step is None:
            continue
        row["told"] += 1
        row["placed"] += is_placed(step, second)
        row["within 1 s"] += step.at is not None and abs(step.at - second) <= STRICT_SECONDS
        if step.spans:
            row["spans"] += 1
            row["span"] += step.spans[0].duration
        row["words"] += is_at_words(step, second)
        target = step.target
        row["label"] += target is not None and is_same_label(target.label, act["label"])
    return row


def share(rows: Sequence[Row], name: str, of: str) -> str:
    """Return a share over videos with its 95 % interval."""
    counts = np.array([[row[name], row[of]] for row in rows])
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(counts), (BOOTSTRAP_DRAWS, len(counts)))
    hits, totals = counts[picks].sum(1).T
    low, high = np.quantile(hits / np.maximum(totals, 1), [0.025, 0.975])
    hit_count, total = counts.sum(0)
    return f"{hit_count / max(1, total):.3f} [{low:.3f}, {high:.3f}]"


def group_takes(takes: Sequence[Take]) -> dict[str, list[Take]]:
    """Return the takes by the rows of the table."""
    groups = {"all": list(takes)}
    for timing in ("ahead", "on", "after"):
        groups[timing] = [take for take in takes if take.timing == timing]
    groups["cursor seen"] = [take for take in takes if take.cursor]
    groups["cursor hidden"] = [take for take in takes if not take.cursor]
    return groups


def print_table(takes: Sequence[Take], rows: dict[str, dict[str, Row]]) -> None:
    """Print the lines of each group of takes: as a film, and as a screen."""
    print("| videos | acts | told | | placed right | within 1 s | label right | mean span, s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, members in group_takes(takes).items():
        film_rows = [rows["off"][take.id] for take in members]
        print(f"| {name} | | | at the words | {share(film_rows, 'words', 'told')} | | | |")
        for screen, kind in (("off", "as a film"), ("auto", "as a screen")):
            group_rows = [rows[screen][take.id] for take in members]
            totals = {column: sum(row[column] for row in group_rows) for column in group_rows[0]}
            cells = [
                name,
                f"{totals['acts']:.0f}",
                f"{totals['told']:.0f}",
                kind,
                share(group_rows, "placed", "told"),
                share(group_rows, "within 1 s", "told"),
                share(group_rows, "label", "told") if screen == "auto" else "",
                f"{totals['span'] / max(1.0, totals['spans']):.1f}",
            ]
            print(f"| {' | '.join(cells)} |")


def read_truth(take: Take, folder: Path) -> dict[str, Any]:
    """Return what was clicked in a take, and when."""
    return json.loads((folder / f"{take.id}.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=[*TAKES_BY_PART], default="test")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    takes = TAKES_BY_PART[options.part]
    film_missing(takes, folder)
    networks = load_networks(StepsSettings(), several=True)

    # narrated takes, as a film and as a screen
    narrated_takes = [take for take in takes if take.timing != "captions"]
    rows: dict[str, dict[str, Row]] = {"off": {}, "auto": {}}
    for take in narrated_takes:
        truth = read_truth(take, folder)
        for screen, scores in rows.items():
            record = make_record(take, folder, screen, networks, again=options.again)
            scores[take.id] = score(record, truth)
    print_table(narrated_takes, rows)
    for take in narrated_takes:
        print(take.id, {name: rows["auto"][take.id][name] for name in ("told", "placed", "label")})

    print("silent, with captions typed on the screen:")
    for take in takes:
        if take.timing == "captions":
            record = make_record(take, folder, "auto", networks, again=options.again)
            print(take.id, score(record, read_truth(take, folder)))


if __name__ == "__main__":
    main()
