"""Sieve and swap (eq. 6): each output line can be checked by eye."""

import numpy as np
import pytest
from small_base import SmallBase

from stepline.errors import ModelError, ShapeError
from stepline.records import Record, Rejected, Sentence, Span, Transcript, Video
from stepline.sieve_swap.agreement import CHANGED_NEGATION, CHANGED_NUMBER
from stepline.sieve_swap.match import (
    NO_DOCUMENT,
    NO_SIMILAR_STEP,
    STEP_NOT_SPOKEN,
    narration_segments,
)
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import (
    NO_INSTRUCTION,
    are_instructions,
    instruction_probability,
    sieve_and_swap,
)
from stepline.text import embed

BASE = SmallBase()
SPOKEN = [
    (0.0, 3.0, "hello my dear friends and welcome"),
    (4.0, 9.0, "peel two cloves of garlic"),
    (10.0, 13.0, "rub the toast"),
    (13.5, 15.0, "rub the toast with garlic"),
    (30.0, 33.0, "rub the toast with garlic"),
    (34.0, 36.0, "drizzle it with olive oil"),
]


def record(spoken=SPOKEN, identity="v1"):
    sentences = tuple(Sentence(text=text, span=Span(start, end)) for start, end, text in spoken)
    return Record(id=identity, video=Video(id=identity), transcript=Transcript(sentences=sentences))


def swapped(spoken=SPOKEN, paired=None, retained=None, base=BASE, **settings):
    plain = {"scope": "all", "sieve": "similarity", "similarity": 0.55}
    plain |= {"swap_similarity": 0.0, "unswapped": "drop"}
    chosen = SwapSettings(**(plain | settings))
    made = sieve_and_swap(
        [record(spoken)], base, chosen, paired=paired, retained=retained, embed=base.embed
    )
    return made[0]


def lines(made):
    return [
        (step.spans[0].start, step.spans[0].end, step.text, step.sources) for step in made.steps
    ]


def texts(made):
    return [step.text for step in made.steps]


def reasons(made):
    return [item.reason for item in made.dropped]


def test_the_golden_run():
    made = swapped()
    assert lines(made) == [
        (4.0, 9.0, "Peel 2 cloves garlic.", (1,)),
        (10.0, 15.0, "Rub the toast with the garlic.", (2, 3)),
        (30.0, 33.0, "Rub the toast with the garlic.", (4,)),  # 15 s later: told again, not merged
        (34.0, 36.0, "Drizzle with olive oil.", (5,)),
    ]
    assert [(item.text, item.reason) for item in made.dropped] == [
        ("hello my dear friends and welcome", NO_SIMILAR_STEP)
    ]
    first = made.steps[0]
    assert (first.source_text, first.licence) == ("tests: d0#0", "CC0-1.0")
    assert first.alternatives == ("peel two cloves of garlic",)
    # Shared words: peel, cloves, garlic; said: 5 words ("two" and "of" are unknown, 2 in one
    # place), the step: 4.
    assert first.score == pytest.approx(3 / (np.sqrt(1 + 1 + 1 + 4) * np.sqrt(4)), abs=1e-6)
    assert (first.status, first.said) == (None, Span(4.0, 9.0))


SIEVED = ["peel two cloves of garlic", "rub the toast rub the toast with garlic"]
SIEVED += ["rub the toast with garlic", "drizzle it with olive oil"]
RUB = "Rub the toast with the garlic."
SWAPPED = ["Peel 2 cloves garlic.", RUB, RUB, "Drizzle with olive oil."]


@pytest.mark.parametrize(
    ("variant", "wanted"),
    [
        ("raw", [text for _, _, text in SPOKEN]),
        ("only-sieve", SIEVED),
        ("mix", [text for pair in zip(SWAPPED, SIEVED, strict=True) for text in pair]),
    ],
)
def test_the_variants_keep_the_seconds(variant, wanted):
    made = swapped(variant=variant)
    assert texts(made) == wanted
    assert [step.id for step in made.steps] == [str(number) for number in range(len(wanted))]
    assert all(step.spans == (step.said,) for step in made.steps)


def test_a_similarity_exactly_at_the_threshold_is_kept():
    spoken = [(0.0, 1.0, "drain the beans")]
    assert len(swapped(spoken, similarity=1.0).steps) == 1  # the same words: cosine 1
    assert reasons(swapped([(0.0, 1.0, "drain beans")], similarity=0.9)) == [NO_SIMILAR_STEP]


def test_a_step_that_changes_a_number_gives_way_to_the_next_nearest():
    base = SmallBase([("A", ["Peel 3 cloves of garlic."]), ("B", ["Peel 2 cloves garlic now."])])
    spoken = [(0.0, 2.0, "peel 2 cloves of garlic")]
    assert texts(swapped(spoken, base=base)) == ["Peel 2 cloves garlic now."]
    assert reasons(swapped(spoken, base=base, candidates=1)) == [CHANGED_NUMBER]
    assert texts(swapped(spoken, base=base, check=False)) == ["Peel 3 cloves of garlic."]


