"""What the grammar makes of sentences made for it, where the tagger would keep every word: which
clauses are actions, and how they are worded."""

import numpy as np
import pytest

from stepline.text.narration import SentenceTags
from stepline.text.narration.words import SENTENCE_KINDS, WORD_EDITS, spoken_words
from stepline.writing.extractive.grammar_actions import grammar_drafts


def reading_that_keeps_all(text: str) -> SentenceTags:
    """A reading by which an action may begin with every word, and none is left out."""
    count = len(spoken_words(text))
    edits = np.zeros((count, len(WORD_EDITS)), np.float32)
    edits[:, WORD_EDITS.index("verb")] = 0.4
    kinds = np.zeros(len(SENTENCE_KINDS), np.float32)
    kinds[SENTENCE_KINDS.index("warning")] = 1.0
    return SentenceTags(kinds, edits, np.ones(1, np.float32))


def steps_cut_at(text: str, *verbs: str) -> list[str]:
    """The actions of a sentence in which the tagger surely begins one with each of the verbs."""
    tags = reading_that_keeps_all(text)
    words = [word.strip(".,").lower() for word in spoken_words(text)]
    for verb in verbs:
        tags.edit_probabilities[words.index(verb), WORD_EDITS.index("verb")] = 0.9
    return [draft.text for draft in grammar_drafts(text, 0, tags, lambda _: None)]


@pytest.mark.parametrize(
    ("text", "verbs", "steps"),
    [
        (
            "Stir that in turn it down to low put the cover back on.",
            ("stir", "turn", "put"),
            ["stir that in", "turn it down to low", "put the cover back on"],
        ),
        ("Squat down, push back up.", ("squat", "push"), ["squat down", "push back up"]),
        ("Fold it, press, flip.", ("fold", "press", "flip"), ["fold it", "press", "flip"]),
        (
            "I cut a strip and folded it in half.",
            ("cut", "folded"),
            ["cut a strip", "fold it in half"],
        ),
        ("Let it cook until it's done.", ("let", "cook"), ["let it cook until it's done"]),
        ("Grab a rag to wipe it.", ("grab", "wipe"), ["grab a rag to wipe it"]),
        ("Make a paste by adding water.", ("make", "adding"), ["make a paste by adding water"]),
        ("Give it a quick stir.", ("give", "stir"), ["give it a quick stir"]),
    ],
)
def test_an_action_that_the_parser_hangs_on_another_one_is_cut_off(text, verbs, steps):
    assert steps_cut_at(text, *verbs) == steps


def steps_of(*texts: str) -> list[str]:
    """The actions of the sentences; pronouns stay as they were said."""
    steps = []
    for text in texts:
        drafts = grammar_drafts(text, 0, reading_that_keeps_all(text), lambda _: None)
        steps += [draft.text for draft in drafts]
    return steps


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("You stretch the the edge of the dough.", "stretch the edge of the dough"),
        ("You put the lid on, put the lid on the pot.", "put the lid on the pot"),
        ("Add 20 20 gram weights.", "add 20 20 gram weights"),
        ("Be ready to pour the milk into a glass.", "pour the milk into a glass"),
        ("Get ready to put the new filter on.", "put the new filter on"),
    ],
)
def test_what_is_said_twice_or_only_leads_in_is_told_once(text, step):
    assert steps_of(text)[-1] == step


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Add the salt.", "add the salt"),
        ("You add the salt.", "add the salt"),
        ("You're going to add the salt.", "add the salt"),
        ("You want to add the salt.", "add the salt"),
        ("You need to add the salt.", "add the salt"),
        ("You can add the salt.", "add the salt"),
        ("We're going to add the salt.", "add the salt"),
        ("We'll add the salt.", "add the salt"),
        ("I'm going to add the salt.", "add the salt"),
        ("I just add the salt.", "add the salt"),
        ("I'm adding the salt.", "add the salt"),
        ("Let's add the salt.", "add the salt"),
        ("Go ahead and add the salt.", "add the salt"),
        ("We're going to start adding the salt.", "add the salt"),
        ("Start by adding the salt.", "add the salt"),
        ("The next step is to add the salt.", "add the salt"),
        ("All you need to do is add the salt.", "add the salt"),
        ("So the first thing we're going to do is we're going to add the salt.", "add the salt"),
        ("Make sure you add the salt.", "add the salt"),
        ("Don't forget to add the salt.", "add the salt"),
        ("so um now you're gonna kind of add the salt", "add the salt"),
        ("okay now add the salt", "add the salt"),
        ("Make sure the lid is closed.", "make sure the lid is closed"),
        ("Then select export as.", "select export as"),
        ("Step two, add the salt.", "add the salt"),
        ("To begin with, step one is to add the salt.", "add the salt"),
        ("What he wants to do is, for one thing, add the salt.", "add the salt"),
    ],
)
def test_every_way_of_telling_gives_the_same_plain_order(text, step):
    assert steps_of(text) == [step]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Wash and dry the lemons.", ["wash the lemons", "dry the lemons"]),
        ("Take the lid off and pour the water out.", ["take the lid off", "pour the water out"]),
        (
            "Remove the lid, drain the pasta, and close the pot.",
            ["remove the lid", "drain the pasta", "close the pot"],
        ),
        (
            "Open the menu and then you're going to choose the brush.",
            ["open the menu", "choose the brush"],
        ),
        ("Cut the carrots and onions.", ["cut the carrots and onions"]),
        ("Click and release your finger.", ["click", "release your finger"]),
        (
            "The last one is kneading, gently press the dough with your hands.",
            ["gently press the dough with your hands"],
        ),
        (
            "Lie on your back, pinching your shoulders together.",
            ["lie on your back", "pinch your shoulders together"],
        ),
    ],
)
def test_joined_verbs_are_steps_of_their_own_and_share_their_object(text, steps):
    assert steps_of(text) == steps


