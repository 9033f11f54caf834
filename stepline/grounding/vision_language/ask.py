"""Questions to a vision-language model about where steps are shown, and the use of its answers.

    inquiry = StepInquiry(...)                beliefs of the grounding: P(step k is shown in segment m)
    while questions are worth asking:         and requests, tokens and seconds are left
        choose_questions(...)                 by the expected gain of their answers
        answers, several at a time            from the cache, else from the server, checked
        infer(...)                            joint inference of the segments of steps and the model's reliability
    update_placements(...)                    if the model is reliable; otherwise nothing changes

Letters: K steps, M segments.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from pydantic import JsonValue

from stepline.grounding.fusion import picture_status, without_place
from stepline.grounding.settings import GroundSettings
from stepline.grounding.vision_language.questions import (
    CHOICE_PROMPT,
    NO_ANSWER,
    Reply,
    VisionRequests,
    tokens_at_most,
)
from stepline.grounding.vision_language.reliability import (
    AnswerInference,
    ChoiceAnswer,
    expected_gain,
    infer,
    most_likely_segments,
)
from stepline.grounding.vision_language.segments import (
    picture_seconds,
    segment_probabilities,
    update_placements,
    video_segments,
)
from stepline.llm import instructs_a_model
from stepline.llm.pictures import PictureReader
from stepline.llm.requests import run_in_threads
from stepline.llm.servers import open_server
from stepline.records import Alignment, Step
from stepline.vision.settings import VisionLanguageSettings

MIN_USEFUL_PROBABILITY = 0.9  # P(the model is useful), from which its answers count
# P(the model is useless), from which it is not asked again, after MIN_QUESTIONS answered questions
MAX_USELESS_PROBABILITY = 0.95
MIN_QUESTIONS = 4
# fraction of common segments, from which a question repeats an earlier one
REPEATED_FRACTION = 0.5


@dataclass(frozen=True)
class GroundedVideo:
    """The grounded steps of a video or of a part of it, and access to its pictures.

    Attributes:
        steps: K grounded steps.
        alignment: (K, T) P(step k is being shown in second t), one column per second.
        shots: slices of whole seconds that cover the video.
        pictures: function that reads JPEGs by their seconds.
        duration: duration in seconds.
        offset: second of the whole video at which the part begins. The report adds it to all times.
    """

    steps: Sequence[Step]
    alignment: Alignment
    shots: Sequence[slice]
    pictures: PictureReader
    duration: float
    offset: float = 0.0


@dataclass(frozen=True)
class Question:
    """A multiple-choice question to a vision-language model: which of several frames shows each of
    some steps?

    Attributes:
        steps: indices of the steps.
        choices: for each frame, the index of the part of the video (segment) that it stands for.
        seconds: for each frame, its second in the video.
        is_repeat: for each step, whether an earlier question about it had mostly the same frames to
            choose from.
    """

    steps: tuple[int, ...]
    choices: tuple[int, ...]
    seconds: tuple[float, ...]
    is_repeat: tuple[bool, ...]


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question to the model, and its replies.

    Attributes:
        question: the question.
        replies: the reply about each step of the question.
    """

    question: Question
    replies: tuple[Reply, ...]

    def by_step(self) -> Iterator[tuple[int, Reply]]:
        """Yield the index of each step of the question, and the reply about it."""
        return zip(self.question.steps, self.replies, strict=True)

    def chosen_second(self, reply: Reply) -> float | None:
        """Return the second of the picture that a reply chooses, None for "none" or no answer."""
        if reply.answer is None:
            return None
        return self.question.seconds[reply.answer]


@dataclass(frozen=True)
class VisualAnswers:
    """The grounding after the answers of a vision-language model.

    Attributes:
        steps: K steps. They are moved only if the answers are reliable.
        alignment: (K, T) P(step k is being shown in second t), changed only if the answers are reliable.
        report: questions, answers and reliability, for the record of the video.
        notes: warnings, such as missing answers or a model that is not reliable.
    """

    steps: tuple[Step, ...]
    alignment: Alignment
    report: dict[str, JsonValue]
    notes: tuple[str, ...] = ()


