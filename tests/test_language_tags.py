import pytest

from stepline.language_tags import split_language


@pytest.mark.parametrize(
    ("stem", "parts"),
    [
        ("talk.en", ("talk", "en")),
        ("talk.zh-Hant", ("talk", "zh-Hant")),
        ("talk.pt_BR", ("talk", "pt_BR")),
        ("talk.deu", ("talk", "deu")),
        ("talk.en.forced", ("talk", "en.forced")),
        ("talk.en-uYU-mmqFLq8", ("talk", "en-uYU-mmqFLq8")),
        ("scrambled.eggs", ("scrambled.eggs", "")),
        ("part.one", ("part.one", "")),
        ("v1.2", ("v1.2", "")),
        ("talk.cc", ("talk.cc", "")),
        ("en", ("en", "")),
        (".en", (".en", "")),
    ],
)
def test_only_a_language_is_taken_off_a_stem(stem, parts):
    assert split_language(stem) == parts
