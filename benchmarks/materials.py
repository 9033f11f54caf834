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


def listed_lines(path: Path) -> list[str]:
    """Return the lines of a file that are neither empty nor a comment."""
    lines = []
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            lines.append(line)
    return lines


def last_word_stem(name: str) -> str:
    """Return the stem of a name's last word, by which things are compared."""
    words = name.lower().split()
    return stem(words[-1])


PROJECT_FOLDER = Path(__file__).resolve().parents[1]
NARRATIONS_FOLDER = PROJECT_FOLDER / "research" / "narrations"

Counts = dict[str, int]


@dataclass(frozen=True)
class ListedThing:
    """A thing of a list written by hand: any of its names, any of its amounts."""

    names: tuple[str, ...]
    amounts: tuple[str, ...]

    def is_named(self, name: str) -> bool:
        """Whether a name that was found is of this thing."""
        listed_stems = {last_word_stem(listed) for listed in self.names}
        return last_word_stem(name) in listed_stems


ThingsByKind = dict[str, list[ListedThing]]


def is_held_out(narration: str) -> bool:
    """Say whether no rule was made on a narration: it is named with its folder."""
    return "/" in narration


def read_transcript(name: str) -> Transcript:
    """Return a narration, a sentence every five seconds."""
    relative_path = name if is_held_out(name) else f"texts/{name}"
    path = (NARRATIONS_FOLDER / relative_path).with_suffix(".txt")
    sentences = []
    for number, line in enumerate(listed_lines(path)):
        columns = line.split("\t")
        start = 5.0 * number
        sentence = Sentence(text=columns[1], span=Span(start, start + 4.5))
        sentences.append(sentence)
    return Transcript(language="en", sentences=tuple(sentences))


def read_lists() -> dict[str, ThingsByKind]:
    """Return the listed things, by narration and kind."""
    lists: dict[str, ThingsByKind] = defaultdict(lambda: defaultdict(list))
    for line in listed_lines(NARRATIONS_FOLDER / "materials.tsv"):
        narration, kind, names_text, *amount_columns = line.split("\t")
        names = tuple(names_text.split("|"))
        amounts = tuple("|".join(amount_columns).split("|"))
        lists[narration][kind].append(ListedThing(names, amounts))
    return lists


def compare(things: tuple[Material, ...], listed: list[ListedThing], *, verbose: bool) -> Counts:
    """Return how many are listed, found and right, and the same of amounts."""
    counts = defaultdict(int, listed=len(listed))
    hits = set()
    for thing in things:
        match = listed_match(thing, listed)
        counts["told"] += 1
        counts["right"] += match is not None
        amounts = [amount_text(amount) for amount in thing.amounts]
        if match is None:
            if verbose:
                print(f"   wrong: {' + '.join(amounts)} {thing.name}  {thing.at:g} s")
            continue
        hits.add(match)
        # Amounts count where both the list and the finder have one.
        if any(match.amounts) and amounts:
            is_right = any(amount in match.amounts for amount in amounts)
            counts["amounts told"] += 1
            counts["amounts right"] += is_right
            if verbose and not is_right:
                print(f"   amount: {amounts} of {thing.name}, not {match.amounts}")
    counts["found"] = len(hits)
    counts["amounts listed"] = sum(any(row.amounts) for row in listed)
    if verbose:
        print_missed(listed, hits)
    return counts


def listed_match(thing: Material, listed: list[ListedThing]) -> ListedThing | None:
    """Return the first listed thing that a thing's name is of, None where no list has it."""
    for row in listed:
        if row.is_named(thing.name):
            return row
    return None


def print_missed(listed: list[ListedThing], hits: set[ListedThing]) -> None:
    """Print the listed things that were not found."""
    for row in listed:
        if row not in hits:
            print(f"   missed: {row.names[0]}")


def main() -> None:
    """Print the counts of each kind over all narrations."""
    verbose = "--all" in sys.argv
    totals: dict[str, Counts] = defaultdict(lambda: defaultdict(int))
    for narration, lists in read_lists().items():
        needed = find_materials(read_narration(read_transcript(narration)))
        prefix = "held out " if is_held_out(narration) else ""
        for kind, things in (("material", needed.materials), ("tool", needed.tools)):
            if verbose:
                print(narration, kind)
            counts = compare(things, lists[kind], verbose=verbose)
            for name, count in counts.items():
                totals[prefix + kind][name] += count
    for kind, counts in totals.items():
        precision = counts["right"] / max(1, counts["told"])
        recall = counts["found"] / max(1, counts["listed"])
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        figures = f"precision {precision:.2f}, found {recall:.2f}, F1 {f1:.2f}"
        print(f"{kind}: {figures}, {dict(counts)}")


if __name__ == "__main__":
    main()