@pytest.mark.parametrize(
    "text",
    [
        # what qualifies an action
        "Whisk the sugar into the water until it dissolves.",
        "Fill the jar with lemon slices.",
        "Cut the strip using a sharp knife.",
        "Add splashes of water as needed.",
        "Tie it to the post instead of a hook.",
        "Set it so it's even with the edge.",
        "Give it two coats.",
        "Use the screws that came in the box.",
        "Gently pull the rope.",
        "Twist or bend the cable until it breaks.",
        "Add in the Moscato, the whole bottle.",
        "Give the paint a good stir.",
        "Click OK when you're finished.",
        "Step evenly on both sides.",
        "Ask your neighbour to hold the ladder.",
        "Support the shelf with your other hand.",
        "Adjust the seat so your knees meet the pad.",
        "Establish what they have taken.",
        "Cut the wire just below the clip.",
        "Fill the cup until just before it overflows.",
        # one more thing of the same verb
        "Sit down on a chair with a straight back and your feet on the floor.",
        "Kneel on the mat with a firm grip and your elbows turned out.",
        "Stand with your feet apart and your knees bent.",
        "Keep your elbows close to your body and your back straight.",
        "Hold the phone with your left hand and the case with your right.",
        "Place the lid on the pot or put it in a bag.",
        # a comparison or a pair
        "Mince the ginger as well as three cloves of garlic.",
        "Shake the car as hard as you can.",
        "Open the paint can with a screwdriver.",
    ],
)
def test_an_order_stays_whole(text):
    assert steps_of(text) == [text[0].lower() + text[1:].removesuffix(".")]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            "If the pan gets too hot, turn the heat down.",
            "turn the heat down if the pan gets too hot",
        ),
        ("Once the butter has melted, add the flour.", "add the flour once the butter has melted"),
        (
            "When you run out of thread, go to the back.",
            "go to the back when you run out of thread",
        ),
        ("If it sticks, then pull the lid off.", "pull the lid off if it sticks"),
        ("With the back of a spoon I make a hole.", "make a hole with the back of a spoon"),
        ("In a large bowl, whisk the eggs.", "whisk the eggs in a large bowl"),
        ("You only add half of the water.", "only add half of the water"),
        ("Add the flour because we like it thick.", "add the flour"),
        ("When you can hold it for ten, then raise it.", "raise it when you can hold it for ten"),
        ("Right click on the layer.", "right-click on the layer"),
        # "just" is kept where it limits a place or a time alone
        ("Just put the lid on the pot.", "put the lid on the pot"),
        ("Put the lid just over there.", "put the lid"),
    ],
)
def test_what_qualifies_an_action_stays_and_the_rest_goes(text, step):
    assert steps_of(text) == [step]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Don't overmix the batter.", ["don't overmix the batter"]),
        ("You don't want to overmix the batter.", ["don't overmix the batter"]),
        ("Never mix bleach with ammonia.", ["don't mix bleach with ammonia"]),
        # after a comma what follows is to be done
        ("Don't scrape the board, turn it around.", ["don't scrape the board", "turn it around"]),
        # "or" forbids both
        ("Don't twist or bend the cable.", ["don't twist the cable", "don't bend the cable"]),
        ("Don't tighten the cover and leave it in the sun.", ["don't tighten the cover"]),
        ("Don't try to start the car.", ["don't start the car"]),
    ],
)
def test_a_dont_reaches_as_far_as_what_it_forbids(text, steps):
    assert steps_of(text) == steps


def names_of(text: str, name: str) -> list[str]:
    """The actions of a sentence, where every pronoun is said to stand for `name`."""
    drafts = grammar_drafts(text, 0, reading_that_keeps_all(text), lambda _: name)
    return [draft.text for draft in drafts]


def test_a_pronoun_gets_no_name_that_the_step_has_already():
    text = "Get your jack stands and place it under the car."
    assert "place it under the car" in names_of(text, "car")
    assert "place the board under the car" in names_of(text, "board")