def test_a_negation_is_never_swapped_away():
    assert reasons(swapped([(0.0, 2.0, "do salt yet")])) == [CHANGED_NEGATION]
    assert texts(swapped([(0.0, 2.0, "do not salt it yet")])) == ["Do not salt yet."]


def test_a_sentence_whose_near_steps_all_disagree_keeps_its_own_words_when_asked():
    spoken = [(0.0, 2.0, "do salt yet"), (9.0, 12.0, "drain the beans")]
    spoken += [(20.0, 22.0, "hello my friends")]
    made = swapped(spoken, unswapped="own words")
    assert lines(made) == [(0.0, 2.0, "do salt yet", (0,)), (9.0, 12.0, "Drain the beans.", (1,))]
    own = made.steps[0]
    assert (own.source_text, own.licence, own.alternatives) == (None, None, ())
    assert own.score == pytest.approx(3 / np.sqrt(3 * 4))  # do, salt, yet of "Do not salt yet."
    assert [item.text for item in made.dropped] == ["hello my friends"]
    mixed = swapped(spoken, unswapped="own words", variant="mix")
    assert texts(mixed) == ["do salt yet", "Drain the beans.", "drain the beans"]


def test_a_step_that_is_near_enough_to_keep_a_sentence_may_be_too_far_to_replace_it():
    spoken = [(0.0, 2.0, "drain the beans"), (9.0, 12.0, "mix beans and onion")]
    spoken += [(20.0, 22.0, "do salt yet")]
    given = {"paired": [np.array([1])], "swap_similarity": 0.9}
    # cosines: 1, 4 / (2 sqrt 6) = .82, .87 but negated
    made = swapped(spoken, **given, unswapped="own words")
    assert texts(made) == ["Drain the beans.", "mix beans and onion", "do salt yet"]
    assert [step.source_text is None for step in made.steps] == [False, True, True]
    assert texts(swapped(spoken, **given)) == ["Drain the beans."]


def test_the_threshold_of_the_sieve_goes_with_the_sieve():
    assert SwapSettings().floor == 0.55
    assert SwapSettings(sieve="similarity").floor == 0.6
    assert SwapSettings(sieve="similarity", similarity=0.0).floor == 0.0


def test_only_the_steps_of_the_asked_documents_are_searched():
    spoken = [(0.0, 2.0, "drain the beans"), (9.0, 12.0, "remove the wheel")]
    bicycle = np.array([2])
    assert texts(swapped(spoken)) == ["Drain the beans.", "Remove the wheel."]
    assert texts(swapped(spoken, scope="retained", retained=bicycle)) == ["Remove the wheel."]
    assert texts(swapped(spoken, scope="paired", paired=[bicycle])) == ["Remove the wheel."]
    nothing = swapped(spoken, scope="paired", paired=[np.array([], np.int64)])
    assert reasons(nothing) == [NO_DOCUMENT, NO_DOCUMENT]


def test_short_neighbours_merge_before_retrieval_when_asked():
    spoken = [(0, 5, "a"), (6, 9, "b"), (9.5, 12, "c"), (16.1, 18, "d")]
    spoken += [(18, 27, "e"), (27, 28, "f"), (29, 30, " ")]
    found = record(spoken).transcript.sentences
    # a and b: 5 s and 3 s, 1 s apart. a b lasts 9 s, so c stays out; c and d are 4.1 s apart; e
    # lasts 9 s.
    settings = SwapSettings(merge="before")
    before = narration_segments(found, settings)
    assert [piece.text for piece in before] == ["a b", *"cdef"]
    assert before[0].sources == (0, 1)
    after = narration_segments(found, SwapSettings(merge="after"))
    assert [piece.text for piece in after] == list("abcdef")


def test_a_gap_of_exactly_the_limit_does_not_merge():
    found = record([(0.0, 2.0, "a"), (6.0, 8.0, "b")]).transcript.sentences
    assert len(narration_segments(found, SwapSettings(merge="before"))) == 2
    assert len(narration_segments(found, SwapSettings(merge="before", merge_gap=4.01))) == 1


def test_hits_on_one_step_merge_only_when_nothing_merged_before_retrieval():
    # 10 s each, so appendix A.2 leaves them apart, though they have one nearest step.
    spoken = [(0.0, 10.0, "rub the toast with garlic"), (11.0, 21.0, "rub the toast with garlic")]
    step = "Rub the toast with the garlic."
    assert lines(swapped(spoken, merge="after")) == [(0.0, 21.0, step, (0, 1))]
    found = lines(swapped(spoken, merge="before"))
    assert found == [(0.0, 10.0, step, (0,)), (11.0, 21.0, step, (1,))]


