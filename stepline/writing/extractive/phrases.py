"""The words of a step: one imperative phrase from the clause that states the action.

A phrase is the verb with its complements: objects, places, means and conditions, without asides,
joined clauses and fillers. A complement is one dependent of the verb with all words below it in the
parse, as a list of tokens in spoken order.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from stepline.writing.extractive.clauses import (
    RELATIVE_WORDS,
    Clause,
    begins_action,
    has_child,
    is_separate_action,
)
from stepline.writing.extractive.english import nouns, verbs, word_set
from stepline.writing.extractive.off_topic import SPEECH_VERBS
from stepline.writing.extractive.segments import CONDITION_OPENERS

if TYPE_CHECKING:
    from spacy.tokens import Token

NOUN_TAGS = ("NOUN", "PROPN")
# A clause with one of these says why. It is no part of a step.
REASON_OPENERS = word_set("because since whereas although though cause")
# They share no object with the verb after them.
INTRANSITIVE_VERBS = word_set("click tap wait stop pause go come stand sit breathe")
CORE_RELATIONS = ("dobj", "prt", "dative")  # a verb without these is no imperative
_OTHER_RELATIONS = word_set(
    "cc preconj punct nsubj nsubjpass aux auxpass neg mark intj parataxis dep"
)


Complement: TypeAlias = "list[Token]"  # in order
KeepProbability: TypeAlias = "Callable[[Token], float]"  # P(a word is part of the step)

# mean of a complement's words from which it stays; its verb was chosen
MIN_COMPLEMENT_KEEP_PROBABILITY = 0.3
# of a clause that says which or where: "a spot where you can walk around it"
MIN_ASIDE_KEEP_PROBABILITY = 0.4


def verb_complements(
    clause: Clause, keep_probability: "KeepProbability | None" = None
) -> "list[Complement]":
    """Return the complements of a clause's verb that a step keeps, conditions last.

    Args:
        clause: the clause of the step's action.
        keep_probability: returns P(a token is part of the step), by the tagger. Complements with a
            mean under MIN_COMPLEMENT_KEEP_PROBABILITY are left out. None leaves none out for that.
    """
    verb = clause.verb

    # complements: those after the verb, then conditions before it
    after = []
    before = []
    for child in verb.children:
        if not _belongs_to_step(verb, child):
            continue
        # "WITH A SPOON I make a hole"
        names_a_thing = child.dep_ == "prep" and any(
            nested.pos_ in NOUN_TAGS for nested in child.children
        )
        if child.i > verb.i:
            after.append(child)
        elif (keep_probability is not None and names_a_thing) or _is_condition(child):
            before.append(child)
    before += _governor_qualifiers(verb)
    complements = []
    for head in [*after, *before]:
        complement = complement_tokens(head, keep_probability)
        if (
            keep_probability is None
            or head.dep_ in CORE_RELATIONS
            or _is_state_of_a_thing(head)
            # "don't make them SICK": without it more would be forbidden
            or (clause.is_negated and head.dep_ in ("ccomp", "oprd"))
            or _mean_content_keep_probability(complement, keep_probability)
            >= MIN_COMPLEMENT_KEEP_PROBABILITY
        ):
            complements.append(complement)
    if not after and verb.lemma_ not in INTRANSITIVE_VERBS:
        complements += [complement_tokens(shared) for shared in _shared_objects(verb)]
    return [complement for complement in complements if complement]


def _belongs_to_step(verb: "Token", child: "Token") -> bool:
    """Return whether the grammatical relation of a verb's dependent makes it part of a step."""
    if child.lower_ == "ok" and child.i == verb.i + 1:
        return True  # the button, which the parser takes for an interjection
    if _is_joined(child):
        # "attach a connector, and then TWO PIECES": one more thing, and no further action
        is_noun = has_child(child, ("det", "poss")) or child.lower_ not in verbs()
        is_verb = child.pos_ in ("VERB", "AUX") or not is_noun
        has_subject = has_child(child, ("nsubj",))
        is_other = is_verb or has_subject or _is_broken_off(child)
        return _is_circumstance(verb, child) or not is_other
    if child.dep_ in _OTHER_RELATIONS:
        return False
    if child.dep_ in ("advmod", "npadvmod"):
        return bool(child.i > verb.i) and not _is_broken_off(child)
    if child.dep_ == "advcl":
        return _is_kept_clause(child) and not is_separate_action(child)
    if child.dep_ == "ccomp":
        # "notice I'M USING the ratchet"
        subjects = [nested.lower_ for nested in child.children if nested.dep_ == "nsubj"]
        return "i" not in subjects or any(n.lower_ in RELATIVE_WORDS for n in child.subtree)
    return True


