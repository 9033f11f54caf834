"""How often a vision-language model was right in videos that people corrected: the prior of how
reliable it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepline.errors import SettingsError
from stepline.files.storage import read_record
from stepline.records import Record, Step
from stepline.vision.settings import VisionLanguageSettings

SLACK_SECONDS = 1.0  # by which the spans that people set may miss what they show


@dataclass(frozen=True)
class AnswerCounts:
    """Answers that were right, and wrong, by what people say of the same steps."""

    right: int = 0
    wrong: int = 0

    def __add__(self, other: "AnswerCounts") -> "AnswerCounts":
        return AnswerCounts(self.right + other.right, self.wrong + other.wrong)


def count_answers(machine: Record, corrected: Record) -> AnswerCounts:
    """Return how many answers of the model were right in a video.

    machine: the record that Stepline wrote, with what was asked in `models["witness"]`
    corrected: the same as people left it

    An answer is right where its picture is in a span of the corrected step. The answer "none" is
    right where no picture that was offered is. Steps that people deleted, and refused replies,
    count on neither side.
    """
    report = machine.models.get("witness")
    if not isinstance(report, dict):
        return AnswerCounts()
    steps = {step.id: step for step in corrected.steps}
    counts = AnswerCounts()
    for question in _items(report, "questions"):
        if not isinstance(question, dict) or "answers" not in question:
            continue
        pictures = [at for at in _items(question, "pictures") if isinstance(at, int | float)]
        columns = [_items(question, name) for name in ("steps", "answers", "refused")]
        # Steps, answers and refusals are columns of one table.
        for id, answer, refusal in zip(*columns, strict=False):
            step = steps.get(str(id))
            if step is None or refusal:
                continue
            if isinstance(answer, int | float):
                is_right = _shows(step, answer)
            else:
                is_right = not any(_shows(step, second) for second in pictures)
            counts += AnswerCounts(int(is_right), int(not is_right))
    return counts


def with_counted_answers(settings: VisionLanguageSettings) -> VisionLanguageSettings:
    """Return the settings with the answers counted in corrected records added to `right` and
    `wrong`.

    `machine` and `corrected` name folders of records, those of one name being of one video. Both
    are None in what is returned, so that a record holds the counts and no path. Raises
    SettingsError where one folder is missing or both have no record in common. Raises StoreError
    for a file that is not a record.
    """
    machine = settings.machine
    corrected = settings.corrected
    if machine is None and corrected is None:
        return settings
    if machine is None or corrected is None:
        raise SettingsError(
            "vision.witness.machine and vision.witness.corrected go together; name both folders"
        )
    # Records of one video have the same name in both folders.
    names = []
    for path in sorted(machine.glob("*.json")):
        if (corrected / path.name).exists():
            names.append(path.name)
    if not names:
        reason = f"holds no record of a name that {machine} has"
        raise SettingsError(f"{corrected}: {reason}; name folders of one library")
    counts = AnswerCounts()
    for name in names:
        asked_record = read_record(machine / name)
        corrected_record = read_record(corrected / name)
        counts += count_answers(asked_record, corrected_record)
    changes = {
        "machine": None,
        "corrected": None,
        "right": settings.right + counts.right,
        "wrong": settings.wrong + counts.wrong,
    }
    return settings.model_copy(update=changes)


def _shows(step: Step, second: float) -> bool:
    return any(span.gap(second) <= SLACK_SECONDS for span in step.spans)


def _items(question: Mapping[str, object], name: str) -> Sequence[object]:
    items = question.get(name)
    if isinstance(items, list):
        return items
    return ()
