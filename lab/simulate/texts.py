"""The words of the world: a vocabulary of plain kitchen English, written for it, and how each style
puts it.

A line's words depend on its meaning and its `wording` number alone.
"""

from collections.abc import Sequence
from typing import Final

from lab.simulate.narration import MISHEARD_WORD, SAID_WORD, Lines
from lab.simulate.scene import NO_INDEX
from lab.simulate.settings import RecogniserSettings

COOKING_VERBS: Final = (
    "chop",
    "pour",
    "stir",
    "whisk",
    "slice",
    "peel",
    "boil",
    "fry",
    "mix",
    "grate",
    "mash",
    "season",
    "roast",
    "drain",
    "knead",
    "spread",
    "sprinkle",
    "squeeze",
    "melt",
    "toast",
    "rinse",
    "cover",
    "flip",
    "blend",
    "marinate",
    "simmer",
    "steam",
    "crush",
    "fold",
    "freeze",
    "garnish",
    "soak",
)

COOKING_NOUNS: Final = (
    "onion",
    "garlic",
    "carrot",
    "potato",
    "tomato",
    "butter",
    "flour",
    "sugar",
    "egg mixture",
    "milk",
    "cream",
    "cheese",
    "chicken",
    "beef",
    "shrimp",
    "salmon",
    "rice",
    "pasta",
    "noodles",
    "bread",
    "dough",
    "lemon",
    "lime",
    "apple",
    "banana",
    "spinach",
    "cabbage",
    "mushrooms",
    "peppers",
    "chili",
    "ginger",
    "basil",
    "parsley",
    "cilantro",
    "beans",
    "lentils",
    "corn",
    "peas",
    "broth",
    "soy sauce",
    "vinegar",
    "olive oil",
    "mustard",
    "honey",
    "chocolate",
    "walnuts",
    "yogurt",
    "coconut milk",
    "celery",
    "zucchini",
    "eggplant",
    "pumpkin",
    "avocado",
    "cucumber",
    "radish",
    "tofu",
    "bacon",
    "sausage",
    "ham",
    "tuna",
    "oats",
    "cinnamon",
    "vanilla",
    "yeast",
)

TASK_TITLES: Final = (
    "vegetable soup",
    "a birthday cake",
    "fried rice",
    "spaghetti with sauce",
    "a breakfast bowl",
    "spicy tacos",
    "a Sunday roast",
    "lemon pie",
    "a warm salad",
    "dumplings",
    "a bean stew",
    "stuffed peppers",
    "banana bread",
    "a potato gratin",
    "fish curry",
    "an omelette",
    "homemade pizza",
    "a fruit tart",
    "noodle broth",
    "cheese scones",
    "pumpkin risotto",
    "a club sandwich",
    "meatballs",
    "chocolate fudge",
    "spring rolls",
    "shepherd's pie",
    "a lentil dip",
    "pickled cabbage",
    "apple crumble",
    "shrimp skewers",
    "corn fritters",
    "a mushroom quiche",
)
TITLE_WAYS: Final = (
    "Make",
    "Cook",
    "Prepare",
    "Make quick",
    "Cook simple",
    "Make vegan",
    "Make festive",
    "Make family-size",
    "Grill",
    "Make low-fat",
    "Make campfire",
    "Make microwave",
    "Make restaurant-style",
    "Make old-fashioned",
    "Make summer",
    "Make winter",
    "Make lunchbox",
    "Make children's",
    "Make gluten-free",
    "Make one-pot",
    "Make budget",
    "Make leftover",
    "Make party",
    "Make five-minute",
    "Make freezer",
    "Make smoky",
    "Make sweet",
    "Make extra hot",
    "Make mild",
    "Make crunchy",
    "Make creamy",
    "Make light",
)