def _is_joined(child: "Token") -> bool:
    """Return whether a verb's dependent is joined to what is before it. The parser may leave the
    relation open: "with a straight back and your FEET on the floor"."""
    is_open = child.dep_ == "dep" and child.pos_ in NOUN_TAGS
    # "your elbows close to your body and YOUR BACK straight"
    is_open |= child.dep_ == "dobj" and has_child(child, ("det", "poss"))
    return child.dep_ == "conj" or (is_open and _follows_and(child))


def _follows_and(child: "Token") -> bool:
    """Return whether the words at and below a verb's dependent are right behind an "and"."""
    start = child.left_edge
    return bool(start.i > child.head.i and start.nbor(-1).lower_ == "and")


def _is_broken_off(child: "Token") -> bool:
    """Return whether nothing but adverbs comes behind an "and": "tighten it, and ONCE"."""
    return _follows_and(child) and all(token.pos_ == "ADV" for token in child.subtree)


def _is_circumstance(verb: "Token", child: "Token") -> bool:
    """Return whether words joined to a verb say how a thing is meanwhile, after "with": "with your
    feet apart and your KNEES BENT"."""
    is_state = child.pos_ in ("ADJ", "ADV") or child.lower_ not in verbs()
    things = [nested for nested in child.lefts if nested.dep_ == "nsubj"]
    return (
        is_state
        and bool(things)
        and things[0].pos_ in NOUN_TAGS
        and not has_child(child, ("aux", "auxpass"))
        and child.tag_ != "VBZ"
        and child.pos_ != "AUX"
        and _follows_and(child)
        and any(nested.lower_ == "with" for nested in verb.doc[verb.i : child.i])
    )


def _is_kept_clause(clause: "Token") -> bool:
    """Return whether an adverbial clause belongs to the step: "until it dissolves", "using a ruler",
    "to lock it". A reason does not, nor does another imperative."""
    # "to SHOW you how it turned out", "generally SPEAKING", but not "as SHOWN"
    is_talk = clause.lemma_ in SPEECH_VERBS and clause.tag_ != "VBN"
    if is_talk or any(child.lower_ in REASON_OPENERS for child in clause.children):
        return False
    return clause.tag_ == "VBG" or any(child.i < clause.i for child in clause.children)


def _is_condition(child: "Token") -> bool:
    """Return whether a clause is a condition of the action: "WHEN IT BOILS, turn it down"."""
    is_condition = any(nested.lower_ in CONDITION_OPENERS for nested in child.children)
    return child.dep_ == "advcl" and is_condition


def _is_state_of_a_thing(child: "Token") -> bool:
    """Return whether a clause makes the action depend on a thing: "IF THE LABEL IS TORN, print one".
    Without it, advice for one case would be an order for all."""
    openers = [nested.lower_ for nested in child.children if nested.dep_ == "mark"]
    subjects = [nested for nested in child.lefts if nested.dep_ in ("nsubj", "nsubjpass")]
    is_open = child.dep_ == "advcl" and not {"if", "unless"}.isdisjoint(openers)
    # "if it sticks" too, but not a bare "if it is"
    is_verb = child.pos_ == "VERB" and bool(subjects) and subjects[0].lower_ in ("it", "they")
    return is_open and bool(subjects) and (is_verb or subjects[0].pos_ in NOUN_TAGS)


def _governor_qualifiers(verb: "Token") -> "Complement":
    """Return the clauses that qualify the verbs above this one: "IF IT IS DRY, you want to add
    water"."""
    qualifiers: list[Token] = []
    while verb.dep_ == "xcomp":
        end = verb.i
        verb = verb.head
        for child in verb.children:
            if child.dep_ != "advcl":
                continue
            if _is_condition(child) or (child.i > end and _is_kept_clause(child)):
                qualifiers.append(child)
    return qualifiers


