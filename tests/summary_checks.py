"""What every summary of a real video must hold: its steps, whole words, and sound that goes with
the picture."""

from pathlib import Path

import numpy as np
import pytest
from video_frames import read_frames

from stepline.media import probe, read_sound
from stepline.models.wys2.settings import SummarySettings
from stepline.pipeline.output_files import write_summary

NEAR = 0.05  # s


def check_summary(record, out):
    """Write the summary of a record; return the words in its film, once it is found to be cut
    rightly."""
    path, settings = record.video.path, SummarySettings()
    summary = write_summary(record, Path(path), out, settings)
    spans = [segment.span for segment in summary.segments]
    for step in record.steps:
        if step.status in ("seen", "placed"):
            assert any(step.at in span for span in spans), f"{step.text}: not kept"
    heard = []
    for word in (word for sentence in record.transcript.sentences for word in sentence.words):
        if word.span is not None:
            if any(word.span.overlap(span) > NEAR for span in spans):
                heard.append(word.text.lower())
            for second in (end for span in spans for end in (span.start, span.end)):
                assert not word.span.start + NEAR < second < word.span.end - NEAR, (
                    f"cut inside {word.text!r}"
                )
    film = summary.file
    check_sync(Path(path), film, spans)
    assert probe(film).duration == pytest.approx(sum(span.duration for span in spans), abs=0.3)
    return " ".join(heard)


def check_sync(path, film, spans):
    """Picture and sound of each segment are those of the source, at the same lag."""
    there, here = _sound(path), _sound(film)
    middles, ours, offset = [], [], 0.0
    for span in spans:
        middles.append(span.start + span.duration / 2)
        ours.append(offset + span.duration / 2)
        offset += span.duration
    assert middles == sorted(middles)
    pictures = zip(_pictures_from(path, middles), _pictures_from(film, ours), strict=True)
    for span, middle, own, (one, two) in zip(spans, middles, ours, pictures, strict=True):
        heard = _lag(there, here, middle, own)
        seen = float(np.abs(one - two).mean())  # 0 to 255
        assert abs(heard) < 0.05, f"sound is {heard:.3f} s off in {span}"
        assert seen < 12, f"the picture of {span} is another one (mean difference {seen:.1f})"


def _sound(path):
    return np.concatenate([block.samples for block in read_sound(path)])


def _lag(there, here, at, now, reach=0.2, window=1.0):
    """The shift in seconds at which one second of the film's sound fits the source's best."""
    rate = 16_000
    piece = here[int((now - window / 2) * rate) : int((now + window / 2) * rate)]
    start = int((at - window / 2 - reach) * rate)
    wide = there[start : start + len(piece) + int(2 * reach * rate)]
    # over the loudness: a pause next to a loud word would fit the word best
    energy = np.cumsum(np.pad(wide.astype(float) ** 2, (1, 0)))
    loudness = np.sqrt(energy[len(piece) :] - energy[: -len(piece)]) + 1e-9
    fit = np.correlate(wide, piece, mode="valid") / loudness
    return float(fit.argmax()) / rate - reach


def _pictures_from(path, seconds):
    """Yield the first picture at or after each of the sorted seconds."""
    frames = read_frames(path, 10.0)
    for second in seconds:
        yield next(frame.image.astype(float) for frame in frames if frame.time >= second)
