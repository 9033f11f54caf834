import json
from pathlib import Path

import pytest
from curate_cells import gathered, record, transcript

from stepline.curate.stage import Recipe
from stepline.curate.stages import train
from stepline.curate.stages.gather import RECORDS, read_left_out, write_dataset
from stepline.errors import SettingsError
from stepline.settings import load_settings
from stepline.storage import read_parquet
from stepline.text_base import build_base

TOAST = {
    "id": "toast", "title": "Garlic toast", "licence": "CC0",
    "steps": ["Peel two cloves of garlic.", "Rub the toast with garlic.", "Drizzle with olive oil."],
}  # fmt: skip
SAID = ("hello dear friends", "peel two cloves of garlic", "rub the toast with the garlic", "thanks for watching")


def test_narrations_become_written_steps_and_a_video_without_a_document_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "toast.json").write_text(json.dumps([TOAST]))
    build_base([tmp_path / "toast.json"], tmp_path / "base")
    base = json.dumps(str(tmp_path / "base"))
    recipe = load_settings(Recipe, None, [f"sieve_swap.base={base}", "sieve_swap.pairing.smallest_category=1"])
    said = transcript(*SAID)
    videos = [
        one.model_copy(update={"video": one.video.model_copy(update={"title": title})})
        for one, title in (
            (record("a", said=said), "Easy garlic toast"),
            (record("b", said=transcript("hammer the nail")), "Fix a roof"),
        )
    ]
    (tmp_path / "gather").mkdir()
    write_dataset(tmp_path / "gather", videos, {})
    train.sieve_swap(gathered(tmp_path / "swap", recipe, {"gather": tmp_path / "gather"}))
    (made,) = read_parquet(tmp_path / "swap" / RECORDS)
    assert [step.text for step in made.steps] == ["Peel two cloves of garlic.", "Rub the toast with garlic."]
    assert [step.licence for step in made.steps] == ["CC0", "CC0"]
    assert read_left_out(tmp_path / "swap")["b"].reason == "no document goes with it"


def test_without_a_base_there_is_nothing_to_swap_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="sieve_swap.base is not set"):
        train.sieve_swap(gathered(tmp_path / "swap", Recipe(), {"gather": tmp_path}))
