"""Things that a sentence names as needed or used, each with its amount where one is said.

A quantity makes any name a mention ("two cups of flour", "a clove of garlic next"). Without one a
thing counts where it is listed as needed, is the object of a verb of adding or using, or is the tool
or container of an action.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from stepline.records import Amount
from stepline.text.narration.words import word_set
from stepline.writing.quantities import (
    UNIT_KINDS,
    VAGUE_UNITS,
    Range,
    number_at,
    skip_mark,
    unit_at,
    word_at,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token


# What people count or measure things by without a scale, in the singular.
COUNT_UNITS = word_set(
    """
    can tin clove pinch slice stick sheet piece bunch handful splash dash drop bottle packet sachet
    pack package jar bag box carton tub tube roll stalk sprig rib knob drizzle glug dollop scoop
    spoonful ladleful bowlful capful strip cube squeeze head bulb ear dab blob length block bar
    square pair bucket sack shot dusting coat
    """
)
CONTAINER_WORDS = word_set("can tin bottle jar bag box carton tub tube bucket roll board block")
# Names of these come before the unit as well: "two garlic cloves".
UNITS_AFTER_NAME = word_set("clove slice stick stalk sprig rib sheet cube")
SIZE_WORDS = word_set(
    """
    good big large small little medium nice generous heaped heaping level rounded scant whole full
    wee tiny huge proper great more extra fluid single fresh
    """
)
# between a count and a size: "2 x 400 g", "1 1/2 (28 ounce)", "half a 400 g"
SIZE_MARKS = word_set("x × ( a an large small big")
LENGTH_PIECES = word_set("piece strip length knob bit")
ARTICLE_WORDS = word_set("a an another")
# "the glass of water", "each slice of bread" speak of one that is there
NON_UNIT_CONTEXT_WORDS = word_set("the that this your my our his her its each every any no of - by")
# "20 percent", "2 of them", "180 degrees", "1 / 3" count no things
NON_COUNT_FOLLOWERS = ("of", "degrees", "percent", "%", "°", "/")
MEASURED_KINDS = word_set("mass volume length")


@dataclass(frozen=True)
class StatedAmount:
    """An amount that a sentence states, and the tokens that state it.

    Attributes:
        low: the number, or the least one of a range.
        high: the greatest number of a range, equal to `low` for a single number.
        unit: name of the unit in the singular, "" for a bare count.
        begin: index of its first token in the sentence.
        end: index after its last token, where the name of the thing begins.
        is_article: whether it is only "a", "an" or "another".
    """

    low: float
    high: float
    unit: str
    begin: int
    end: int
    is_article: bool = False


def amount_at(words: Sequence[str], index: int) -> StatedAmount | None:
    """Return the amount of a thing that begins at a token, None without one.

    Times, degrees, per cent, and sizes ("a two-inch strip") are not amounts of a thing.

    Args:
        words: the tokens of a sentence, as `normalized_word` writes them.
        index: where the amount may begin.
    """
    # A number, or an article in its place.
    number = _spoken_number_at(words, index)
    if number is None:
        return None
    (low, high), end = number
    if high <= 0:
        return None
    has_digits = words[index][:1].isdigit()
    is_article = words[index] in ARTICLE_WORDS and end == index + 1
    sized = _sized_amount(words, index, (low, high), end, is_article=is_article)
    if sized is not None:
        return sized
    # A unit behind it, past words of size: "two heaped tablespoons".
    unit_index = _skip_words(words, end, SIZE_WORDS | ARTICLE_WORDS | {"of", "the", "-"})
    unit = _unit_at(words, unit_index, has_digits=has_digits)
    if unit is None:
        # A bare count, unless it counts hours, degrees or parts.
        word = word_at(words, unit_index)
        is_time_or_other_unit = word in UNIT_KINDS and (has_digits or word not in VAGUE_UNITS)
        if is_time_or_other_unit or word_at(words, end) in NON_COUNT_FOLLOWERS:
            return None
        return StatedAmount(low, high, "", index, end, is_article)
    name, kind, end = unit
    # "a cup and a half of"
    if list(words[end : end + 3]) == ["and", "a", "half"]:
        low, high, end = low + 0.5, high + 0.5, end + 3
    # A length is an amount only of something: "a metre of rope".
    if kind == "length":
        end += word_at(words, end) in LENGTH_PIECES
        if word_at(words, end) != "of":
            return None
    return StatedAmount(low, high, name, index, end)


def _sized_amount(
    words: Sequence[str], index: int, count: Range, end: int, *, is_article: bool
) -> StatedAmount | None:
    """Return the amount of "two 14 ounce cans", unit "14 oz can", None without a size.

    A count needs no container: "three 200 gram fillets". A size needs no count: "400 gram tin".

    Args:
        words: tokens of the sentence, in lower case.
        index: of the first token of the amount.
        count: the number or range there.
        end: index after it.
        is_article: whether the number is only "a".
    """
    size_index = end
    while word_at(words, size_index) in SIZE_MARKS:
        size_index += 1
    size = number_at(words, size_index) if size_index < len(words) else None
    is_counted = size is not None and not is_article
    if size is None:
        count, size, size_index = (1.0, 1.0), (count, end), index
    (low, high), unit_index = size
    unit_index = skip_mark(words, unit_index, "-")
    unit = _unit_at(words, unit_index, has_digits=words[size_index][:1].isdigit())
    if unit is None or unit[1] not in ("mass", "volume"):
        return None
    name, kind, end = unit
    number = f"{round(low, 2):g}" if low == high else f"{round(low, 2):g}-{round(high, 2):g}"
    end = skip_mark(words, skip_mark(words, end, "-"), ")")
    container = singularize_unit(word_at(words, end))
    if container in COUNT_UNITS and container not in UNIT_KINDS:
        return StatedAmount(*count, f"{number} {name} {container}", index, end + 1)
    if is_counted and kind == "mass":
        return StatedAmount(*count, f"{number} {name}", index, end)
    return None


def singularize_unit(word: str) -> str:
    """Return a word, in the singular if it is the plural of a count unit: clove for cloves, pinch for
    pinches."""
    for ending in ("es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and stem in COUNT_UNITS:
            return stem
    return word


def _spoken_number_at(words: Sequence[str], index: int) -> tuple[tuple[float, float], int] | None:
    """Return the number that begins at a token, as a range (low, high), and the index after it. None if no
    number begins there.

    "couple" counts as 2. An article counts as 1, and so does a unit without a number.
    """
    word = words[index]
    couple_end = index + 1 + (word == "a")
    if word_at(words, couple_end - 1) == "couple":
        return (2.0, 2.0), couple_end
    if word in ("dozen", "third", "second", "zero"):
        return None
    if _is_bare_unit(words, index):
        return (1.0, 1.0), index
    number = number_at(words, index)
    if number is None and word in ARTICLE_WORDS:
        return (1.0, 1.0), index + 1
    return number


def _is_bare_unit(words: Sequence[str], index: int) -> bool:
    """Return whether a token is a unit without a number: the teaspoon of "salt, pepper, TEASPOON of
    thyme"."""
    word = words[index]
    is_unit = word in COUNT_UNITS or (
        word in UNIT_KINDS and UNIT_KINDS[word][0] in ("mass", "volume")
    )
    return (
        is_unit
        and word not in VAGUE_UNITS
        and not word.endswith("s")
        and word_at(words, index + 1) == "of"
        and word_at(words, index - 1) not in NON_UNIT_CONTEXT_WORDS
    )


