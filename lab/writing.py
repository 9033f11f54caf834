"""How well a step writer finds the actions of marked transcripts, and how fast it is.

    python lab/writing.py

A written step matches a marked action when it cites the action's sentence and shares its verb's
lemma and its main object's lemma. A step that joins two actions may match two, another step one.
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
from pathlib import Path
from typing import Any

from stepline.records import Sentence, Span, Step, Transcript
from stepline.writing import WritingSettings, write_steps
from stepline.writing.extractive.english import parser, verbs

LAB_FOLDER = Path(__file__).resolve().parent
SHARED_FOLDER = LAB_FOLDER.parent.parent / "shared"
# An ordinary pace. These transcripts have no times, and the writer needs some.
WORDS_A_SECOND = 2.5
JOINT_PATTERN = re.compile(r" and (?:then )?(?=\w)")
REFLEXIVE_PRONOUNS = frozenset({"yourself", "yourselves", "itself", "themselves"})
OBJECT_RELATIONS = ("dobj", "nsubjpass", "attr", "oprd")


@dataclass(frozen=True)
class Mark:
    """One marked action: its sentence, its verb's lemma, the lemmas that count as its object.

    None among the objects: no object.
    """

    sentence: int
    verb: str
    objects: tuple[str | None, ...]


@dataclass(frozen=True)
class Case:
    """A marked transcript.

    round 0: the rules were written with it in view. 1, 2 and 3: marked before the writer first ran
    on it. Its errors were looked at after that first run.
    """

    name: str
    round: int
    transcript: Transcript
    actions: tuple[Mark, ...]
    optional: tuple[Mark, ...]


@dataclass(frozen=True)
class Score:
    """Counts of one case.

    extra: steps that match nothing. missed: actions without a step.
    """

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
    """Match steps and actions one to one.

    A step without an action may match an optional one. It is then not counted.
    """
    open_actions = list(actions)
    open_optional = list(optional)
    marked_sentences = {mark.sentence for mark in (*actions, *optional)}
    extra = []
    chat = 0
    for step in steps:
        if not _match_step(step, open_actions, open_optional):
            extra.append(f"{step.sources[0]}: {step.text}")
            chat += not marked_sentences & set(step.sources)
    missed = [f"{mark.sentence}: {mark.verb} {mark.objects[0]}" for mark in open_actions]
    matched = len(actions) - len(open_actions)
    return Score(matched, len(actions), tuple(extra), tuple(missed), chat)


def _match_step(step: Step, open_actions: list[Mark], open_optional: list[Mark]) -> bool:
    """Take what a step matches from the open marks, and say whether there was any."""
    has_match = False
    for text in halves_of(step.text):
        readings = (action_of(text), action_of(text.lower()))
        for marks in (open_actions, open_optional):
            mark = _matching(step, readings, marks)
            if mark is not None:
                marks.remove(mark)
                has_match = True
                break
    return has_match


def halves_of(text: str) -> list[str]:
    """Return the actions that a step may join.

    "push the bar up and carry it out" says that the bar is carried too. A pronoun in a later half
    means what the first acts on. The whole text is the first half.
    """
    halves = [text]
    thing = None
    rest = text
    while match := JOINT_PATTERN.search(rest):
        thing = thing or action_of(text)[1]
        rest = rest[match.end() :]
        first_words = rest.lower().split()[:2]
        if verbs().intersection(first_words):
            half = re.sub(r"\b(?:it|them|this|that|these|those)\b", f"the {thing}", rest, count=1)
            halves.append(half)
    return halves


def _matching(
    step: Step, readings: Sequence[tuple[str, str | None]], marks: Iterable[Mark]
) -> Mark | None:
    """Return the first mark that a reading fits. A step is read as written and in lower case."""
    for mark in marks:
        if mark.sentence not in step.sources:
            continue
        for verb, thing in readings:
            if mark.verb == verb and thing in mark.objects:
                return mark
    return None


def action_of(text: str) -> tuple[str, str | None]:
    """Return the lemmas of an imperative's verb and object: "slice the lemons" gives slice, lemon.

    The verb is the first word that is not a negation or a manner ("gently"). "right-click" counts
    as click. The object is read by the parser from "you must ...": the direct object, else what the
    first preposition names ("look into the mirror" gives mirror).
    """
    words = re.sub(r"\b\w+-click", "click", text, flags=re.IGNORECASE).split()
    while len(words) > 1 and _is_before_verb(words[0]):
        words.pop(0)
    # a button's name, which the parser takes for an interjection
    if words[1:2] in (["ok"], ["OK"]):
        return words[0], "ok"
    doc = parser()(f"You must {' '.join(words)}.")
    verb = doc[2]
    lemma = _lemma(verb)
    if verb.tag_ == "VBP":
        lemma = words[0].strip(",.").split("-")[0]
    return lemma, _object(verb)


def _is_before_verb(word: str) -> bool:
    """Say whether a first word is a negation or a manner."""
    if word in ("don't", "never"):
        return True
    return word.endswith("ly") and word not in verbs()


def _object(verb: Any) -> str | None:
    """Return the lemma of what a verb acts on.

    Direct objects come first, then the subjects of its clauses, then what its prepositions name.
    """
    children = sorted(verb.children, key=lambda child: child.i)
    after = [child for child in children if child.i > verb.i]
    direct = [child for child in after if child.dep_ in OBJECT_RELATIONS]
    subjects = []
    named = []
    for child in after:
        if child.dep_ in ("ccomp", "xcomp"):
            subjects += [token for token in child.children if token.dep_ == "nsubj"]
        if child.dep_ in ("prep", "prt", "advmod"):
            named += _named(child)
    objects = [*direct, *subjects, *named]
    return _lemma(objects[0]) if objects else None


def _named(preposition: Any) -> list[Any]:
    """Return what a chain of prepositions names: "back up to the MENU"."""
    objects = [child for child in preposition.children if child.dep_ == "pobj"]
    if objects:
        return objects
    for child in preposition.children:
        if child.dep_ == "prep":
            objects += _named(child)
    return objects


def _lemma(token: Any) -> str:
    return str(token.lemma_).lower()


def timed(texts: Sequence[str]) -> Transcript:
    """Return a transcript of sentences spoken one after the other at an ordinary pace."""
    sentences = []
    now = 0.0
    for text in texts:
        words = max(1, len(text.split()))
        end = now + words / WORDS_A_SECOND
        sentences.append(Sentence(text=text, span=Span(now, end)))
        now = end
    return Transcript(language="en", sentences=tuple(sentences))


def cases() -> list[Case]:
    """Return every marked transcript whose text is on this machine."""
    marked = []
    lemonade = SHARED_FOLDER / "metric_cases" / "lemonade.json"
    if lemonade.is_file():
        marked.append(_case("lemonade", 0, json.loads(lemonade.read_text(encoding="utf-8"))))
    for path in sorted((LAB_FOLDER / "transcripts").glob("*.json")):
        if path.stem != "tutorialvqa":
            marked.append(_case(path.stem, 1, json.loads(path.read_text(encoding="utf-8"))))
    return marked + _tutorialvqa()


def _tutorialvqa() -> list[Case]:
    """Return the marked Photoshop tutorials.

    Only the marks are stored here. The text stays in ../shared.
    """
    texts_path = SHARED_FOLDER / "data" / "tutorialvqa" / "tutorials.json.gz"
    marks_path = LAB_FOLDER / "transcripts" / "tutorialvqa.json"
    if not (texts_path.is_file() and marks_path.is_file()):
        return []
    with gzip.open(texts_path, "rt", encoding="utf-8") as file:
        videos = json.load(file)
    marked = []
    marks_by_video = json.loads(marks_path.read_text(encoding="utf-8"))["videos"]
    for key, marks in marks_by_video.items():
        data = {**marks, "sentences": videos[key]["transcript"]}
        marked.append(_case(f"tutorialvqa {key}", marks["round"], data))
    return marked


def _case(name: str, number: int, data: dict[str, Any]) -> Case:
    if isinstance(data["sentences"][0], str):
        transcript = timed(data["sentences"])
    else:
        sentences = []
        for start, end, text in data["sentences"]:
            sentences.append(Sentence(text=text, span=Span(start, end)))
        transcript = Transcript(language="en", sentences=tuple(sentences))
    return Case(name, number, transcript, _marks(data["actions"]), _marks(data["optional"]))


def _marks(rows: Iterable[dict[str, Any]]) -> tuple[Mark, ...]:
    return tuple(_mark(row) for row in rows)


def _mark(row: dict[str, Any]) -> Mark:
    """Return a mark. A row with only a text is read as a step is."""
    if "verb" not in row:
        verb, thing = action_of(row["text"])
        return Mark(row["sentence"], verb, (thing,))
    objects = row["object"]
    if not isinstance(objects, list):
        objects = [objects]
    return Mark(row["sentence"], row["verb"], tuple(objects))


def measure(settings: WritingSettings, only: Sequence[str] = ()) -> list[tuple[Case, Score]]:
    """Return each case with its score."""
    results = []
    for case in cases():
        if only and not any(name in case.name for name in only):
            continue
        steps = write_steps(case.transcript, settings).steps
        results.append((case, score(steps, case.actions, case.optional)))
    return results


def speed(settings: WritingSettings, sentences: int = 2000) -> dict[str, float]:
    """Return the words and the CPU seconds of writing steps of our own transcripts' lines."""
    lines: list[str] = []
    for case in cases():
        if not case.name.startswith("tutorialvqa"):
            lines += [sentence.text for sentence in case.transcript.sentences]
    repeats = sentences // len(lines) + 1
    transcript = timed((lines * repeats)[:sentences])
    start = time.process_time()
    write_steps(transcript, settings)
    seconds = time.process_time() - start
    words = sum(len(sentence.text.split()) for sentence in transcript.sentences)
    return {"words": words, "cpu_s": round(seconds, 2)}


