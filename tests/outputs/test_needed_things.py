"""What the work needs, in each output that has a place for it."""

import json
import re

import pytest

from stepline.errors import StoreError
from stepline.outputs import RecordLinks, jsonld, write_outputs
from stepline.outputs.documents import markdown
from stepline.outputs.jsonld import recipe_jsonld
from stepline.outputs.page import page
from stepline.records import Amount, Material
from stepline.storage import from_json, to_json

# https://developers.google.com/search/docs/appearance/structured-data/recipe (and .../how-to), of
# what a video can tell. Field -> its type, for those that are required and those that are
# recommended; an image takes the pictures of the steps.
RECIPE_REQUIRED = {"name": str, "image": str}
RECIPE_RECOMMENDED = {"recipeIngredient": list, "recipeInstructions": list, "video": dict}
HOWTO_REQUIRED = {"name": str, "step": list}
HOWTO_RECOMMENDED = {"supply": list, "tool": list, "video": dict}
STEP_REQUIRED = {"@type": str, "text": str}
CLIP_REQUIRED = {"name": str, "startOffset": float | int, "url": str}


@pytest.fixture
def needy(record):
    """The lemonade with what it needs."""
    water = Material(name="water", amounts=(Amount(low=1.5, high=1.5, unit="cup"),), at=5.6)
    lemons = Material(name="lemons", amounts=(Amount(low=2.0, high=3.0),), at=17.1, sources=(3,))
    mint = Material(name="mint", at=31.0, sources=(6,))
    spoon = Material(name="spoon", at=31.0, sources=(6,))
    return record.model_copy(update={"materials": (water, lemons, mint), "tools": (spoon,)})


def check_fields(tree, fields):
    for field, kind in fields.items():
        assert isinstance(tree.get(field), kind), field
        assert tree[field] not in ("", [], {}), field


def test_a_recipe_has_the_fields_that_search_engines_ask_for(needy):
    pictures = {step.id: f"p/{step.id}.jpg" for step in needy.steps}
    tree = json.loads(recipe_jsonld(needy, RecordLinks(video="film.mp4", pictures=pictures)))
    assert (tree["@context"], tree["@type"]) == ("https://schema.org", "Recipe")
    check_fields(tree, RECIPE_REQUIRED | RECIPE_RECOMMENDED)
    assert tree["recipeIngredient"] == ["1.5 cup water", "2-3 lemons", "mint"]
    for step in tree["recipeInstructions"]:
        check_fields(step, STEP_REQUIRED)
        if "video" in step:
            check_fields(step["video"], CLIP_REQUIRED)


def test_a_howto_has_the_fields_that_search_engines_ask_for(needy):
    tree = json.loads(jsonld(needy))
    assert (tree["@context"], tree["@type"]) == ("https://schema.org", "HowTo")
    check_fields(tree, HOWTO_REQUIRED | HOWTO_RECOMMENDED)
    assert tree["supply"] == [
        {"@type": "HowToSupply", "name": "water", "requiredQuantity": "1.5 cup"},
        {"@type": "HowToSupply", "name": "lemons", "requiredQuantity": "2-3"},
        {"@type": "HowToSupply", "name": "mint"},
    ]
    assert tree["tool"] == [{"@type": "HowToTool", "name": "spoon"}]
    for step in tree["step"]:
        check_fields(step, STEP_REQUIRED)


def test_markdown_lists_what_is_needed_with_links_to_the_second(needy):
    text = markdown(needy, {}, "film.mp4")
    head = text.partition("## 1.")[0]
    assert "## Materials\n\n- 1.5 cup water ([0:05](film.mp4#t=5.6))\n" in head
    assert "## Tools\n\n- spoon ([0:31](film.mp4#t=31))\n" in head
    assert "- mint (0:31)" in markdown(needy, {})


def test_the_page_lists_what_is_needed_before_the_steps(needy):
    text = page(needy, media="film.mp4")
    before, steps = text.split('<h2 id="steps-title">')
    assert '<summary>Materials <span class="count">3</span></summary>' in before
    row = re.search(r"<li><button[^>]*data-seek=\"17.1\".*?</li>", before)[0]
    assert "0:17</button> <b>2-3</b> <bdi>lemons</bdi>" in row
    assert "Materials" not in steps.partition("<section")[0]


def test_a_word_document_lists_what_is_needed(needy, tmp_path):
    docx = pytest.importorskip("docx")
    (word,) = write_outputs(needy, tmp_path, formats=["docx"])
    lines = [paragraph.text for paragraph in docx.Document(str(word)).paragraphs]
    assert lines[1:5] == ["Materials", "1.5 cup water", "2-3 lemons", "mint"]
    assert "Tools" in lines


def test_a_record_without_them_has_the_outputs_that_it_had(record):
    assert "needed" not in page(record).partition("<script")[2].partition("</main>")[0]
    assert "Materials" not in markdown(record, {})
    assert not {"supply", "tool"} & json.loads(jsonld(record)).keys()
    tree = json.loads(to_json(record))
    assert [tree[field] for field in ("materials", "tools", "yields", "times")] == [[]] * 4


def test_the_json_holds_what_is_needed_and_is_read_back(needy):
    assert from_json(to_json(needy)) == needy
    lemons = json.loads(to_json(needy))["materials"][1]
    assert lemons == {
        "name": "lemons",
        "amounts": [{"low": 2.0, "high": 3.0, "unit": None, "text": ""}],
        "at": 17.1,
        "sources": [3],
    }


def test_a_thing_of_a_sentence_that_is_not_there_is_refused(needy):
    tree = json.loads(to_json(needy))
    tree["tools"][0]["sources"] = [99]
    with pytest.raises(StoreError, match="'spoon' cites sentence 99"):
        from_json(json.dumps(tree))
    tree["tools"][0]["sources"] = []
    tree["materials"][0]["amounts"][0]["low"] = 9.0
    with pytest.raises(StoreError, match="need low <= high"):
        from_json(json.dumps(tree))
