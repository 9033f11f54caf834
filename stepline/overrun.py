"""What is said after the video ends: captions of another video, or of one that was cut short."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.records import Dropped, Span, Step, Transcript


@dataclass(frozen=True)
class Kept:
    """What lies within the video, what was left out, and a warning (none where nothing was)."""

    transcript: Transcript
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()


def within(duration: float, transcript: Transcript, steps: Sequence[Step], *, keep_all_steps: bool) -> Kept:
    """Return the sentences that begin before `duration` seconds and the steps that rest on them.

    keep_all_steps: a step that rests on nothing else stays, as one that is not spoken of (the user's own lines).
    """
    sentences = tuple(sentence for sentence in transcript.sentences if sentence.span.start < duration)
    late = transcript.sentences[len(sentences) :]  # sorted by start, so that the others keep their numbers
    if not late:
        return Kept(transcript, tuple(steps))
    shorter = transcript.model_copy(update={"sentences": sentences})
    mended = [_resting_on(step, shorter) for step in steps]
    pairs = zip(steps, mended, strict=True)
    lost = [new for old, new in pairs if old.sources and not new.sources and not keep_all_steps]
    reason = f"it is said after the video ends at {duration:.1f} s"
    dropped = (
        *(Dropped(what="sentence", text=sentence.text, reason=reason) for sentence in late),
        *(Dropped(what="step", text=step.text, reason=reason) for step in lost),
    )
    count = f"{len(late)} of {len(transcript.sentences)} sentences are"
    warning = f"{count} said after the video ends at {duration:.1f} s and left out; do the words belong to this video?"
    return Kept(shorter, tuple(step for step in mended if step not in lost), dropped, (warning,))


def _resting_on(step: Step, transcript: Transcript) -> Step:
    """Return the step with those of its sources that are left, said where they are."""
    sources = tuple(index for index in step.sources if index < len(transcript.sentences))
    if sources == step.sources:
        return step
    spans = [transcript.sentences[index].span for index in sources]
    said = Span(min(span.start for span in spans), max(span.end for span in spans)) if spans else None
    return step.model_copy(update={"sources": sources, "said": said})