def report(results: Sequence[tuple[Case, Score]], *, verbose: bool) -> list[dict[str, Any]]:
    """Print the table and return its rows, one per transcript and one per round."""
    print(f"{'transcript':34s} {'round':5s} {'recall':>14s} {'precision':>14s} {'chat':>4s}")
    rows = []
    by_round: dict[int, list[Score]] = {}
    for case, case_score in results:
        rows.append(_row(case.name, case.round, case_score))
        by_round.setdefault(case.round, []).append(case_score)
        if verbose:
            for text in case_score.missed:
                print(f"      missed {text}")
            for text in case_score.extra:
                print(f"      extra  {text}")
    for number, scores in sorted(by_round.items()):
        rows.append(_row(f"round {number} together", number, _pooled(scores)))
    return rows


def _row(name: str, number: int, counts: Score) -> dict[str, Any]:
    """Print one line of the table and return it."""
    recall = f"{counts.recall:6.3f} {counts.matched:3d}/{counts.actions:<3d}"
    precision = f"{counts.precision:6.3f} {counts.matched:3d}/{counts.counted:<3d}"
    print(f"{name:34s} {number:5d} {recall} {precision} {counts.chat:4d}")
    return {
        "name": name,
        "round": number,
        "matched": counts.matched,
        "actions": counts.actions,
        "counted": counts.counted,
        "chat": counts.chat,
        "recall": round(counts.recall, 3),
        "precision": round(counts.precision, 3),
    }


