"""The hand-made pairs of what is said and a written step, each with how they go together."""

from dataclasses import dataclass

from made_transcripts.tables import lines

PAIR_KINDS = ("same", "ingredient", "amount", "negated", "action", "unrelated", "idle")


@dataclass(frozen=True)
class Pair:
    """kind: one of PAIR_KINDS. Only "same" may be swapped, and only "idle" is not an instruction."""

    kind: str
    sentence: str
    step: str


def read_pairs() -> list[Pair]:
    """Return the pairs of pairs.tsv, in order."""
    return [Pair(*line.split("\t")) for line in lines("pairs.tsv")]
