"""A Recipe, by Google's rules and as the package recipe-scrapers reads it.

The rules are the tables of https://developers.google.com/search/docs/appearance/structured-data:
"Recipe (Recipe, HowTo, ItemList) structured data" and "Video (VideoObject, Clip, BroadcastEvent)
structured data". Of what they recommend, ratings, nutrition, cuisine and keywords are left out: no
video tells them.
"""

import json
import logging
import re
from urllib.parse import urlsplit

import pytest
from output_samples import picture_of

from stepline.errors import SettingsError
from stepline.outputs import RecordLinks, WebAddresses, missing_outputs, write_outputs
from stepline.outputs.jsonld import iso_duration, jsonld, recipe_jsonld
from stepline.records import Amount, Material, WorkTime

BASE = "https://example.org/kitchen"
DURATION = re.compile(r"PT(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?")
DAY = re.compile(r"\d{4}-\d\d-\d\d")


def is_address(value):
    return isinstance(value, str) and urlsplit(value).scheme in ("http", "https")


def is_text(value):
    return isinstance(value, str) and bool(value.strip())


def is_duration(value):
    return isinstance(value, str) and bool(DURATION.fullmatch(value))


def is_day(value):
    return isinstance(value, str) and bool(DAY.fullmatch(value))


def is_person(value):
    return value["@type"] in ("Person", "Organization") and is_text(value["name"])


def are_texts(value):
    return bool(value) and all(map(is_text, value))


def is_second(value):
    return isinstance(value, int | float) and value >= 0


# "Recipe properties", "HowToStep", "VideoObject properties" and "Clip properties" of the two pages.
RULES = {
    "Recipe": {
        "required": {"image": is_address, "name": is_text},
        "recommended": {
            "author": is_person,
            "cookTime": is_duration,
            "datePublished": is_day,
            "prepTime": is_duration,
            "recipeIngredient": are_texts,
            "recipeInstructions": bool,
            "recipeYield": is_text,
            "totalTime": is_duration,
            "video": bool,
        },
    },
    "HowToStep": {
        "required": {"text": is_text},
        "recommended": {"name": is_text, "url": is_address, "image": is_address, "video": bool},
    },
    "VideoObject": {
        "required": {"name": is_text, "thumbnailUrl": is_address, "uploadDate": is_day},
        "recommended": {"contentUrl": is_address, "duration": is_duration, "hasPart": bool},
    },
    "Clip": {
        "required": {"name": is_text, "startOffset": is_second, "url": is_address},
        "recommended": {"endOffset": is_second},
    },
}


def faults(node, *, level):
    """What a node and all below it lack by the rules, as "Clip.url"."""
    if isinstance(node, list):
        return [fault for entry in node for fault in faults(entry, level=level)]
    if not isinstance(node, dict):
        return []
    kind = node.get("@type")
    fields = RULES.get(kind, {}).get(level, {})
    own = [
        f"{kind}.{name}"
        for name, is_right in fields.items()
        if name not in node or not is_right(node[name])
    ]
    return own + [fault for value in node.values() for fault in faults(value, level=level)]


@pytest.fixture
def dish(record):
    """The lemonade with all that a speaker, a page and a file can tell."""
    water = Material(name="water", amounts=(Amount(low=1.5, high=1.5, unit="cup"),), at=5.6)
    lemons = Material(name="lemons", amounts=(Amount(low=2.0, high=3.0),), at=17.1)
    servings = Material(name="servings", amounts=(Amount(low=4.0, high=4.0),), at=1.0)
    times = (
        WorkTime(kind="total", low=5400.0, high=5400.0, at=1.0),
        WorkTime(kind="preparation", low=600.0, high=900.0, at=1.0),
        WorkTime(kind="cooking", low=3600.0, high=3600.0, at=1.0),
    )
    video = record.video.model_copy(update={"author": "Ann", "publication_date": "2024-05-06"})
    steps = [step for step in record.steps if step.spans and step.status in ("seen", "placed")]
    return record.model_copy(
        update={
            "video": video,
            "steps": tuple(steps),
            "materials": (water, lemons),
            "tools": (Material(name="spoon", at=31.0),),
            "yields": (servings,),
            "times": times,
        }
    )