def _unit_at(words: Sequence[str], index: int, *, has_digits: bool) -> tuple[str, str, int] | None:
    """Return name and kind of the unit at a token, and the index after it. None without a unit.

    has_digits: whether the number before it is written in digits. Only then is "g" or "min" a unit.
    """
    word = word_at(words, index)
    if word in UNIT_KINDS and (has_digits or word not in VAGUE_UNITS):
        unit = unit_at(words, index)
        if unit is not None and unit[0] in MEASURED_KINDS:
            kind, name, end = unit
            # the full stop of "oz."
            return name, kind, skip_mark(words, end, ".")
    if singularize_unit(word) in COUNT_UNITS:
        return singularize_unit(word), "count", index + 1
    return None


def _skip_words(words: Sequence[str], index: int, skipped_words: frozenset[str]) -> int:
    """Return the index after at most two words of a set that begin at a token."""
    for _ in range(2):
        if word_at(words, index) in skipped_words:
            index += 1
    return index


Role = Literal["amount", "listed", "some", "added", "with", "used"]

MAX_NAME_TOKENS = 4  # more are a list without commas, where no name is sure
# Verbs whose object joins the work, and those whose object does the work.
ADDING_VERBS = word_set(
    """
    add put pour mix stir sprinkle throw toss drop fold whisk beat combine blend season scatter rub
    brush spread spoon ladle drizzle squeeze crack melt dissolve toast chop slice dice mince grate
    peel crush zest apply glue screw nail attach fasten tie thread solder dab spray dust layer lay
    insert install plant sow
    """
)
USING_VERBS = word_set("use take grab get need have bring want pick")
# What these are done with joins the work as well.
COVERING_VERBS = word_set("fill cover coat top line")
# What is clicked or selected is described by what follows: "click the tile with the star".
SELECTING_VERBS = word_set("click select")
# Real things are tapped as well, with a tool: "tap the nail with the hammer".
POINTING_VERBS = word_set("tap press hit")
# What follows is done to the thing at hand ("fill the jar with sand"), or is where it goes.
INSTRUMENT_PREPOSITIONS = word_set("with using")
PLACE_PREPOSITIONS = word_set("in into on onto over inside through under")
# "the starter goes on top": the verb's subject says what comes in.
COMING_VERBS = word_set("go come")
# Amounts without a number.
VAGUE_AMOUNTS = word_set("some bit little plenty lots few more")
REST_WORDS = word_set("last remaining other")
DEFINITE_DETERMINERS = word_set("the that this those these them")
NOUN_TAGS = word_set("NOUN PROPN")
NAME_PARTS = word_set("NOUN PROPN ADJ")
MISTAGGED_NOUN_TAGS = word_set("VERB ADV X ADJ INTJ")  # a parser's reading of rare nouns
PARTICIPLE_TAGS = word_set("VBN VBG")
# They say how good or which, not what.
NON_NAMING_WORDS = SIZE_WORDS | word_set(
    "own other same first second last next few whole entire only favourite usual couple"
)
NON_NAME_WORDS = NON_NAMING_WORDS | ARTICLE_WORDS | word_set("of the your")
NON_INITIAL_NAME_WORDS = NON_NAMING_WORDS.union(UNIT_KINDS)


