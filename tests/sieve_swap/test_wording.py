"""The sieve by wording: talk about food goes, instructions stay."""

import numpy as np
import pytest
from small_base import SmallBase

from stepline.errors import ShapeError
from stepline.records import Record, Sentence, Span, Transcript, Video
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.swap import IDLE_TALK, are_instructions, instruction_probability, sieve_and_swap
from stepline.text import embed


def test_talk_about_the_steps_own_food_sounds_like_no_instruction():
    texts = ["now throw your chopped onions into the pan", "my neighbour grows these onions in her garden"]
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
    sentences = tuple(Sentence(text=text, span=Span(10.0 * at, 10.0 * at + 3)) for at, text in enumerate(said))
    spoken = Record(id="v", video=Video(id="v"), transcript=Transcript(sentences=sentences))
    base = SmallBase()
    kept = {}
    for sieve in ("similarity", "wording"):
        settings = SwapSettings(scope="all", similarity=0.5, swap_similarity=0.5, sieve=sieve)
        kept[sieve] = sieve_and_swap([spoken], base, settings, embed=base.embed)[0]
    assert [step.sources for step in kept["similarity"].steps] == [(0,), (1,)]
    assert [step.sources for step in kept["wording"].steps] == [(1,)]
    assert [(item.text, item.reason) for item in kept["wording"].dropped] == [(said[0], IDLE_TALK)]