SENTENCE_LEADS: Final = (
    "so now I'm just going to",
    "next you want to",
    "and then we",
    "okay so go ahead and",
    "what I do is I",
    "alright let's",
    "at this point I",
    "you're gonna",
    "I like to",
    "now it's time to",
    "so first we",
    "and here I",
)
SENTENCE_TAILS: Final = (
    "",
    "like this",
    "just like so",
    "really well",
    "and you can see how nice that looks",
    "right here",
    "and don't rush it",
    "until it looks good",
    "as you can see",
    "for a little bit",
    "and that's about it",
    "here",
)
ABSENT_ENDS: Final = (
    "but I did that before the video",
    "the night before",
    "if you want to",
    "some people do that anyway",
    "but I'm going to skip that today",
    "when I have more time",
    "in my other video",
    "at home you could do that",
)
OBJECT_CHATS: Final = (
    "I really love {}",
    "the {} is from my garden",
    "you can get {} at any store",
    "my kids never liked {}",
    "fresh {} makes all the difference",
    "I always keep some {} in the house",
    "the {} was on sale this week",
    "a friend told me about {}",
)

PLACE_PHRASES: Final = (
    "",
    "in a large bowl",
    "with a knife",
    "in the pan",
    "over medium heat",
    "for a few minutes",
    "gently",
    "on the board",
    "until smooth",
    "in a pot",
    "on both sides",
    "evenly",
)
PURPOSE_PHRASES: Final = (
    "until it is ready",
    "so that it cooks evenly",
    "to bring out the flavor",
    "before you go on",
    "and set it aside",
    "according to your taste",
    "in several batches if needed",
    "using a clean tool",
    "to the right consistency",
    "while the pan heats up",
)
CAPTION_ENDINGS: Final = (
    "in a bowl",
    "on the cutting board",
    "in the pan",
    "in a pot",
    "with a spoon",
    "on a plate",
    "with both hands",
    "and set aside",
    "in the oven",
    "on the counter",
)

CHAT_TEXTS: Final = (
    "hi everyone and welcome back to my channel",
    "don't forget to subscribe",
    "let me know in the comments",
    "thank you so much for watching",
    "I had such a long day",
    "my husband says hello",
    "the weather is lovely today",
    "I've been doing this for years",
    "this is my favorite part",
    "you guys asked for this one",
    "the link is in the description",
    "I'm so excited about this",
    "sorry about the noise",
    "my camera is new",
    "this video is sponsored",
    "it smells amazing in here",
    "I learned this from my grandmother",
    "we do this every weekend",
    "that's so good",
    "it doesn't have to be perfect",
    "everybody has their own way",
    "I hope you're all doing well",
    "the dog wants some too",
    "last time it went wrong",
    "I can't wait to eat",
    "it's really that easy",
    "trust me on this",
    "people always ask me that",
    "follow me on the other app",
    "I'm running late today",
    "my kitchen is a mess",
    "that was a great trip",
    "we moved here last year",
    "see you in the next one",
    "this is not my first try",
    "I saw this on television",
    "you never know",
    "it looks so pretty",
    "okay where was I",
    "happy holidays to everyone",
)

SOUND_ALIKES: Final = (
    "union",
    "flower",
    "hole",
    "bore",
    "whiskey",
    "pill",
    "steer",
    "four",
    "meant",
    "grade",
    "thyme",
    "leak",
    "bass",
    "peace",
    "sole",
    "fly",
    "mail",
    "chap",
    "meal",
    "toes",
    "doe",
    "beat",
    "rise",
    "steak",
    "sewage",
    "ruin",
)


VAGUE_ACTION: Final = {"narration": "do that with", "step": "prepare", "recipe": "prepare"}
HASH_MULTIPLIER: Final = 2654435761  # Knuth's, spreads neighbouring numbers
WORD_RANGE: Final = 1 << 32


def title(task: int) -> str:
    """Return a task's title. No two of the first thousand are equal."""
    way, dish = divmod(task, len(TASK_TITLES))
    plain_title = f"{TITLE_WAYS[way % len(TITLE_WAYS)]} {TASK_TITLES[dish]}"
    if way < len(TITLE_WAYS):
        return plain_title
    return f"{plain_title} {way}"


def texts(lines: Lines, recogniser: RecogniserSettings | None = None) -> tuple[str, ...]:
    """Return the words of every line. Narrations as `recogniser` writes them, if there is one."""
    phrase = {"narration": _narration, "step": _step, "recipe": _article}[lines.style]
    misheard = recogniser if lines.style == "narration" else None
    sentences = []
    for row in range(len(lines)):
        text = phrase(lines, row)
        if misheard is None:
            sentences.append(_sentence(text))
        else:
            sentences.append(_recognised(text, int(lines.wording[row]), misheard))
    return tuple(sentences)


