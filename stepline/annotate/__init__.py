"""A test set of visual narrations by people: clips to watch, answers, agreement, the set kept (WYS2, section 4)."""

from stepline.annotate.answers import Agreement, Answer, Answers, agreement, keep
from stepline.annotate.clips import Clip, read_clips, write_clips
from stepline.annotate.queue import AnnotationQueue, Task

__all__ = [
    "Agreement",
    "AnnotationQueue",
    "Answer",
    "Answers",
    "Clip",
    "Task",
    "agreement",
    "keep",
    "read_clips",
    "write_clips",
]
