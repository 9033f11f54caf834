"""Things that a sentence names as needed or used, each with its amount where one is said.

A quantity makes any name a mention ("two cups of flour", "a clove of garlic next"). Without one a
thing counts where it is listed as needed, or is the object of a verb of adding or using. It also
counts where it is what the work is done with or in.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepline.text.narration.words import word_set
from stepline.writing.quantities import UNIT_KINDS, VAGUE_UNITS, number_at

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


# What people count or measure things by without a scale, in the singular.
COUNT_UNITS: Final = word_set(
    """
    can tin clove pinch slice stick sheet piece bunch handful splash dash drop bottle packet sachet
    pack package jar bag box carton tub tube roll stalk sprig rib knob drizzle glug dollop scoop
    spoonful ladleful bowlful capful strip cube squeeze head bulb ear dab blob length block bar
    square pair bucket sack shot dusting coat
    """
)
CONTAINER_WORDS: Final = word_set(
    "can tin bottle jar bag box carton tub tube bucket roll board block"
)
# Names of these come before the unit as well: "two garlic cloves".
UNITS_BEHIND_NAME: Final = word_set("clove slice stick stalk sprig rib sheet cube")
SIZE_WORDS: Final = word_set(
    """
    good big large small little medium nice generous heaped heaping level rounded scant whole full
    wee tiny huge proper great more extra fluid single fresh
    """
)
LENGTH_PIECES: Final = word_set("piece strip length knob bit")
ARTICLE_WORDS: Final = word_set("a an another")
# "the glass of water", "each slice of bread" speak of one that is there
NOT_BEFORE_UNIT: Final = word_set("the that this your my our his her its each every any no of - by")
# "20 percent", "2 of them", "180 degrees", "1 / 3" count no things
NOT_AFTER_COUNT: Final = ("of", "degrees", "percent", "%", "°", "/")
MEASURED_KINDS: Final = word_set("mass volume length")


@dataclass(frozen=True)
class StatedAmount:
    """How much is said, and where.

    low, high: the number or range.
    unit: "" for a bare count.
    begin, end: its tokens, and where the name begins.
    is_article: "a" alone, which counts one thing but hardly says so.
    """

    low: float
    high: float
    unit: str
    begin: int
    end: int
    is_article: bool = False


def amount_at(words: Sequence[str], place: int) -> StatedAmount | None:
    """Return the amount of something that begins at a lower-case token, None where none does.

    Times, degrees, per cent, and sizes ("a two-inch strip") do not count: they are not amounts of a
    thing.
    """
    # A number, or an article in its place.
    number = _number(words, place)
    if number is None:
        return None
    (low, high), after = number
    if high <= 0:
        return None
    is_written = words[place][:1].isdigit()
    is_article = words[place] in ARTICLE_WORDS and after == place + 1
    # A unit behind it, past words of size: "two heaped tablespoons".
    unit_place = _past(words, after, SIZE_WORDS | ARTICLE_WORDS | {"of", "the", "-"})
    unit = _unit(words, unit_place, is_written=is_written)
    if unit is None:
        # A bare count, unless it counts hours, degrees or parts.
        unit_word = _word_at(words, unit_place)
        is_other = unit_word in UNIT_KINDS and (is_written or unit_word not in VAGUE_UNITS)
        if is_other or _word_at(words, after) in NOT_AFTER_COUNT:
            return None
        return StatedAmount(low, high, "", place, after, is_article)
    name, kind, after = unit
    # "a cup and a half of"
    if list(words[after : after + 3]) == ["and", "a", "half"]:
        low += 0.5
        high += 0.5
        after += 3
    # A length is an amount only of something: "a metre of rope".
    if kind == "length":
        if _word_at(words, after) in LENGTH_PIECES:
            after += 1
        if _word_at(words, after) != "of":
            return None
    return StatedAmount(low, high, name, place, after)


def singular(word: str) -> str:
    """Return the singular of a unit that people count by: cloves, pinches, halves."""
    for ending in ("es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and stem in COUNT_UNITS:
            return stem
    return word


def _number(words: Sequence[str], place: int) -> tuple[tuple[float, float], int] | None:
    word = words[place]
    if list(words[place : place + 2]) == ["a", "couple"]:
        return (2.0, 2.0), place + 2
    if word == "couple":
        return (2.0, 2.0), place + 1
    if word in ("dozen", "third", "second", "zero"):
        return None
    if _is_bare_unit(words, place):
        return (1.0, 1.0), place
    number = number_at(words, place)
    if number is not None:
        return number
    if word in ARTICLE_WORDS:
        return (1.0, 1.0), place + 1
    return None


def _is_bare_unit(words: Sequence[str], place: int) -> bool:
    """Return whether a unit is without a number: "salt, pepper, teaspoon of thyme"."""
    word = words[place]
    is_unit = word in COUNT_UNITS
    if word in UNIT_KINDS:
        kind, _ = UNIT_KINDS[word]
        is_unit = is_unit or kind in ("mass", "volume")
    if not is_unit or word in VAGUE_UNITS or word.endswith("s"):
        return False
    if _word_at(words, place + 1) != "of":
        return False
    return _word_at(words, place - 1) not in NOT_BEFORE_UNIT


def _unit(words: Sequence[str], place: int, *, is_written: bool) -> tuple[str, str, int] | None:
    """Return the name and the kind of the unit at a token, and the place after it."""
    word = _word_at(words, place)
    if word in UNIT_KINDS and (is_written or word not in VAGUE_UNITS):
        kind, factor = UNIT_KINDS[word]
        if kind in MEASURED_KINDS:
            after = place + 1
            # the full stop of "oz."
            if _word_at(words, after) == ".":
                after += 1
            return _first_name(kind, factor), kind, after
    if singular(word) in COUNT_UNITS:
        return singular(word), "count", place + 1
    return None


def _first_name(kind: str, factor: float) -> str:
    return next(name for name, unit in UNIT_KINDS.items() if unit == (kind, factor))


def _past(words: Sequence[str], place: int, small: frozenset[str]) -> int:
    """Return the place after at most two small words."""
    for _ in range(2):
        if _word_at(words, place) in small:
            place += 1
    return place


def _word_at(words: Sequence[str], place: int) -> str:
    if 0 <= place < len(words):
        return words[place]
    return ""


Role: TypeAlias = Literal["amount", "listed", "some", "added", "with", "used"]

NUMBER_PATTERN: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+|\d+/\d+")
MAX_NUMBER_CHARS: Final = 9
NO_NUMBER: Final = "#"
MAX_NAME_TOKENS: Final = 4  # more are a list without commas, where no name is sure
# Verbs whose object joins the work, and those whose object does the work.
ADDING_VERBS: Final = word_set(
    """
    add put pour mix stir sprinkle throw toss drop fold whisk beat combine blend season scatter rub
    brush spread spoon ladle drizzle squeeze crack melt dissolve toast chop slice dice mince grate
    peel crush zest apply glue screw nail attach fasten tie thread solder dab spray dust layer lay
    insert install plant sow
    """
)
USING_VERBS: Final = word_set("use take grab get need have bring want pick")
# What these are done with joins the work as well.
COVERING_VERBS: Final = word_set("fill cover coat top line")
# What follows is done to the thing at hand ("fill the jar with sand"), or is where it goes.
MEANS_WORDS: Final = word_set("with using")
PLACE_WORDS: Final = word_set("in into on onto over inside through under")
# "the starter goes on top": the verb's subject says what comes in.
COMING_VERBS: Final = word_set("go come")
# Amounts without a number.
VAGUE_AMOUNTS: Final = word_set("some bit little plenty lots few more")
REST_WORDS: Final = word_set("last remaining other")
KNOWN_DETERMINERS: Final = word_set("the that this those these them")
NOUN_TAGS: Final = word_set("NOUN PROPN")
NAME_PARTS: Final = word_set("NOUN PROPN ADJ")
MISREAD_NOUNS: Final = word_set("VERB ADV X ADJ INTJ")  # a parser's reading of rare nouns
PARTICIPLE_TAGS: Final = word_set("VBN VBG")
# They say how good or which, not what.
EMPTY_WORDS: Final = SIZE_WORDS | word_set(
    "own other same first second last next few whole entire only favourite usual couple"
)
NOT_IN_NAME: Final = EMPTY_WORDS | ARTICLE_WORDS | word_set("of the your")
NOT_FIRST_IN_NAME: Final = EMPTY_WORDS.union(UNIT_KINDS)


@dataclass(frozen=True)
class ThingMention:
    """A thing that is named. words: its name, with the lemmas of them. at: its token.

    is_definite: it is spoken of as known ("the dough", "a cup of the milk").
    """

    words: tuple[str, ...]
    lemmas: tuple[str, ...]
    at: int
    role: Role
    amount: StatedAmount | None = None
    is_definite: bool = False

    @property
    def name(self) -> str:
        """The name as it is said, without an article."""
        text = ""
        for word in self.words:
            is_joined = word == "-" or word.startswith("'") or text.endswith("-")
            if text and not is_joined:
                text += " "
            text += word
        return text


def find_mentions(doc: "Doc", *, is_list: bool) -> list[ThingMention]:
    """Return the things that a parsed sentence names, in order, those with an amount first.

    is_list: it says what is needed, so that all it names counts.
    """
    words = [spelt_word(token) for token in doc]
    # A quantity makes any name a mention.
    mentions = list(_with_amounts(doc, words))
    mentioned_places: set[int] = set()
    for mention in mentions:
        mentioned_places |= _places(mention)
    # Other nouns count by their part in the sentence.
    for token in doc:
        if token.pos_ not in NOUN_TAGS or token.i in mentioned_places:
            continue
        role = _role(token, mentioned_places, is_list=is_list)
        if role is None:
            continue
        name = _name_before(doc, token.i + 1)
        if not name or _is_unit(name):
            continue
        name_places = {part.i for part in name}
        if mentioned_places.isdisjoint(name_places):
            mentioned_places |= name_places
            mentions.append(_mention(name, role, None))
    return sorted(mentions, key=lambda mention: mention.at)


def _is_unit(name: "list[Token]") -> bool:
    """Return whether a name is but a word to count by, as "clove" or "pinch"."""
    if len(name) != 1:
        return False
    word = singular(name[0].lower_)
    return word in COUNT_UNITS and word not in CONTAINER_WORDS


def spelt_word(token: "Token") -> str:
    """Return a token in lower case, a one-letter fraction as digits: "½" is 1/2, "1½" is 1.5.

    What begins with a digit and is not a number, as "2x4", begins with NO_NUMBER instead.
    """
    word: str = token.lower_
    if "FRACTION" in unicodedata.name(word[-1:] or " ", ""):
        whole = word[:-1] or "0"
        if whole.isdecimal():
            number = int(whole[:MAX_NUMBER_CHARS])
            fraction = unicodedata.numeric(token.text[-1])
            word = f"{number + fraction:g}"
    is_short = len(word) <= MAX_NUMBER_CHARS
    if is_short and NUMBER_PATTERN.fullmatch(word):
        return word
    if word.removeprefix(".")[:1].isdecimal():
        return NO_NUMBER + word
    return word


def _with_amounts(doc: "Doc", words: Sequence[str]) -> Iterator[ThingMention]:
    """Yield each amount with the name after it, or before it and a comma: "sugar, 50 grams"."""
    place = 0
    unit = ""  # of the amount before, for "one spoon of mustard and two of honey"
    while place < len(doc):
        amount = amount_at(words, place) or _with_unit_before(words, place, unit)
        if amount is None:
            place += 1
            continue
        unit = amount.unit or unit
        name = _name_after(doc, amount.end, is_measured=bool(amount.unit))
        if not name and amount.unit in UNIT_KINDS and _word_at(words, place - 1) == ",":
            name = _name_before(doc, place - 1)
        if not name or _is_unit(name) or _is_compared(name[-1]):
            place += 1
            continue
        yield from _named_amounts(name, amount)
        place = max(amount.end, name[-1].i + 1)


def _with_unit_before(words: Sequence[str], place: int, unit: str) -> StatedAmount | None:
    """Return a number before "of" as an amount in the unit that was said before."""
    if not unit or words[place] in ARTICLE_WORDS:
        return None
    number = number_at(words, place)
    if number is None:
        return None
    (low, high), after = number
    if _word_at(words, after) != "of":
        return None
    if _word_at(words, after + 1) in KNOWN_DETERMINERS:
        return None
    return StatedAmount(low, high, unit, place, after)


def _named_amounts(name: "list[Token]", amount: StatedAmount) -> Iterator[ThingMention]:
    """Yield the thing of an amount. Of "a pan of water" both, the water by the pan."""
    words = [token.lower_ for token in name]
    place = 0
    if "of" in words:
        place = words.index("of")
    if place > 0:
        holder = name[:place]
        name = name[place + 1 :]
        last = holder[-1]
        if last.lower_ in VAGUE_AMOUNTS:
            yield _mention(name, "some", None)
            return
        yield _mention(holder, "amount", amount)
        unit = last.lemma_.lower()
        amount = replace(amount, unit=unit, end=last.i + 1, is_article=False)
    amount = _with_unit_behind(name, amount)
    yield _mention(name, "amount", amount)


def _with_unit_behind(name: "list[Token]", amount: StatedAmount) -> StatedAmount:
    """Return the amount with the last word of the name as its unit: "two garlic cloves". That word
    leaves the name."""
    unit = singular(name[-1].lower_)
    if amount.unit or len(name) < 2 or unit not in UNITS_BEHIND_NAME:
        return amount
    if name[-2].pos_ not in NOUN_TAGS:
        return amount
    del name[-1]
    return replace(amount, unit=unit, is_article=False)


def _mention(name: "list[Token]", role: Role, amount: StatedAmount | None) -> ThingMention:
    doc = name[0].doc
    begin = name[0].i
    is_definite = begin > 0 and doc[begin - 1].lower_ in KNOWN_DETERMINERS
    if amount is not None and _is_rest(doc, amount.begin):
        is_definite = True
    return ThingMention(
        words=tuple(token.text for token in name),
        lemmas=tuple(token.lemma_.lower() for token in name),
        at=name[-1].i,
        role=role,
        amount=amount,
        is_definite=is_definite,
    )


def _is_rest(doc: "Doc", begin: int) -> bool:
    """Return whether an amount is what is left of a thing: "the last 20 grams of water"."""
    return begin > 0 and doc[begin - 1].lower_ in REST_WORDS


def _places(mention: ThingMention) -> set[int]:
    begin = mention.at - len(mention.words) + 1
    places = set(range(begin, mention.at + 1))
    amount = mention.amount
    if amount is not None:
        places.update(range(amount.begin, amount.end))
    return places


def _name_after(doc: "Doc", place: int, *, is_measured: bool) -> "list[Token]":
    """Return the words that name a thing from a token on, nothing where no name begins there.

    is_measured: a unit is before it, so that a word after "of" is a name whatever it looks like.
    """
    # Words that do not name it are passed over.
    while place < len(doc) and doc[place].lower_ in NOT_IN_NAME:
        place += 1
    # All that can be part of its name, to the last noun.
    end = place
    while end < len(doc) and _is_part(doc[end], is_first=end == place):
        end += 1
    if end - place > MAX_NAME_TOKENS:
        return []
    name = list(doc[place:end])
    while name and name[-1].pos_ not in NOUN_TAGS:
        name.pop()
    if is_measured:
        if not name:
            return _misread_name(doc, place)
        return name
    # "a board of maple"
    if name and doc[end : end + 1].text == "of":
        inner = _name_after(doc, end + 1, is_measured=True)
        if inner and inner[0].i == end + 1:
            name += [doc[end], *inner]
    return name


def _misread_name(doc: "Doc", place: int) -> "list[Token]":
    """Return the word after "of" that the parser does not take for a noun, nothing without one."""
    if place >= len(doc) or doc[place - 1].lower_ != "of":
        return []
    word = doc[place]
    if word.pos_ not in MISREAD_NOUNS:
        return []
    return [word]


def _name_before(doc: "Doc", end: int) -> "list[Token]":
    """Return the words that name a thing and end before a token."""
    begin = end
    while begin > 0 and _is_part(doc[begin - 1], is_first=False):
        begin -= 1
    if end - begin > MAX_NAME_TOKENS:
        return []
    name = list(doc[begin:end])
    while name:
        first = name[0]
        if first.lower_ not in NOT_FIRST_IN_NAME and first.text not in ("-", "'s"):
            break
        del name[0]
    if not name or name[-1].pos_ not in NOUN_TAGS:
        return []
    return name


def _is_part(token: "Token", *, is_first: bool) -> bool:
    """Return whether a token can be part of a name."""
    if token.lower_ in EMPTY_WORDS:
        return False
    if token.pos_ in NAME_PARTS or (token.tag_ == "POS" and not is_first):
        return True
    if token.text == "-":
        return not is_first and not token.doc[token.i - 1].whitespace_
    # "minced lamb", "baking powder": a participle before its noun
    after = token.i + 1
    if token.tag_ not in PARTICIPLE_TAGS or after == len(token.doc):
        return False
    return bool(token.doc[after].pos_ == "NOUN")


def _role(token: "Token", mentioned_places: set[int], *, is_list: bool) -> Role | None:
    """Return how a noun without an amount is part of the work, None where it is not.

    mentioned_places: tokens of things that are mentioned already. What is joined to them is too.
    """
    # The last noun of a compound is looked at, not this one.
    if token.dep_ == "compound" and token.head.i > token.i:
        return None
    # Joined things have the part of the first: "salt, pepper and oil".
    head = _first_of_list(token)
    verb = head.head
    if _is_compared(token):
        return None
    if head is not token and head.i in mentioned_places:
        return "added"
    if _is_vague_amount(token):
        return "some"
    if head.dep_ == "pobj":
        return _role_behind(verb)
    if is_list:
        return "listed"
    # A noun without a verb: "A can of beans."
    if head.dep_ == "ROOT":
        return "added"
    if head.dep_ == "nsubj" and verb.lemma_ in COMING_VERBS:
        return "added"
    if head.dep_ == "dobj":
        return _role_of_object(verb)
    return None


def _role_behind(preposition: "Token") -> Role | None:
    """Return how a thing behind "with" or "in" is part of the work."""
    word = preposition.lower_
    if word in MEANS_WORDS and _is_added(preposition.head):
        return "with"
    if word in MEANS_WORDS or word in PLACE_WORDS:
        return "used"
    return None


def _role_of_object(verb: "Token") -> Role | None:
    """Return how the object of a verb is part of the work."""
    if verb.lower_ in MEANS_WORDS:
        return "used"
    if verb.lemma_ in ADDING_VERBS:
        return "added"
    if verb.lemma_ in USING_VERBS:
        return "used"
    return None


def _is_vague_amount(token: "Token") -> bool:
    """Return whether "some", "a bit of" or the like is before the name that ends here."""
    doc = token.doc
    name = _name_before(doc, token.i + 1)
    first = token
    if name:
        first = name[0]
    place = first.i - 1
    while place >= 0 and doc[place].lower_ in ("of", "more", "extra"):
        place -= 1
    return place >= 0 and doc[place].lower_ in VAGUE_AMOUNTS


def _is_compared(token: "Token") -> bool:
    """Return whether a thing is only likened to, or is said not to be there."""
    head = _first_of_list(token)
    if head.head.lower_ in ("like", "as", "than", "without") and head.dep_ in ("pobj", "dobj"):
        return True
    return any(child.lower_ == "no" and child.dep_ == "det" for child in head.children)


def _is_added(verb: "Token") -> bool:
    return verb.lemma_ in ADDING_VERBS or verb.lemma_ in COVERING_VERBS


def _first_of_list(token: "Token") -> "Token":
    """Return the first of the things that are joined by "and" and commas."""
    while token.dep_ == "conj":
        head = token.head
        if head.pos_ not in NOUN_TAGS or head.i >= token.i:
            break
        token = head
    return token
