"""A vision-language model is asked where steps are shown: few questions, each worth its price, each
answer weighed.

    beliefs = place_beliefs(...)              what speech and pictures say, step by step and place by place
    ask_for_descriptions(...)                 what is done in each place, once for all steps, where the settings say so
    while questions are worth asking:         and requests, tokens and seconds are left
        choose_questions(...)                 by the expected value of their answers
        answers, several at once              from the cache, else from the server, checked
        infer(...)                            where the steps are, and how reliable the model is, together
    move_steps(...)                           where the answers have earned it: else nothing changes

Letters: K steps, P places.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from stepline.chat import orders_a_model
from stepline.chat.pictures import PictureReader
from stepline.chat.requests import RequestLimits, run_in_threads
from stepline.chat.servers import Server, open_server
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import Alignment, Step
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language.pictures import clip_report
from stepline.vision_language.places import move_steps, picture_seconds, place_beliefs, video_places
from stepline.vision_language.questions import NO_ANSWER, QUESTION, Reply
from stepline.vision_language.reliability import (
    Ballot,
    Beliefs,
    expected_gain,
    infer,
    likeliest_places,
)
from stepline.vision_language.runner import QuestionRunner, tokens_at_most

TRUSTED = 0.9  # P(the model is of use at all) from which its answers count
USELESS = 0.95  # P(it is of none) from which it is asked no more, after so many answers:
ENOUGH = 4
# cosine of MiniLM from which a description tells a step; the most alike one counts alone
ALIKE = 0.5
# share of the places of an earlier question from which the next one asks the same again
REPEATED = 0.5


@dataclass(frozen=True)
class Question:
    """One question: the rows of its steps, the places in the order shown, the seconds of their
    pictures.

    again: of each step, whether it was asked about most of these places before.
    """

    steps: tuple[int, ...]
    choices: tuple[int, ...]
    seconds: tuple[float, ...]
    again: tuple[bool, ...]


Asked = tuple[Question, tuple[Reply, ...]]


@dataclass(frozen=True)
class VisualAnswers:
    """Steps and alignment as the answers leave them, and what the record says of the asking.

    notes: what the user should know: that the model was not trusted, that some answers did not
    come.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


def ask_about_steps(
    steps: Sequence[Step],
    alignment: Alignment,
    shots: Sequence[slice],
    pictures: PictureReader,
    *,
    duration: float,
    settings: VisionLanguageSettings,
    ground: GroundSettings | None = None,
    server: Server | None = None,
    start: float = 0.0,
) -> VisualAnswers:
    """Return the steps placed by the answers too, where the model that the settings name has proved
    reliable.

    steps, alignment: as grounded, one column a second. shots: slices of whole seconds. server: in
    place of the named.
    start: second of the whole video at which its part begins that is looked at, for what is told.
    Raises WriterError where the server is not there or refuses access, ModelError where a model or
    library is missing.
    """
    places = video_places(shots)
    prior = place_beliefs(steps, alignment, places)
    seconds = picture_seconds(alignment, places, duration)
    if settings.dry_run:
        report, note = _plan(prior, seconds, steps, settings, start)
        return VisualAnswers(tuple(steps), alignment, report, (note,))
    opened = server or open_server(settings)
    runner = QuestionRunner.begin(opened, settings)
    limits = runner.limits
    known: dict[float, bytes] = {}  # pictures by their seconds
    told = Descriptions()
    try:
        if settings.describe:
            told = ask_for_descriptions(runner, steps, places, pictures, known, duration)
        asked, beliefs = _ask_while_worth_it(
            runner, steps, prior, seconds, pictures, known, told.ballots
        )
    finally:
        opened.close()
    trusted = 1 - beliefs.useless >= TRUSTED
    report = _report(asked, steps, opened, limits, beliefs, trusted, start) | clip_report(settings)
    if told.seconds:
        report["descriptions"] = {
            "pictures": [start + second for second in told.seconds],
            "words": list(told.words),
        }
    notes = _notes(asked, beliefs, trusted=trusted)
    if not trusted:
        return VisualAnswers(tuple(steps), alignment, report, notes)
    for question, replies in asked:
        for k, reply in zip(question.steps, replies, strict=True):
            if reply.answer is not None:
                seconds[k, question.choices[reply.answer]] = question.seconds[reply.answer]
    moved, rows = move_steps(
        steps,
        alignment,
        shots,
        seconds,
        prior,
        beliefs.agreed,
        duration=duration,
        settings=ground or GroundSettings(),
    )
    return VisualAnswers(_with_answers(moved, asked, start), rows, report, notes)


@dataclass(frozen=True)
class Descriptions:
    """What a model says is done in some places of a video: their seconds and its words, and which
    steps those tell."""

    seconds: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    ballots: tuple[Ballot, ...] = ()


