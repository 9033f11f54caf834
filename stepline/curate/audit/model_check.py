"""A vision-language model checks the audit's sample too, as one whose agreement with people and
with the judge is told.

Its verdicts lie beside the people's and never count as theirs: the manual check stays one by
people.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.append_log import EntryStore
from stepline.chat.pictures import VideoPictures
from stepline.chat.servers import Server, open_server
from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import (
    KINDS,
    QUESTIONS,
    AnnotatorAgreement,
    Said,
    Verdict,
    annotator_agreements,
    mean_answers,
)
from stepline.vision.settings import VisionLanguageSettings
from stepline.vision_language.pictures import question_pictures
from stepline.vision_language.runner import QuestionRunner
from stepline.vision_language.spot_check import cost_at_most, where_shown

FILE = "model_verdicts.jsonl"  # beside the people's
PEOPLE, JUDGE = "people", "judge"  # the mean of all people; what the dataset believes of a sentence
HALF = 0.5  # mean answer, or P(shown), from which it counts as a yes


@dataclass(frozen=True)
class ModelCheck:
    """What came of asking: requests and tokens sent, texts answered of those asked about, and why
    others were not.

    server: who was asked. pictures: seconds of those that its questions held, by video.
    """

    requests: int
    answered: int
    asked: int
    notes: tuple[str, ...] = ()
    tokens: int = 0
    server: str = ""
    pictures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def annotator_name(settings: VisionLanguageSettings) -> str:
    """Return the name under which a model's verdicts are kept."""
    model = settings.gguf.stem if settings.gguf is not None else settings.model
    return ("model " + re.sub(r"[^\w .@-]", "-", model))[:60]


def read_video(path: Path, duration: float, settings: VisionLanguageSettings) -> VideoPictures:
    """Return pictures of a file, or clips, as the settings say."""
    return VideoPictures(question_pictures(path, settings, duration=duration), duration)


def check_by_model(
    sample: AuditSample,
    pictures: Callable[[str], VideoPictures | None],
    verdicts: EntryStore[Verdict],
    settings: VisionLanguageSettings,
    *,
    server: Server | None = None,
) -> ModelCheck:
    """Ask which pictures show each text, and add the verdicts: in its own seconds, in others, or in
    none.

    pictures: of a video by its id, None where its file is not there. `settings.requests` and
    `tokens` hold for each video; a dry run tells what they would take. Raises WriterError where the
    server is not there or refuses access.
    """
    opened = server or open_server(settings)
    sent, tokens, answered, asked, notes = 0, 0, 0, 0, []
    shown: dict[str, tuple[float, ...]] = {}
    try:
        for video in sample.titles:
            found = pictures(video)
            texts = [text for text in sample.texts if text.video == video]
            if found is None:
                notes.append(f"{video}: not asked about, its file is not on this machine")
                continue
            asked += len(texts)
            if settings.dry_run:
                most = cost_at_most(texts, found.duration, settings)
                sent, tokens = sent + most[0], tokens + most[1]
                continue
            runner = QuestionRunner.begin(opened, settings)
            limits = runner.limits
            told, shown[video] = where_shown(runner, texts, found)
            for row, said in told.items():
                verdicts.add(
                    Verdict(asked=texts[row].id, annotator=annotator_name(settings), said=said)
                )
            sent, tokens, answered = sent + limits.sent, tokens + limits.used, answered + len(told)
    finally:
        opened.close()
    if settings.dry_run:
        notes.append(
            f"dry run: a vision-language model would be asked at most {sent} requests and {tokens} tokens"
        )
        return ModelCheck(0, 0, asked, tuple(notes))
    if answered < asked:
        notes.append(
            f"the vision-language model has not answered on {asked - answered} of {asked} texts"
        )
    return ModelCheck(sent, answered, asked, tuple(notes), tokens, opened.name, shown)


def model_agreements(
    sample: AuditSample, verdicts: Iterable[Verdict], by_model: Iterable[Verdict]
) -> list[AnnotatorAgreement]:
    """Return how well each model agrees with people, and on sentences with the judge: Cohen's kappa
    of each question.

    After them how well the judge agrees with people. People answer by their mean, ties as yes. The
    judge answers what the dataset believes: P(shown) of a sentence.
    """
    mean_person, told = _majority(sample, list(verdicts)), defaultdict(list)
    for verdict in by_model:
        told[verdict.annotator].append(verdict)
    judged = [
        Verdict(
            asked=text.id, annotator=JUDGE, said="aligned" if text.score >= HALF else "not shown"
        )
        for text in sample.of_kind("narration")
        if text.score is not None
    ]
    agreements = []
    for own in told.values():
        agreements += annotator_agreements(sample, [*mean_person, *own])
        agreements += [
            row
            for row in annotator_agreements(sample, [*judged, *own])
            if row.question == "well aligned"
        ]
    by_judge = annotator_agreements(sample, [*mean_person, *judged]) if told else []
    return agreements + [row for row in by_judge if row.question == "well aligned"]


def _majority(sample: AuditSample, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return what people say together of each text."""
    said: Counter[str] = Counter()
    for question in QUESTIONS:
        for kind, _ in KINDS:
            answers = mean_answers(sample, verdicts, question, kind)
            said.update({id: int(mean >= HALF) for id, mean in answers.items()})
    words: tuple[Said, Said, Said] = ("not shown", "misplaced", "aligned")
    return [Verdict(asked=id, annotator=PEOPLE, said=words[yes]) for id, yes in said.items()]
