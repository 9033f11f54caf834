"""A test set of visual narrations by people: clips to watch, answers, agreement, the set kept
(WYS2, section 4)."""

from stepline.review.answers import (
    Agreement,
    AgreementRule,
    Answer,
    AnswerLog,
    agreement,
    consensus,
)
from stepline.review.clips import AnnotationClip, read_clips, write_clips
from stepline.review.server import AnnotationQueue, AnnotationTask

__all__ = [
    "Agreement",
    "AgreementRule",
    "AnnotationClip",
    "AnnotationQueue",
    "AnnotationTask",
    "Answer",
    "AnswerLog",
    "agreement",
    "consensus",
    "read_clips",
    "write_clips",
]