@pytest.mark.parametrize(
    "step",
    [
        "add a pound and a half of boiled potatoes, the zest from one orange, three spoons of walnut oil "
        "and a small bunch of fresh mint and some salt and sugar",
        "add three teaspoons of garlic powder, a teaspoon of turmeric, a teaspoon of ground ginger, "
        "half a teaspoon of mustard powder and a pinch of dried thyme",
    ],
)
def test_a_list_of_things_stays_whole(step):
    (written,) = steps_of(f"We're gonna {step}.")
    assert written.replace(",", "").split() == step.replace(",", "").split()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("I brought the hair to the front.", ["bring the hair to the front"]),
        ("We placed the dough on the board.", ["place the dough on the board"]),
        ("I've sprayed the hair with water.", ["spray the hair with water"]),
        ("I took a section and tied the rest.", ["take a section", "tie the rest"]),
        ("You brought the hair to the front.", []),
        ("I would bring the hair to the front.", []),
        ("I've got some probes on the input.", []),
        ("It brought the hair to the front.", []),
    ],
)
def test_what_the_speaker_did_is_an_action(text, steps):
    assert steps_of(text) == steps


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            "Then attach a connector on each side, and then your two pieces.",
            "attach a connector on each side and then your two pieces",
        ),
        (
            "I'm adding another pin in the middle, and then one at the other end.",
            "add another pin in the middle and then one at the other end",
        ),
        ("And checking this one more time.", "check this one more time"),
        ("Now check this one again.", "check this one again"),
        ("And now you're ready to blend it.", "blend it"),
        (
            "So the first thing you're going to want to do is move the chair outside.",
            "move the chair outside",
        ),
        (
            "Step two, stand behind the chair with a firm grip and your elbows turned out.",
            "stand behind the chair with a firm grip and your elbows turned out",
        ),
        ("Stir the sauce with a spoon and the pan stays hot.", "stir the sauce with a spoon"),
    ],
)
def test_one_more_thing_stays_with_its_verb(text, step):
    assert steps_of(text) == [step]


def test_a_verb_keeps_its_object_and_particle_though_the_tagger_drops_them():
    text = "Fill the bottle up with water."
    tags = reading_that_keeps_all(text)
    edits = tags.edit_probabilities
    edits[1:4] = 0.0
    edits[1:4, WORD_EDITS.index("drop")] = 1.0
    (draft,) = grammar_drafts(text, 0, tags, lambda _: None)
    assert draft.text == "fill the bottle up with water"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        # a filler ends an order, a button with its name does not
        ("Fold the towel, OK, hang the shirt.", ["fold the towel", "hang the shirt"]),
        ("Brush it on okay.", ["brush it on"]),
        ("Click OK.", ["click OK"]),
        # "we're" that was not heard
        ("Sand the shelf going to wipe the dust off.", ["sand the shelf", "wipe the dust off"]),
        ("We're going to do is we're going to fold the paper.", ["fold the paper"]),
        ("I need you to hold the board.", ["hold the board"]),
        ("Okay, here we go, tie the rope.", ["tie the rope"]),
        # nothing is forbidden, and nothing ordered
        ("You don't have to peel the carrots.", []),
        ("You don't want to peel the carrots.", ["don't peel the carrots"]),
        ("You need a bucket.", ["get a bucket"]),
        ("Tighten the bolt, and once.", ["tighten the bolt"]),
        ("Sand the edge and then really lightly.", ["sand the edge"]),
        ("Trim the hedge as you can see.", ["trim the hedge"]),
        ("Spray the glass to show you how it dries.", ["spray the glass"]),
        # states and talk
        ("You want it like a thin paste.", []),
        ("Let me show you the drill bit.", []),
        # what something is for, and what it prevents
        ("You want a tray to catch the drips.", []),
        (
            "Keep a cloth under the pipe to catch drips.",
            ["keep a cloth under the pipe to catch drips"],
        ),
        ("Let the iron cool, so you don't burn the cloth.", ["let the iron cool"]),
        # a pause before a clause or a noun
        ("Scrub the board, holding it flat.", ["scrub the board, holding it flat"]),
        # a new person without a conjunction
        ("Fill the bucket we're going to add soap.", ["fill the bucket", "add soap"]),
        ("Paint the side you'll see.", ["paint the side you'll see"]),
        # pronouns without a noun, the condition of a thing, another subject
        ("Now we're going to fold this sideways.", ["fold this sideways"]),
        ("Bend your knees, hold that.", ["bend your knees", "hold that"]),
        ("Fix it with two screws, and I've pre-drilled.", ["fix it with two screws"]),
        (
            "If the label is torn, print a new one at home.",
            ["print a new one at home if the label is torn"],
        ),
        (
            "Place it where there's a bit of shade, and then you're going to pour the syrup.",
            ["place it where there's a bit of shade", "pour the syrup"],
        ),
        # a new subject, a reason, and who speaks
        (
            "Blend the colours just until they're mixed, you don't want to waste the paint.",
            ["blend the colours just until they're mixed", "don't waste the paint"],
        ),
        ("Dry the brush before I use it.", ["dry the brush before you use it"]),
        ("Add the nuts 'cause they crunch.", ["add the nuts"]),
        ("We're going to let these dry.", ["let these dry"]),
        ("Print one if the label you need is torn.", ["print one if the label you need is torn"]),
    ],
)
def test_a_step_has_the_words_of_its_action_alone(text, steps):
    assert steps_of(text) == steps
