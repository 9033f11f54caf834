"""How well a step writer finds the actions of marked transcripts, and how fast it is.

    python benchmarks/writing.py
    python benchmarks/writing.py --halves    # which actions do annotators put into one step?

A written step matches a marked action when it cites the action's sentence and shares its verb's
lemma and its main object's lemma. A step that joins two actions may match two, any other one.
`optional` actions count neither for nor against. Recall = matched / actions. Precision = matched /
(matched + steps that match no mark). The transcripts of TutorialVQA are read from ../shared.
"""

import gzip
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from stepline.records import Sentence, Span, Step, Transcript
from stepline.writing import WritingSettings, write_steps
from stepline.writing.extractive.clauses import find_clauses
from stepline.writing.extractive.english import parse, parser, verbs
from stepline.writing.extractive.pronouns import INDEFINITE_PRONOUNS, PRONOUN_NUMBERS
from stepline.writing.extractive.segments import split_into_segments

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared"
# what came out before any error was looked at. Never re-made
FIRST_RUNS = HERE / "writing_first_runs.json"
WORDS_A_SECOND = 2.5  # an ordinary pace; these transcripts carry no times and the writer needs some
JOINT = re.compile(r" and (?:then )?(?=\w)")
CONTINUING = (
    frozenset(PRONOUN_NUMBERS)
    | INDEFINITE_PRONOUNS
    | {"yourself", "yourselves", "itself", "themselves"}
)
OBJECTS = ("dobj", "nsubjpass", "attr", "oprd")


@dataclass(frozen=True)
class Mark:
    """One marked action: its sentence, its verb's lemma, the lemmas that count as its object (None:
    no object)."""

    sentence: int
    verb: str
    objects: tuple[str | None, ...]


@dataclass(frozen=True)
class Case:
    """A marked transcript.

    round 0: the rules were written with it in view. 1, 2 and 3: marked before the writer first ran
    on it. Its errors were looked at after that first run, whose numbers FIRST_RUNS keeps.
    """

    name: str
    round: int
    transcript: Transcript
    actions: tuple[Mark, ...]
    optional: tuple[Mark, ...]


@dataclass(frozen=True)
class Score:
    """Counts of one case. `extra` are the steps that match nothing, `missed` the actions without a
    step."""

    matched: int
    actions: int
    extra: tuple[str, ...]
    missed: tuple[str, ...]
    chat: int

    @property
    def recall(self) -> float:
        """Share of the actions that a step matches. 1 when there are no actions."""
        return self.matched / self.actions if self.actions else 1.0

    @property
    def precision(self) -> float:
        """Share of the counted steps that match an action. 1 when there are no steps."""
        return self.matched / self.counted if self.counted else 1.0

    @property
    def counted(self) -> int:
        """How many steps count: those that match only an optional action do not."""
        return self.matched + len(self.extra)


def score(steps: Sequence[Step], actions: Sequence[Mark], optional: Sequence[Mark]) -> Score:
    """Match steps and actions one to one. A step left over may match an optional action and is then
    not counted."""
    left, spare, extra, chat = list(actions), list(optional), [], 0
    marked = {mark.sentence for mark in (*actions, *optional)}
    for step in steps:
        told = 0
        for text in halves_of(step.text):
            readings = (action_of(text), action_of(text.lower()))
            for marks in (left, spare):
                if (mark := _matching(step, readings, marks)) is not None:
                    marks.remove(mark)
                    told += 1
                    break
        if not told:
            extra.append(f"{step.sources[0]}: {step.text}")
            chat += not marked & set(step.sources)
    return Score(
        len(actions) - len(left),
        len(actions),
        tuple(extra),
        tuple(f"{m.sentence}: {m.verb} {m.objects[0]}" for m in left),
        chat,
    )


def halves_of(text: str) -> list[str]:
    """Return the actions that a step may join: "push the bar up and carry it out" says that the
    bar is carried too.

    A pronoun in a later half stands for what the first acts on. The whole text is the first half.
    """
    first, thing = text, None
    halves = [first]
    while match := JOINT.search(text):
        thing = thing or action_of(first)[1]
        text = text[match.end() :]
        if {*text.lower().split()[:2]} & verbs():
            halves.append(
                re.sub(r"\b(?:it|them|this|that|these|those)\b", f"the {thing}", text, count=1)
            )
    return halves


def _matching(
    step: Step, readings: Sequence[tuple[str, str | None]], marks: Iterable[Mark]
) -> Mark | None:
    """Return the first mark that a reading fits. A step is read as written and in lower case."""
    cited = (mark for mark in marks if mark.sentence in step.sources)
    return next(
        (
            m
            for m in cited
            if any(m.verb == verb and thing in m.objects for verb, thing in readings)
        ),
        None,
    )