def _shared_objects(verb: "Token") -> "list[Token]":
    """Return the objects of the verb that is joined to this one: the potatoes of "peel and slice the
    POTATOES"."""
    for child in verb.children:
        if child.dep_ == "conj" and child.pos_ == "VERB":
            objects = [nested for nested in child.children if nested.dep_ == "dobj"]
            return objects or _shared_objects(child)
    return []


def _mean_content_keep_probability(
    tokens: "Sequence[Token]", keep_probability: "KeepProbability"
) -> float:
    """Return the mean P(a token is part of the step) over the tokens that are no article, pronoun
    or punctuation, 1 without such tokens."""
    probabilities = [
        keep_probability(token) for token in tokens if token.pos_ not in ("DET", "PUNCT", "PRON")
    ]
    return sum(probabilities) / len(probabilities) if probabilities else 1.0


def complement_tokens(
    head: "Token", keep_probability: "KeepProbability | None" = None
) -> "Complement":
    """Return the tokens at and below a head in spoken order, without asides, filler adverbs and
    punctuation at either end.

    Args:
        head: the token that the parser attaches to the verb.
        keep_probability: returns P(a token is part of the step). Asides with a mean of
            MIN_ASIDE_KEEP_PROBABILITY or more stay. None drops all asides.
    """
    tokens = sorted(head.subtree)
    dropped: set[Token] = set()
    for token in tokens:
        if not _is_aside(token, head):
            continue
        aside = list(token.subtree)
        if (
            keep_probability is None
            or begins_action(token)
            or _mean_content_keep_probability(aside, keep_probability) < MIN_ASIDE_KEEP_PROBABILITY
        ):
            dropped.update(aside)
    remaining = [token for token in tokens if token not in dropped]
    while remaining and (remaining[0].is_punct or remaining[0].lower_ == "and"):
        remaining.pop(0)
    while remaining and (remaining[-1].is_punct or remaining[-1].dep_ == "cc"):
        remaining.pop()
    return remaining


def _is_aside(token: "Token", head: "Token") -> bool:
    """Return whether a token below a complement's head begins words that a step leaves out, such as
    a relative clause."""
    if token is head or _is_state_of_a_thing(head):
        return False
    is_reason = token.dep_ == "advcl" and not _is_kept_clause(token)
    # "anything TO DRINK" says which things are meant
    names_thing = token.head.pos_ == "PRON" and token.head.lower_ not in NAMEABLE_PRONOUNS
    is_relative = token.dep_ == "relcl" and not names_thing
    return is_reason or is_relative or token.dep_ in ("intj", "parataxis") or begins_action(token)


Resolver: TypeAlias = "Callable[[Token], str | None]"  # a pronoun -> its name

# one speaker's own things are "the" things of a step
POSSESSIVE_WORDS = word_set("my our this that these those")
# "when I put my hand over it" becomes "when you put the hand over it"
SECOND_PERSON = {"i": "you", "'m": "'re", "am": "are"}
CLICK_BUTTONS = word_set("right double left shift alt triple")
NAMEABLE_PRONOUNS = word_set("it that this them those these")
# adverbs in "ly" that are not a manner of doing
_NON_MANNER_ADVERBS = word_set(
    "early usually normally finally actually really simply probably definitely basically obviously"
)
# never the last word
_NON_FINAL_WORDS = word_set("and or but then so with to of for into that if until the a because")


def imperative_phrase(
    clause: Clause, resolve: Resolver, keep_probability: "KeepProbability"
) -> "tuple[str, set[Token]]":
    """Return a clause as an imperative, "slice the lemons" or "don't overmix the batter", and the
    set of its verb and all tokens of its complements.

    Args:
        clause: the clause of the step's action.
        resolve: returns the name that a pronoun stands for, None where that is not sure.
        keep_probability: returns P(a token is part of the step), by the tagger. Complements with a
            low mean are left out.
    """
    verb = clause.verb
    complements = verb_complements(clause, keep_probability)
    resolved = _names_of_pronouns(complements, resolve)
    text = _imperative(verb)
    for complement in complements:
        head = next((token for token in complement if token.head == verb), None)
        before = complement[0].nbor(-1).lower_ if complement[0].i else ""
        if head is not None and _is_joined(head):
            text += " or" if before == "or" else " and"
        # "stir it, SCRAPING THE BOTTOM": the pause before a clause or a further noun
        elif head is not None and before == "," and complement[0].i > verb.i + 2:
            is_noun = head.pos_ in NOUN_TAGS and head.dep_ not in CORE_RELATIONS
            text += "," * (head.dep_ == "advcl" or is_noun)
        text += f" {_join_tokens(complement, resolved)}"
    # "hold THAT": an object may be the last word
    last = complements[-1][-1] if complements else verb
    if last.dep_ != "dobj" or last.lower_ != "that":
        text = _trim_end(text)

    # a manner that was said before the verb: "GENTLY pry"
    manner_adverb = _manner_before(verb)
    if manner_adverb is not None:
        text = f"{manner_adverb} {text}"
    if clause.is_negated:
        text = f"don't {text}"
    return text, {verb, *chain(*complements)}


