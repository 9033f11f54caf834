"""What is known of a video, or of one window of it, before its steps are placed.

`GroundingInputs`  the steps, what is said and what is shown
`VideoEvidence`    what the whole video says of each of its windows: which seconds can show anything, whether the
                   pictures belong to the speech, whether the speech instructs
`GroundingWindow`  a part of a long video. Its core decides steps, its context on both sides holds steps that compete
                   and are decided elsewhere, so that memory and time grow with duration only

Letters: K steps, S sentences, T seconds, D width.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.errors import ShapeError
from stepline.grounding.correspondence import correspondence, instruction_log_bayes
from stepline.grounding.evidence import TimedText, informative_seconds, shot_slices
from stepline.grounding.fusion import Flags
from stepline.grounding.said_to_shown import Array
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Matrix, Sentence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity
# P(the sentence describes the step), below which it counts for nothing
MIN_SENTENCE_PROBABILITY = 0.001


@dataclass(frozen=True)
class GroundingWindow:
    """A part of a long video.

    context: the whole seconds looked at.
    steps: indices of all steps said there.
    decided_steps: indices of the steps whose spans it sets.
    """

    context: Span
    steps: tuple[int, ...]
    decided_steps: frozenset[int]


def cut_into_windows(
    steps: Sequence[Step], duration: float, settings: GroundSettings
) -> list[GroundingWindow]:
    """Return the windows of a long video, each step decided in one of them.

    A short video is one window, and so is one with a step that is not spoken of."""
    centers = [step.said.center for step in steps if step.said is not None]
    last = float(math.ceil(duration))
    # A line that no one says may be anywhere, so that the video stays whole.
    if duration <= 1.5 * settings.window or len(centers) < len(steps):
        everything = range(len(steps))
        whole = Span(0.0, last)
        return [GroundingWindow(whole, tuple(everything), frozenset(everything))]

    # the cores, and the step that each decides
    count = math.ceil(duration / settings.window)
    edges = np.linspace(0.0, duration, count + 1).round()
    core_of = np.searchsorted(edges, centers, side="right") - 1
    core_of = np.clip(core_of, 0, count - 1)  # (K,)
    windows = []
    for number, (start, end) in enumerate(itertools.pairwise(edges.tolist())):
        decided_steps = frozenset(np.flatnonzero(core_of == number).tolist())
        if not decided_steps:
            continue
        # Context on both sides, as far as the video goes.
        first_second = math.floor(start - settings.context)
        last_second = math.ceil(end + settings.context)
        context = Span(max(0.0, first_second), min(last, last_second))
        # All steps said in the context compete, decided here or not.
        near = {k for k, second in enumerate(centers) if second in context}
        window = GroundingWindow(context, tuple(sorted(near | decided_steps)), decided_steps)
        windows.append(window)
    return windows


def cut_steps(
    steps: Sequence[Step], window: GroundingWindow, transcript: Transcript | None
) -> tuple[list[Step], Transcript | None]:
    """Return the steps and the transcript inside a window, with sources renumbered."""
    # the sentences
    number: dict[int, int] = {}  # of a sentence in the video -> in the window
    sentences: list[Sentence] = []
    for n, sentence in enumerate(transcript.sentences if transcript else ()):
        if sentence.span.overlap(window.context) > 0:
            number[n] = len(sentences)
            span = _to_window_time(sentence.span, window)
            in_window = sentence.model_copy(update={"span": span, "words": ()})
            sentences.append(in_window)

    # the steps
    moved = []
    for k in window.steps:
        step = steps[k]
        said_span = _to_window_time(step.said, window) if step.said is not None else None
        sources = [number[source] for source in step.sources if source in number]
        changes = {"said": said_span, "sources": tuple(sources)}
        moved.append(step.model_copy(update=changes))
    if transcript is None:
        return moved, None
    return moved, transcript.model_copy(update={"sentences": tuple(sentences)})


def cut_features(
    features: FeatureSequence | None, window: GroundingWindow
) -> FeatureSequence | None:
    """Return the feature rows inside a window."""
    if features is None:
        return None
    rows = features.rows(window.context)
    return replace(features, values=features.values[rows])


def cut_activity(activity: "Activity | None", window: GroundingWindow) -> "Activity | None":
    """Return the motion and cuts inside a window."""
    if activity is None:
        return None
    start = window.context.start
    end = window.context.end
    first_row = round(start * activity.rate)
    rows = slice(first_row, round(end * activity.rate))
    cuts = [cut - start for cut in activity.cuts if start < cut < end]
    return replace(
        activity,
        motion=activity.motion[rows],
        cuts=tuple(cuts),
        peaks=activity.peaks[rows],
        looks=activity.looks[rows],
    )


def to_video_time(step: Step, original: Step, window: GroundingWindow) -> Step:
    """Return a step that was grounded in a window with the times and sources of the whole video."""
    start = window.context.start
    spans = [Span(span.start + start, span.end + start) for span in step.spans]
    at = step.at
    if at is not None:
        at = at + start
    changes = {
        "spans": tuple(spans),
        "at": at,
        "score": step.score,
        "status": step.status,
        "basis": step.basis,
    }
    return original.model_copy(update=changes)


def _to_window_time(span: Span, window: GroundingWindow) -> Span:
    """Return a span as the window counts. What begins before it begins with it."""
    origin = window.context.start
    start = max(0.0, span.start - origin)
    end = max(start + 0.1, span.end - origin)  # never empty
    return Span(start, end)


@dataclass(frozen=True)
class GroundingInputs:
    """The arguments of `ground`, which explains them, of a whole video or of one window.

    sentence_probabilities: (K, S) P(the sentence describes the step), rows of sum P(said). None: the passages
    that say a step describe it, all alike.
    instruction: log Bayes factor that a written transcript instructs, by a scorer of its sentences.
    None: by the number of sentences that the steps rest on.
    ahead: seconds yet to come after `duration`, of a video that still runs. A step may be shown
    there too.
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
    visible: Sequence[float] | None = None
    written: bool = True
    sentence_probabilities: Array | None = None
    instruction: float | None = None
    ahead: int = 0

    def __post_init__(self) -> None:
        steps = len(self.steps)
        if self.step_vectors is not None and len(self.step_vectors) != steps:
            raise ShapeError(
                f"step vectors must have one row per step: {steps}, not {len(self.step_vectors)}"
            )
        if self.visible is not None and len(self.visible) != steps:
            raise ShapeError(
                f"visible must hold one probability per step: {steps}, not {len(self.visible)}"
            )
        sentences = len(self.transcript.sentences) if self.transcript is not None else 0
        shape = (steps, sentences)
        probabilities = self.sentence_probabilities
        if probabilities is not None and probabilities.shape != shape:
            expected = f"steps by sentences: {shape}, not {probabilities.shape}"
            raise ShapeError(f"P(a sentence describes a step) must be {expected}")

    @property
    def past_seconds(self) -> int:
        """Seconds of the video so far, the last one begun."""
        return math.ceil(self.duration)

    @property
    def seconds(self) -> int:
        """T: seconds in which a step may be shown."""
        return self.past_seconds + self.ahead

    @property
    def end(self) -> float:
        """Second at which the last second with a column ends."""
        return self.duration + self.ahead

    @property
    def cuts(self) -> tuple[float, ...]:
        """Seconds at which a shot starts, as far as known."""
        if self.activity is None:
            return ()
        return self.activity.cuts

    @property
    def shots(self) -> list[slice]:
        """The shots in whole seconds. What is yet to come is a shot of its own."""
        cuts = self.cuts
        if self.ahead:
            cuts = (*cuts, self.past_seconds)
        return shot_slices(cuts, self.seconds)

    @property
    def has_thumbnails(self) -> bool:
        """Whether thumbnails of the picture are known."""
        return self.activity is not None and len(self.activity.looks) > 0

    @functools.cached_property
    def said(self) -> Flags:
        """(K,) whether each step is spoken of."""
        return np.array([step.said is not None for step in self.steps], dtype=bool)

    @functools.cached_property
    def passages(self) -> list[list[Span]]:
        """Where each step is said, K lists, inside the video."""
        return [spoken_passages(step, self.transcript, self.end) for step in self.steps]

    @functools.cached_property
    def weighted_passages(self) -> "list[WeightedPassages]":
        """Where each step may be said, K items: by `sentence_probabilities`, else its passages alike."""
        if self.sentence_probabilities is None or self.transcript is None:
            return [WeightedPassages(spans) for spans in self.passages]
        spans = [sentence.span for sentence in self.transcript.sentences]
        items = []
        for row in self.sentence_probabilities:
            # Sentences that may say the step, as far as they are in the video.
            is_likely = row >= MIN_SENTENCE_PROBABILITY
            likely = [n for n, span in enumerate(spans) if is_likely[n] and span.start < self.end]
            inside = [Span(spans[n].start, min(spans[n].end, self.end)) for n in likely]
            items.append(WeightedPassages(inside, row[likely]))
        return items

    def before(self, second: float) -> "GroundingInputs":
        """Return the inputs with pictures before a second only, and the whole transcript."""
        past = GroundingWindow(Span(0.0, second), (), frozenset())
        return replace(
            self,
            duration=second,
            features=cut_features(self.features, past),
            activity=cut_activity(self.activity, past),
            on_screen=[line for line in self.on_screen if line.span.start < second],
        )

    def cut(self, window: GroundingWindow) -> "GroundingInputs":
        """Return the inputs of one window, in seconds from its start."""
        rows = list(window.steps)

        # what is there of each step
        step_vectors = self.step_vectors
        if step_vectors is not None:
            step_vectors = step_vectors[rows]
        visible = self.visible
        if visible is not None:
            visible = [visible[row] for row in rows]
        sentence_probabilities = self.sentence_probabilities
        if sentence_probabilities is not None and self.transcript is not None:
            sentences = self.transcript.sentences
            is_inside = [item.span.overlap(window.context) > 0 for item in sentences]
            sentence_probabilities = sentence_probabilities[rows][:, is_inside]
        steps, transcript = cut_steps(self.steps, window, self.transcript)
        return replace(
            self,
            steps=steps,
            duration=min(window.context.end, self.duration) - window.context.start,
            transcript=transcript,
            features=cut_features(self.features, window),
            step_vectors=step_vectors,
            activity=cut_activity(self.activity, window),
            visible=visible,
            sentence_probabilities=sentence_probabilities,
        )


