"""Materials, amounts and tools found in narrations, against lists written by hand.

    python benchmarks/materials.py            # found, precision, F1
    python benchmarks/materials.py --all      # and every thing that is found wrongly or is missed

The lists are research/narrations/materials.tsv: six of research/narrations/texts, on which the
rules were corrected, and three of research/narrations/later, on which nothing was made ("held
out"). A thing is found where its name ends in the last word of a listed name. Its amount where it
is one of those that are listed.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from stepline.outputs.text import amount_text
from stepline.records import Material, Sentence, Span, Transcript
from stepline.writing.extractive.reading import read_narration
from stepline.writing.materials import find_materials
from stepline.writing.quantities import stem

NARRATIONS_FOLDER = Path(__file__).resolve().parents[1] / "research" / "narrations"


@dataclass(frozen=True)
class ListedThing:
    """A thing of a list written by hand: any of its names, any of its amounts."""

    names: tuple[str, ...]
    amounts: tuple[str, ...]

    def is_named(self, name: str) -> bool:
        """Whether a name that was found is of this thing."""
        ends = {stem(listed.lower().split()[-1]) for listed in self.names}
        return stem(name.lower().split()[-1]) in ends


def read_transcript(name: str) -> Transcript:
    """Return a narration, a sentence every five seconds."""
    sentences = []
    path = NARRATIONS_FOLDER / (name if "/" in name else f"texts/{name}")
    for line in path.with_suffix(".txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            start = 5.0 * len(sentences)
            sentences.append(Sentence(text=line.split("\t")[1], span=Span(start, start + 4.5)))
    return Transcript(language="en", sentences=tuple(sentences))


def read_lists() -> dict[str, dict[str, list[ListedThing]]]:
    """Return the listed things, by narration and kind."""
    lists: dict[str, dict[str, list[ListedThing]]] = defaultdict(lambda: defaultdict(list))
    for line in (NARRATIONS_FOLDER / "materials.tsv").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            narration, kind, names, *amounts = line.split("\t")
            thing = ListedThing(tuple(names.split("|")), tuple("|".join(amounts).split("|")))
            lists[narration][kind].append(thing)
    return lists


def compare(
    things: tuple[Material, ...], listed: list[ListedThing], *, verbose: bool
) -> dict[str, int]:
    """Return how many are listed, found and right, and the same of amounts."""
    counts = defaultdict(int, listed=len(listed))
    hits = set()
    for thing in things:
        match = next((row for row in listed if row.is_named(thing.name)), None)
        counts["told"] += 1
        counts["right"] += match is not None
        amounts = [amount_text(amount) for amount in thing.amounts]
        if match is None:
            if verbose:
                print(f"   wrong: {' + '.join(amounts)} {thing.name}  {thing.at:g} s")
            continue
        hits.add(match)
        if any(match.amounts) and amounts:
            counts["amounts told"] += 1
            is_right = any(amount in match.amounts for amount in amounts)
            counts["amounts right"] += is_right
            if verbose and not is_right:
                print(f"   amount: {amounts} of {thing.name}, not {match.amounts}")
    counts["found"] = len(hits)
    counts["amounts listed"] = sum(any(row.amounts) for row in listed)
    if verbose:
        for row in listed:
            if row not in hits:
                print(f"   missed: {row.names[0]}")
    return counts


def main() -> None:
    """Print the counts of each kind over all narrations."""
    verbose = "--all" in sys.argv
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for narration, lists in read_lists().items():
        needed = find_materials(read_narration(read_transcript(narration)))
        for kind, things in (("material", needed.materials), ("tool", needed.tools)):
            if verbose:
                print(narration, kind)
            for name, count in compare(things, lists[kind], verbose=verbose).items():
                held_out = "held out " if "/" in narration else ""
                totals[held_out + kind][name] += count
    for kind, counts in totals.items():
        precision = counts["right"] / max(1, counts["told"])
        recall = counts["found"] / max(1, counts["listed"])
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        print(f"{kind}: precision {precision:.2f}, found {recall:.2f}, F1 {f1:.2f}, {dict(counts)}")


if __name__ == "__main__":
    main()