@dataclass(frozen=True)
class ThingMention:
    """A material or tool that a sentence names.

    Attributes:
        words: the words of its name, as spoken.
        lemmas: the lower-case lemmas of these words.
        token_index: index of the name's last token in the sentence.
        role: why it counts as needed. It has an "amount" or is said with "some", it is "listed" as
            needed, "added" to the work, what the work is done "with", or a thing that is "used".
        amount: the stated amount, None without one.
        is_definite: whether it refers to a thing that was named before ("the dough").
    """

    words: tuple[str, ...]
    lemmas: tuple[str, ...]
    token_index: int
    role: Role
    amount: StatedAmount | None = None
    is_definite: bool = False

    @property
    def name(self) -> str:
        """The name as spoken, without an article."""
        text = ""
        for word in self.words:
            is_joined = word == "-" or word.startswith("'") or text.endswith("-")
            if text and not is_joined:
                text += " "
            text += word
        return text


def make_amount_record(doc: "Doc", amount: StatedAmount) -> Amount:
    """Return a stated amount as a record, with its words in the sentence `doc` as the text."""
    text = doc[amount.begin : amount.end].text
    return Amount(low=amount.low, high=amount.high, unit=amount.unit or None, text=text)


def find_mentions(doc: "Doc", *, is_ingredient_list: bool) -> list[ThingMention]:
    """Return the materials and tools that a sentence names, in spoken order.

    Args:
        doc: the parsed sentence.
        is_ingredient_list: whether the sentence lists ingredients or tools. Then every noun counts.
    """
    words = [normalized_word(token) for token in doc]
    # A quantity makes any name a mention.
    mentions = list(_with_amounts(doc, words))
    mentioned_tokens: set[int] = set()
    for mention in mentions:
        mentioned_tokens |= _mention_tokens(mention)
    # Other nouns count by their part in the sentence.
    for token in doc:
        if not _is_noun(token) or token.i in mentioned_tokens:
            continue
        role = _role_in_work(token, mentioned_tokens, is_ingredient_list=is_ingredient_list)
        if role is None:
            continue
        name = _name_before(doc, token.i + 1)
        if not name or _is_unit(name):
            continue
        name_tokens = {part.i for part in name}
        if mentioned_tokens.isdisjoint(name_tokens):
            mentioned_tokens |= name_tokens
            mentions.append(_as_mention(name, role, None))
    return sorted(mentions, key=lambda mention: mention.token_index)


