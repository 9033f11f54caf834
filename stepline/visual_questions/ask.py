"""A vision-language model is asked where steps are shown: few questions, each worth its price, each answer weighed.

    beliefs = place_beliefs(...)              what speech and pictures say, step by step and place by place
    while questions are worth asking:         and requests, tokens and seconds are left
        choose_questions(...)                 by the expected value of their answers
        answers, several at once              from the cache, else from the server, checked
        infer(...)                            where the steps are, and how reliable the model is, together
    move_steps(...)                           where the answers have earned it: else nothing changes

Letters: K steps, P places.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from stepline.chat import orders_a_model
from stepline.chat.requests import ReplyCache, RequestLimits, ask_with_retries, cache_key, open_cache, run_in_threads
from stepline.chat.servers import Content, RequestError, Schema, Server, open_server
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import Alignment, Step
from stepline.vision.settings import WitnessSettings
from stepline.visual_questions.places import move_steps, picture_seconds, place_beliefs, video_places
from stepline.visual_questions.questions import (
    QUESTION,
    REPLY_TOKENS,
    Reply,
    choice_question,
    choice_schema,
    question_tokens,
    read_choices,
)
from stepline.visual_questions.reliability import Ballot, Beliefs, expected_gain, infer, likeliest_places

logger = logging.getLogger(__name__)

PictureReader = Callable[[Sequence[float]], dict[float, bytes]]  # seconds -> a JPEG of each that there is

TRUSTED = 0.9  # P(the model is of use at all) from which its answers count
USELESS = 0.95  # P(it is of none) from which it is asked no more, after so many answers:
ENOUGH = 4
REPEATED = 0.5  # share of the places of an earlier question from which the next one asks the same again


@dataclass(frozen=True)
class Question:
    """One question: the rows of its steps, the places in the order shown, the seconds of their pictures.

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

    notes: what the user should know: that the model was not trusted, that some answers did not come.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


@dataclass
class QuestionRunner:
    """Asks questions about the pictures of one video, by the cache first, within the limits and until a second."""

    server: Server
    settings: WitnessSettings
    cache: ReplyCache
    limits: RequestLimits
    until: float

    def ask(
        self,
        texts: Sequence[str],
        pictures: Sequence[bytes],
        content: Callable[[bool], Content],
        schema: Schema,
        read: Callable[[str], tuple[Reply, ...]],
    ) -> tuple[Reply, ...]:
        """Return the replies to one question; where one is refused it is asked for once more, then says why.

        texts: the words of the question, and pictures, for the cache and the limits. content: the message, reminded of
        the form or not. read: takes a reply apart.
        """
        settings = self.settings
        key = cache_key(
            server=self.server.name,
            question="\n".join(texts),
            pictures=hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in pictures)).hexdigest(),
            together=settings.together,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
        )
        kept = self.cache.get(key)
        if kept is not None and not any(reply.refusal for reply in read(kept)):
            return read(kept)
        replies: tuple[Reply, ...] = ()
        for reminded in (False, True):
            try:
                found = ask_with_retries(
                    self.server,
                    content(reminded),
                    settings,
                    seed=settings.seed + reminded,
                    until=self.until,
                    schema=schema,
                    limits=self.limits,
                    tokens=_tokens(texts, len(pictures), settings),
                )
            except RequestError as fault:
                return replies or (Reply(refusal=fault.reason),) * len(read(""))
            replies = read(found.text)
            if not any(reply.refusal for reply in replies):
                if found.complete:
                    self.cache.put(key, found.text)
                break
            logger.info("%s: %s", texts[1:], [reply.refusal for reply in replies])
        return replies


def _tokens(texts: Sequence[str], pictures: int, settings: WitnessSettings) -> int:
    """Return about how many tokens a question of these words takes; a picture is twice as long as wide at most."""
    pixels = [(settings.picture_size, 2 * settings.picture_size)] * pictures
    return question_tokens(sum(map(len, texts)), pixels) + REPLY_TOKENS * max(len(texts) - 1, 1)


