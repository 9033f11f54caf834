"""Each rule of the extractive writer on sentences made for it: which clauses are steps, and how
they are worded."""

import pytest

from stepline.records import Sentence, Span, Transcript
from stepline.writing.extractive.writer import write_extractive


def steps_of(*texts: str) -> list[str]:
    sentences = tuple(
        Sentence(text=text, span=Span(float(i), i + 1.0)) for i, text in enumerate(texts)
    )
    return [
        step.text for step in write_extractive(Transcript(language="en", sentences=sentences)).steps
    ]


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
        ("I want you to add the salt.", "add the salt"),
        ("so um now you're gonna kind of add the salt", "add the salt"),
        ("okay now add the salt", "add the salt"),
        ("After that, the potatoes are then mashed with butter.", "mash the potatoes with butter"),
        ("Make sure the lid is closed.", "make sure the lid is closed"),
        ("I'm going to start by priming the wood.", "prime the wood"),
        ("Step two, add the salt.", "add the salt"),
        ("To begin with, step one is to add the salt.", "add the salt"),
        ("What he wants to do is, for one thing, add the salt.", "add the salt"),
    ],
)
def test_every_way_of_telling_gives_the_same_plain_order(text: str, step: str) -> None:
    assert steps_of(text) == [step]


def test_a_gerund_is_a_step_but_not_as_the_title_of_the_video() -> None:
    assert steps_of("Changing a tire.", "Adding the salt.") == ["add the salt"]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Wash and dry the lemons.", ["wash the lemons", "dry the lemons"]),
        ("We're going to slice, then juice, our lemons.", ["slice the lemons", "juice the lemons"]),
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
            "A deep breath and place the mat, pull the cord slowly.",
            ["place the mat", "pull the cord slowly"],
        ),
        (
            "The last one is kneading, gently press the dough with your hands.",
            ["gently press the dough with your hands"],
        ),
        (
            "It should not be wet now, so slowly open the lid, and before long, you'll see.",
            ["slowly open the lid"],
        ),
        (
            "Jump off both legs, land soft, come down slowly.",
            ["jump off both legs", "land soft", "come down slowly"],
        ),
    ],
)
def test_joined_verbs_are_steps_of_their_own_and_share_their_object(
    text: str, steps: list[str]
) -> None:
    assert steps_of(text) == steps


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            "Whisk the sugar into the water until it dissolves.",
            "whisk the sugar into the water until it dissolves",
        ),
        ("Fill the jar with lemon slices.", "fill the jar with lemon slices"),
        ("Cut the strip using a sharp knife.", "cut the strip using a sharp knife"),
        (
            "If the pan gets too hot, turn the heat down.",
            "turn the heat down if the pan gets too hot",
        ),
        ("Once the butter has melted, add the flour.", "add the flour"),
        ("Add the flour because we like it thick.", "add the flour"),
        ("Use the screws that came in the box.", "use the screws"),
        ("Gently pull the rope.", "gently pull the rope"),
        ("Add in the Moscato, the whole bottle.", "add in the Moscato"),
        ("Give the paint a good stir.", "stir the paint"),
        ("Right click on the layer.", "right-click on the layer"),
        ("Click OK when you're finished.", "click OK when you're finished"),
        ("Step evenly on both sides.", "step evenly on both sides"),
        ("Ask your neighbour to hold the ladder.", "ask your neighbour to hold the ladder"),
        ("Support the shelf with your other hand.", "support the shelf with your other hand"),
        (
            "Adjust the seat so your knees meet the pad.",
            "adjust the seat so your knees meet the pad",
        ),
        ("Establish what they have taken.", "establish what they have taken"),
        (
            "Set the dough aside and let it rest for an hour.",
            "set the dough aside to rest for an hour",
        ),
    ],
)
def test_what_qualifies_an_action_stays_and_the_rest_goes(text: str, step: str) -> None:
    assert steps_of(text) == [step]


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Don't overmix the batter.", "don't overmix the batter"),
        ("You don't want to overmix the batter.", "don't overmix the batter"),
        ("Never mix bleach with ammonia.", "never mix bleach with ammonia"),
    ],
)
def test_a_warning_keeps_its_no(text: str, step: str) -> None:
    assert steps_of(text) == [step]


@pytest.mark.parametrize(
    "text",
    [
        "You don't need to peel the apples.",
        "If you are in trouble, follow these simple steps.",
        "For more advice, visit example.com.",
        "Check out my previous video for the details.",
        "If you find yourself in the right place, smile.",
        "Aim for twenty.",
        "You rest on there for.",
        "You don't have to add the salt.",
        "I'm not going to add the salt.",
        "I've already added the salt.",
        "I added the salt.",
        "You could add the salt.",
        "I would add the salt.",
        "Should you add the salt?",
        "You can also use olive oil.",
        "You can add as much salt as you want.",
        "If you prefer, add more salt.",
        "I usually add the salt here.",
        "I like to add the salt early.",
        "They add the salt at the factory.",
        "Salt makes it taste better.",
        "You get a much smoother finish.",
        "You'll notice that the color changes.",
        "You need a hammer and some nails.",
        "It depends on how much salt you add.",
        "In this video we'll build a shelf.",
        "Let me show you the result.",
        "Let's get right into it.",
        "Get off your pity pot.",
        "Take a look at this.",
        "Check out the links below.",
        "Try this recipe.",
        "Please give this video a thumbs up.",
        "Bear with me.",
        "Stay safe and see you soon.",
    ],
)
def test_what_only_looks_like_an_order_is_none(text: str) -> None:
    assert steps_of("Welcome.", text) == []


def test_what_would_happen_otherwise_is_no_step() -> None:
    assert steps_of("Don't squeeze the lever, or you'll push the pistons out.") == [
        "don't squeeze the lever"
    ]


@pytest.mark.parametrize(
    ("texts", "step"),
    [
        (("Pull the clip off.", "Put it in a cup."), "put the clip in a cup"),
        (("Crack the eggs.", "Beat them with a fork."), "beat the eggs with a fork"),
        (("There's a small pin at the back.", "Unscrew it."), "unscrew the small pin"),
        (("Once the sauce is thick, pour it over the rice.",), "pour the sauce over the rice"),
        (("Take the lid and the cups.", "Wash them."), "wash the lid and cups"),
    ],
)
def test_a_pronoun_gets_the_name_of_the_one_thing_it_can_mean(
    texts: tuple[str, ...], step: str
) -> None:
    assert steps_of(*texts)[-1] == step


@pytest.mark.parametrize(
    ("texts", "step"),
    [
        (("Stir the sugar into the milk.", "Chill it."), "chill it"),  # sugar or milk?
        (("Fill the hole with soil.", "Press it down."), "press it down"),  # hole or soil?
        (("Take the plates.", "Wipe it."), "wipe it"),  # other number
        (("Open the box.", "Good.", "Nice.", "Fine.", "Turn it."), "turn it"),  # too far back
        # points at the picture
        (("Set the opacity to fifty.", "Drag that to the left."), "drag that to the left"),
        (("Click the link below.", "Turn it."), "turn it"),  # chat names nothing
    ],
)
def test_a_pronoun_stays_where_it_is_not_safe(texts: tuple[str, ...], step: str) -> None:
    assert steps_of(*texts)[-1] == step


def test_a_step_has_at_most_sixteen_words() -> None:
    long = "Add the salt with the big spoon from the drawer in the kitchen by the door of the house near the old lake."
    (step,) = steps_of(long)
    assert step.startswith("add the salt")
    assert len(step.split()) <= 16
