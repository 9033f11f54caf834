"""Lists of a few lines of a longer recipe, with lines that nobody says: each line of the recipe is
where the whole list has it, and the others are not found."""

import random
from pathlib import Path

import pytest

import stepline
from stepline.grounding.speech import OUT_OF_ORDER
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.placing import ground_steps
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.speech import SpeechInVideo
from stepline.pipeline.understand import place_user_lines
from stepline.records import Sentence, Span, Transcript
from stepline.storage import read_record

SETTINGS = StepsSettings()
DEMO = Path(stepline.__file__).parent / "cli" / "demo" / "demo.mp4"
# None of them shares its verb with a step that is told. Such a line is taken for that step where the
# list leaves the step out.
UNSAID = (
    "Sharpen the big knife, Steam the broccoli, Roll out the pastry, Rinse the lentils, "
    "Toast some sesame seeds, Peel the carrots, Drain a jar of olives"
).split(", ")
RECIPE = (
    "Crack two eggs into a bowl, Add the flour to the eggs, Whisk the batter with a fork, "
    "Heat the pan on the stove, Pour the batter into the hot pan, Flip the pancake with a spatula, "
    "Slice the strawberries, Melt the chocolate in the microwave, Spread the chocolate on the "
    "pancake, Put the strawberries on top, Fold the pancake in half, Dust it with powdered sugar"
).split(", ")
TALK = (
    "Both of my brothers play in the same band.",
    "It rained all through our holiday last year.",
    "I got this apron from an old friend.",
    "The new studio is much brighter than before.",
    "Thank you so much for all the kind letters.",
)
# Not shown while they are told, but 8 s later and earlier: whether that is seen depends on the list.
SHOWN_ELSEWHERE = ("pour the flour into the bowl", "put some strawberries on the pancakes")


def place(lines, transcript, duration, visual):
    steps = place_user_lines(lines, transcript, SETTINGS).steps
    return ground_steps(steps, duration, transcript, visual, SETTINGS, written=False).steps


def draw_list(rng, recipe):
    """Return 1 to 12 lines in their order, about a third of which are told nowhere."""
    count = rng.randint(1, min(12, len(recipe)))
    rows = sorted(rng.sample(range(len(recipe)), count))
    lines = [recipe[row] for row in rows]
    for line in rng.sample(UNSAID, min(len(UNSAID), count // 2)):
        lines.insert(rng.randint(0, len(lines)), line)
    return lines


def told_recipe(rng):
    """Return the recipe told at any pace, with talk between, before and after."""
    sentences, now = [], 0.0
    said = {}
    for line in (None, None, *RECIPE, None):
        if line is None or rng.random() < 0.3:
            now += rng.uniform(2.0, 15.0)
            sentences.append(Sentence(text=rng.choice(TALK), span=Span(now, now + 3.0)))
            now += 3.0
        if line is not None:
            now += rng.uniform(2.0, 15.0)
            said[line] = Span(now, now + 3.0)
            sentences.append(Sentence(text=f"Now {line.lower()}.", span=said[line]))
            now += 3.0
    return Transcript(language="en", sentences=tuple(sentences)), said, now + 30.0


@pytest.mark.parametrize("seed", range(8))
def test_each_line_is_next_to_its_words(seed):
    rng = random.Random(seed)
    transcript, said, duration = told_recipe(rng)
    for _ in range(3):
        for step in place(draw_list(rng, RECIPE), transcript, duration, VisualFeatures()):
            assert OUT_OF_ORDER not in (step.doubt or ""), step
            if step.text not in said:
                assert step.status == "not_found", step
                continue
            words = said[step.text]
            assert step.said is not None, step
            assert words.start - 3 <= step.at <= words.end + 10, step


@pytest.mark.parametrize("number", [2, 9])
def test_a_line_out_of_order_is_marked_with_the_second_at_which_it_is_said(number):
    transcript, said, duration = told_recipe(random.Random(number))
    lines = [*RECIPE[:number], *RECIPE[number + 1 :]]
    lines.insert(0 if number > 5 else 11, RECIPE[number])
    written = place_user_lines(lines, transcript, SETTINGS, start=60.0)
    minutes, second = divmod(int(said[RECIPE[number]].start + 60), 60)
    doubt = f"said at {minutes}:{second:02d}, {OUT_OF_ORDER}"
    marked = {step.id: step.doubt for step in written.steps if step.doubt}
    assert list(marked.values()) == [doubt]
    (id,) = marked
    assert lines[int(id) - 1] == RECIPE[number]
    cure = "write the lines in the order of the video"
    assert written.notes == (f"line {id} is {doubt}; {cure}",)
    assert SpeechInVideo(transcript=transcript, steps=written.steps).steps == written.steps
    # where it is placed nonetheless, the step has the doubt
    steps = [
        step.model_copy(update={"said": step.said or Span(1.0, 2.0)}) for step in written.steps
    ]
    visual = VisualFeatures()
    placed = ground_steps(steps, duration, transcript, visual, SETTINGS, written=False).steps
    assert (placed[int(id) - 1].status, placed[int(id) - 1].doubt) == ("placed", doubt)


@pytest.fixture(scope="module")
def demo_truth():
    return read_record(DEMO.with_name("demo_truth.json"))


@pytest.mark.parametrize("seed", range(6))
def test_the_demo_has_each_line_where_it_is_drawn(seed, demo_truth, demo_pictures):
    rng = random.Random(seed)
    truth = {step.text: step for step in demo_truth.reference}
    for _ in range(3):
        lines = draw_list(rng, tuple(truth))
        for step in place(lines, demo_truth.transcript, demo_truth.video.duration, demo_pictures):
            if step.text not in truth:
                assert step.status == "not_found", step
            elif truth[step.text].spans and step.text not in SHOWN_ELSEWHERE:
                assert step.spans, step
                assert step.spans[0].overlap(truth[step.text].spans[0]) > 1.0, step
