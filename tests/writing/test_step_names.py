"""Which pronouns of a step may get a name at all, whatever the finder of names is sure of."""

import pytest

from stepline.writing.extractive import antecedents
from stepline.writing.extractive.antecedents import Antecedent, StepNamer
from stepline.writing.extractive.english import parse
from tests.writing.test_extractive_rules import reading_that_keeps_all


class SureFinder:
    """Stands for the finder of names, and takes every pronoun for the hair."""

    def __init__(self, docs, keeps):
        pass

    def find(self, sentence, token):
        return Antecedent("hair", 1.0)


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
    namer = StepNamer(list(parse([text])), [reading_that_keeps_all(text)])
    assert namer.name_at(0, place) == name


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("Two green chillies, I slit them.", 5, "two green chillies"),
        ("So a plate, I put it upside down on top.", 5, "plate"),
        # one and many do not agree, and something else is named between
        ("Two green chillies, I slit it.", 5, None),
        ("A plate, take the cloth and put it on top.", 6, None),
        ("No knife, don't bend it.", 4, None),
        ("When it boils, stir it.", 4, None),
    ],
)
def test_a_thing_in_front_of_the_clause_names_its_pronoun(text, place, name):
    namer = StepNamer(list(parse([text])), [reading_that_keeps_all(text)])
    assert namer.name_at(0, place) == name
