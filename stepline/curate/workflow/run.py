"""A workflow from its videos to a published data set: every stage in its order, each with a line.

    forecast    what the run will take, from a sample
    curate      the recipe over all videos (stepline.curate.driver)
    review      clips to watch, the least sure first; it ends here until people have answered
    agreement   how well they agree
    amounts     which networks the reviewed data carry
    train       the networks that are asked for; the aligner's own places of held-out steps join the queue
    measure     each network on held-out videos, against what needs no training
    publish     data set, card, licence, splits, and the aligner where it is better

Everything is found again in OUT by what it was made of. So the same call goes on where an earlier
one ended, however that ended:

    OUT/workflow/clips.json, answers.jsonl      what people are asked, and what they answered
    OUT/workflow/records/                       the reviewed records, to train on and held out
    OUT/workflow/NETWORK-*/                     the runs of networks
    OUT/workflow.html                           all numbers, and pictures
    OUT/published/                              what is published
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepline.annotate import AnnotationQueue, AnswerLog, write_clips
from stepline.curate.driver import RunRequest
from stepline.curate.export.card import ReviewFacts
from stepline.curate.forecast.dry_run import format_seconds
from stepline.curate.stages.cache_keys import text_source
from stepline.curate.workflow.amounts import NetworkName, Recommendation, recommend
from stepline.curate.workflow.curation import Curation, curate_videos, forecast_run
from stepline.curate.workflow.measure import (
    Measure,
    SplitForTest,
    place_by_aligner,
    unanswered_places,
)
from stepline.curate.workflow.networks import TrainingData, train_network
from stepline.curate.workflow.page import WORKFLOW_PAGE, WorkflowFindings, write_page
from stepline.curate.workflow.publication import publish_aligner, publish_reviewed
from stepline.curate.workflow.queue import (
    ReviewPlace,
    annotation_clips,
    review_queue,
    split_for_test,
)
from stepline.curate.workflow.review import Review, read_review, reviewed_record
from stepline.curate.workflow.settings import WorkflowRecipe
from stepline.errors import DatasetError, ShapeError
from stepline.files.storage import write_parquet
from stepline.records import Record, Step

WORKFLOW_FOLDER = "workflow"  # below OUT
CLIPS_FILE = "clips.json"
ANSWERS_FILE = "answers.jsonl"
RECORDS_FOLDER = "records"
ANSWER_SECONDS = 10.0  # that a person needs for a clip: 3 to 8 s to watch it, and the answer


@dataclass(frozen=True)
class StageLine:
    """What a stage has come to, and what a person does next. "" where nothing is to be done."""

    stage: str
    text: str
    todo: str = ""

    def __str__(self) -> str:
        """Return it as one line."""
        line = f"{self.stage}: {self.text}"
        if self.todo:
            line += f"; next: {self.todo}"
        return line


@dataclass(frozen=True)
class WorkflowRequest:
    """What a workflow is asked for. run: the curation, whose recipe is that of `recipe`.

    networks: to train (`None`: those that the data carry).
    partly: go on with the answers so far.
    only_forecast: end before any other work.
    options: of the command line, besides source and OUT, that what is to be done next repeats.
    report: is called with each line as it is known.
    """

    run: RunRequest
    recipe: WorkflowRecipe
    networks: tuple[NetworkName, ...] | None = ()
    partly: bool = False
    only_forecast: bool = False
    options: tuple[str, ...] = ()
    report: Callable[[StageLine], None] = field(default=lambda line: None)  # noqa: ARG005

    @property
    def home(self) -> Path:
        """The folder of the workflow's own files."""
        return Path(self.run.out) / WORKFLOW_FOLDER

    def command(self, *options: str) -> str:
        """Return how the workflow is called again, with further options."""
        words = ["stepline", "curate", "workflow", self.run.source, "--out", self.run.out]
        return shlex.join([*words, *self.options, *options])


@dataclass(frozen=True)
class WorkflowOutcome:
    """What a workflow has come to. open_clips: that wait for an answer before it goes on.
    published: the folder, None until then."""

    lines: tuple[StageLine, ...]
    open_clips: int = 0
    published: Path | None = None
    measures: tuple[Measure, ...] = ()
    recommendations: tuple[Recommendation, ...] = ()


def run_workflow(request: WorkflowRequest) -> WorkflowOutcome:
    """Take a workflow as far as it goes without people, and return what came of it.

    Raises a SteplineError in one line for what ends it. What was finished is kept.
    """
    return _Workflow(request).go_on()