def action_of(text: str) -> tuple[str, str | None]:
    """Return the lemmas of an imperative's verb and of its main object: "slice the lemons" gives
    slice, lemon.

    The verb is the first word that is not a negation or a manner ("gently"). "right-click" counts
    as click. The object is read by the parser from "you must ...": the direct object, else what the
    first preposition names ("look into the mirror" gives mirror).
    """
    words = re.sub(r"\b\w+-click", "click", text, flags=re.IGNORECASE).split()
    while len(words) > 1 and (
        words[0] in ("don't", "never") or (words[0].endswith("ly") and words[0] not in verbs())
    ):
        words.pop(0)
    if words[1:2] == ["ok"] or words[1:2] == ["OK"]:
        return words[0], "ok"  # a button's name, which the parser takes for an interjection
    doc = parser()(f"You must {' '.join(words)}.")
    verb = doc[2]
    return words[0].strip(",.").split("-")[0] if verb.tag_ == "VBP" else _lemma(verb), _object(verb)


def _object(verb: Any) -> str | None:
    after = [
        child for child in sorted(verb.children, key=lambda child: child.i) if child.i > verb.i
    ]
    direct = [child for child in after if child.dep_ in OBJECTS]
    taken = [
        deep
        for child in after
        if child.dep_ in ("ccomp", "xcomp")
        for deep in child.children
        if deep.dep_ == "nsubj"
    ]
    placed = [
        thing
        for child in after
        if child.dep_ in ("prep", "prt", "advmod")
        for thing in _named(child)
    ]
    return next((_lemma(token) for token in [*direct, *taken, *placed]), None)


def _named(preposition: Any) -> list[Any]:
    """Return what a chain of prepositions names: "back up to the MENU"."""
    found = [child for child in preposition.children if child.dep_ == "pobj"]
    return found or [
        thing for child in preposition.children if child.dep_ == "prep" for thing in _named(child)
    ]


def _lemma(token: Any) -> str:
    return str(token.lemma_).lower()


def timed(texts: Sequence[str]) -> Transcript:
    """Return a transcript of sentences spoken one after the other at an ordinary pace."""
    sentences, now = [], 0.0
    for text in texts:
        end = now + max(1, len(text.split())) / WORDS_A_SECOND
        sentences.append(Sentence(text=text, span=Span(now, end)))
        now = end
    return Transcript(language="en", sentences=tuple(sentences))


def cases() -> list[Case]:
    """Return every marked transcript whose text is on this machine."""
    found = []
    lemonade = SHARED / "metric_cases" / "lemonade.json"
    if lemonade.is_file():
        found.append(_case("lemonade", 0, json.loads(lemonade.read_text(encoding="utf-8"))))
    for path in sorted((HERE / "transcripts").glob("*.json")):
        if path.stem != "tutorialvqa":
            found.append(_case(path.stem, 1, json.loads(path.read_text(encoding="utf-8"))))
    return found + _tutorialvqa()


def _tutorialvqa() -> list[Case]:
    """Return the marked Photoshop tutorials. Only the marks are stored here, the text stays in
    ../shared."""
    texts, marks = (
        SHARED / "data" / "tutorialvqa" / "tutorials.json.gz",
        HERE / "transcripts" / "tutorialvqa.json",
    )
    if not (texts.is_file() and marks.is_file()):
        return []
    with gzip.open(texts, "rt", encoding="utf-8") as file:
        videos = json.load(file)
    marked = json.loads(marks.read_text(encoding="utf-8"))["videos"]
    return [
        _case(f"tutorialvqa {key}", mark["round"], {**mark, "sentences": videos[key]["transcript"]})
        for key, mark in marked.items()
    ]


def _case(name: str, number: int, data: dict[str, Any]) -> Case:
    if isinstance(data["sentences"][0], str):
        transcript = timed(data["sentences"])
    else:
        sentences = tuple(
            Sentence(text=text, span=Span(start, end)) for start, end, text in data["sentences"]
        )
        transcript = Transcript(language="en", sentences=sentences)
    return Case(name, number, transcript, _marks(data["actions"]), _marks(data["optional"]))


def _marks(rows: Iterable[dict[str, Any]]) -> tuple[Mark, ...]:
    return tuple(_mark(row) for row in rows)


def _mark(row: dict[str, Any]) -> Mark:
    """Return a mark. One that gives only a text is read as a step is."""
    if "verb" not in row:
        verb, thing = action_of(row["text"])
        return Mark(row["sentence"], verb, (thing,))
    thing = row["object"]
    return Mark(row["sentence"], row["verb"], tuple(thing) if isinstance(thing, list) else (thing,))


def measure(settings: WritingSettings, only: Sequence[str] = ()) -> list[tuple[Case, Score]]:
    """Return each case with its score."""
    chosen = [case for case in cases() if not only or any(name in case.name for name in only)]
    return [
        (case, score(write_steps(case.transcript, settings).steps, case.actions, case.optional))
        for case in chosen
    ]