def _is_unit(name: "list[Token]") -> bool:
    """Return whether a name is only a count unit, as "clove" or "pinch"."""
    word = singularize_unit(name[0].lower_)
    return len(name) == 1 and word in COUNT_UNITS and word not in CONTAINER_WORDS


def normalized_word(token: "Token") -> str:
    """Return a token in lower case, a one-letter fraction as digits: "½" is 0.5, "1½" is 1.5."""
    word: str = token.lower_
    integer_part = word[-9:-1] or "0"
    is_fraction = "FRACTION" in unicodedata.name(word[-1:] or " ", "")
    if is_fraction and integer_part.isdecimal():
        word = f"{int(integer_part) + unicodedata.numeric(token.text[-1]):g}"
    return word


def _with_amounts(doc: "Doc", words: Sequence[str]) -> Iterator[ThingMention]:
    """Yield the mentions whose amount comes before the name, or after it and a comma ("sugar, 50
    grams").

    words: the tokens of `doc`, as `normalized_word` writes them.
    """
    index = 0
    unit = ""  # of the amount before, for "one spoon of mustard and two of honey"
    while index < len(doc):
        amount = amount_at(words, index) or _amount_in_earlier_unit(words, index, unit)
        if amount is None:
            index += 1
            continue
        unit = amount.unit or unit
        name = _name_after(doc, amount.end, is_measured=bool(amount.unit))
        if not name and amount.unit in UNIT_KINDS and word_at(words, index - 1) == ",":
            name = _name_before(doc, index - 1)
        if not name or _is_unit(name) or _is_compared_or_absent(name[-1]):
            index += 1
            continue
        yield from _amount_mentions(name, amount)
        index = max(amount.end, name[-1].i + 1)


def _amount_in_earlier_unit(words: Sequence[str], index: int, unit: str) -> StatedAmount | None:
    """Return a number before "of" as an amount: the two spoons of "one spoon of mustard and TWO of
    honey".

    unit: of the amount before in the sentence, "" without one.
    """
    number = number_at(words, index)
    if number is None or not unit or words[index] in ARTICLE_WORDS:
        return None
    (low, high), end = number
    if word_at(words, end) != "of" or word_at(words, end + 1) in DEFINITE_DETERMINERS:
        return None
    return StatedAmount(low, high, unit, index, end)


def _amount_mentions(name: "list[Token]", amount: StatedAmount) -> Iterator[ThingMention]:
    """Yield the mention of a thing with its amount. "A pan of water" gives two mentions, the pan and
    the water with its amount in pans."""
    words = [token.lower_ for token in name]
    if "of" in words[1:]:
        index = words.index("of", 1)
        container = name[:index]
        name = name[index + 1 :]
        last = container[-1]
        if last.lower_ in VAGUE_AMOUNTS:
            yield _as_mention(name, "some", None)
            return
        yield _as_mention(container, "amount", amount)
        amount = replace(amount, unit=last.lemma_.lower(), end=last.i + 1, is_article=False)
    amount = _amount_with_unit_from_name(name, amount)
    yield _as_mention(name, "amount", amount)


