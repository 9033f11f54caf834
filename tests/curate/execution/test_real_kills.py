"""The library's own stages under kill -9: minutes of work, so it is slow."""

import json
import os

import pytest
from kills import begun, finish, run_with_kills, tree
from small_video import CAPTIONS, draw_video

from stepline.curate.stage import Item
from stepline.curate.store.run_log import to_json_line

STAGES = ["probe", "transcribe", "write", "encode", "coarse", "ground", "judge", "gather"]
THINGS = ("lemons", "carrots", "onions", "apples", "leeks", "plums", "limes", "beans")
KILLS = 20
CODE = """
from pathlib import Path
from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.store.run_log import from_json_line
from stepline.curate.stage import Item
from stepline.curate.stage import Recipe
from stepline.curate.stages import STAGES
from stepline.settings import validate
recipe = validate(Recipe, {{"stages": {stages!r}, "limits": {{"seconds": 25.0}}, "engine": {{"workers": 2}}}})
items = [from_json_line(Item, line) for line in Path({items!r}).read_text().splitlines()]
run_recipe(RunRequest(recipe, {out!r}, STAGES), items)
"""


def twelve_items(folder):
    """Eight small videos with captions, and a corrupt, a huge, a hanging and an empty one."""
    folder.mkdir()
    for number, thing in enumerate(THINGS):
        draw_video(folder / f"{thing}.mp4", seconds=14 + number)
        text = CAPTIONS.replace("lemons", thing).replace("the juice", f"the {thing} and {number} cups of milk")
        (folder / f"{thing}.srt").write_text(text)
    whole = (folder / "lemons.mp4").read_bytes()
    (folder / "corrupt.mp4").write_bytes(os.urandom(2000) + whole[2000:])
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "huge.mp4").touch()
    os.truncate(folder / "huge.mp4", 40 * 2**30)  # no byte of it is on the disk
    (folder / "hanging.mp4").write_bytes(whole)
    os.mkfifo(folder / "hanging.srt")  # as a file of a network drive that never answers
    names = [*THINGS, "corrupt", "empty", "hanging", "huge"]
    captions = {name: str(folder / f"{name}.srt") for name in (*THINGS, "hanging")}
    return [Item(name, str(folder / f"{name}.mp4"), "1", captions.get(name), "1") for name in names]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_cost_no_byte_and_no_unit_but_those_under_way(tmp_path):
    items = tmp_path / "items.jsonl"
    items.write_text("".join(to_json_line(item) + "\n" for item in twelve_items(tmp_path / "in")))
    codes = {
        name: CODE.format(stages=STAGES, items=str(items), out=str(tmp_path / name)) for name in ("whole", "killed")
    }
    finish(codes["whole"], tmp_path / "cache")
    killed = run_with_kills(codes["killed"], tmp_path / "killed", tmp_path / "cache", KILLS, between=(2.0, 9.0), seed=8)
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    times = begun(tmp_path / "killed")
    again = sum(times.values()) - len(times)
    print(f"killed {dict(killed)}, {len(times)} units, {again} begun again")
    assert again <= 2 * killed["driver"] + killed["worker"]
    (left_out,) = (tmp_path / "killed/stages/gather").glob("*/left_out.jsonl")
    lost = [json.loads(line) for line in left_out.read_text().splitlines()]
    assert [(one["id"], one["kind"]) for one in lost] == [
        ("corrupt", "error"),
        ("empty", "error"),
        ("hanging", "hang"),
        ("huge", "error"),
    ]
    assert str(tmp_path) not in left_out.read_text()
