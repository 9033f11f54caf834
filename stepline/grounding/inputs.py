"""The inputs of grounding, of a whole video or of one window.

`GroundingInputs`  steps, speech and visual evidence
`VideoEvidence`    evidence of the whole video that all windows share: which seconds can show anything, whether the
                   pictures belong to the speech, whether the speech instructs
`GroundingWindow`  a part of a long video. It decides the steps of its core. The context on both sides holds steps
                   that compete and are decided in another window. So memory and time grow linearly with duration

Letters: K steps, S sentences, T seconds, D width.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.correspondence import instruction_log_bayes, measure_correspondence
from stepline.grounding.evidence import TimedText, informative_seconds, shot_slices
from stepline.grounding.fusion import Flags
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Matrix, Sentence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity


@dataclass(frozen=True)
class GroundingWindow:
    """A part of a long video in which steps are grounded.

    Attributes:
        context: span of the window with its context on both sides, in whole seconds.
        steps: indices of all steps that are said in the context.
        decided_steps: indices of the steps whose spans are taken from this window.
    """

    context: Span
    steps: tuple[int, ...]
    decided_steps: frozenset[int]


def cut_into_windows(
    steps: Sequence[Step], duration: float, settings: GroundSettings
) -> list[GroundingWindow]:
    """Return the windows of a video. The spans of each step are taken from one window.

    A video of up to 1.5 windows is one window, and so is a video with a step that is not said.

    Args:
        steps: steps of the video.
        duration: duration of the video in seconds.
        settings: settings of grounding, with the length of windows and their context.
    """
    centers = [step.said.center for step in steps if step.said is not None]
    last = float(math.ceil(duration))
    # A step that is not said may be shown anywhere, so the video stays whole.
    if duration <= 1.5 * settings.window or len(centers) < len(steps):
        everything = range(len(steps))
        whole = Span(0.0, last)
        return [GroundingWindow(whole, tuple(everything), frozenset(everything))]

    # the cores, and the steps that each decides
    count = math.ceil(duration / settings.window)
    edges = np.linspace(0.0, duration, count + 1).round()
    core_of = np.searchsorted(edges, centers, side="right") - 1
    core_of = np.clip(core_of, 0, count - 1)  # (K,)
    windows = []
    for number, (start, end) in enumerate(itertools.pairwise(edges.tolist())):
        decided_steps = frozenset(np.flatnonzero(core_of == number).tolist())
        if not decided_steps:
            continue
        # Context on both sides, within the video.
        first_second = math.floor(start - settings.context)
        last_second = math.ceil(end + settings.context)
        context = Span(max(0.0, first_second), min(last, last_second))
        # All steps said in the context compete, decided here or not.
        near = {k for k, second in enumerate(centers) if second in context}
        windows.append(GroundingWindow(context, tuple(sorted(near | decided_steps)), decided_steps))
    return windows


def cut_steps(
    steps: Sequence[Step], window: GroundingWindow, transcript: Transcript | None
) -> tuple[list[Step], Transcript | None]:
    """Return the steps and the sentences inside a window, with times in seconds from its start.

    The `sources` of the steps are renumbered.

    Args:
        steps: steps of the whole video.
        window: the window to which steps and sentences are cut.
        transcript: sentences of the whole video. None: unknown.
    """
    # the sentences
    number: dict[int, int] = {}  # index of a sentence in the video -> in the window
    sentences: list[Sentence] = []
    for n, sentence in enumerate(transcript.sentences if transcript else ()):
        if sentence.span.overlap(window.context) > 0:
            number[n] = len(sentences)
            span = _to_window_time(sentence.span, window)
            sentences.append(sentence.model_copy(update={"span": span, "words": ()}))

    # the steps
    moved = []
    for k in window.steps:
        step = steps[k]
        said_span = _to_window_time(step.said, window) if step.said is not None else None
        sources = [number[source] for source in step.sources if source in number]
        at = None if step.at is None else max(0.0, step.at - window.context.start)
        changes = {"said": said_span, "sources": tuple(sources), "at": at}
        moved.append(step.model_copy(update=changes))
    if transcript is None:
        return moved, None
    return moved, transcript.model_copy(update={"sentences": tuple(sentences)})


def to_video_time(step: Step, original: Step, window: GroundingWindow) -> Step:
    """Return a step that was grounded in a window, with its times counted from the start of the video.

    Args:
        step: the grounded step, with times in seconds from `window.context.start`.
        original: the step before the video was cut into windows. All that grounding does not decide is
            taken from it, such as `said` and `sources`.
        window: the window in which the step was grounded.
    """
    start = window.context.start
    spans = [Span(span.start + start, span.end + start) for span in step.spans]
    changes = {
        "spans": tuple(spans),
        "at": None if step.at is None else step.at + start,
        "score": step.score,
        "status": step.status,
        "basis": step.basis,
        "doubt": step.doubt,
    }
    return original.model_copy(update=changes)


def _to_window_time(span: Span, window: GroundingWindow) -> Span:
    """Return a span of the video as seconds from the start of a window. A span that starts before
    the window is cut there."""
    origin = window.context.start
    start = max(0.0, span.start - origin)
    end = max(start + 0.1, span.end - origin)  # never empty
    return Span(start, end)


@dataclass(frozen=True)
class GroundingInputs:
    """The inputs of grounding, of a whole video or of one window.

    Attributes:
        steps: K steps. `said` of each is where it is said, None where it is not.
        duration: duration of the video or window in seconds.
        transcript: S sentences, None if unknown.
        features: feature vectors of the pictures, width D, None if unknown.
        step_vectors: (K, D) text vectors in the space of the features.
        activity: motion, cuts and thumbnails of the pictures.
        sentence_vectors: (S, D) text vectors in the space of the features.
        on_screen: lines of text in the picture.
        written: True if the steps were written from the transcript, False for a user's own lines.
        instruction: log Bayes factor that the speech instructs, by a scorer of its sentences. None:
            by the number of sentences that steps cite.
        is_screen: True for a screen recording, whose plain pictures and stills may show a step.
        ahead: seconds after `duration` in which a running video may still show a step.

    Raises ShapeError when arrays do not fit together.
    """

    steps: Sequence[Step]
    duration: float
    transcript: Transcript | None = None
    features: FeatureSequence | None = None
    step_vectors: Matrix | None = None
    activity: "Activity | None" = None
    sentence_vectors: Matrix | None = None
    on_screen: Sequence[TimedText] = ()
    written: bool = True
    instruction: float | None = None
    is_screen: bool = False
    ahead: int = 0

    def __post_init__(self) -> None:
        steps = len(self.steps)
        if self.step_vectors is not None and len(self.step_vectors) != steps:
            raise ShapeError(
                f"step vectors must have one row per step: {steps}, not {len(self.step_vectors)}"
            )

    @property
    def past_seconds(self) -> int:
        """Duration of the video so far in seconds, rounded up."""
        return math.ceil(self.duration)

    @property
    def seconds(self) -> int:
        """T: number of seconds in which a step may be shown, with those still ahead."""
        return self.past_seconds + self.ahead

    @property
    def end(self) -> float:
        """End of the last second in which a step may be shown, in seconds."""
        return self.duration + self.ahead

    @property
    def shots(self) -> list[slice]:
        """A slice of whole seconds per shot. In a live video, the seconds not yet received are one shot."""
        cuts = () if self.activity is None else self.activity.cuts
        if self.ahead:
            cuts = (*cuts, self.past_seconds)
        return shot_slices(cuts, self.seconds)

    @functools.cached_property
    def is_said(self) -> Flags:
        """Whether each step is said, boolean (K,)."""
        return np.array([step.said is not None for step in self.steps], dtype=bool)

    @functools.cached_property
    def passages(self) -> list[list[Span]]:
        """For each of K steps, the spans of the speech that say it."""
        return [spoken_passages(step, self.transcript, self.end) for step in self.steps]

    def before(self, second: float) -> "GroundingInputs":
        """Return the inputs with the pictures before a second only, and with the whole transcript."""
        past = self._cut_pictures(Span(0.0, second))
        on_screen = [line for line in self.on_screen if line.span.start < second]
        return replace(past, duration=second, on_screen=on_screen)

    def cut(self, window: GroundingWindow) -> "GroundingInputs":
        """Return the inputs of one window, in seconds from its start."""
        rows = list(window.steps)
        steps, transcript = cut_steps(self.steps, window, self.transcript)
        changes: dict[str, Any] = {"steps": steps, "transcript": transcript}
        if self.step_vectors is not None:
            changes["step_vectors"] = self.step_vectors[rows]
        duration = min(window.context.end, self.duration) - window.context.start
        return replace(self._cut_pictures(window.context), duration=duration, **changes)

    def _cut_pictures(self, span: Span) -> "GroundingInputs":
        """Return the inputs with features, motion and cuts of a span only.

        Cuts count from its start. span: in seconds.
        """
        features = self.features
        if features is not None:
            features = replace(features, values=features.values[features.rows(span)])
        activity = self.activity
        if activity is not None:
            rows = slice(round(span.start * activity.rate), round(span.end * activity.rate))
            cuts = [cut - span.start for cut in activity.cuts if span.start < cut < span.end]
            activity = replace(
                activity,
                motion=activity.motion[rows],
                cuts=tuple(cuts),
                peak_changes=activity.peak_changes[rows],
                thumbnails=activity.thumbnails[rows],
            )
        return replace(self, features=features, activity=activity)


def spoken_passages(step: Step, transcript: Transcript | None, duration: float) -> list[Span]:
    """Return the spans that say a step: its sentences within `said`, or `said` without sentences.

    Args:
        step: a step whose `sources` are indices of sentences.
        transcript: the sentences, None if unknown.
        duration: end of the video, at which spans are cut.
    """
    said_span = step.said
    if said_span is None:
        return []
    passages = []
    if transcript is not None:
        for index in step.sources:
            span = transcript.sentences[index].span
            if span.overlap(said_span) > 0:
                start = max(span.start, said_span.start)
                passages.append(Span(start, min(span.end, said_span.end)))
    if not passages:
        passages = [said_span]
    inside = [
        Span(span.start, min(span.end, duration)) for span in passages if span.start < duration
    ]
    # A step that is said after the end has the last second.
    return inside or [Span(max(0.0, duration - 1), duration)]


@dataclass(frozen=True)
class VideoEvidence:
    """Evidence of the whole video, before any step is placed.

    Attributes:
        informative: (T,), 0 in seconds whose picture can show nothing, else 1.
        correspondence_log_odds: that the pictures belong to the speech, None without evidence.
        instruction: log Bayes factor that the speech instructs, None for a user's own lines.
    """

    informative: Array
    correspondence_log_odds: float | None
    instruction: float | None

    def cut(self, window: GroundingWindow) -> "VideoEvidence":
        """Return the evidence with the seconds of one window."""
        seconds = slice(int(window.context.start), int(window.context.end))
        return replace(self, informative=self.informative[seconds])


def video_evidence(inputs: GroundingInputs) -> VideoEvidence:
    """Return the evidence of a whole video that all of its windows share."""
    informative = np.ones(inputs.past_seconds)
    if inputs.activity is not None and len(inputs.activity.thumbnails):
        informative = informative_seconds(
            inputs.activity, len(informative), inputs.on_screen, is_screen=inputs.is_screen
        )
    return VideoEvidence(
        informative, _correspondence_log_odds(inputs), _instruction_log_bayes(inputs)
    )


def _correspondence_log_odds(inputs: GroundingInputs) -> float | None:
    """Return the log odds that the pictures belong to the speech, None without evidence."""
    if inputs.features is None and inputs.activity is None:
        return None
    if inputs.transcript is not None:
        sentences = inputs.transcript.sentences
    else:
        # Without a transcript, the steps that are said take the place of sentences.
        said_steps = [(step.text, step.said) for step in inputs.steps if step.said is not None]
        sentences = tuple(Sentence(text=text, span=span) for text, span in said_steps)
    evidence = measure_correspondence(
        sentences,
        features=inputs.features,
        sentence_vectors=inputs.sentence_vectors,
        on_screen=inputs.on_screen,
    )
    if not evidence.is_known:
        return None
    return round(evidence.log_odds(), 3)


def _instruction_log_bayes(inputs: GroundingInputs) -> float | None:
    """Return the log Bayes factor that the speech instructs, None for a user's own lines."""
    if not inputs.written:
        return None
    if inputs.instruction is not None:
        return round(inputs.instruction, 3)
    sources = {source for step in inputs.steps for source in step.sources}
    if not (inputs.transcript and sources and inputs.transcript.sentences):
        return None
    return round(instruction_log_bayes(len(sources), len(inputs.transcript.sentences)), 3)