def ask_for_descriptions(
    runner: QuestionRunner,
    steps: Sequence[Step],
    places: Sequence[slice],
    pictures: PictureReader,
    known: dict[float, bytes],
    duration: float,
) -> Descriptions:
    """Return the places' descriptions, each asked for once and compared with all steps; none where
    too many are needed.

    They may take half of the requests at most. known: pictures read so far; more are added. A
    description that is the likest to a step's words counts as an answer on it; where none is like
    them nothing is answered, for words may differ for the same thing.
    """
    settings = runner.settings
    if -(-len(places) // settings.choices) > settings.requests // 2:
        return Descriptions()
    middles = [
        min((place.start + place.stop) // 2 + 0.5, max(0.0, duration - 0.1)) for place in places
    ]
    known |= pictures([second for second in middles if second not in known])
    shown = [p for p, second in enumerate(middles) if second in known]
    replies = runner.describe([known[middles[p]] for p in shown])
    told = [(p, reply.after) for p, reply in zip(shown, replies, strict=True) if reply.after]
    ballots: list[Ballot] = []
    if told:
        from stepline.text import embed

        choices, words = tuple(p for p, _ in told), [text for _, text in told]
        likeness = embed([step.text for step in steps]) @ embed(words).T  # (K, described places)
        ballots = [
            Ballot(k, choices, int(row.argmax()))
            for k, row in enumerate(likeness)
            if row.max() >= ALIKE
        ]
    return Descriptions(
        tuple(middles[p] for p in shown), tuple(reply.after for reply in replies), tuple(ballots)
    )


def _ask_while_worth_it(
    runner: QuestionRunner,
    steps: Sequence[Step],
    prior: Array,
    seconds: Array,
    pictures: PictureReader,
    known: dict[float, bytes],
    described: Sequence[Ballot],
) -> tuple[list[Asked], Beliefs]:
    """Return what was asked, round by round, and what is believed then.

    prior: (K, P + 1); seconds: (K, P). known: pictures read so far, by their seconds; more are
    added. described: what descriptions answer, before.
    """
    settings, limits, workers = runner.settings, runner.limits, runner.server.workers
    asked: list[Asked] = []
    rng = np.random.default_rng(settings.seed)
    beliefs = infer(prior, described, settings.right, settings.wrong)

    def answer(question: Question) -> tuple[Reply, ...]:
        return runner.choose(
            [steps[k].text for k in question.steps], [known[second] for second in question.seconds]
        )

    while limits.sent < settings.requests and not _found_out(beliefs, asked):
        count = min(workers, settings.requests - limits.sent)
        chosen = choose_questions(beliefs, asked, steps, seconds, settings, rng, count)
        missing = sorted({t for question in chosen for t in question.seconds} - known.keys())
        known |= pictures(missing) if missing else {}
        chosen = [q for q in chosen if all(second in known for second in q.seconds)]
        if not chosen:
            break
        found = run_in_threads(answer, chosen, workers=workers, until=runner.until)
        asked += [(q, found.get(n, (NO_ANSWER,) * len(q.steps))) for n, q in enumerate(chosen)]
        beliefs = infer(prior, [*described, *_ballots(asked)], settings.right, settings.wrong)
        if all(reply.refusal for _, each in asked[-len(chosen) :] for reply in each):
            break
    return asked, beliefs


def choose_questions(
    beliefs: Beliefs,
    asked: Sequence[Asked],
    steps: Sequence[Step],
    seconds: Array,
    settings: VisionLanguageSettings,
    rng: np.random.Generator,
    count: int,
) -> list[Question]:
    """Return at most `count` questions, the most valuable first, each step in one of them, their
    choices shuffled.

    A question is about the most valuable step left and those that gain most beside it from the same
    pictures.
    seconds: (K, P) of each place's picture. Steps that order a language model are not asked about.
    """
    refused = {
        k
        for q, replies in asked
        for k, reply in zip(q.steps, replies, strict=True)
        if reply.refusal
    }
    left = [k for k, step in enumerate(steps) if k not in refused and not orders_a_model(step.text)]
    questions: list[Question] = []
    while left and len(questions) < count:
        worth = {
            k: _value(beliefs, asked, k, likeliest_places(beliefs.places[k], settings.choices))
            for k in left
        }
        lead = max(left, key=lambda k: worth[k][0])
        if worth[lead][0] <= settings.least_gain:
            break
        choices = likeliest_places(beliefs.places[lead], settings.choices)
        beside = {k: _value(beliefs, asked, k, choices) for k in left if k != lead}
        best = sorted(beside, key=lambda k: -beside[k][0])[: settings.steps - 1]
        chosen = [lead, *(k for k in best if beside[k][0] > settings.least_gain)]
        shuffled = tuple(int(place) for place in rng.permutation(choices))
        again = tuple(_value(beliefs, asked, k, choices)[1] for k in chosen)
        pictures = tuple(float(seconds[lead, place]) for place in shuffled)
        questions.append(Question(tuple(chosen), shuffled, pictures, again))
        left = [k for k in left if k not in chosen]
    return questions


def _value(
    beliefs: Beliefs, asked: Sequence[Asked], k: int, choices: Sequence[int]
) -> tuple[float, bool]:
    """Return what an answer on step k is worth, and whether it was asked about most of these places
    before.

    Its worth to the adverse reading counts where that is more: without that reading's consent no
    step moves.
    """
    earlier = [set(question.choices) for question, _ in asked if k in question.steps]
    again = any(len(places & set(choices)) > REPEATED * len(choices) for places in earlier)
    rows = (beliefs.places[k], beliefs.adverse[k])
    return max(expected_gain(row, choices, beliefs.mean, again=again) for row in rows), again


def _ballots(asked: Sequence[Asked]) -> list[Ballot]:
    return [
        Ballot(k, question.choices, reply.answer, again)
        for question, replies in asked
        for k, reply, again in zip(question.steps, replies, question.again, strict=True)
        if not reply.refusal
    ]


def _found_out(beliefs: Beliefs, asked: Sequence[Asked]) -> bool:
    return len(asked) >= ENOUGH and beliefs.useless > USELESS


def _with_answers(steps: Sequence[Step], asked: Sequence[Asked], start: float) -> tuple[Step, ...]:
    """Return the steps with what the model saw of them, in plain words, among `seen`."""
    told = list(steps)
    for question, replies in asked:
        for k, reply in zip(question.steps, replies, strict=True):
            if reply.refusal:
                continue
            words = f"against: a vision-language model sees it in none of {len(question.choices)} places"
            if reply.answer is not None:
                words = f"for: a vision-language model sees it at {start + question.seconds[reply.answer]:.1f} s"
            told[k] = told[k].model_copy(
                update={"seen": tuple(dict.fromkeys((*told[k].seen, words)))}
            )
    return tuple(told)


def _notes(asked: Sequence[Asked], beliefs: Beliefs, *, trusted: bool) -> tuple[str, ...]:
    replies = [reply for _, each in asked for reply in each]
    refused = [reply.refusal for reply in replies if reply.refusal]
    notes = []
    if refused:
        unanswered = f"the vision-language model has not answered on {len(refused)} of {len(replies)} steps asked about"
        notes.append(f"provisional: {unanswered} ({refused[0]})")
    if replies and not trusted and len(refused) < len(replies):
        low, high = beliefs.interval()
        told = f"its reliability is {low:.2f} to {high:.2f}"
        notes.append(
            f"the vision-language model's answers fit this video too little to be believed ({told})"
        )
    return tuple(notes)


def _report(
    asked: Sequence[Asked],
    steps: Sequence[Step],
    server: Server,
    limits: RequestLimits,
    beliefs: Beliefs,
    trusted: bool,
    start: float,
) -> dict[str, JsonValue]:
    """Return what the record says: who was asked what with which pictures, the answers, and what
    they were worth."""
    low, high = beliefs.interval()
    return {
        "server": server.name,
        "requests": limits.sent,
        "tokens": limits.used,
        "reliability": [round(beliefs.mean, 3), low, high],
        "trusted": trusted,
        "questions": [
            {
                "steps": [steps[k].id for k in question.steps],
                "pictures": [start + second for second in question.seconds],
                "answers": [
                    None if r.answer is None else start + question.seconds[r.answer]
                    for r in replies
                ],
                "refused": [reply.refusal or None for reply in replies],
            }
            for question, replies in asked
        ],
    }


def _plan(
    prior: Array,
    seconds: Array,
    steps: Sequence[Step],
    settings: VisionLanguageSettings,
    start: float,
) -> tuple[dict[str, JsonValue], str]:
    """Return what would be asked first, and at most, with a note; answers decide what is asked
    then."""
    rng = np.random.default_rng(settings.seed)
    beliefs = infer(prior, (), settings.right, settings.wrong)
    planned = choose_questions(beliefs, (), steps, seconds, settings, rng, settings.requests)
    tokens = [
        tokens_at_most([QUESTION, *(steps[k].text for k in q.steps)], len(q.choices), settings)
        for q in planned
    ]
    most = min(settings.tokens, max(tokens, default=0) * settings.requests)
    shown = "pictures" if settings.video is None else "clips"
    limits = f"at most {settings.requests} requests, {most} tokens and {settings.deadline:g} s"
    note = f"dry run: a vision-language model would be asked {limits}; first on {len(planned)} sets of {shown}"
    questions: list[JsonValue] = [
        {
            "steps": [steps[k].id for k in q.steps],
            "pictures": [start + second for second in q.seconds],
        }
        for q in planned
    ]
    report: dict[str, JsonValue] = {
        "dry_run": True,
        "questions": questions,
        "requests": settings.requests,
        "tokens": most,
        "seconds": settings.deadline,
        **clip_report(settings),
    }
    return report, note