def captions(lines: Lines) -> tuple[str, ...]:
    """Return a person's caption of every line, as YouCook2's: no greeting, where or with what it is
    done."""
    sentences = []
    for row in range(len(lines)):
        ending = _pick(CAPTION_ENDINGS, int(lines.wording[row]), 7)
        sentences.append(f"{_verb(lines, row)} the {_noun(lines, row)} {ending}")
    return tuple(sentences)


def _narration(lines: Lines, row: int) -> str:
    wording = int(lines.wording[row])
    if lines.chat[row] != NO_INDEX:
        return CHAT_TEXTS[int(lines.chat[row]) % len(CHAT_TEXTS)]
    if lines.step[row] == NO_INDEX:
        return _pick(OBJECT_CHATS, wording, 1).format(_noun(lines, row))
    lead = _pick(SENTENCE_LEADS, wording, 2)
    is_shown = lines.window[row] != NO_INDEX
    ending = _pick(SENTENCE_TAILS if is_shown else ABSENT_ENDS, wording, 3)
    return f"{lead} {_verb(lines, row)} {_object(lines, row)} {ending}".strip()


def _step(lines: Lines, row: int) -> str:
    if lines.chat[row] != NO_INDEX:
        return "follow the tip: " + CHAT_TEXTS[int(lines.chat[row]) % len(CHAT_TEXTS)]
    if lines.step[row] == NO_INDEX:
        return f"use the {_noun(lines, row)}"
    place = _pick(PLACE_PHRASES, int(lines.wording[row]), 4)
    return f"{_verb(lines, row)} {_object(lines, row)} {place}".strip()


def _article(lines: Lines, row: int) -> str:
    purpose = _pick(PURPOSE_PHRASES, int(lines.wording[row]), 5)
    return f"{_verb(lines, row)} the {_noun(lines, row)} {purpose}"


def _verb(lines: Lines, row: int) -> str:
    status = lines.said_action[row]
    if lines.action[row] == NO_INDEX or status not in (SAID_WORD, MISHEARD_WORD):
        return VAGUE_ACTION[lines.style]
    if status == SAID_WORD:
        return COOKING_VERBS[lines.action[row]]
    return _pick(SOUND_ALIKES, int(lines.wording[row]), 8)


def _noun(lines: Lines, row: int) -> str:
    if lines.said_object[row] == MISHEARD_WORD:
        return _pick(SOUND_ALIKES, int(lines.wording[row]), 9)
    return COOKING_NOUNS[lines.object[row]]


def _object(lines: Lines, row: int) -> str:
    if lines.said_object[row] in (SAID_WORD, MISHEARD_WORD):
        return f"the {_noun(lines, row)}"
    return "it"


def _recognised(text: str, wording: int, settings: RecogniserSettings) -> str:
    """Return a sentence with its small words misheard at the recogniser's rate. Content words were
    decided before."""
    error_range = settings.word_error * WORD_RANGE
    words = []
    for position, word in enumerate(text.split()):
        is_small = len(word) <= 4
        if is_small and _number(wording, 100 + position) < error_range:
            words.append(_pick(SOUND_ALIKES, wording, 20 + position))
        else:
            words.append(word)
    sentence = " ".join(words)
    if settings.punctuated:
        return _sentence(sentence)
    return sentence.replace(",", "").lower()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _pick(choices: Sequence[str], wording: int, salt: int) -> str:
    return choices[_number(wording, salt) % len(choices)]


def _number(wording: int, salt: int) -> int:
    """Return one of 2^32 numbers for a line's wording and a place in it."""
    mixed = (wording + 1) * HASH_MULTIPLIER + salt * 40503 * HASH_MULTIPLIER
    mixed ^= mixed >> 15
    mixed = (mixed * HASH_MULTIPLIER) & 0xFFFFFFFFFFFF
    return (mixed >> 13) % WORD_RANGE