@pytest.fixture
def published(dish, tmp_path):
    """Write the dish as for the web; return the folder."""
    write_outputs(
        dish,
        tmp_path / "out",
        keyframes={step.id: picture_of(number) for number, step in enumerate(dish.steps)},
        media=tmp_path / "out" / "v.mp4",
        formats=["recipe", "html", "jsonld"],
        web=WebAddresses(BASE),
    )
    return tmp_path / "out"


def page_data(folder):
    html = (folder / "mint-lemonade.html").read_text(encoding="utf-8")
    (script,) = re.findall(r'<script type="application/ld\+json">(.*?)</script>', html, re.DOTALL)
    return json.loads(script)


def test_the_page_and_the_file_hold_a_recipe_without_a_fault(published):
    tree = json.loads((published / "mint-lemonade.recipe.jsonld").read_text(encoding="utf-8"))
    assert faults(tree, level="required") == []
    assert faults(tree, level="recommended") == []
    assert page_data(published) == tree
    assert (tree["totalTime"], tree["prepTime"], tree["cookTime"]) == ("PT1H30M", "PT15M", "PT1H")
    assert (tree["recipeYield"], tree["author"]["name"]) == ("4 servings", "Ann")
    # A property holds one duration, so what is said of a range is in words.
    assert tree["description"] == "preparation time: 10 to 15 minutes"


def test_every_address_leads_to_a_file_that_was_written(published):
    tree = page_data(published)
    assert tree["url"] == f"{BASE}/mint-lemonade.html"
    assert tree["video"]["contentUrl"] == f"{BASE}/v.mp4"
    step = tree["recipeInstructions"][0]
    assert step["url"] == f"{BASE}/mint-lemonade.html#step-1"
    assert step["video"]["url"] == f"{BASE}/mint-lemonade.html?t=6"
    for entry in tree["recipeInstructions"]:
        assert (published / entry["image"].removeprefix(f"{BASE}/")).is_file()
    ids = re.findall(r'id="(step-\d+)"', (published / "mint-lemonade.html").read_text())
    assert {entry["url"].partition("#")[2] for entry in tree["recipeInstructions"]} <= set(ids)


def test_recipe_scrapers_reads_the_page(published):
    scrapers = pytest.importorskip("recipe_scrapers", reason="needs recipe-scrapers")
    html = (published / "mint-lemonade.html").read_text(encoding="utf-8")
    scraper = scrapers.scrape_html(html, org_url=f"{BASE}/mint-lemonade.html", supported_only=False)
    assert scraper.title() == "Iced mint lemonade"
    assert scraper.ingredients() == ["1.5 cup water", "2-3 lemons"]
    assert len(scraper.instructions_list()) == 10
    assert scraper.instructions_list()[0] == "Bring a cup of water to the boil"
    assert (scraper.total_time(), scraper.prep_time(), scraper.cook_time()) == (90, 15, 60)
    assert (scraper.yields(), scraper.author()) == ("4 servings", "Ann")
    assert scraper.image().startswith(f"{BASE}/mint-lemonade.pictures/")


def test_a_howto_has_the_same_addresses(published):
    tree = json.loads((published / "mint-lemonade.howto.jsonld").read_text(encoding="utf-8"))
    assert faults(tree, level="required") == []
    assert (tree["yield"], tree["performTime"]) == ("4 servings", "PT1H")


def test_nothing_is_claimed_that_no_one_says(record):
    tree = json.loads(recipe_jsonld(record, RecordLinks(video="v.mp4")))
    unknown = {"author", "datePublished", "totalTime", "prepTime", "cookTime", "recipeYield"}
    assert not unknown & tree.keys()
    lacking = ["Recipe.image", "VideoObject.thumbnailUrl", "VideoObject.uploadDate"]
    assert faults(tree, level="required") == lacking + ["Clip.url"] * 20


