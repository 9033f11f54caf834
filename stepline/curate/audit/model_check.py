"""A vision-language model checks the audit's sample too, as one whose agreement with people and with the judge is told.

Its verdicts lie beside the people's and never count as theirs: the manual check stays one by people.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.chat.pictures import VideoPictures, jpeg
from stepline.chat.requests import RequestLimits, open_cache, run_in_threads
from stepline.chat.servers import Server, open_server
from stepline.curate.audit.sample import AuditSample, AuditText
from stepline.curate.audit.verdicts import (
    KINDS,
    QUESTIONS,
    AnnotatorAgreement,
    Said,
    Verdict,
    Verdicts,
    annotator_agreements,
    mean_answers,
)
from stepline.vision.settings import WitnessSettings
from stepline.visual_questions.questions import QUESTION, Reply, choice_question, choice_schema, read_choices
from stepline.visual_questions.runner import QuestionRunner

FILE = "model_verdicts.jsonl"  # beside the people's
OWN = 2  # pictures of each text's own seconds; the others of a question are spread over the video
AWAY = 3.0  # s from the texts' seconds that the others keep: next to them the same is seen
PEOPLE, JUDGE = "people", "judge"  # the mean of all people; what the dataset believes of a sentence
HALF = 0.5  # mean answer, or P(shown), from which it counts as a yes


@dataclass(frozen=True)
class ModelCheck:
    """What came of asking: requests sent, texts answered of those asked about, and why others were not."""

    requests: int
    answered: int
    asked: int
    notes: tuple[str, ...] = ()


def annotator_name(settings: WitnessSettings) -> str:
    """Return the name under which a model's verdicts are kept."""
    model = settings.gguf.stem if settings.gguf is not None else settings.model
    return ("model " + re.sub(r"[^\w .@-]", "-", model))[:60]


def read_video(path: Path, duration: float, size: int) -> VideoPictures:
    """Return pictures of a file, of so many pixels on their shorter side."""
    from stepline.media import read_frames_at

    def read(seconds: Sequence[float]) -> dict[float, bytes]:
        return {frame.time: jpeg(frame.image) for frame in read_frames_at(path, list(seconds), shorter=size)}

    return VideoPictures(read, duration)


def check_by_model(
    sample: AuditSample,
    pictures: Callable[[str], VideoPictures | None],
    verdicts: Verdicts,
    settings: WitnessSettings,
    *,
    server: Server | None = None,
) -> ModelCheck:
    """Ask which pictures show each text, and add the verdicts: in its own seconds, in others, or in none.

    pictures: of a video by its id, None where its file is not there. `settings.requests` and `tokens` hold for each
    video. Raises WriterError where the server is not there or refuses access.
    """
    opened = server or open_server(settings)
    sent, answered, asked, notes = 0, 0, 0, []
    try:
        for video in sample.titles:
            found = pictures(video)
            texts = [text for text in sample.texts if text.video == video]
            if found is None:
                notes.append(f"{video}: not asked about, its file is not on this machine")
                continue
            limits = RequestLimits(settings.requests, settings.tokens)
            until = time.monotonic() + settings.deadline
            runner = QuestionRunner(opened, settings, open_cache(settings.cache), limits, until)
            replies = _ask(runner, texts, found)
            for text, said in replies:
                verdicts.add(Verdict(asked=text.id, annotator=annotator_name(settings), said=said))
            sent, answered, asked = sent + limits.sent, answered + len(replies), asked + len(texts)
    finally:
        opened.close()
    if answered < asked:
        notes.append(f"the vision-language model has not answered on {asked - answered} of {asked} texts")
    return ModelCheck(sent, answered, asked, tuple(notes))


def _ask(runner: QuestionRunner, texts: Sequence[AuditText], video: VideoPictures) -> list[tuple[AuditText, Said]]:
    """Return the model's verdict on each text of a video that it answered on."""
    settings = runner.settings
    size = min(settings.steps, max(1, settings.choices // OWN))
    groups = [texts[n : n + size] for n in range(0, len(texts), size)]
    rng = np.random.default_rng(settings.seed)
    seconds = [_seconds(group, video.duration, settings.choices, rng) for group in groups]
    known = video.read(sorted({second for each in seconds for second in each}))
    offered = [[second for second in each if second in known] for each in seconds]

    def ask(number: int) -> tuple[Reply, ...]:
        words, shown = [text.text for text in groups[number]], [known[second] for second in offered[number]]
        return runner.ask(
            [QUESTION, *words],
            shown,
            lambda reminded: choice_question(words, shown, together=settings.together, reminded=reminded),
            choice_schema(len(words), len(shown)),
            lambda reply: read_choices(reply, len(words), len(shown)),
        )

    kept = [n for n in range(len(groups)) if offered[n]]
    found = run_in_threads(ask, kept, workers=runner.server.workers, until=runner.until)
    told: list[tuple[AuditText, Said]] = []
    for place, replies in sorted(found.items()):
        group, shown = groups[kept[place]], offered[kept[place]]
        for text, reply in zip(group, replies, strict=True):
            if reply.refusal:
                continue
            own = reply.answer is not None and text.span.gap(shown[reply.answer]) == 0.0
            told.append((text, "not shown" if reply.answer is None else "aligned" if own else "misplaced"))
    return told


def _seconds(texts: Sequence[AuditText], duration: float, count: int, rng: np.random.Generator) -> list[float]:
    """Return the seconds of a question's pictures, shuffled: some of each text's own, the others spread evenly."""
    last = max(0.0, duration - 0.1)
    own = {
        round(min(last, text.span.start + (n + 0.5) / OWN * text.span.duration), 1)
        for text in texts
        for n in range(OWN)
    }
    spread = [round(last * (n + 0.5) / count, 1) for n in range(count)]
    others = [second for second in spread if all(text.span.gap(second) > AWAY for text in texts)]
    more = others[:: max(1, -(-len(others) // max(1, count - len(own))))][: max(0, count - len(own))]
    return [float(second) for second in rng.permutation(sorted(own | set(more)))][:count]


def model_agreements(
    sample: AuditSample, verdicts: Iterable[Verdict], by_model: Iterable[Verdict]
) -> list[AnnotatorAgreement]:
    """Return how well each model agrees with people, and on sentences with the judge: Cohen's kappa of each question.

    People answer by their mean, ties as yes. The judge answers what the dataset believes: P(shown) of a sentence.
    """
    people, told = list(verdicts), defaultdict(list)
    for verdict in by_model:
        told[verdict.annotator].append(verdict)
    judged = [
        Verdict(asked=text.id, annotator=JUDGE, said="aligned" if text.score >= HALF else "not shown")
        for text in sample.of_kind("narration")
        if text.score is not None
    ]
    agreements = []
    for own in told.values():
        agreements += annotator_agreements(sample, [*_majority(sample, people), *own])
        agreements += [row for row in annotator_agreements(sample, [*judged, *own]) if row.question == "well aligned"]
    return agreements


def _majority(sample: AuditSample, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return what people say together of each text."""
    said: Counter[str] = Counter()
    for question in QUESTIONS:
        for kind, _ in KINDS:
            answers = mean_answers(sample, verdicts, question, kind)
            said.update({id: int(mean >= HALF) for id, mean in answers.items()})
    words: tuple[Said, Said, Said] = ("not shown", "misplaced", "aligned")
    return [Verdict(asked=id, annotator=PEOPLE, said=words[yes]) for id, yes in said.items()]