def _pooled(scores: Sequence[Score]) -> Score:
    """Return the counts of several cases together."""
    extra: list[str] = []
    missed: list[str] = []
    for counts in scores:
        extra += counts.extra
        missed += counts.missed
    return Score(
        matched=sum(counts.matched for counts in scores),
        actions=sum(counts.actions for counts in scores),
        extra=tuple(extra),
        missed=tuple(missed),
        chat=sum(counts.chat for counts in scores),
    )


def main() -> None:
    """Print the table and write lab/results/writing.json.

    Arguments choose transcripts and write nothing.
    """
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    verbose = "--verbose" in sys.argv
    # the parser is loaded once, and its loading is timed
    start = time.perf_counter()
    parser()
    load = round(time.perf_counter() - start, 2)
    settings = WritingSettings()
    rows = report(measure(settings, names), verbose=verbose)
    if names:
        return
    speeds = {**speed(settings), "import_and_load_s": load}
    words_per_second = speeds["words"] / speeds["cpu_s"]
    print(
        f"speed: {words_per_second:.0f} words a CPU second; parser imported and loaded in {load} s"
    )
    result_path = LAB_FOLDER / "results" / "writing.json"
    result_path.parent.mkdir(exist_ok=True)
    tree = {"transcripts": rows, "speed": speeds}
    result_path.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