def ask_about_steps(
    steps: Sequence[Step],
    alignment: Alignment,
    shots: Sequence[slice],
    pictures: PictureReader,
    *,
    duration: float,
    settings: WitnessSettings,
    ground: GroundSettings | None = None,
    server: Server | None = None,
    start: float = 0.0,
) -> VisualAnswers:
    """Return the steps placed by the answers too, where the model that the settings name has proved reliable.

    steps, alignment: as grounded, one column a second. shots: slices of whole seconds. server: in place of the named.
    start: second of the whole video at which its part begins that is looked at, for what is told.
    Raises WriterError where the server is not there or refuses access, ModelError where a model or library is missing.
    """
    places = video_places(shots)
    prior = place_beliefs(steps, alignment, places)
    seconds = picture_seconds(alignment, places, duration)
    asked: list[Asked] = []
    rng = np.random.default_rng(settings.seed)
    beliefs = infer(prior, (), settings.right, settings.wrong)
    if settings.dry_run:
        planned = choose_questions(beliefs, (), steps, seconds, settings, rng, settings.requests)
        report = _plan(planned, steps, settings, start)
        most = f"at most {report['requests']} requests, {report['tokens']} tokens and {settings.deadline:g} s"
        note = f"dry run: a vision-language model would be asked {most}; first on {len(planned)} sets of pictures"
        return VisualAnswers(tuple(steps), alignment, report, (note,))
    limits = RequestLimits(settings.requests, settings.tokens)
    opened = server or open_server(settings)
    cache = open_cache(settings.cache)
    until = time.monotonic() + settings.deadline
    runner = QuestionRunner(opened, settings, cache, limits, until)
    known: dict[float, bytes] = {}  # pictures by their seconds

    def answer(question: Question) -> tuple[Reply, ...]:
        texts, shown = [steps[k].text for k in question.steps], [known[second] for second in question.seconds]
        return runner.ask(
            [QUESTION, *texts],
            shown,
            lambda reminded: choice_question(texts, shown, together=settings.together, reminded=reminded),
            choice_schema(len(texts), len(shown)),
            lambda text: read_choices(text, len(texts), len(shown)),
        )

    try:
        while limits.sent < settings.requests and not _found_out(beliefs, asked):
            count = min(opened.workers, settings.requests - limits.sent)
            chosen = choose_questions(beliefs, asked, steps, seconds, settings, rng, count)
            missing = sorted({t for question in chosen for t in question.seconds} - known.keys())
            known |= pictures(missing) if missing else {}
            chosen = [q for q in chosen if all(second in known for second in q.seconds)]
            if not chosen:
                break
            found = run_in_threads(answer, chosen, workers=opened.workers, until=until)
            late = Reply(refusal="no answer in time")
            asked += [(q, found.get(n, (late,) * len(q.steps))) for n, q in enumerate(chosen)]
            beliefs = infer(prior, _ballots(asked), settings.right, settings.wrong)
            if all(reply.refusal for _, each in asked[-len(chosen) :] for reply in each):
                break
    finally:
        opened.close()
    trusted = 1 - beliefs.useless >= TRUSTED
    report = _report(asked, steps, opened, limits, beliefs, trusted, start)
    notes = _notes(asked, beliefs, trusted=trusted)
    if not trusted:
        return VisualAnswers(tuple(steps), alignment, report, notes)
    for question, replies in asked:
        for k, reply in zip(question.steps, replies, strict=True):
            if reply.answer is not None:
                seconds[k, question.choices[reply.answer]] = question.seconds[reply.answer]
    moved, rows = move_steps(
        steps, alignment, shots, seconds, prior, beliefs.places, duration=duration, settings=ground or GroundSettings()
    )
    return VisualAnswers(_with_answers(moved, asked, start), rows, report, notes)


def choose_questions(
    beliefs: Beliefs,
    asked: Sequence[Asked],
    steps: Sequence[Step],
    seconds: Array,
    settings: WitnessSettings,
    rng: np.random.Generator,
    count: int,
) -> list[Question]:
    """Return at most `count` questions, the most valuable first, each step in one of them, their choices shuffled.

    A question is about the most valuable step left and those that gain most beside it from the same pictures.
    seconds: (K, P) of each place's picture. Steps that order a language model are not asked about.
    """
    refused = {k for q, replies in asked for k, reply in zip(q.steps, replies, strict=True) if reply.refusal}
    left = [k for k, step in enumerate(steps) if k not in refused and not orders_a_model(step.text)]
    questions: list[Question] = []
    while left and len(questions) < count:
        worth = {k: _value(beliefs, asked, k, likeliest_places(beliefs.places[k], settings.choices)) for k in left}
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


def _value(beliefs: Beliefs, asked: Sequence[Asked], k: int, choices: Sequence[int]) -> tuple[float, bool]:
    """Return what an answer on step k is worth, and whether it was asked about most of these places before."""
    earlier = [set(question.choices) for question, _ in asked if k in question.steps]
    again = any(len(places & set(choices)) > REPEATED * len(choices) for places in earlier)
    return expected_gain(beliefs.places[k], choices, beliefs.mean, again=again), again


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
            told[k] = told[k].model_copy(update={"seen": tuple(dict.fromkeys((*told[k].seen, words)))})
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
        notes.append(f"the vision-language model's answers fit this video too little to be believed ({told})")
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
    """Return what the record says: who was asked what with which pictures, the answers, and what they were worth."""
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
                "answers": [None if r.answer is None else start + question.seconds[r.answer] for r in replies],
                "refused": [reply.refusal or None for reply in replies],
            }
            for question, replies in asked
        ],
    }


def _plan(
    planned: Sequence[Question], steps: Sequence[Step], settings: WitnessSettings, start: float
) -> dict[str, JsonValue]:
    """Return what would be asked first; answers decide what is asked then, up to the limits."""
    tokens = [_tokens([QUESTION, *(steps[k].text for k in q.steps)], len(q.choices), settings) for q in planned]
    return {
        "dry_run": True,
        "questions": [
            {"steps": [steps[k].id for k in q.steps], "pictures": [start + second for second in q.seconds]}
            for q in planned
        ],
        "requests": settings.requests,
        "tokens": min(settings.tokens, max(tokens, default=0) * settings.requests),
        "seconds": settings.deadline,
    }