def annotation_queue(request: WorkflowRequest) -> AnnotationQueue:
    """Return the clips that a workflow asks about now, with the answers so far."""
    from stepline.annotate import read_clips

    clips = read_clips(request.home / CLIPS_FILE)
    answers = AnswerLog(request.home / ANSWERS_FILE)
    return AnnotationQueue(clips, answers, annotators=request.recipe.workflow.people)


class _Workflow:
    """A workflow under way. lines: what its stages have come to."""

    def __init__(self, request: WorkflowRequest) -> None:
        self.request = request
        self.home = request.home
        self.settings = request.recipe.workflow
        self.lines: list[StageLine] = []

    def _say(self, stage: str, text: str, todo: str = "") -> None:
        line = StageLine(stage, text, todo)
        self.lines.append(line)
        self.request.report(line)

    def go_on(self) -> WorkflowOutcome:
        """Go through the stages up to the first that waits for people."""
        # Forecast, curation and review: what people have to see first.
        request = self.request
        forecast = forecast_run(request.run, self.home)
        if request.only_forecast:
            self._say("forecast", str(forecast), request.command())
            return WorkflowOutcome(tuple(self.lines))
        self._say("forecast", str(forecast))
        curation = curate_videos(request.run)
        self._say("curate", f"{curation}; {curation.out / 'report.html'} shows them")
        held_out = self._held_out(curation)
        places = self._places(curation, held_out)
        review = self._review(curation, places)
        if not self._is_reviewed(review, "review"):
            return WorkflowOutcome(tuple(self.lines), len(review.open_places))
        self._say_agreement(review)

        # Networks, and what people say of the aligner's places.
        data = self._write_records(curation, review, held_out)
        recommendations = self._recommend(review, held_out)
        runs = self._train(data, recommendations)
        test = [record for record in curation.records if record.id in held_out]
        placements = self._placed_by_aligner(runs, test, curation)
        extra = unanswered_places(test, placements, places)
        if extra:
            review = self._review(curation, [*places, *extra])
            if not self._is_reviewed(review, "measure"):
                return WorkflowOutcome(tuple(self.lines), len(review.open_places))
            self._say_agreement(review)

        # What they are worth, and what is published.
        videos = SplitForTest(test, curation, review, self.settings.seed)
        measures = []
        for network, run in runs.items():
            measures.append(videos.measure(network, run, placements))
        for measure in measures:
            self._say("measure", str(measure))
        findings = WorkflowFindings(
            forecast, curation, review, held_out, tuple(recommendations), tuple(measures)
        )
        published = self._publish(findings, runs)
        lines = [str(line) for line in self.lines]
        write_page(findings, lines, request.recipe.report)
        self._say("report", f"{curation.out / WORKFLOW_PAGE} has the numbers and pictures")
        return WorkflowOutcome(
            lines=tuple(self.lines),
            published=published,
            measures=tuple(measures),
            recommendations=tuple(recommendations),
        )

    def _held_out(self, curation: Curation) -> frozenset[str]:
        """Return the videos that no network is trained on, of those that people can watch."""
        # Only what can be watched can be measured by what people say.
        media = curation.media
        ids = []
        for record in curation.records:
            if record.id in media and record.steps:
                ids.append(record.id)
        return split_for_test(ids, self.settings.held_out, self.settings.seed)

    def _places(self, curation: Curation, held_out: frozenset[str]) -> list[ReviewPlace]:
        """Return the places that people are asked about, the least sure first.

        Raises DatasetError where there is nothing to ask.
        """
        media = curation.media
        records = [record for record in curation.records if record.id in media]
        places = review_queue(records, held_out, self.settings.clips)
        if not places:
            what = f"{curation.out}: no step of a video that is on this machine to review"
            raise DatasetError(f"{what}; {curation.out / 'report.html'} shows what was left out")
        return places

    def _review(self, curation: Curation, places: Sequence[ReviewPlace]) -> Review:
        """Write the queue, and return what people have said of it."""
        clips = annotation_clips(places, curation.media, curation.durations)
        write_clips(clips, self.home / CLIPS_FILE)
        answers = AnswerLog(self.home / ANSWERS_FILE)
        return read_review(places, answers, self.settings.people)

    def _is_reviewed(self, review: Review, stage: str) -> bool:
        """Say how far the review is, and return whether the workflow goes on."""
        count = len(review.open_places)
        answered = f"{review.answered:,} of {len(review.places):,} clips answered"
        if not count:
            self._say(stage, f"{answered}, {review.shown:,} of them show their step")
            return True
        if self.request.partly:
            self._say(stage, f"{answered}; the others count as not answered")
            return True
        if stage == "measure":
            answered = f"the aligner places {count:,} held-out steps in clips that no one has seen"
        time = format_seconds(count * ANSWER_SECONDS)
        todo = self.request.command("--review")
        self._say(stage, f"{answered}, {time} for a person", todo)
        return False

    def _say_agreement(self, review: Review) -> None:
        people = ", ".join(review.people)
        agreement = review.agreement
        if not agreement.complete:
            text = f"not known: no clip has {self.settings.people} answers"
            self._say("agreement", f"{text}; {people or 'nobody'} answered")
            return
        kappa = "not defined"
        if agreement.kappa is not None:
            kappa = f"{agreement.kappa:.2f}"
        clips = f"over {agreement.complete:,} clips by {people}"
        self._say("agreement", f"Fleiss' kappa {kappa} {clips}")

    def _write_records(
        self, curation: Curation, review: Review, held_out: frozenset[str]
    ) -> TrainingData:
        """Write the reviewed records of both splits."""
        # Train and test are written apart, so that no training reads the other file.
        folder = self.home / RECORDS_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        train = []
        test = []
        for record in curation.records:
            reviewed = reviewed_record(record, review)
            if record.id in held_out:
                test.append(reviewed)
            else:
                train.append(reviewed)
        write_parquet(train, folder / "train.parquet")
        write_parquet(test, folder / "test.parquet")
        return TrainingData(
            folder / "train.parquet", curation.folder / "features", self.request.recipe
        )

    def _recommend(self, review: Review, held_out: frozenset[str]) -> list[Recommendation]:
        """Say which networks the confirmed steps carry that are not held out."""
        # Confirmed steps of videos to train on, each once.
        steps = set()
        videos = set()
        for place in review.places:
            if review.verdicts.get(place.id) is True and place.video not in held_out:
                steps.add((place.video, place.step))
                videos.add(place.video)
        recommendations = recommend(len(videos), len(steps))
        for recommendation in recommendations:
            self._say("amounts", str(recommendation))
        return recommendations

    def _train(
        self, data: TrainingData, recommendations: Sequence[Recommendation]
    ) -> dict[NetworkName, Path]:
        """Train what is asked for, and return the run of each network. One that cannot be trained
        is reported."""
        # None: whatever the data carry.
        networks = self.request.networks
        if networks is None:
            enough = [advice for advice in recommendations if advice.is_enough]
            networks = tuple(advice.network for advice in enough)
        if not networks:
            todo = self.request.command("--train", "nasva")
            self._say("train", f"nothing asked for; {todo} still trains it")
        runs: dict[NetworkName, Path] = {}
        for network in networks:
            folder = data.folder(network, self.home)
            try:
                train_network(network, data, folder)
            except (DatasetError, ShapeError) as error:
                self._say("train", f"{network} cannot be trained: {error}")
                continue
            runs[network] = folder
            self._say("train", f"{network} is in {folder}")
        return runs

    def _placed_by_aligner(
        self, runs: Mapping[NetworkName, Path], test: Sequence[Record], curation: Curation
    ) -> dict[str, tuple[Step, ...]]:
        """Return the held-out steps where the aligner has them, or none where none was trained."""
        if "nasva" not in runs or curation.features is None:
            return {}
        encoder = text_source(self.request.recipe)
        return place_by_aligner(test, runs["nasva"], curation.features, encoder)

    def _publish(self, findings: WorkflowFindings, runs: Mapping[NetworkName, Path]) -> Path:
        """Publish the reviewed data set, and the aligner where it is better. Return the folder."""
        recipe = self.request.recipe
        review = findings.review
        # The card has the recommendations and the measures, word for word.
        lines = list(map(str, findings.recommendations))
        lines += map(str, findings.measures)
        records = [reviewed_record(record, review) for record in findings.curation.records]
        # What the card says of the review.
        facts = ReviewFacts(
            videos=len(records) - len(findings.held_out),
            held_out=len(findings.held_out),
            clips=len(review.places),
            answered=review.answered,
            shown=review.shown,
            people=len(review.people),
            kappa=review.agreement.kappa,
            networks=tuple(lines),
        )
        published = publish_reviewed(
            findings.curation,
            records,
            facts,
            held_out=findings.held_out,
            stages=recipe.stages,
            settings=recipe.export,
            home=self.home,
        )
        # The aligner goes along where it is better.
        run = None
        for measure in findings.measures:
            if measure.network == "nasva" and measure.is_better:
                run = runs["nasva"]
        aligner = publish_aligner(run, published)
        licence = f"licence {recipe.export.licence}"
        if recipe.export.licence == "other":
            licence = "no licence is stated, --licence NAME states one"
        splits = f"{facts.videos:,} videos to train on, {facts.held_out:,} held out"
        todo = ""
        if aligner is not None:
            todo = f"stepline steps VIDEO --aligner {aligner}"
        self._say("publish", f"{published}: {splits}; {licence}", todo)
        return published
