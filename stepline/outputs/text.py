"""Helpers of all outputs: texts and times as people read them, safe file names, the shown span."""

import hashlib
import re
import unicodedata

from stepline.records import Amount, Material, Record, Span, Step

ELLIPSIS_MARK = "…"
WARNING_MARK = "[warning] "  # before what is not to be done
# before words that say it themselves: "[warning] don't"
SPARE_MARK_PATTERN = re.compile(
    rf"^{re.escape(WARNING_MARK)}(?=(do not|don['’]t|never|avoid)\b)", re.IGNORECASE
)
# letters and digits of any script. No separators, no hidden files
SAFE_STEM_PATTERN = re.compile(r"[\w-][\w.-]*")
# bytes, which leaves room for the longest suffix under the 255 that file systems allow
MAX_STEM_BYTES = 120
DIGEST_MARK = (
    "~"  # not in SAFE_STEM_PATTERN: a name with a digest can never be some other id's plain name
)
DIGEST_HEX_DIGITS = 10  # hex digits of the id's sha256


def one_line(text: str) -> str:
    """Return the text on one line: white space becomes single spaces, control characters go."""
    letters = (x for x in text if x.isspace() or unicodedata.category(x) != "Cc")
    return " ".join("".join(letters).split())


def sentence_case(text: str) -> str:
    """Return the text with its first letter in upper case, as a title has it."""
    return text[:1].upper() + text[1:]


def step_line(step: Step) -> str:
    """Return a step's text on one line, in sentence case. A warning has a mark before it."""
    text = sentence_case(one_line(step.text))
    return WARNING_MARK + text if step.kind == "avoid" and text else text


def published_line(step: Step) -> str:
    """Return `step_line`, without the mark where the words of a warning say "don't" themselves."""
    return SPARE_MARK_PATTERN.sub("", step_line(step))


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, with an ellipsis if it is cut.

    It is cut after a word if one ends in the last third.
    """
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    if space > limit * 2 // 3:
        head = head[:space]
    return head.rstrip(" ,;:") + ELLIPSIS_MARK


def clock(seconds: float) -> str:
    """Return whole seconds, rounded down, as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def percent_text(probability: float) -> str:
    """Return a probability in whole per cent, "<1" if it would round to 0."""
    return "<1" if 0.0 < probability < 0.005 else f"{probability * 100:.0f}"


def safe_stem(name: str) -> str:
    """Return a file name for a record's id: the id itself if it is safe as one.

    Otherwise the name is the safe characters of the id, `~` and a digest of the id.
    """
    # Some file systems return a name in another form than it was given.
    normal_name = unicodedata.normalize("NFC", name)
    if (
        SAFE_STEM_PATTERN.fullmatch(name)
        and normal_name == name
        and len(name.encode()) <= MAX_STEM_BYTES
    ):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:DIGEST_HEX_DIGITS]
    safe = re.sub(r"[^\w.-]+", "-", normal_name).strip("-.")
    room = MAX_STEM_BYTES - len(DIGEST_MARK) - DIGEST_HEX_DIGITS
    # a letter that is cut in two is left out
    return safe.encode()[:room].decode(errors="ignore") + DIGEST_MARK + digest


def shown_span(step: Step) -> Span | None:
    """Return the best span of a step that is seen, placed or not judged, else None."""
    if step.spans and step.status in (None, "seen", "placed"):
        return step.spans[0]
    return None


def picture_seconds(record: Record) -> dict[str, float]:
    """Return step id -> the second of the video that the step's picture shows, of every seen, placed
    or unjudged step with a span.

    It is the step's most likely second, else the middle of its span. A clicked step has the second
    before the click. Steps with the same second and span have different seconds, spread evenly over
    the span.
    """
    ids_by_span: dict[tuple[float, Span], list[str]] = {}
    for step in record.steps:
        span = shown_span(step)
        if span is not None:
            second = span.center if step.at is None else step.at
            ids_by_span.setdefault((second, span), []).append(step.id)
    seconds: dict[str, float] = {}
    for (second, span), ids in ids_by_span.items():
        # at most one picture per second
        count = min(len(ids), max(1, int(span.duration)))
        for number, id in enumerate(ids):
            part = number * count // len(ids) + 0.5
            spread = round(span.start + part / count * span.duration, 1)
            seconds[id] = second if count == 1 else spread
    clicks = {step.id: step.target.at for step in record.steps if step.target is not None}
    return seconds | {id: at for id, at in clicks.items() if id in seconds}


