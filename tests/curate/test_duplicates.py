import numpy as np
from curate_cells import transcript

from stepline.curate.settings import GatherSettings
from stepline.curate.stages.gather import DuplicateFinder, mean_thumbnails, same_video
from stepline.records import Matrix

ONIONS = "today we chop three onions and fry them slowly in a deep pan with butter until they are soft and golden"
PAINT = "sand the board along its grain then brush on two thin coats of varnish and let them dry over night"


def looks(seed: int, rows: int = 16) -> Matrix:
    return np.random.default_rng(seed).random((rows, 192)).astype(np.float32)


def test_a_copy_is_told_by_its_bytes_and_the_first_is_kept() -> None:
    finder = DuplicateFinder(GatherSettings())
    first = finder.signature("a", 20.0, "digest", transcript(ONIONS), looks(1))
    again = finder.signature("b", 20.0, "digest", transcript(PAINT), looks(2))
    assert finder.reason(first) is None
    assert finder.reason(again) == "it is a copy of a"


def test_the_same_speech_is_one_video_and_a_longer_one_is_not() -> None:
    finder = DuplicateFinder(GatherSettings())
    assert finder.reason(finder.signature("a", 20.0, "1", transcript(ONIONS), looks(1))) is None
    assert finder.reason(finder.signature("b", 20.2, "2", transcript(ONIONS), looks(2))) == "it says the same as a"
    assert finder.reason(finder.signature("c", 40.0, "3", transcript(ONIONS), looks(3))) is None


def test_the_same_pictures_encoded_again_are_one_video_unless_they_say_something_else() -> None:
    finder, seen = DuplicateFinder(GatherSettings()), looks(1)
    noisy = np.clip(seen + 0.01 * np.random.default_rng(0).standard_normal(seen.shape), 0, 1).astype(np.float32)
    assert finder.reason(finder.signature("a", 16.0, "1", transcript(ONIONS), seen)) is None
    assert finder.reason(finder.signature("b", 16.0, "2", transcript("hm"), noisy)) == "it shows the same as a"
    assert finder.reason(finder.signature("c", 16.0, "3", transcript(PAINT), noisy)) is None


def test_what_is_switched_off_finds_copies_alone() -> None:
    finder = DuplicateFinder(GatherSettings(same_words=1.0, same_picture=0.0))
    same = [finder.signature(id, 20.0, id, transcript(ONIONS), looks(1)) for id in "ab"]
    assert [finder.reason(video) for video in same] == [None, None]
    assert same_video(*same, GatherSettings()) == "it says the same as {}"


def test_a_look_is_the_mean_of_eight_parts_and_needs_eight_rows() -> None:
    rows = np.repeat(np.arange(16, dtype=np.float32)[:, None] / 16, 192, axis=1)
    found = mean_thumbnails(rows)
    assert found is not None
    assert found.shape == (8, 64)
    assert np.allclose(found[[0, 7], 0], [0.5 / 16, 14.5 / 16])
    rows[8:] = np.nan
    assert mean_thumbnails(rows) is not None
    assert mean_thumbnails(rows[8:]) is None
    assert mean_thumbnails(None) is None
