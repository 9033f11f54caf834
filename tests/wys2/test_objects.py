import numpy as np
import pytest

from research.wys2.objects import Overlap, named_things, object_overlaps
from stepline.errors import ShapeError
from stepline.vision.conse import class_names


def seen(*names, frames=2):
    """Probabilities of clips in which the classes with these words are seen in the last frame."""
    rows = np.zeros((frames, 1000), np.float32)
    for name in names:
        places = [row for row, words in enumerate(class_names()) if words.split(",")[0].strip().endswith(name)]
        assert places
        rows[-1, places[0]] = 0.5
    return rows


def test_nouns_are_taken_as_base_forms_once():
    assert named_things(["Peel the bananas and put a banana into the bowl."]) == [("banana", "bowl")]


def test_the_share_of_the_named_things_that_is_seen():
    texts = ["put the banana next to the orange"] * 3
    shares = [one.share for one in object_overlaps(texts, [seen("banana", "orange"), seen("banana"), seen("pizza")])]
    assert shares == [1.0, 0.5, 0.0]


def test_six_of_ten_things_are_enough():
    things = tuple("abcde")
    assert Overlap(things, things[:3]).shown  # 60 %
    assert not Overlap(things, things[:2]).shown
    assert not Overlap((), ()).shown


def test_things_that_no_class_has_do_not_count():
    [one] = object_overlaps(["put the banana into the xylograph"], [seen("banana")])
    assert (one.named, one.share) == (("banana",), 1.0)


def test_probabilities_of_another_form_are_refused():
    with pytest.raises(ShapeError, match="1000"):
        object_overlaps(["a banana"], [np.zeros((2, 5), np.float32)])
    with pytest.raises(ShapeError, match="2 texts and 1 clips"):
        object_overlaps(["a", "b"], [seen("banana")])
