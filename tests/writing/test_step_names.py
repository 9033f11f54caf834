"""Which pronouns of a step may get a name at all, whatever the finder of names is sure of."""

import pytest

from stepline.writing.extractive import antecedents
from stepline.writing.extractive.antecedents import Candidate, PronounResolver
from stepline.writing.extractive.english import parse
from tests.writing.test_extractive_rules import reading_that_keeps_all


class SureFinder:
    """Stands for the finder of names, and takes every pronoun for the hair."""

    def __init__(self, docs, keeps):
        pass

    def rank(self, sentence, token):
        return [(Candidate("hair", "hair", 0, False, "dobj", 1.0, 1, True), 1.0)]


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("Then comb it.", 2, "hair"),
        ("Then repeat this on the other side.", 2, None),
        ("Now do it again.", 2, None),
        ("Then comb slowly.", 2, None),
        ("Then comb this.", 2, None),
    ],
)
def test_work_gets_no_name_of_a_thing(monkeypatch, text, place, name):
    monkeypatch.setattr(antecedents, "AntecedentFinder", SureFinder)
    namer = PronounResolver(parse([text]), [reading_that_keeps_all(text)])
    assert namer.antecedent_at(0, place) == name
