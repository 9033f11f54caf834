"""The scorer of benchmarks/writing.py, by hand, and the lemonade of the paper against its marked actions."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stepline.records import Step
from stepline.writing import WritingSettings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_writing", ROOT / "benchmarks" / "writing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def steps(*told: tuple[str, int]) -> list[Step]:
    return [Step(id=str(i), text=text, sources=(sentence,)) for i, (text, sentence) in enumerate(told)]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("slice the lemons", ("slice", "lemon")),
        ("don't overmix the pancake batter", ("overmix", "batter")),
        ("gently pry the old pistons apart", ("pry", "piston")),
        ("apply two coats of mascara", ("apply", "coat")),
        ("look straight into the mirror", ("look", "mirror")),
        ("right-click on the layer", ("click", "layer")),
        ("click OK", ("click", "ok")),
        ("stir", ("stir", None)),
    ],
)
def test_an_imperative_is_read_as_verb_and_object(bench: ModuleType, text: str, action: tuple[str, str | None]) -> None:
    assert bench.action_of(text) == action


def test_matching_is_one_to_one_and_optional_ones_do_not_count(bench: ModuleType) -> None:
    actions = [bench.Mark(0, "add", ("salt",)), bench.Mark(1, "stir", ("soup",)), bench.Mark(2, "serve", (None,))]
    optional = [bench.Mark(0, "grab", ("salt",))]
    told = steps(("add the salt", 0), ("add the salt", 0), ("grab the salt", 0), ("stir the soup", 2), ("wave", 9))
    got = bench.score(told, actions, optional)
    assert (got.matched, got.actions, got.counted, got.chat) == (1, 3, 4, 1)  # salt again, another sentence, chat
    assert got.recall == pytest.approx(1 / 3)
    assert got.precision == pytest.approx(1 / 4)


def test_no_steps_score_no_recall_and_claim_nothing(bench: ModuleType) -> None:
    got = bench.score([], [bench.Mark(0, "add", ("salt",))], [])
    assert (got.recall, got.precision, got.chat) == (0.0, 1.0, 0)


def test_the_lemonade_has_ten_of_its_eleven_actions_at_precision_085_and_no_chat(bench: ModuleType) -> None:
    if not (bench.SHARED / "metric_cases" / "lemonade.json").is_file():
        pytest.skip("needs ../shared/metric_cases/lemonade.json")
    ((_, got),) = bench.measure(WritingSettings(), ["lemonade"])
    assert (got.actions, got.chat) == (11, 0)
    assert got.matched >= 10
    assert got.precision >= 0.85


def test_the_own_narrations_keep_their_recall_and_precision(bench: ModuleType) -> None:
    own = ["bike_brake_pads", "garden_tomatoes", "makeup_eyes", "sewing_tote", "wall_shelf"]
    scores = [got for _, got in bench.measure(WritingSettings(), own)]
    assert len(scores) == 5
    assert sum(got.chat for got in scores) == 0
    assert min(got.recall for got in scores) >= 0.85
    assert min(got.precision for got in scores) >= 0.85
