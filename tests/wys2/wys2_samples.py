"""Records, clips and pairs for the tests of WYS2."""

import numpy as np

from stepline.models.wys2.clips import ClipTextPair, NarratedClip
from stepline.models.wys2.detector import Detector
from stepline.models.wys2.settings import DetectorSettings
from stepline.records import Record, Sentence, Span, Step, Transcript, Video


def record(*said, steps=(), duration=30.0, id="v", task="salad"):
    """said: (start, end, text); steps: (text, start, end), or (text,) without a time."""
    sentences = tuple(Sentence(text=text, span=Span(float(a), float(b))) for a, b, text in said)
    reference = tuple(
        Step(id=str(n), text=text, spans=(Span(*map(float, times)),) if times else ())
        for n, (text, *times) in enumerate(steps)
    )
    video = Video(id=id, duration=duration, task=task)
    return Record(
        id=id, video=video, transcript=Transcript(sentences=sentences), reference=reference
    )


def clip(text="cut the onion", key_step="slice onion", video="v"):
    return NarratedClip(video, Span(0.0, 3.0), 0, text, "salad", key_step)


def pairs(count=12, width=6, seed=0, rows=3):
    """Clips whose texts are their own mean row in another basis, and so can be learnt."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    made = []
    for number in range(count):
        video = rng.standard_normal((rows, width)).astype(np.float32)
        made.append(ClipTextPair(str(number), video, video.mean(0, keepdims=True) @ turn))
    return made


class FirstNumber(Detector):
    """Scores a clip by the first number of its first row."""

    def __init__(self, width):
        super().__init__(DetectorSettings(video_width=width, text_width=width))

    def score_matched_pairs(self, batch):
        return batch.video[:, 0, 0]