def _amount_with_unit_from_name(name: "list[Token]", amount: StatedAmount) -> StatedAmount:
    """Return an amount with the last word of the name as its unit, if that is one: "two garlic
    cloves".

    That word is then removed from the name, in place.
    """
    unit = singularize_unit(name[-1].lower_)
    if (
        amount.unit
        or len(name) < 2
        or unit not in UNITS_AFTER_NAME
        or name[-2].pos_ not in NOUN_TAGS
    ):
        return amount
    del name[-1]
    return replace(amount, unit=unit, is_article=False)


def _as_mention(name: "list[Token]", role: Role, amount: StatedAmount | None) -> ThingMention:
    doc = name[0].doc
    begin = name[0].i
    # "THE dough", "the LAST 20 grams of water"
    is_definite = begin > 0 and doc[begin - 1].lower_ in DEFINITE_DETERMINERS
    is_rest = amount and amount.begin > 0 and doc[amount.begin - 1].lower_ in REST_WORDS
    return ThingMention(
        words=tuple(token.text for token in name),
        lemmas=tuple(token.lemma_.lower() for token in name),
        token_index=name[-1].i,
        role=role,
        amount=amount,
        is_definite=is_definite or bool(is_rest),
    )


def _mention_tokens(mention: ThingMention) -> set[int]:
    """Return the indices of the tokens of a mention's name and amount."""
    begin = mention.token_index - len(mention.words) + 1
    token_indices = set(range(begin, mention.token_index + 1))
    amount = mention.amount
    if amount is not None:
        token_indices.update(range(amount.begin, amount.end))
    return token_indices


def _name_after(doc: "Doc", index: int, *, is_measured: bool) -> "list[Token]":
    """Return the tokens of the noun phrase that begins at a token, an empty list without one.

    Args:
        doc: the parsed sentence.
        index: where the phrase may begin. Articles and words of size are passed over.
        is_measured: whether a unit precedes it. Then the word after "of" is a name even if the
            parser did not tag it as a noun.
    """
    # Words that do not name it are passed over.
    while index < len(doc) and doc[index].lower_ in NON_NAME_WORDS:
        index += 1
    # All that can be part of its name, to the last noun.
    end = index
    while end < len(doc) and _can_be_in_name(doc[end], is_first=end == index):
        end += 1
    if end - index > MAX_NAME_TOKENS:
        return []
    name = list(doc[index:end])
    while name and not _is_noun(name[-1]):
        name.pop()
    if is_measured:
        return name or _misread_name(doc, index)
    # "a board of maple"
    if name and doc[end : end + 1].text == "of":
        material_name = _name_after(doc, end + 1, is_measured=True)
        if material_name and material_name[0].i == end + 1:
            name += [doc[end], *material_name]
    return name


def _misread_name(doc: "Doc", index: int) -> "list[Token]":
    """Return the token after "of" if the parser tagged it as a verb, adverb or the like, else an empty
    list."""
    if index >= len(doc) or doc[index - 1].lower_ != "of":
        return []
    return [word for word in doc[index : index + 1] if word.pos_ in MISTAGGED_NOUN_TAGS]


def _name_before(doc: "Doc", end: int) -> "list[Token]":
    """Return the tokens of the noun phrase that ends before a token, an empty list without one."""
    begin = end
    while begin > 0 and _can_be_in_name(doc[begin - 1], is_first=False):
        begin -= 1
    if end - begin > MAX_NAME_TOKENS:
        return []
    name = list(doc[begin:end])
    while name and (name[0].lower_ in NON_INITIAL_NAME_WORDS or name[0].text in ("-", "'s")):
        del name[0]
    if not name or not _is_noun(name[-1]):
        return []
    return name


def _can_be_in_name(token: "Token", *, is_first: bool) -> bool:
    """Return whether a token can be part of a thing's name. is_first: whether it would be its first
    token."""
    if token.lower_ in NON_NAMING_WORDS:
        return False
    if token.pos_ in NAME_PARTS or _is_noun(token) or (token.tag_ == "POS" and not is_first):
        return True
    if token.text == "-":
        return not is_first and not token.doc[token.i - 1].whitespace_
    # "minced lamb", "baking powder": a participle before its noun
    end = token.i + 1
    if token.tag_ not in PARTICIPLE_TAGS or end == len(token.doc):
        return False
    return bool(token.doc[end].pos_ == "NOUN")


