"""The hand-made pairs of what is said and a written step, each with how they go together."""

from dataclasses import dataclass

from made_transcripts.tables import lines

KINDS = ("same", "ingredient", "amount", "negated", "action", "unrelated", "idle")


@dataclass(frozen=True)
class Pair:
    """kind: one of KINDS; only "same" may be swapped, only "idle" is no instruction."""

    kind: str
    said: str
    step: str


def read_pairs() -> list[Pair]:
    """Return the pairs of pairs.tsv, in order."""
    return [Pair(*line.split("\t")) for line in lines("pairs.tsv")]
