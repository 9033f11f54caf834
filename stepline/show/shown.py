"""Which span of a step the outputs show, and what its score means."""

from stepline.records import Record, Span, Step


def shown_span(step: Step) -> Span | None:
    """Return the best span of a step that is shown; None for one that is not, whatever candidates it carries."""
    return step.spans[0] if step.spans and step.status in (None, "shown") else None


def from_pictures(record: Record) -> bool:
    """Tell whether a network told the steps from the pictures: then a score is its confidence, not calibrated."""
    told = bool(record.models.get("describer")) and not record.captions
    return told and not any(step.said is not None or step.sources for step in record.steps)