def test_each_sentence_of_the_record_has_one_outcome_after_an_earlier_run():
    kinds = (("sentence", SPOKEN[0][2]), ("sentence", "unheard"), ("step", SPOKEN[0][2]))
    earlier = tuple(Rejected(kind, "earlier", text=text) for kind, text in kinds)
    before = record().model_copy(update={"dropped": earlier})
    (made,) = sieve_and_swap(
        [before], BASE, SwapSettings(scope="all", sieve="similarity"), embed=BASE.embed
    )
    assert made.dropped[:2] == earlier[1:]
    assert "earlier" not in [item.reason for item in made.dropped[2:]]


def test_a_record_without_speech_has_no_steps():
    silent = Record(id="v", video=Video(id="v"))
    made = sieve_and_swap([silent], BASE, SwapSettings(scope="all"), embed=BASE.embed)
    assert made == [silent]


def test_documents_are_asked_for_where_they_are_needed():
    with pytest.raises(ShapeError, match="give `paired`"):
        swapped(scope="paired")
    with pytest.raises(ShapeError, match="an entry per record: 1, not 0"):
        swapped(paired=[])


def test_talk_about_the_steps_own_food_sounds_like_no_instruction():
    texts = [
        "now throw your chopped onions into the pan",
        "my neighbour grows these onions in her garden",
    ]
    step, talk = instruction_probability(embed(texts))
    assert step > 0.8
    assert talk < 0.2
    assert are_instructions(texts, 0.5) == [True, False]
    assert are_instructions(texts, 0.0) == [True, True]


def test_vectors_of_another_encoder_are_refused():
    with pytest.raises(ShapeError, match="needs MiniLM vectors"):
        instruction_probability(np.zeros((2, 768), np.float32))


def test_no_text_gives_no_verdict():
    assert are_instructions([], 0.5) == []


def test_the_sieve_by_wording_drops_talk_that_a_step_is_near_to():
    said = ["my uncle used to rub the toast with garlic", "now rub the toast with garlic"]
    spoken = [(10.0 * at, 10.0 * at + 3, text) for at, text in enumerate(said)]
    given = {"similarity": 0.5, "swap_similarity": 0.5, "unswapped": "own words"}
    near = swapped(spoken, sieve="similarity", **given)
    kept = swapped(spoken, sieve="wording", **given)
    assert [step.sources for step in near.steps] == [(0,), (1,)]
    assert [step.sources for step in kept.steps] == [(1,)]
    assert [(item.text, item.reason) for item in kept.dropped] == [(said[0], NO_INSTRUCTION)]


class MiniLMNamedBase(SmallBase):
    """The small base under the name of the encoder that the line model reads."""

    def __init__(self):
        super().__init__()
        self.encoder = "minilm"


LINE_MODEL_BASE = MiniLMNamedBase()
# the step said last is spoken of before the first one is told
SPOKEN_EARLY = [
    (0.0, 3.0, "remember how we drizzle with olive oil"),
    (4.0, 9.0, "peel two cloves of garlic"),
    (10.0, 13.0, "rub the toast with it"),
    (14.0, 16.0, "drizzle it with olive oil"),
]


def test_the_line_model_takes_the_steps_of_the_document_that_fits_best_in_their_order():
    made = swapped(SPOKEN_EARLY, base=LINE_MODEL_BASE, paired=[[2, 1, 0]], method="line-model")
    assert lines(made) == [
        (4.0, 9.0, "Peel 2 cloves garlic.", (1,)),
        (10.0, 13.0, "Rub the toast with the garlic.", (2,)),
        (14.0, 16.0, "Drizzle with olive oil.", (3,)),
    ]
    assert reasons(made) == [STEP_NOT_SPOKEN]


def test_the_line_model_swaps_no_number_away():
    spoken = [(4.0, 9.0, "peel 3 cloves of garlic"), *SPOKEN_EARLY[2:]]
    made = swapped(
        spoken, base=LINE_MODEL_BASE, paired=[[0]], method="line-model", unswapped="own words"
    )
    assert made.steps[0].text == "peel 3 cloves of garlic"
    assert [step.source_text is None for step in made.steps] == [True, False, False]


def test_the_line_model_of_a_video_without_a_document_drops_everything():
    made = swapped(base=LINE_MODEL_BASE, paired=[[]], method="line-model")
    assert {item.reason for item in made.dropped} == {NO_DOCUMENT}


def test_the_line_model_needs_documents_and_vectors_that_it_can_read():
    with pytest.raises(ShapeError, match="method 'line-model' need each record's documents"):
        swapped(base=LINE_MODEL_BASE, method="line-model")
    with pytest.raises(ModelError, match=r"build it with --set text_base\.encoder=minilm"):
        swapped(paired=[[0]], method="line-model")
