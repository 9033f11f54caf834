"""The waiting that a step states: how long a thing is left alone, apart from the work.

"bake the cookies for 8 to 10 minutes"       the cookies wait, 480 to 600 s
"cover it and let it rest for an hour"       it waits, 3600 s
"put the pan in the oven for 20 minutes"     the pan waits, 1200 s
"let it rest for at least an hour"           it waits, 3600 s or longer
"stir for 5 minutes"                         work: no wait
"cool the burn under the tap for 10 minutes" work: somebody holds it there
"""

import re
from itertools import takewhile

from stepline.records import Step, Wait
from stepline.text.narration.words import word_set
from stepline.writing.quantities import TIME_PLACEHOLDER, mark_times, tokens

# Done to a thing that is then left alone.
WAITING_VERBS = word_set(
    """
    bake roast simmer boil braise stew steam poach chill refrigerate freeze marinate soak prove
    proof steep brew infuse rest wait leave let allow cook cool
    """
)
WAITING_APPLIANCES = word_set("oven fridge refrigerator freezer")
STORING_VERBS = word_set("keep store last")
# The work goes on: "simmer, stirring often, for 10 minutes", "hold it under the tap for 5 minutes".
WORK_PATTERN = re.compile(
    r"\b((stirr|whisk|turn|flipp|bast|toss|shak|hold|press|rubb|massag)ing|running water"
    r"|under (\w+ ){,3}(water|tap|faucet|shower)|cool (\w+ ){,3}(burns?|skin|wound|injury))\b"
)
MINIMUM_PATTERN = re.compile(
    rf"(at least|minimum of|(less|more|longer) than)( about| another)? {TIME_PLACEHOLDER}"
    rf"|{TIME_PLACEHOLDER} (or (more|longer)|minimum|at least)\b"
)
CLAUSE_JOINTS = word_set("and then , ; . :")
# The name of the thing that waits ends before these words, or in "let it drain" before a last one.
VERBS_AFTER_NAME = WAITING_VERBS | word_set("sit stand rise dry set ferment cure")
WORDS_AFTER_NAME = VERBS_AFTER_NAME | word_set(
    "for in on at to into until about another overnight with by over under inside from while ,"
)
NON_NAME_WORDS = word_set("for about around another an a the or up to at least")
MIN_WAIT_SECONDS = 3.0  # "a second coat" is no wait


def with_wait(step: Step) -> Step:
    """Return a step with the wait that its text states."""
    return step.model_copy(update={"wait": find_wait(step.text)})


def find_wait(text: str) -> Wait | None:
    """Return the wait that a step states, several added up. None without one.

    text: of a step, an English imperative.
    """
    words, durations = mark_times(tokens(text))
    if WORK_PATTERN.search(" ".join(words)):
        return None
    places = [index for index, word in enumerate(words) if word == TIME_PLACEHOLDER]
    low = high = 0.0
    is_minimum = False
    what = None
    for index, (shortest, longest) in zip(places, durations, strict=True):
        clause = _clause_before(words[:index])
        is_repeated = words[index - 1 : index] in (["every"], ["each"])
        if shortest >= MIN_WAIT_SECONDS and not is_repeated and _is_wait(clause):
            low, high = low + shortest, high + longest
            around = " ".join(words[max(0, index - 4) : index + 3])
            is_minimum |= bool(MINIMUM_PATTERN.search(around))
            # what waits is named behind the verb
            name = list(takewhile(lambda word: word not in WORDS_AFTER_NAME, clause[1:]))
            if clause[0] == "let" and VERBS_AFTER_NAME.isdisjoint(clause[len(name) + 1 :]):
                del name[-1:]
            what = what or " ".join(name) or None
    return Wait(low=low, high=None if is_minimum else high, what=what) if low else None


def _clause_before(words: list[str]) -> list[str]:
    """Return the words of the last clause that holds more than "for about"."""
    clause: list[str] = []
    for word in reversed(words):
        is_empty = NON_NAME_WORDS.issuperset(clause)
        if word in CLAUSE_JOINTS and not is_empty:
            break
        if word not in CLAUSE_JOINTS:
            clause.insert(0, word)
    while clause and clause[0].endswith("ly"):
        del clause[0]
    return clause


def _is_wait(clause: list[str]) -> bool:
    """Return whether a clause leaves a thing alone: by its verb, or "in the oven"."""
    verb, *others = clause or [""]
    if verb in WAITING_VERBS or verb in STORING_VERBS:
        return verb in WAITING_VERBS
    return any(
        word in ("in", "into") and not WAITING_APPLIANCES.isdisjoint(others[index + 1 : index + 4])
        for index, word in enumerate(others)
    )
