"""A vision-language model checks the audit's sample too. Its agreement with people and with the
judge is reported.

Its verdicts are kept apart from the people's and never count as theirs: the manual check stays one
by people.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.curate.audit.sample import AuditSample
from stepline.curate.audit.verdicts import (
    KIND_NAMES,
    YES_ANSWERS,
    AnnotatorAgreement,
    annotator_agreements,
    mean_answers,
)
from stepline.files.append_log import EntryStore
from stepline.grounding.vision_language.pictures import question_pictures
from stepline.grounding.vision_language.runner import QuestionRunner
from stepline.grounding.vision_language.spot_check import cost_at_most, where_shown
from stepline.llm.pictures import VideoPictures
from stepline.llm.servers import Server, open_server
from stepline.review.answers import Answer, AnswerValue
from stepline.vision.settings import VisionLanguageSettings

VERDICTS_FILE = "model_verdicts.jsonl"  # next to the people's
PEOPLE_NAME = "people"  # annotator's name of the mean of all people
JUDGE_NAME = "judge"  # annotator's name of what the dataset believes of a sentence
MAX_NAME_CHARS = 60  # of an annotator
YES_FROM = 0.5  # mean answer, or P(shown), from which it counts as a yes


@dataclass(frozen=True)
class ModelCheck:
    """What came of asking. requests, tokens: that were sent. answered: how many of the `texts`
    asked about. notes: why others were not.

    server: who was asked. pictures: seconds of those that its questions held, by video.
    """

    requests: int
    answered: int
    texts: int
    notes: tuple[str, ...] = ()
    tokens: int = 0
    server: str = ""
    pictures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def annotator_name(settings: VisionLanguageSettings) -> str:
    """Return the name under which a model's verdicts are kept."""
    model = settings.gguf.stem if settings.gguf is not None else settings.model
    return ("model " + re.sub(r"[^\w .@-]", "-", model))[:MAX_NAME_CHARS]


def read_video(path: Path, duration: float, settings: VisionLanguageSettings) -> VideoPictures:
    """Return pictures of a file, or clips, as the settings say."""
    return VideoPictures(question_pictures(path, settings, duration=duration), duration)


def check_by_model(
    sample: AuditSample,
    pictures: Callable[[str], VideoPictures | None],
    verdicts: EntryStore[Answer],
    settings: VisionLanguageSettings,
    *,
    server: Server | None = None,
) -> ModelCheck:
    """Ask which pictures show each text, and add the verdicts: in its own seconds, in others, or in
    none.

    pictures: of a video by its id, None where its file is not there. `settings.requests` and
    `tokens` hold for each video. A dry run only counts what they would take. Raises WriterError
    where the server is not there or refuses access.
    """
    server = server or open_server(settings)
    annotator = annotator_name(settings)
    notes = []
    # The texts of each video are asked about together.
    seconds: dict[str, tuple[float, ...]] = {}
    requests = tokens = answered = count = 0
    try:
        # Each video has a budget of its own, so none takes from another.
        for video in sample.titles:
            source = pictures(video)
            if source is None:
                notes.append(f"{video}: not asked about, its file is not on this machine")
                continue
            texts = [text for text in sample.texts if text.video == video]
            count += len(texts)
            # A dry run counts what would be asked, and asks nothing.
            if settings.dry_run:
                video_requests, video_tokens = cost_at_most(texts, source.duration, settings)
            else:
                runner = QuestionRunner.begin(server, settings)
                answers, seconds[video] = where_shown(runner, texts, source)
                for row, answer in answers.items():
                    verdict = Answer(item=texts[row].id, annotator=annotator, answer=answer)
                    verdicts.add(verdict)
                answered += len(answers)
                video_requests, video_tokens = runner.limits.sent, runner.limits.used
            requests += video_requests
            tokens += video_tokens
    finally:
        server.close()
    if settings.dry_run:
        cost = f"{requests} requests and {tokens} tokens"
        notes.append(f"dry run: a vision-language model would be asked at most {cost}")
        return ModelCheck(0, 0, count, tuple(notes))
    # What the report says next to the numbers.
    if settings.machine is not None or settings.corrected is not None:
        weights = "witness.machine and witness.corrected weigh answers about where steps are shown"
        notes.append(f"{weights}; they decide nothing here")
    if answered < count:
        missing = f"{count - answered} of {count} texts"
        notes.append(f"the vision-language model has not answered on {missing}")
    return ModelCheck(requests, answered, count, tuple(notes), tokens, server.name, seconds)


def model_agreements(
    sample: AuditSample, verdicts: Iterable[Answer], by_model: Iterable[Answer]
) -> list[AnnotatorAgreement]:
    """Return how well each model agrees with people, and on sentences with the judge: Cohen's kappa
    of each question.

    After them how well the judge agrees with people. People answer by their mean, ties as yes. The
    judge answers what the dataset believes: P(shown) of a sentence.
    """
    # People as one annotator, and the judge as another.
    people = _majority(sample, list(verdicts))
    judge = []
    for text in sample.of_kind("narration"):
        if text.score is not None:
            answer: AnswerValue = "not shown"
            if text.score >= YES_FROM:
                answer = "aligned"
            judge.append(Answer(item=text.id, annotator=JUDGE_NAME, answer=answer))
    models = defaultdict(list)
    for verdict in by_model:
        models[verdict.annotator].append(verdict)

    # The judge says only whether the picture shows a sentence in its seconds.
    def with_judge(others: Sequence[Answer]) -> list[AnnotatorAgreement]:
        rows = annotator_agreements(sample, [*others, *judge])
        return [row for row in rows if row.question == "well aligned"]

    agreements = []
    for model in models.values():
        agreements += annotator_agreements(sample, [*people, *model])
        agreements += with_judge(model)
    return agreements + with_judge(people) if models else []


def _majority(sample: AuditSample, verdicts: Sequence[Answer]) -> list[Answer]:
    """Return what people say together of each text."""
    # A text has a yes to none, the first, or both questions.
    yes_count: Counter[str] = Counter()
    for question in YES_ANSWERS:
        for kind in KIND_NAMES:
            for id, mean in mean_answers(sample, verdicts, question, kind).items():
                yes_count[id] += mean >= YES_FROM
    # By the number of questions answered with yes: "aligned" is a yes to both.
    answers: tuple[AnswerValue, AnswerValue, AnswerValue] = ("not shown", "misplaced", "aligned")
    return [
        Answer(item=id, annotator=PEOPLE_NAME, answer=answers[count])
        for id, count in yes_count.items()
    ]