def ask_about_steps(
    video: GroundedVideo, settings: VisionLanguageSettings, *, ground: GroundSettings | None = None
) -> VisualAnswers:
    """Return the grounding of a video, changed by a vision-language model's answers if it is reliable.

    Args:
        video: grounded steps and pictures.
        settings: settings of the vision-language model and its server.
        ground: settings of grounding, for spans and statuses. None: the defaults.

    Raises WriterError if the server cannot be reached or refuses access, ModelError if a model or library
    is missing.
    """
    inquiry = StepInquiry(video, settings)
    if settings.dry_run:
        report, note = inquiry.dry_run_report()
        return VisualAnswers(tuple(video.steps), video.alignment, report, (note,))
    with closing(open_server(settings)) as opened:
        runner = VisionRequests.start(opened, settings)
        inquiry.ask(runner)
    return inquiry.result(runner, ground or GroundSettings())


class StepInquiry:
    """The questions and answers about the steps of one video, and what is inferred from them.

    Attributes:
        segments: M slices of whole seconds, each shown to the model as one picture.
        prior: (K, M + 1) P(step k is shown in segment m) before any answer. Last column: P(not shown).
        seconds: (K, M) second of the picture of segment m in a question about step k.
        answered: the questions asked so far, with replies.
        pictures: second -> JPEG, for the pictures read so far.
        inference: segments of the steps and reliability of the model, given the answers so far.
    """

    def __init__(self, video: GroundedVideo, settings: VisionLanguageSettings) -> None:
        self.video = video
        self.settings = settings
        self.segments = video_segments(video.shots)
        self.prior = segment_probabilities(
            video.steps, video.alignment, self.segments
        )  # (K, M + 1)
        # second of the picture of each segment, (K, M)
        self.seconds = picture_seconds(video.alignment, self.segments, video.duration)
        self.answered: list[AnsweredQuestion] = []
        self.pictures: dict[float, bytes] = {}  # JPEGs read so far, by their seconds
        self._rng = np.random.default_rng(settings.seed)
        self.inference = self.infer_probabilities()

    def choice_answers(self) -> list[ChoiceAnswer]:
        """Return the answers so far, one per step of each question. Refused replies are left out."""
        return [
            ChoiceAnswer(k, answered.question.choices, reply.answer, is_repeat)
            for answered in self.answered
            for (k, reply), is_repeat in zip(
                answered.by_step(), answered.question.is_repeat, strict=True
            )
            if not reply.refusal
        ]

    def infer_probabilities(self) -> AnswerInference:
        """Return where the steps are shown and how reliable the model is, inferred from the answers
        so far."""
        settings = self.settings
        return infer(self.prior, self.choice_answers(), settings.right, settings.wrong)

    def ask(self, runner: VisionRequests) -> None:
        """Ask the model in rounds, and update the inference after each round.

        It ends at a limit of the settings, when no question has enough expected gain, when a round brings no
        answer, or when the model is useless.
        """
        limits = runner.limits
        workers = runner.server.workers

        def answer(question: Question) -> tuple[Reply, ...]:
            texts = [self.video.steps[k].text for k in question.steps]
            return runner.choose(texts, [self.pictures[second] for second in question.seconds])

        while limits.sent < self.settings.requests:
            # a model that answers almost certainly at random is not asked on
            useless_probability = self.inference.useless_probability
            if (
                len(self.answered) >= MIN_QUESTIONS
                and useless_probability > MAX_USELESS_PROBABILITY
            ):
                break
            # the questions with the greatest gain whose pictures can be read
            count = min(workers, self.settings.requests - limits.sent)
            candidates = self.choose_questions(count)
            seconds = {second for question in candidates for second in question.seconds}
            missing = sorted(seconds - self.pictures.keys())
            if missing:
                self.pictures |= self.video.pictures(missing)
            known = self.pictures.keys()
            questions = [question for question in candidates if known >= set(question.seconds)]
            if not questions:
                break

            # their answers
            replies_of = run_in_threads(answer, questions, workers=workers, until=runner.until)
            refusals = []
            for n, question in enumerate(questions):
                replies = replies_of.get(n, (NO_ANSWER,) * len(question.steps))
                self.answered.append(AnsweredQuestion(question, replies))
                refusals += [reply.refusal for reply in replies]
            self.inference = self.infer_probabilities()
            if all(refusals):
                break

    def choose_questions(self, count: int) -> list[Question]:
        """Return the questions with the greatest expected gain, at most `count`.

        A question is about the step with the greatest gain, and about other steps that gain most from the
        same pictures. Each step is in at most one question. Choices are shuffled. Steps whose text could
        instruct a language model are left out.
        """
        min_gain = self.settings.least_gain
        # steps whose replies were refused are not asked about again
        refused = set()
        for answered in self.answered:
            refused |= {k for k, reply in answered.by_step() if reply.refusal}
        open_steps = [
            k
            for k, step in enumerate(self.video.steps)
            if k not in refused and not instructs_a_model(step.text)
        ]
        questions: list[Question] = []
        while open_steps and len(questions) < count:
            # the step with the greatest gain, for its own most likely segments
            choices_of = {
                k: most_likely_segments(self.inference.segments[k], self.settings.choices)
                for k in open_steps
            }
            gains = {k: self._gain(k, choices_of[k]) for k in open_steps}
            first = max(open_steps, key=lambda k: gains[k])
            if gains[first] <= min_gain:
                break

            # and the other steps that gain most from these segments
            choices = choices_of[first]
            gains = {k: self._gain(k, choices) for k in open_steps if k != first}
            best = sorted(gains, key=lambda k: -gains[k])[: self.settings.steps - 1]
            rows = (first, *(k for k in best if gains[k] > min_gain))
            shuffled = tuple(int(segment) for segment in self._rng.permutation(choices))
            seconds = tuple(float(self.seconds[first, segment]) for segment in shuffled)
            is_repeat = tuple(self._was_asked(k, choices) for k in rows)
            questions.append(Question(rows, shuffled, seconds, is_repeat))
            open_steps = [k for k in open_steps if k not in rows]
        return questions

    def _gain(self, k: int, choices: Sequence[int]) -> float:
        """Return the expected gain of a question about one step, as a rise of probability.

        It is the greater of two gains: under the mean of the inference, and under the hypothesis that is most
        adverse to a move of the step.

        Args:
            k: index of the step.
            choices: indices of the segments in the question.
        """
        is_repeat = self._was_asked(k, choices)
        mean = self.inference.mean_reliability
        gain = expected_gain(self.inference.segments[k], choices, mean, is_repeat=is_repeat)
        adverse_gain = expected_gain(self.inference.adverse[k], choices, mean, is_repeat=is_repeat)
        return max(gain, adverse_gain)

    def _was_asked(self, k: int, choices: Sequence[int]) -> bool:
        """Return whether an earlier question about a step had mostly the same segments.

        Args:
            k: index of the step.
            choices: indices of the segments in the new question.
        """
        limit = REPEATED_FRACTION * len(choices)
        return any(
            k in answered.question.steps
            and len(set(answered.question.choices) & set(choices)) > limit
            for answered in self.answered
        )

    def result(self, runner: VisionRequests, ground: GroundSettings) -> VisualAnswers:
        """Return the grounding after the answers, with report and notes.

        Args:
            runner: the requests, for the numbers in the report.
            ground: settings of grounding, for spans and statuses.
        """
        video = self.video
        is_trusted = 1 - self.inference.useless_probability >= MIN_USEFUL_PROBABILITY
        report = self.report(runner, is_trusted=is_trusted)
        notes = self._warning_notes(is_trusted=is_trusted)
        if not is_trusted:
            return VisualAnswers(tuple(video.steps), video.alignment, report, notes)

        # the second of a segment is that of the picture in which the model saw the step
        seconds = self.seconds.copy()
        for answered in self.answered:
            question = answered.question
            for k, reply in answered.by_step():
                if reply.answer is not None:
                    segment = question.choices[reply.answer]
                    seconds[k, segment] = question.seconds[reply.answer]
        moved, alignment = update_placements(
            video.steps,
            video.alignment,
            video.shots,
            seconds,
            self.prior,
            self.inference.agreed,
            duration=video.duration,
            settings=ground,
        )
        return VisualAnswers(self._with_answers(moved), alignment, report, notes)

    def _with_answers(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Return the steps with the answers of the model added to `seen`, and with their status.

        A step is seen only if the model saw it in its best span, and nothing speaks against it.
        """
        steps = list(steps)
        seen_in_span = set()  # indices of steps
        for answered in self.answered:
            for k, reply in answered.by_step():
                if reply.refusal:
                    continue
                second = answered.chosen_second(reply)
                if second is None:
                    count = len(answered.question.choices)
                    remark = f"against: a vision-language model sees it in none of {count} places"
                else:
                    if any(second in span for span in steps[k].spans[:1]):
                        seen_in_span.add(k)
                    at = self.video.offset + second
                    remark = f"for: a vision-language model sees it at {at:.1f} s"
                remarks = dict.fromkeys((*steps[k].seen, remark))
                steps[k] = steps[k].model_copy(update={"seen": tuple(remarks)})
        for k, (step, before) in enumerate(zip(steps, self.video.steps, strict=True)):
            status = picture_status("vlm", step.doubt)
            if k not in seen_in_span:
                if step.basis != "vlm":
                    continue
                # changed without a picture of it there: other pictures count where it has not moved
                basis = before.basis if step.at == before.at else None
                if basis is None and step.said is None:
                    steps[k] = without_place(step, step.score or 0.0)
                    continue
                status = picture_status(basis, before.doubt)
            steps[k] = step.model_copy(update=status)
        return tuple(steps)

    def _warning_notes(self, *, is_trusted: bool) -> tuple[str, ...]:
        """Return warnings about missing answers and about a model that is not reliable."""
        replies = [reply for answered in self.answered for reply in answered.replies]
        refusals = [reply.refusal for reply in replies if reply.refusal]
        notes = []
        if refusals:
            notes.append(
                f"provisional: the vision-language model has not answered on {len(refusals)} of "
                f"{len(replies)} steps asked about ({refusals[0]})"
            )
        if len(refusals) < len(replies) and not is_trusted:
            low, high = self.inference.interval()
            notes.append(
                "the vision-language model's answers fit this video too little to be believed"
                f" (its reliability is {low:.2f} to {high:.2f})"
            )
        return tuple(notes)

    def report(self, runner: VisionRequests, *, is_trusted: bool) -> dict[str, JsonValue]:
        """Return the report for the record: server, requests, tokens, reliability and questions.

        Args:
            runner: the requests, with their numbers.
            is_trusted: whether the model is reliable enough to move steps.
        """
        low, high = self.inference.interval()
        questions: list[JsonValue] = []
        for answered in self.answered:
            seconds: list[JsonValue] = []
            for reply in answered.replies:
                second = answered.chosen_second(reply)
                seconds.append(None if second is None else self.video.offset + second)
            question = self._question_report(answered.question)
            question["answers"] = seconds
            question["refused"] = [reply.refusal or None for reply in answered.replies]
            questions.append(question)
        return {
            "server": runner.server.name,
            "requests": runner.limits.sent,
            "tokens": runner.limits.used,
            "reliability": [round(self.inference.mean_reliability, 3), low, high],
            "trusted": is_trusted,
            "questions": questions,
        }

    def _question_report(self, question: Question) -> dict[str, JsonValue]:
        return {
            "steps": [self.video.steps[k].id for k in question.steps],
            "pictures": [self.video.offset + second for second in question.seconds],
        }

    def dry_run_report(self) -> tuple[dict[str, JsonValue], str]:
        """Return the report and the note of a dry run: the first questions, and the limits."""
        settings = self.settings
        planned = self.choose_questions(settings.requests)
        tokens = 0  # of the longest question
        for question in planned:
            texts = [CHOICE_PROMPT, *(self.video.steps[k].text for k in question.steps)]
            tokens = max(tokens, tokens_at_most(texts, len(question.choices), settings))
        most = min(settings.tokens, tokens * settings.requests)
        limits = f"at most {settings.requests} requests, {most} tokens and {settings.deadline:g} s"
        first = f"first on {len(planned)} sets of pictures"
        report: dict[str, JsonValue] = {
            "dry_run": True,
            "questions": [self._question_report(question) for question in planned],
            "requests": settings.requests,
            "tokens": most,
            "seconds": settings.deadline,
        }
        return report, f"dry run: a vision-language model would be asked {limits}; {first}"
