"""Pairing (eq. 5): worked by hand, and against the pairwise loop."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.sieve_swap.pairing import (
    BATCH_VIDEOS,
    PairFinder,
    WordSets,
    WordVocabulary,
    threshold_table,
)
from stepline.sieve_swap.settings import PairingSettings

DOCUMENTS = [
    ("bean salad", "bean onion chop mix"),  # 0
    ("bean soup", "bean onion boil pot water salt"),  # 1
    ("apple pie", "bean onion chop mix"),  # 2: no title word in common
    ("green bean", "steam"),  # 3: no content word in common
]
VIDEO = ("bean salad bowl", "bean onion chop mix oil friend subscribe channel")


def pairing(documents=DOCUMENTS):
    vocabulary = WordVocabulary()
    titles = WordSets.from_lists([vocabulary.add_words(title.split()) for title, _ in documents])
    contents = WordSets.from_lists([vocabulary.add_words(words.split()) for _, words in documents])
    return PairFinder(titles, contents, len(vocabulary)), vocabulary


def pairs_of(video, settings, documents=DOCUMENTS):
    found, vocabulary = pairing(documents)
    titles, contents = (
        WordSets.from_lists([vocabulary.find_words(text.split())]) for text in video
    )
    return next(found.find_pairs(titles, contents, settings))


def test_token_iou_and_recall_are_those_worked_by_hand():
    pairs = pairs_of(VIDEO, PairingSettings(iou=0.1, recall=0.3))
    # Document 0 shares 4 of its 4 words and the video has 8: IoU 4 / 8, recall 4 / 4.
    # Document 1 shares 2 of its 6: IoU 2 / 12, recall 2 / 6.
    assert pairs.documents.tolist() == [0, 1]
    assert pairs.iou.tolist() == [4 / 8, 2 / 12]
    assert pairs.recall.tolist() == [4 / 4, 2 / 6]


def test_recall_can_be_a_share_of_the_transcript():
    pairs = pairs_of(VIDEO, PairingSettings(iou=0.1, recall=0.25, recall_of="transcript"))
    assert pairs.documents.tolist() == [0, 1]
    assert pairs.recall.tolist() == [4 / 8, 2 / 8]


def test_a_pair_exactly_at_the_thresholds_is_kept():
    assert pairs_of(VIDEO, PairingSettings(iou=0.5, recall=1.0)).documents.tolist() == [0]
    assert len(pairs_of(VIDEO, PairingSettings(iou=0.51, recall=1.0))) == 0


def test_without_a_common_title_word_there_is_no_pair():
    assert len(pairs_of(("cake", VIDEO[1]), PairingSettings(iou=0.0, recall=0.0))) == 0


def test_the_best_pair_decides_the_split():
    settings = PairingSettings()
    assert pairs_of(VIDEO, settings).choose_split(settings) == "validation"
    assert pairs_of(VIDEO, settings).choose_split(PairingSettings(validation_iou=0.51)) == "train"
    assert pairs_of(("cake", "x"), settings).choose_split(settings) is None


@pytest.mark.parametrize("recall_of", ["document", "transcript"])
@pytest.mark.parametrize(
    ("iou", "recall"), [(0.1, 0.3), (0.2, 0.3), (0.0, 0.0), (0.05, 0.6), (0.3, 0.0)]
)
def test_the_result_is_that_of_the_pairwise_loop(iou, recall, recall_of):
    chance = np.random.default_rng(7)
    documents = drawn(chance, (300, 2, 60), (300, 30, 60))
    videos = drawn(chance, (40, 3, 70), (40, 40, 70), unknown=True)
    settings = PairingSettings(iou=iou, recall=recall, recall_of=recall_of)
    found = list(PairFinder(*documents, 60).find_pairs(*videos, settings))
    assert sum(map(len, found)) > 0
    for video, pairs in enumerate(found):
        expected = loop(videos, documents, video, settings)
        assert list(zip(pairs.documents, pairs.iou, pairs.recall, strict=True)) == expected


def drawn(chance, *shapes, **options):
    """Sets of words for each (count, most words, vocabulary)."""
    return tuple(WordSets.from_lists(sets(chance, *shape, **options)) for shape in shapes)


def sets(chance, count, most, vocabulary, unknown=False):
    rows = []
    for _ in range(count):
        size = chance.integers(1, most + 1)
        rows.append(np.unique(chance.integers(0, vocabulary, size)).tolist())
    return [[word if word < 60 else -1 for word in row] for row in rows] if unknown else rows


def loop(videos, documents, video, settings):
    out = []
    for number in range(len(documents[0])):
        if not set(videos[0][video]) & set(documents[0][number]):
            continue
        a, r = int(videos[1].sizes[video]), int(documents[1].sizes[number])
        shared = len(set(videos[1][video]) & set(documents[1][number]))
        iou = shared / (a + r - shared)
        recall = shared / (r if settings.recall_of == "document" else a)
        if iou >= settings.iou and recall >= settings.recall:
            out.append((number, iou, recall))
    return out


def test_sets_joined_are_the_sets_one_after_another():
    first, second = WordSets.from_lists([[3, 1, 3], []]), WordSets.from_lists([[2, -1, -1]])
    joined = WordSets.concat([first, second])
    assert [joined[index].tolist() for index in range(3)] == [[1, 3], [], [2]]
    assert joined.sizes.tolist() == [2, 0, 3]
    assert len(WordSets.concat([])) == 0


def test_sets_whose_arrays_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="word sets need"):
        WordSets(np.array([0, 2]), np.zeros(1, np.int32), np.zeros(1, np.int64))


def test_the_table_counts_what_each_pair_of_thresholds_keeps():
    found = [pairs_of(VIDEO, PairingSettings(iou=0.0, recall=0.0))]
    found.append(pairs_of(("soup", "salt boil"), PairingSettings()))
    table = threshold_table(found, ious=(0.1, 0.3, 0.6), recalls=(0.3, 0.9))
    rows = {(row.iou, row.recall): row for row in table}
    # DocumentPairs: (video 0, document 0) .5 / 1, (0, 1) .167 / .333, (0, 3) 0 / 0, (1, 1) 2 / 6 and 2 / 6.
    assert (rows[0.1, 0.3].videos, rows[0.1, 0.3].documents, rows[0.1, 0.3].pairs) == (2, 2, 3)
    assert (rows[0.1, 0.9].videos, rows[0.1, 0.9].documents, rows[0.1, 0.9].pairs) == (1, 1, 1)
    assert (rows[0.3, 0.3].videos, rows[0.3, 0.3].pairs) == (2, 2)
    assert rows[0.6, 0.3].pairs == 0


def test_pairs_are_exact_over_several_batches_and_where_more_words_are_shared_than_a_byte_counts():
    chance = np.random.default_rng(11)
    documents = drawn(chance, (200, 3, 1900), (200, 1900, 1900))
    videos = drawn(chance, (150, 20, 1900), (150, 1900, 1900))
    settings = PairingSettings(iou=0.02, recall=0.03)
    found = list(PairFinder(*documents, 1900).find_pairs(*videos, settings))
    assert sum(map(len, found)) > 0
    assert len(found) > 2 * BATCH_VIDEOS
    assert any((pairs.recall * documents[1].sizes[pairs.documents] > 255).any() for pairs in found)
    for video, pairs in enumerate(found):
        expected = loop(videos, documents, video, settings)
        assert list(zip(pairs.documents, pairs.iou, pairs.recall, strict=True)) == expected