def test_a_recipe_without_a_picture_says_so_and_the_page_holds_a_howto(record, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        write_outputs(record, tmp_path, media=tmp_path / "v.mp4", formats=["recipe", "html"])
    (line,) = [row.getMessage() for row in caplog.records]
    assert line.endswith(
        "mint-lemonade.recipe.jsonld: Google asks for more of a Recipe: image (no step has a "
        "picture); uploadDate (neither a page nor the file's metadata names it); absolute "
        "addresses (--base-url and --media-url give them)"
    )
    assert page_data(tmp_path)["@type"] == "HowTo"


def test_a_whole_recipe_says_nothing(dish, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        files = {"keyframes": {"1": picture_of(1)}, "media": tmp_path / "v.mp4"}
        write_outputs(dish, tmp_path, formats=["recipe"], web=WebAddresses(BASE), **files)
    assert caplog.records == []


def test_other_addresses_are_another_output(dish, tmp_path):
    formats = ["recipe", "html", "jsonld", "labelstudio"]

    def write(web):
        write_outputs(dish, tmp_path, media=tmp_path / "v.mp4", formats=[*formats, "json"], web=web)

    web = WebAddresses(BASE)
    write(web)
    assert missing_outputs(dish, tmp_path, formats, web) == []
    changed = ["jsonld", "recipe", "labelstudio", "html"]
    assert missing_outputs(dish, tmp_path, formats, WebAddresses(f"{BASE}/2")) == changed
    assert missing_outputs(dish, tmp_path, formats) == changed
    write(None)
    assert missing_outputs(dish, tmp_path, formats) == []
    assert missing_outputs(dish, tmp_path, ["html"]) == []
    write_outputs(dish, tmp_path, media=tmp_path / "v.mp4", formats=["html", "json"])
    assert missing_outputs(dish, tmp_path, ["html"]) == []
    assert missing_outputs(dish, tmp_path, ["html", "recipe"]) == ["html"]  # which is a HowTo
    for web, address in (
        (WebAddresses(BASE), "v.mp4"),
        (WebAddresses(BASE, BASE), f"{BASE}/v.mp4"),
    ):
        write_outputs(dish, tmp_path, media=tmp_path / "v.mp4", formats=["html"], web=web)
        assert f'<video id="player" src="{address}"' in next(tmp_path.glob("*.html")).read_text()


@pytest.mark.parametrize(
    ("web", "path", "address"),
    [
        (WebAddresses(), "../v 1.mp4", "../v%201.mp4"),
        (WebAddresses("https://a.org/x/"), "../v 1.mp4", "https://a.org/v%201.mp4"),
        (WebAddresses("https://a.org/"), "../v.mp4", None),
        (WebAddresses(media="https://cdn.org/v"), "../../a/b.mp4", "https://cdn.org/v/b.mp4"),
        (WebAddresses(media="/data/local-files/?d="), "b.mp4", "/data/local-files/?d=b.mp4"),
        (WebAddresses(), None, None),
    ],
)
def test_a_video_has_the_address_that_is_known(web, path, address):
    assert web.video(path) == address


@pytest.mark.parametrize("base", ["example.org", "file:///x", "https://a.org/?x=1", "https://"])
def test_a_base_that_is_not_a_folder_of_the_web_is_refused(base):
    with pytest.raises(SettingsError, match="--base-url"):
        WebAddresses(base)


@pytest.mark.parametrize(
    "media", [" ", "javascript:alert(1)//", " JavaScript:x", "java\tscript:x", "data:text/html,"]
)
def test_a_prefix_that_is_empty_or_of_another_scheme_is_refused(media):
    with pytest.raises(SettingsError, match="--media-url"):
        WebAddresses(media=media)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "PT1H30M"), (90, "PT1M30S"), (3600, "PT1H"), (0.2, "PT0S")]
)
def test_a_time_is_written_as_iso_8601(seconds, text):
    assert iso_duration(seconds) == text


def test_a_file_without_a_base_holds_no_path(record):
    assert not re.search("mp4|videos/", jsonld(record))