def speed(settings: WritingSettings, sentences: int = 2000) -> dict[str, float]:
    """Return how long loading takes and how many words a CPU second are written, on lines of the
    own transcripts."""
    lines = [
        s.text
        for case in cases()
        if not case.name.startswith("tutorialvqa")
        for s in case.transcript.sentences
    ]
    transcript = timed((lines * (sentences // len(lines) + 1))[:sentences])
    start = time.process_time()
    write_steps(transcript, settings)
    spent = time.process_time() - start
    return {
        "words": sum(len(s.text.split()) for s in transcript.sentences),
        "cpu_s": round(spent, 2),
    }


def report(results: Sequence[tuple[Case, Score]], *, verbose: bool) -> list[dict[str, Any]]:
    """Print the table and return its rows, one a transcript and one a round."""
    print(f"{'transcript':34s} {'round':5s} {'recall':>14s} {'precision':>14s} {'chat':>4s}")
    rows = []
    for case, got in results:
        rows.append(_row(case.name, case.round, got))
        if verbose:
            for line in [f"missed {text}" for text in got.missed] + [
                f"extra  {text}" for text in got.extra
            ]:
                print(f"      {line}")
    for number in sorted({case.round for case, _ in results}):
        together = _pooled([got for case, got in results if case.round == number])
        rows.append(_row(f"round {number} together", number, together))
    return rows


def _row(name: str, number: int, got: Score) -> dict[str, Any]:
    """Print one line of the table and return it."""
    print(
        f"{name:34s} {number:5d} {got.recall:6.3f} {got.matched:3d}/{got.actions:<3d}"
        f" {got.precision:6.3f} {got.matched:3d}/{got.counted:<3d} {got.chat:4d}"
    )
    counts = {
        "matched": got.matched,
        "actions": got.actions,
        "counted": got.counted,
        "chat": got.chat,
    }
    rates = {"recall": round(got.recall, 3), "precision": round(got.precision, 3)}
    return {"name": name, "round": number, **counts, **rates}


def _pooled(scores: Sequence[Score]) -> Score:
    """Return the counts of several cases together."""
    return Score(
        sum(s.matched for s in scores),
        sum(s.actions for s in scores),
        tuple(text for s in scores for text in s.extra),
        tuple(text for s in scores for text in s.missed),
        sum(s.chat for s in scores),
    )


def halves(videos: int = 300) -> dict[str, tuple[int, int]]:
    """Return, of neighbouring actions in YouCook2's captions, how many are in one caption and in
    two.

    By what the later acts on: nothing, nothing but a place, a pronoun, a thing that the earlier
    names, a new thing.
    """
    with gzip.open(SHARED / "data" / "youcook2" / "val.json.gz", "rt", encoding="utf-8") as file:
        told = [video["sentences"] for video in json.load(file).values()][:videos]
    lines = [(v, s, text) for v, sentences in enumerate(told) for s, text in enumerate(sentences)]
    pieces = [(v, s, piece) for v, s, text in lines for piece in split_into_segments(text, 1)]
    read = zip(pieces, parse([piece.text for _, _, piece in pieces]), strict=True)
    actions = [
        (v, s, clause.verb)
        for (v, s, p), doc in read
        for clause in find_clauses(doc, ordered=p.ordered)
    ]
    counts: dict[str, tuple[int, int]] = {}
    for (video, one, before), (same, two, verb) in pairwise(actions):
        if video == same:
            kind = _acts_on(
                verb, {token.lemma_ for token in before.subtree if token.pos_ in ("NOUN", "PROPN")}
            )
            together, apart = counts.get(kind, (0, 0))
            counts[kind] = (together + (one == two), apart + (one != two))
    return counts


def _acts_on(verb: Any, named: set[str]) -> str:
    after = [child for child in verb.children if child.i > verb.i]
    things = [child for child in after if child.dep_ in ("dobj", "dative")]
    if not things:
        placed = any(
            deep.dep_ == "pobj"
            for child in after
            if child.dep_ == "prep"
            for deep in child.children
        )
        return "a place" if placed else "nothing"
    if all(thing.lower_ in CONTINUING for thing in things):
        return "a pronoun"
    return "a thing named before" if {thing.lemma_ for thing in things} & named else "a new thing"


def main() -> None:
    """Print the table and write benchmarks/results/writing.json. Arguments choose transcripts and
    write nothing."""
    if "--halves" in sys.argv:
        for kind, (together, apart) in sorted(halves().items()):
            print(
                f"{kind:22s} {together:5d} in one step, {apart:5d} in two: {together / (together + apart):.2f}"
            )
        return
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    verbose = "--verbose" in sys.argv
    start = time.perf_counter()
    parser()
    load = round(time.perf_counter() - start, 2)
    settings = WritingSettings()
    rows = report(measure(settings, names), verbose=verbose)
    if names:
        return
    quick = {**speed(settings), "import_and_load_s": load}
    print(
        f"speed: {quick['words'] / quick['cpu_s']:.0f} words a CPU second; parser imported and loaded in {load} s"
    )
    out = HERE / "results" / "writing.json"
    out.parent.mkdir(exist_ok=True)
    first = json.loads(FIRST_RUNS.read_text(encoding="utf-8"))
    text = json.dumps({"transcripts": rows, "first_runs": first, "speed": quick}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
