"""What a vision-language model and people say of one video's sentences, next to P(the picture shows
it) by the judge.

People's answers are those of `stepline annotate vnd` (`answers.jsonl`) or of the audit of a dataset
that holds the video (`verdicts.jsonl`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepline.curate.audit.model_check import ModelCheck, check_by_model, model_agreements
from stepline.curate.audit.sample import AuditSample, narration_texts, sample_sentences
from stepline.curate.audit.verdicts import AnnotatorAgreement
from stepline.errors import DatasetError, StoreError
from stepline.llm.pictures import VideoPictures
from stepline.llm.servers import Server
from stepline.models.wys2.judge import judged_span
from stepline.records import Record, Span
from stepline.review.answers import Answer, AnswerLog, AnswerValue
from stepline.vision.settings import VisionLanguageSettings


@dataclass(frozen=True)
class SentenceCheck:
    """What the model answers on some sentences, by their number, how the asking went, and how well
    annotators agree."""

    answers: dict[int, AnswerValue]
    asking: ModelCheck
    agreements: tuple[AnnotatorAgreement, ...]


class _CollectedAnswers(list[Answer]):
    add = list[Answer].append


def check_sentences(
    record: Record,
    count: int,
    video: VideoPictures,
    settings: VisionLanguageSettings,
    *,
    people: Sequence[Answer] = (),
    server: Server | None = None,
) -> SentenceCheck:
    """Ask a vision-language model about `count` sentences at random, of those that people answered
    on where any did.

    Raises WriterError where the server is not there or refuses access.
    """
    # Where people have answered, only their sentences can be compared.
    among = {verdict.item for verdict in people} or None
    sample = sample_sentences(record, count, among=among, seed=settings.seed)
    verdicts = _CollectedAnswers()
    clips = _within(sample, video)
    asking = check_by_model(clips, lambda _: video, verdicts, settings, server=server)
    # The pictures on the clock of the whole video.
    seconds = {}
    for id, offsets in asking.pictures.items():
        seconds[id] = tuple(video.start + offset for offset in offsets)
    asking = replace(asking, pictures=seconds)

    # The answers by the numbers of the sentences.
    numbers = {}
    for number, text in enumerate(narration_texts(record)):
        numbers[text.id] = number
    answers = {numbers[verdict.item]: verdict.answer for verdict in verdicts}
    agreements = model_agreements(sample, people, verdicts)
    return SentenceCheck(answers, asking, tuple(agreements))


def _within(sample: AuditSample, video: VideoPictures) -> AuditSample:
    """Return the sample with the clips in which its sentences are judged, on the clock of the part
    looked at."""
    texts = []
    # A clip is longer than its sentence, as the judge looks at it.
    for text in sample.texts:
        clip = judged_span(text.span)
        start = max(0.0, clip.start - video.start)
        end = clip.end - video.start
        span = Span(start, end)
        texts.append(text.model_copy(update={"span": span}))
    return sample.model_copy(update={"texts": tuple(texts)})


def read_people(file: Path, record: Record) -> list[Answer]:
    """Return what people say of a record's sentences.

    Raises StoreError where the file is neither, DatasetError where it is on other sentences.
    """
    texts = narration_texts(record)
    if not file.is_file():
        cure = "give answers.jsonl of `annotate vnd`, or verdicts.jsonl of an audit"
        raise StoreError(f"{file}: no such file; {cure}")
    # `annotate vnd` names a sentence by its number, an audit by its text.
    ids = {text.id: text.id for text in texts}
    for number, text in enumerate(texts):
        ids[f"{record.id}:{number}"] = text.id
    answers = []
    for answer in AnswerLog(file):
        if answer.item in ids:
            answers.append(answer.model_copy(update={"item": ids[answer.item]}))
    if not answers:
        what = f"{file}: no one has answered on a sentence of {record.id}"
        raise DatasetError(f"{what}; give answers on this video")
    return answers
