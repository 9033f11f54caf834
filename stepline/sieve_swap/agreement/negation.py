"""What a text denies and what it affirms: "do not season" against "season"."""

import re
from dataclasses import dataclass

from stepline.sieve_swap.agreement.numerals import tokens
from stepline.sieve_swap.agreement.stems import FUNCTION, stem
from stepline.writing.word_sets import word_set

CUES = word_set("not never no without avoid cannot cant dont wont doesnt didnt isnt shouldnt nor neither none nothing")
SCOPE = 4  # words of meaning after a cue that it denies, within its clause; speech has no commas to end one
STOPS = frozenset(",.;:!?()") | {"but", "then", "just", "instead", "otherwise"}

# With a negative word, but nothing of what is to be done is denied.
EXEMPT = re.compile(
    r"\b(?:(?:do not|don't|dont|never) (?:forget|worry|hesitate|mind)|(?:do not|don't|dont) (?:know|think|get me wrong)"
    r"|not only|not to mention|no matter|no problem|no worries|no doubt|why not|if not|or not|not sure"
    r"|without further ado|(?:can't|cannot) (?:wait|go wrong|stress)|no more than|no less than|not less than"
    r"|isn't it|aren't they|doesn't it|no time|whether or not)\b"
)


@dataclass(frozen=True)
class Polarity:
    """What a text denies: denied, affirmed: stems; negative: whether it denies anything."""

    denied: frozenset[str]
    affirmed: frozenset[str]
    negative: bool

    def clashes(self, other: "Polarity") -> bool:
        """Tell whether one denies what the other affirms, or only one of the two denies anything."""
        if self.negative != other.negative:
            return True
        if (self.denied & other.affirmed - self.affirmed) or (other.denied & self.affirmed - other.affirmed):
            return True
        return _undone(self.affirmed, other.affirmed) or _undone(other.affirmed, self.affirmed)


def _undone(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether the one has "uncover" where the other has "cover", and not the other way round."""
    return any(word.startswith("un") and word[2:] in other and word[2:] not in one for word in one)


def polarity(text: str) -> Polarity:
    """Return what a text denies and what it affirms."""
    words = tokens(EXEMPT.sub(" ", text.lower().replace("’", "'")))
    denied: set[str] = set()
    affirmed: set[str] = set()
    reach, negative = 0, False
    for word in words:
        if word in STOPS:
            reach = 0
        elif word in CUES or word.endswith("n't"):
            reach, negative = SCOPE, True
        elif word[0].isalpha() and word not in FUNCTION:
            (denied if reach else affirmed).add(stem(word))
            reach = max(0, reach - 1)
    return Polarity(frozenset(denied), frozenset(affirmed), negative)