def _manner_before(verb: "Token") -> str | None:
    """Return the first adverb in "-ly" before a verb that says how it is done, None without one."""
    for child in verb.children:
        if child.dep_ != "advmod" or child.i >= verb.i:
            continue
        word = str(child.lower_)
        if word.endswith("ly") and word not in _NON_MANNER_ADVERBS:
            return word
    return None


def _names_of_pronouns(complements: "list[Complement]", resolve: Resolver) -> dict[int, str]:
    """Return the names of the pronouns in a step: token index -> the noun that it stands for."""
    tokens = list(chain(*complements))
    noun_lemmas = {token.lemma_.lower() for token in tokens if token.pos_ == "NOUN"}
    names: dict[int, str] = {}
    for token in tokens:
        if token.lower_ in NAMEABLE_PRONOUNS and token.pos_ in ("PRON", "DET"):
            name = resolve(token)
            if name is None or name in names.values():
                continue
            # A step does not name a thing twice: "place it under the car" is not a car.
            if name.split()[-1].lower() not in noun_lemmas:
                names[token.i] = name
    return names


def _imperative(verb: "Token") -> str:
    """Return a verb's base form as an imperative writes it, with the button of a click: "right-click"."""
    if verb.lemma_ == "click":
        before = [token.lower_ for token in verb.doc[: verb.i] if token.text != "-"]
        if before and before[-1] in CLICK_BUTTONS:
            return f"{before[-1]}-click"
    base = str(verb.lower_ if verb.tag_ == "VB" else verb.lemma_).lower()
    return "get" if base == "need" else base  # "you need a bowl"


def _join_tokens(tokens: "Iterable[Token]", resolved: dict[int, str]) -> str:
    """Return tokens as text, with pronouns replaced by their names and possessives by "the".

    Args:
        tokens: in spoken order, perhaps with gaps.
        resolved: index of a pronoun's token -> its name.
    """
    text = ""
    previous = None
    for token in tokens:
        is_attached = previous and previous.i + 1 == token.i and not previous.whitespace_
        if text and not is_attached:
            text += " "
        text += _word_text(token, resolved)
        previous = token
    return text


def _word_text(token: "Token", resolved: dict[int, str]) -> str:
    """Return a token as a step writes it. resolved: index of a pronoun's token -> its name."""
    if token.i in resolved:
        return f"the {resolved[token.i]}"
    if token.lower_ in POSSESSIVE_WORDS and token.dep_ in ("det", "poss"):
        # The parser takes "clockwise" for a noun, the "one" of "check this one more time", and the
        # "cook" of "let these cook".
        noun = token.head
        after = token.doc[token.i + 1 : token.i + 2].text.lower()  # "" at the end
        agrees = token.lower_ not in ("these", "those") or noun.tag_.endswith("S")
        if agrees and noun.lemma_.lower() in nouns() and "one" not in (noun.lower_, after):
            return "the"
    if token.lower_ in SECOND_PERSON:
        return SECOND_PERSON[token.lower_]
    if token.is_sent_start and token.text != "I":
        return str(token.lower_)
    return str(token.text)


def _trim_end(text: str) -> str:
    """Return the text without conjunctions, articles and punctuation at its end. "ensure that"
    becomes "make sure"."""
    words = text.replace("ensure that ", "make sure ").split()
    while len(words) > 1 and (
        words[-1].strip(",.") in _NON_FINAL_WORDS or not words[-1].strip(",.-")
    ):
        words.pop()
    return " ".join(words).rstrip(",.!?;:- ")
