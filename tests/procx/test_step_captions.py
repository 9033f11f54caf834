from stepline.procx.settings import VocabularySettings
from stepline.procx.vocabulary import BEGIN, END, PAD, tokenize, train_vocabulary

VOCABULARY = train_vocabulary(["cut the onion", "fry the egg"] * 3, VocabularySettings(size=250))


def test_tokens_are_read_one_place_before_they_are_wanted():
    made = tokenize(["cut the onion", "egg"], VOCABULARY, longest=8)
    cut, the, onion = VOCABULARY.encode("cut the onion")
    (egg,) = VOCABULARY.encode("egg")
    assert made.tokens.tolist() == [[BEGIN, cut, the, onion], [BEGIN, egg, PAD, PAD]]
    assert made.targets.tolist() == [[cut, the, onion, END], [egg, END, PAD, PAD]]
    assert made.token_pad.tolist() == [[False] * 4, [False, False, True, True]]
    assert made.truncated == 0


def test_a_long_one_is_cut_counted_and_does_not_end():
    made = tokenize(["cut the onion", "egg"], VOCABULARY, longest=3)
    assert made.targets[0].tolist() == VOCABULARY.encode("cut the onion")
    assert END not in made.targets[0]
    assert made.truncated == 1


def test_a_blank_sentence_is_its_end_and_no_sentence_is_no_row():
    assert tokenize([" "], VOCABULARY, longest=3).targets.tolist() == [[END]]
    assert tokenize([], VOCABULARY, longest=3).tokens.shape == (0, 0)
