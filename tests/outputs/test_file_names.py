import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepline.outputs import safe_stem

IDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=80)


@pytest.mark.parametrize("name", ["mg7Q4o9bNN0", "-Q_x4o9bNN0", "v_1.take-2", "泡菜", "crème"])
def test_a_plain_id_keeps_its_name(name):
    assert safe_stem(name) == name


UNSAFE = ("../../etc/passwd", "..", ".hidden", "a/b", "a\\b", "a b", "a\0b", "a\nb", "~", "x" * 500)


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_id_gets_a_mark_that_no_plain_name_has(name):
    stem = safe_stem(name)
    assert "~" in stem
    assert not set("/\\ \0\n") & set(stem)
    assert not stem.startswith(".")


def test_ids_that_look_alike_get_names_of_their_own():
    names = ["a/b", "a-b", "a b", "a\\b", "cr\u00e8me", "cre\u0300me", "x" * 300, "x" * 301]
    assert len({safe_stem(name) for name in names}) == len(names)


@given(IDS, IDS)
def test_any_id_has_a_short_name_without_separators_and_its_own(one, two):
    stem = safe_stem(one)
    assert 0 < len(stem.encode()) <= 120
    assert "/" not in stem
    assert stem not in (".", "..")
    assert (stem == safe_stem(two)) == (one == two)


@given(IDS)
def test_no_id_can_be_chosen_to_take_anothers_name(name):
    assert safe_stem(safe_stem(name)) == safe_stem(name) or "~" in safe_stem(name)
