import pytest

from stepline.language_tags import split_language


@pytest.mark.parametrize(
    "language", ["en", "zh-Hant", "pt_BR", "deu", "en.forced", "en-uYU-mmqFLq8"]
)
def test_a_language_is_taken_off_a_stem(language):
    assert split_language(f"talk.{language}") == ("talk", language)


@pytest.mark.parametrize("stem", ["scrambled.eggs", "part.one", "v1.2", "talk.cc", "en", ".en"])
def test_nothing_else_is_taken_off_a_stem(stem):
    assert split_language(stem) == (stem, "")
