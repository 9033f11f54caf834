"""Which videos are taken at all: not the evaluation sets', not too long, not alone in their category (section 4.2)."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from stepline.datasets.excluded import ExcludedVideos
from stepline.records import Record, Rejected
from stepline.sieve_swap.settings import PairingSettings
from stepline.sieve_swap.videos import VideoOrRejected

UNREADABLE = "it cannot be read"
EVALUATION = "it is an evaluation video"
TWICE = "its id was read before"
LONG = "it is too long"
RARE = "its category has too few videos"
OTHER = "it is of another category"
SILENT = "nothing is said in it"


def length(record: Record) -> float:
    """Return a video's seconds: its duration, or where that is not known the end of its speech."""
    ends = [sentence.span.end for sentence in record.transcript.sentences] if record.transcript else []
    return record.video.duration or max(ends, default=0.0)


@dataclass
class VideoFilter:
    """Says of each video in turn why it stays out. tasks: how many videos of each task could come in."""

    settings: PairingSettings
    excluded: ExcludedVideos
    tasks: Counter[str] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)  # 8 bytes of an id each: 60 bytes of memory a video

    def count(self, videos: Iterable[VideoOrRejected]) -> int:
        """Go through all videos once, counting tasks; return how many there are. Then each can be asked for."""
        number = 0
        for video in videos:
            number += 1
            if isinstance(video, Record) and self._refused(video) is None and video.video.task:
                self.tasks[video.video.task] += 1
        self.seen.clear()
        return number

    def rejection_reason(self, video: VideoOrRejected) -> str | None:
        """Return why a video stays out; None where it comes in. Each video is to be asked for once, in order."""
        if isinstance(video, Rejected):
            return UNREADABLE
        reason = self._refused(video)
        if reason is None and video.video.task and self.tasks[video.video.task] < self.settings.smallest_category:
            return RARE
        return reason

    def _refused(self, record: Record) -> str | None:
        key = int.from_bytes(hashlib.blake2b(record.id.encode(errors="replace"), digest_size=8).digest(), "big")
        if key in self.seen:
            return TWICE
        self.seen.add(key)
        if record.video.id in self.excluded:
            return EVALUATION
        if self.settings.category and record.settings.get("category") != self.settings.category:
            return OTHER
        if length(record) > self.settings.longest_video:
            return LONG
        if not record.transcript or not any(sentence.text.strip() for sentence in record.transcript.sentences):
            return SILENT
        return None