def _role_in_work(
    token: "Token", mentioned_tokens: set[int], *, is_ingredient_list: bool
) -> Role | None:
    """Return the role of a noun without an amount, None if it does not count as needed.

    Args:
        token: the noun.
        mentioned_tokens: indices of the tokens that earlier mentions cover. A noun that "and" joins
            to one of them counts too.
        is_ingredient_list: whether the sentence lists ingredients or tools.
    """
    # The last noun of a compound is looked at, not this one.
    if token.dep_ == "compound" and token.head.i > token.i:
        return None
    # Joined things have the part of the first: "salt, pepper and oil".
    head = _first_of_list(token)
    verb = head.head
    if _is_compared_or_absent(token):
        return None
    if head is not token and head.i in mentioned_tokens:
        return "added"
    if _is_vague_amount(token):
        return "some"
    if head.dep_ == "pobj":
        return _role_of_prepositional_object(verb)
    if is_ingredient_list:
        return "listed"
    # A noun without a verb: "A can of beans."
    if head.dep_ == "ROOT":
        return "added"
    if head.dep_ == "nsubj" and verb.lemma_ in COMING_VERBS:
        return "added"
    if head.dep_ == "dobj":
        return _role_of_object(verb)
    return None


def _role_of_prepositional_object(preposition: "Token") -> Role | None:
    """Return the role of a thing after "with", "in" or another preposition of means or place."""
    word = preposition.lower_
    head = preposition.head
    describes_target = head.dep_ == "dobj" and head.head.lemma_ in POINTING_VERBS
    is_selection = any(above.lemma_ in SELECTING_VERBS for above in preposition.ancestors)
    if word == "with" and (describes_target or is_selection):
        return None
    adds = head.lemma_ in ADDING_VERBS | COVERING_VERBS
    if word in INSTRUMENT_PREPOSITIONS and adds:
        return "with"
    if word in INSTRUMENT_PREPOSITIONS or word in PLACE_PREPOSITIONS:
        return "used"
    return None


def _role_of_object(verb: "Token") -> Role | None:
    """Return the role of a verb's object, None for a verb neither of adding nor of using."""
    if verb.lower_ in INSTRUMENT_PREPOSITIONS:
        return "used"
    if verb.lemma_ in ADDING_VERBS:
        return "added"
    return "used" if verb.lemma_ in USING_VERBS else None


def _is_noun(token: "Token") -> bool:
    """Return whether a token is a noun, such as the "can" of "a watering can", which the parser takes
    for a modal verb. Such a verb is an auxiliary."""
    is_modal = token.tag_ == "MD" and token.lower_ == "can" and token.dep_ != "aux"
    return token.pos_ in NOUN_TAGS or (is_modal and token.i > 0 and token.nbor(-1).pos_ == "NOUN")


def _is_vague_amount(token: "Token") -> bool:
    """Return whether "some", "a bit of" or the like precedes the name whose last token is `token`."""
    doc = token.doc
    name = _name_before(doc, token.i + 1) or [token]
    index = name[0].i - 1
    while index >= 0 and doc[index].lower_ in ("of", "more", "extra"):
        index -= 1
    return index >= 0 and doc[index].lower_ in VAGUE_AMOUNTS


def _is_compared_or_absent(token: "Token") -> bool:
    """Return whether a thing only serves as a comparison ("like sand"), or is said to be missing ("no
    sand")."""
    head = _first_of_list(token)
    if head.head.lower_ in ("like", "as", "than", "without") and head.dep_ in ("pobj", "dobj"):
        return True
    return any(child.lower_ == "no" and child.dep_ == "det" for child in head.children)


def _first_of_list(token: "Token") -> "Token":
    """Return the first noun of a list joined by "and" and commas."""
    while token.dep_ == "conj" and token.head.pos_ in NOUN_TAGS and token.head.i < token.i:
        token = token.head
    return token
