"""One layout for all pages: head, policy, colours and type come from it alone."""

import re
from pathlib import Path

import pytest

import stepline
from stepline.outputs.web_addresses import PAGE_MARK
from stepline.pages.layout import base_style, content_security_policy, page_html

PACKAGE = Path(stepline.__file__).parent
PAGES = sorted(path for path in PACKAGE.rglob("*.html") if path.name != "layout.html")
STYLES = sorted(path for path in PACKAGE.rglob("*.css") if path.name != "base.css")
PAGE = """{% extends "layout.html" %}
{% block title %}{{ name }}{% endblock %}
{% block body %}<p>{{ name }}</p>{% endblock %}
"""


def names(paths):
    return [path.relative_to(PACKAGE).as_posix() for path in paths]


@pytest.mark.parametrize("path", PAGES, ids=names(PAGES))
def test_every_page_takes_its_head_from_the_layout(path):
    text = path.read_text()
    assert text.startswith('{% extends "layout.html" %}')
    assert "<html" not in text


def test_no_page_is_written_in_code_with_a_head_of_its_own():
    heads = [path for path in PACKAGE.rglob("*.py") if "<head>" in path.read_text()]
    assert not heads


@pytest.mark.parametrize("path", STYLES, ids=names(STYLES))
def test_colours_of_light_and_dark_are_named_once(path):
    named = set(re.findall(r"(--[\w-]+):", base_style()))
    own = set(re.findall(r"(--[\w-]+):\s*#", path.read_text()))
    assert not own & named
    assert not re.search(r"[{;]\s*color-scheme:", path.read_text())


def test_texts_are_escaped_and_control_characters_go():
    page = page_html(PAGE, style="", name="<b>\x00&")
    assert "<title>&lt;b&gt;&amp;</title>" in page
    assert "<p>&lt;b&gt;&amp;</p>" in page


def test_the_policy_names_the_one_style_and_script():
    page = page_html(PAGE, style="p { color: red }", script="1", name="a")
    style = base_style() + "p { color: red }"
    assert f"<style>{style}</style>" in page
    assert content_security_policy(style, "1").replace("'", "&#39;") in page
    assert page.count("<script>") == 1
    assert PAGE_MARK in page


def test_a_served_page_links_its_styles_and_leaves_the_policy_to_the_server():
    page = page_html(PAGE, style=None, sheets=("/a.css",), footer="", name="a")
    assert '<link rel="stylesheet" href="/a.css">' in page
    for part in ("<style>", "Content-Security-Policy", "<footer>"):
        assert part not in page


def test_no_picture_is_loaded_from_elsewhere():
    assert "img-src data:;" in content_security_policy("")