@dataclass(frozen=True)
class WeightedPassages:
    """Where a step may be said.

    weights: (P,), P(the passage describes it), of sum 1 or less. None: all alike, of sum 1.
    """

    spans: Sequence[Span]
    weights: Array | None = None


def spoken_passages(step: Step, transcript: Transcript | None, duration: float) -> list[Span]:
    """Return the passages that say the step, inside the video: its sentences where known, else
    `said`."""
    whole = step.said
    if whole is None:
        return []
    # By its sentences, each cut to where the step is said.
    passages = []
    if transcript is not None:
        for index in step.sources:
            span = transcript.sentences[index].span
            if span.overlap(whole) > 0:
                start = max(span.start, whole.start)
                passages.append(Span(start, min(span.end, whole.end)))
    # Without one, all of `said`.
    if not passages:
        passages = [whole]
    # Only what the pictures reach.
    inside = []
    for span in passages:
        if span.start < duration:
            inside.append(Span(span.start, min(span.end, duration)))
    # said after the last frame: the end is nearest
    return inside or [Span(max(0.0, duration - 1), duration)]


@dataclass(frozen=True)
class VideoEvidence:
    """What the whole video shows before any step is placed.

    informative: (T,), 0 in the seconds that can show nothing.
    correspondence_log_odds: that the pictures belong to the speech.
    instruction: log Bayes factor that the speech instructs.
    Both are None where nothing shows it.
    """

    informative: Array
    correspondence_log_odds: float | None
    instruction: float | None

    def cut(self, window: GroundingWindow) -> "VideoEvidence":
        """Return the evidence inside one window."""
        start = int(window.context.start)
        end = int(window.context.end)
        return replace(self, informative=self.informative[start:end])


