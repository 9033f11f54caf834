"""Every place of a video is described once, for all steps, before questions are asked.

What is most like a step's words counts as an answer on it.
Measured (docs/results/vlm.md): requests for descriptions are worth less than requests for questions.

Letters: K steps, P places.
"""

import math
from collections.abc import Sequence
from contextlib import closing

from pydantic import JsonValue

from stepline.grounding.settings import GroundSettings
from stepline.grounding.vision_language.ask import GroundedVideo, StepInquiry, VisualAnswers
from stepline.grounding.vision_language.places import last_picture_second
from stepline.grounding.vision_language.reliability import Ballot
from stepline.grounding.vision_language.runner import QuestionRunner
from stepline.llm.servers import Server, open_server
from stepline.text import embed
from stepline.vision.settings import VisionLanguageSettings

# cosine of MiniLM from which a description counts for a step. Only the most alike one counts
MIN_COSINE = 0.5


def ask_after_descriptions(
    video: GroundedVideo, settings: VisionLanguageSettings, *, server: Server | None = None
) -> VisualAnswers:
    """Return what `ask_about_steps` does, with the places described first."""
    inquiry = DescribedInquiry(video, settings)
    with closing(server or open_server(settings)) as opened:
        runner = QuestionRunner.begin(opened, settings)
        inquiry.describe_places(runner)
        inquiry.ask_while_worth_it(runner)
    return inquiry.result(runner, GroundSettings())


class DescribedInquiry(StepInquiry):
    """An inquiry that begins with what descriptions answer."""

    descriptions: Sequence[tuple[float, str]] = ()  # second of a place's picture, words for it
    described: Sequence[Ballot] = ()

    def ballots(self) -> list[Ballot]:
        """Return the answers by descriptions, then those to questions."""
        return [*self.described, *super().ballots()]

    def describe_places(self, runner: QuestionRunner) -> None:
        """Ask for descriptions of the places. Not where that takes more than half of the requests.

        A description that is the most similar to a step's words counts as an answer on it. Where
        none is like them nothing is answered, for words may differ for the same thing.
        """
        settings = self.settings
        requests = math.ceil(len(self.places) / settings.choices)
        if requests > settings.requests // 2:
            return

        # one picture from the middle of each place
        last = last_picture_second(self.video.duration)
        middles = [min((place.start + place.stop) // 2 + 0.5, last) for place in self.places]
        self.read_pictures(set(middles))
        rows = [row for row, second in enumerate(middles) if second in self.pictures]
        replies = runner.describe([self.pictures[middles[row]] for row in rows])
        descriptions = []
        texts = {}
        for row, reply in zip(rows, replies, strict=True):
            descriptions.append((middles[row], reply.after))
            if reply.after:
                texts[row] = reply.after
        self.descriptions = descriptions
        if not texts:
            return

        # the place whose description is the most like a step
        steps = embed([step.text for step in self.video.steps])
        cosines = steps @ embed(list(texts.values())).T  # (K, described places)
        ballots = []
        for step, row_cosines in enumerate(cosines):
            if row_cosines.max() >= MIN_COSINE:
                ballots.append(Ballot(step, tuple(texts), int(row_cosines.argmax())))
        self.described = ballots
        self.beliefs = self.infer_beliefs()

    def report(self, runner: QuestionRunner, *, is_trusted: bool) -> dict[str, JsonValue]:
        """Return what the record says, with the descriptions."""
        report = super().report(runner, is_trusted=is_trusted)
        if self.descriptions:
            start = self.video.start
            report["descriptions"] = {
                "pictures": [start + second for second, _ in self.descriptions],
                "words": [text for _, text in self.descriptions],
            }
        return report