def title(record: Record) -> str:
    """Return a video's title, else its task, else its id."""
    video = record.video
    return one_line(video.title or video.task or "") or video.id


def amount_text(amount: Amount) -> str:
    """Return an amount as people write it: "1.5 cup", "2-3 clove", "2", "2 x 14 oz can"."""
    number = f"{round(amount.low, 2):g}"
    if amount.high > amount.low:
        number += f"-{round(amount.high, 2):g}"
    unit = amount.unit or ""
    if not unit[:1].isdigit():
        return f"{number} {unit}".strip()
    return unit if number == "1" else f"{number} x {unit}"


def material_text(material: Material) -> str:
    """Return a material with its amounts: "1.5 cup flour", "2 tbsp + 1 cup milk"."""
    amounts = " + ".join(map(amount_text, material.amounts))
    return f"{amounts} {one_line(material.name)}".strip()


def seconds_text(low: float, high: float | None) -> str:
    """Return a time or a range of it as people write it: "45 s", "8-10 min", "1 h 30 min", "2 days".

    high: the greatest, None for "at least 10 min".
    """
    if high is None:
        return f"at least {_duration_text(low)}"
    if low == high:
        return _duration_text(low)
    first, last = _duration_text(low), _duration_text(high)
    count, *unit = first.split()
    is_same = len(unit) == 1 and unit == last.split()[1:]
    return f"{count if is_same else first}-{last}"


def _duration_text(seconds: float) -> str:
    """Return seconds in one or two units, the greatest first."""
    total = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if total >= size:
            rest = total % size // smaller
            return f"{total // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{total} s"


def step_lengths(step: Step) -> str:
    """Return how long a step is in the film, and how long it lets a thing wait: "15 s + 8-10 min
    wait (the cookies)". "" without either.

    The film's is the difference of both times in whole seconds, as people read them, 1 s at least.
    """
    span = shown_span(step)
    parts = [] if span is None else [_duration_text(max(1, int(span.end) - int(span.start)))]
    wait = step.wait
    if wait is not None:
        thing = f" ({one_line(wait.what)})" if wait.what not in (None, "", "it", "them") else ""
        parts.append(f"{seconds_text(wait.low, wait.high)} wait{thing}")
    return " + ".join(parts)


def total_times(record: Record) -> str:
    """Return how long the steps are in the film, and the waits they state, "" without either."""
    parts = []
    film = end = 0.0
    for span in sorted(filter(None, map(shown_span, record.steps)), key=lambda span: span.start):
        film += max(0.0, span.end - max(span.start, end))
        end = max(end, span.end)
    if film:
        parts.append(f"{seconds_text(film, film)} of film")
    waits = [step.wait for step in record.steps if step.wait is not None]
    if waits:
        longest = [wait.high for wait in waits if wait.high is not None]
        high = sum(longest) if len(longest) == len(waits) else None
        parts.append(f"{seconds_text(sum(wait.low for wait in waits), high)} of waiting")
    return " and ".join(parts)


def needed_things(record: Record) -> list[tuple[str, tuple[Material, ...]]]:
    """Return the headings "Materials" and "Tools" with their items, without empty ones."""
    headings = [("Materials", record.materials), ("Tools", record.tools)]
    return [(heading, things) for heading, things in headings if things]


def from_pictures(record: Record) -> bool:
    """Whether a network described all steps from the pictures. Scores are then not calibrated."""
    if not record.models.get("describer") or record.captions:
        return False
    return not any(step.said is not None or step.sources for step in record.steps)


def evidence_text(record: Record) -> str:
    """Return what the steps were made from, such as "12 sentences"."""
    count = len(record.sentences)
    speech = f"{count} sentence{'' if count == 1 else 's'}"
    if not from_pictures(record):
        return speech
    if not count:
        return "the pictures"
    return f"the pictures and {speech}"


def no_step_text(record: Record) -> str:
    """Return in what no step was found, such as "no step found in 12 sentences"."""
    return f"no step found in {evidence_text(record)}"


def no_steps_reason(record: Record) -> str | None:
    """Return why a record has no steps: its first warning, or else `no_step_text`. None if it has
    steps."""
    return None if record.steps else next(iter(record.warnings), no_step_text(record))