def video_evidence(inputs: GroundingInputs) -> VideoEvidence:
    """Return the evidence of a whole video that all its windows share."""
    informative = np.ones(inputs.past_seconds)
    if inputs.activity is not None and inputs.has_thumbnails:
        informative = informative_seconds(inputs.activity, len(informative), inputs.on_screen)
    return VideoEvidence(informative, _correspondence_log_odds(inputs), _instruction(inputs))


def _correspondence_log_odds(inputs: GroundingInputs) -> float | None:
    if inputs.features is None and inputs.activity is None:
        return None
    if inputs.transcript is not None:
        sentences = inputs.transcript.sentences
    else:
        # Without a transcript the steps that are said serve as its sentences.
        steps_as_sentences = []
        for step in inputs.steps:
            if step.said is not None:
                steps_as_sentences.append(Sentence(text=step.text, span=step.said))
        sentences = tuple(steps_as_sentences)
    evidence = correspondence(
        sentences,
        inputs.duration,
        cuts=inputs.cuts,
        features=inputs.features,
        sentence_vectors=inputs.sentence_vectors,
        on_screen=inputs.on_screen,
    )
    if not evidence.known:
        return None
    return round(evidence.log_odds(), 3)


def _instruction(inputs: GroundingInputs) -> float | None:
    """Return how much the speech speaks for instructions: by the scorer of its sentences, else by
    how many of them the steps rest on."""
    if not inputs.written:
        return None
    if inputs.instruction is not None:
        return round(inputs.instruction, 3)
    sources = {source for step in inputs.steps for source in step.sources}
    if not (inputs.transcript and sources and inputs.transcript.sentences):
        return None
    sentences = len(inputs.transcript.sentences)
    return round(instruction_log_bayes(len(sources), sentences), 3)
